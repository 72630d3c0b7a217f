//! Input and output: all reading goes through [`ByteSource`] and all writing of blobs through
//! [`BlobSink`], so files, memory and remote files serve alike.

#[cfg(not(target_family = "wasm"))]
mod file;

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash3_64;

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
    /// [`Error::Io`] if the size cannot be determined.
    fn size(&self) -> Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the source ends before the buffer is full, [`Error::Io`] otherwise.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Fills all requests. A remote source coalesces them; the default reads one by one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the source ends before a buffer is full, [`Error::Io`] otherwise.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buffer))
    }

    /// Fills all requests as [`read_many`](Self::read_many) does, from where the caches below this source got
    /// their bytes, and replaces what these hold. The default, for sources without caches, is the same read.
    ///
    /// # Errors
    /// The errors of [`read_many`](Self::read_many).
    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.read_many(requests)
    }

    /// Announces ranges that will be read soon, in this order, so that the source can prefetch them.
    /// The default does nothing.
    fn will_need(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }

    /// Announces ranges that will be read after those of [`will_need`](Self::will_need) if the reader
    /// continues sequentially. The default does nothing.
    fn may_need(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }

    /// Whether each read takes a network round trip, so that readers announce all ranges beforehand.
    fn is_remote(&self) -> bool {
        false
    }
}

impl<T: ByteSource + ?Sized> ByteSource for Arc<T> {
    fn size(&self) -> Result<u64> {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buffer)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        (**self).read_many(requests)
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        (**self).read_past_caches(requests)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        (**self).will_need(ranges);
    }

    fn may_need(&self, ranges: &[Range<u64>]) {
        (**self).may_need(ranges);
    }

    fn is_remote(&self) -> bool {
        (**self).is_remote()
    }
}

/// A source whose reads pass all caches.
struct PastCaches<'a>(&'a dyn ByteSource);

impl ByteSource for PastCaches<'_> {
    fn size(&self) -> Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_many(&mut [ReadRequest { offset, buffer }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.0.read_past_caches(requests)
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }
}

/// Runs `read`, which reads from a source and verifies what it has read. If it fails because of damage and the
/// source is remote, runs it once more, past all caches: the damage may be theirs.
///
/// # Errors
/// The errors of `read`; of the second run, if there is one.
pub fn read_verified<T, E>(
    source: &dyn ByteSource,
    is_damage: impl Fn(&E) -> bool,
    read: impl Fn(&dyn ByteSource) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    match read(source) {
        Err(error) if source.is_remote() && is_damage(&error) => read(&PastCaches(source)),
        read => read,
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

/// A destination for pages and envelopes: each blob is stored contiguously, at an offset that the
/// sink chooses.
pub trait BlobSink {
    /// Writes the concatenation of `parts` and returns its byte offset. The sink may buffer it; its
    /// owner decides when the bytes are made durable.
    ///
    /// # Errors
    /// [`Error::Io`] if the bytes could not be written.
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64>;

    /// Writes the concatenation of `parts` followed by its XXH3 checksum, as pages are stored, and
    /// returns its byte offset. A sink that copies the parts into one buffer should override this: one
    /// checksum over contiguous bytes is faster than over the parts.
    ///
    /// # Errors
    /// [`Error::Io`] if the bytes could not be written.
    fn write_with_checksum(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let mut checksum = XxHash3_64::new();
        parts.iter().for_each(|part| checksum.write(part));
        let checksum = checksum.finish().to_le_bytes();
        self.write_blob(&[parts, &[&checksum]].concat())
    }
}

/// Appends; the offset is the position in the vector.
impl BlobSink for Vec<u8> {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.len() as u64;
        parts.iter().for_each(|part| self.extend_from_slice(part));
        Ok(offset)
    }
}

pub(crate) fn io_error(what: &str, source: std::io::Error) -> Error {
    Error::Io { what: what.to_owned(), source }
}

fn ends_early(offset: u64, length: usize) -> Error {
    Error::corrupt("file", offset, format!("it ends before the {length} bytes expected here"))
}
