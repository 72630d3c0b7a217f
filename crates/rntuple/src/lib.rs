//! Reads and writes ROOT files that hold RNTuple data (format 1.0), in Rust alone.

mod array;
mod column;
mod error;
mod schema;
mod source;
mod types;

pub use array::{Array, bytes_of, values_of};
pub use column::{ColumnType, Element};
pub use error::{Error, ErrorKind, Result};
pub use schema::{AliasColumn, Column, ColumnId, ExtraTypeInfo, Field, FieldId, Schema, Structure};
pub use source::{BlobSink, ByteSource, ReadRequest};
pub use types::{Precision, Primitive, Type};
