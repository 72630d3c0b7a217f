//! Reads and writes ROOT files that hold RNTuple data (format 1.0), in Rust alone.

mod array;
mod error;
mod source;
mod types;

pub use array::{Array, bytes_of, values_of};
pub use error::{Error, ErrorKind, Result};
pub use source::{BlobSink, ByteSource, ReadRequest};
pub use types::{Precision, Primitive, Type};
