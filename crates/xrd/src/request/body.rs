//! The layout of one kind of request, and the parts that several kinds share.

use bytes::Bytes;

use super::header::{PARAMETER_BYTES, REQUEST_HEADER_BYTES};
use crate::codes::RequestCode;
use crate::error::Result;
use crate::ids::FileHandle;
use crate::location::Location;
use crate::wire::{Reader, Writer};

/// The codec of one kind of request.
pub(crate) trait Body: Sized {
    const CODE: RequestCode;

    /// `parameters` are the header's 16 bytes and its length; `body` excludes data.
    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self>;

    fn encode(&self, parameters: &mut Writer, body: &mut Writer);

    /// The header's length field: that of the body, except for writes.
    fn length(&self, body: usize) -> usize {
        body
    }

    /// Bytes of data that follow the request.
    fn data_bytes(&self) -> u64 {
        0
    }
}

/// Pads parameters with zeros.
pub(super) fn padded(parameters: &[u8]) -> [u8; PARAMETER_BYTES] {
    let mut all = [0; PARAMETER_BYTES];
    all[..parameters.len()].copy_from_slice(parameters);
    all
}

/// An open file or a path, as stat, truncate and fattr accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// An open file.
    Handle(FileHandle),
    /// A path.
    Location(Location),
}

impl FileRef {
    /// The path in the body, or the handle if the body is empty.
    pub(super) fn decode(what: &'static str, handle: FileHandle, body: &Bytes) -> Result<FileRef> {
        if body.is_empty() {
            Ok(FileRef::Handle(handle))
        } else {
            Location::of_body(what, body).map(FileRef::Location)
        }
    }

    pub(crate) fn handle(&self) -> FileHandle {
        match self {
            FileRef::Handle(handle) => *handle,
            FileRef::Location(_) => FileHandle::default(),
        }
    }

    pub(super) fn encode(&self, body: &mut Writer) {
        if let FileRef::Location(location) = self {
            body.raw(location.as_bytes());
        }
    }
}

/// Rejects a body of a request that has none.
pub(super) fn no_body(what: &'static str, body: &Bytes) -> Result<()> {
    Reader::new(what, body, REQUEST_HEADER_BYTES).end()
}
