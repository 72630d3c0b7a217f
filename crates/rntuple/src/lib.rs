//! Reads and writes ROOT files that hold RNTuple data (format 1.0), in Rust alone.

mod anchor;
mod array;
mod column;
mod compression;
mod encoding;
mod envelope;
mod error;
mod footer;
mod header;
mod locator;
mod page;
mod page_list;
mod schema;
mod schema_codec;
mod source;
pub mod tfile;
mod types;
mod wire;

pub use anchor::{ANCHOR_CLASS, ANCHOR_SIZE, Anchor};
pub use array::{Array, bytes_of, values_of};
pub use column::{ColumnType, Element};
pub use compression::{Compression, compress, decompress, uncompressed_size_max};
pub use encoding::{decode, encode, encoded_size};
pub use envelope::{EnvelopeKind, envelope_checksum, open_envelope, read_envelope, seal_envelope};
pub use error::{Error, ErrorKind, Result};
pub use footer::{ClusterGroup, Footer};
pub use header::Header;
pub use locator::{EnvelopeLink, Locator};
pub use page::{CHECKSUM_SIZE, PageBuffers, SealedPage, open_page, seal_page};
pub use page_list::{Cluster, ColumnPages, PageList, PageLocation};
pub use schema::{AliasColumn, Column, ColumnId, ExtraTypeInfo, Field, FieldId, Schema, Structure};
pub use source::{BlobSink, ByteSource, ReadRequest};
pub use types::{Precision, Primitive, Type};
