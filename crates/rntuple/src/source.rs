//! Where bytes come from and where they go.
//!
//! Everything in this crate reads through [`ByteSource`] and writes through [`BlobSink`], so that
//! files, memory and networks serve alike. This module is the only one that touches a file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

/// One range of a vectored read.
pub struct ReadRequest<'a> {
    /// Byte offset of the range.
    pub offset: u64,
    /// Filled wholly; its length is the length of the range.
    pub buffer: &'a mut [u8],
}

/// A readable range of bytes: a file, a piece of memory, a remote file.
pub trait ByteSource: Send + Sync {
    /// Number of bytes in the source.
    ///
    /// # Errors
    /// [`Error::Io`] if the source cannot tell.
    fn size(&self) -> Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the source ends before the buffer is full, [`Error::Io`] otherwise.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Fills all requests. Sources with a round trip coalesce them; the default reads one by one.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buffer))
    }
}

impl ByteSource for File {
    fn size(&self) -> Result<u64> {
        let metadata = self.metadata().map_err(|source| io_error("stat", source))?;
        Ok(metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => ends_early(offset, buffer.len()),
            _ => io_error("read", source),
        })
    }
}

impl ByteSource for Vec<u8> {
    fn size(&self) -> Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?))
            .ok_or_else(|| ends_early(offset, buffer.len()))?;
        buffer.copy_from_slice(range);
        Ok(())
    }
}

/// Where pages and envelopes are written: each blob lands contiguously, at an offset that the sink
/// chooses.
pub trait BlobSink {
    /// Writes the concatenation of `parts` and returns its byte offset. It may be buffered; the
    /// owner of the sink knows when it is on disk.
    ///
    /// # Errors
    /// [`Error::Io`] if the bytes could not be written.
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64>;
}

pub(crate) fn io_error(what: &str, source: std::io::Error) -> Error {
    Error::Io { what: what.to_owned(), source }
}

fn ends_early(offset: u64, length: usize) -> Error {
    Error::corrupt("file", offset, format!("it ends before the {length} bytes expected here"))
}
