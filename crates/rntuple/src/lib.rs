//! Reads and writes ROOT files that hold RNTuple data (format 1.0), in Rust alone.

mod array;
mod column;
mod compression;
mod encoding;
mod error;
mod page;
mod schema;
mod source;
mod types;

pub use array::{Array, bytes_of, values_of};
pub use column::{ColumnType, Element};
pub use compression::{Compression, compress, decompress, uncompressed_size_max};
pub use encoding::{decode, encode, encoded_size};
pub use error::{Error, ErrorKind, Result};
pub use page::{CHECKSUM_SIZE, PageBuffers, SealedPage, open_page, seal_page};
pub use schema::{AliasColumn, Column, ColumnId, ExtraTypeInfo, Field, FieldId, Schema, Structure};
pub use source::{BlobSink, ByteSource, ReadRequest};
pub use types::{Precision, Primitive, Type};
