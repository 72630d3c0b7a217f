//! Taking extents for a writer, and giving back what it did not use.
//!
//! A new extent is as large as all that the writer wrote before, from 64 KiB (1 MiB on a server) to 64 MiB, so
//! that a writer of much soon has whole windows and extends the file rarely. An extent lies behind the front of
//! the file, whether the catalogue, a server or this module chose it.

use femtobarn_catalog::BlobRange;
use rntuple::tfile::{RBLOB_KEY_LENGTH, rblob_key_header};

use super::{ALIGNMENT, ExtentWriter};
use crate::error::{Error, Result};
use crate::storage::file::now;

/// Payload of the first extent of a writer.
const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// The same on a server. A full extent is written at once, so small ones would be many requests, and many seeks
/// of the server's disks. The unused rest is given back.
const REMOTE_EXTENT_BYTES_MIN: u64 = 1 << 20;
/// Payload of the largest extent, unless one blob is larger.
const EXTENT_BYTES_MAX: u64 = 64 << 20;
/// A free range is taken only if it has this part of the bytes that the writer wrote so far, so that a writer
/// of much is not scattered over many small ranges.
const WORTHWHILE_DIVISOR: u64 = 8;
/// The smallest free range that is given to writers.
pub(crate) const FREE_BYTES_MIN: u64 = 4 << 10;
/// A free range of this size is taken however much the writer wrote.
const FREE_BYTES_ENOUGH: u64 = 1 << 20;

impl ExtentWriter {
    /// Makes sure that blobs of up to `size` bytes in all follow each other without a gap, if their sizes are
    /// multiples of [`ALIGNMENT`].
    pub(crate) fn reserve(&mut self, size: u64) -> Result<()> {
        self.check_usable()?;
        if self.next.next_multiple_of(ALIGNMENT) + size > self.end {
            self.allocate(size)?;
        }
        Ok(())
    }

    /// Takes an extent with room for `size` bytes, unless the rest of the last one has it. Gives that rest back.
    pub(crate) fn set_aside(&mut self, size: u64) -> Result<()> {
        if self.next + size <= self.end {
            return self.check_usable();
        }
        if self.next < self.end {
            // A server refuses the rest while the database is not committed yet. Then it stays unused.
            drop(self.trim());
        }
        self.reserve(size)
    }

    /// Takes an extent with room for a blob of `size` bytes: a free range, or space at the end of the file. If the
    /// writer's last extent is at the end of the file, that one is lengthened.
    fn allocate(&mut self, size: u64) -> Result<()> {
        if self.is_new_file {
            // The front and the request for an extent go to a server over different connections, and the server
            // takes the end of the file that it has.
            self.file.settle()?;
            self.is_new_file = false;
        } else if self.take_free(size)? {
            return Ok(());
        }
        let least = if self.file.is_local() { EXTENT_BYTES_MIN } else { REMOTE_EXTENT_BYTES_MIN };
        let grown = self.bytes_written.clamp(least, EXTENT_BYTES_MAX);
        let payload = (size + ALIGNMENT).max(grown).next_multiple_of(ALIGNMENT);
        if self.catalog.local().is_err() {
            return self.allocate_on_server(payload);
        }
        let _lock = self.catalog.locks().lock_allocation(self.database)?;
        let file_end = self.file.size()?;
        self.check_behind_front(file_end)?;
        let lengthened = (file_end + payload).saturating_sub(self.start);
        if self.has_key && self.end == file_end && lengthened <= EXTENT_BYTES_MAX {
            self.extend(file_end, payload)?;
            self.write_key(self.start - RBLOB_KEY_LENGTH as u64, lengthened)?;
            self.end += payload;
            self.durable_end = None;
            return Ok(());
        }
        self.extend(file_end, RBLOB_KEY_LENGTH as u64 + payload)?;
        self.write_key(file_end, payload)?;
        self.has_key = true;
        self.begin(file_end + RBLOB_KEY_LENGTH as u64, payload)
    }

    /// Takes an extent from the server that has the file. The file may have grown when the writer is done, so
    /// the unused end is not cut off but given to other writers.
    fn allocate_on_server(&mut self, payload: u64) -> Result<()> {
        let path = self.file.path_on_server().expect("the server of the catalogue has the file");
        let range = self.catalog.extend_file(self.database, path, payload)?;
        self.check_given(range, payload)?;
        self.has_key = false;
        self.begin(range.offset, range.size)
    }

    /// Refuses a range that is shorter than `wanted`, overlaps the front of the file, or overlaps the part of
    /// the extent that is not flushed. It may overlap what the writer wrote before, since vacuum gives back old
    /// versions of objects.
    fn check_given(&self, range: BlobRange, wanted: u64) -> Result<()> {
        let BlobRange { offset, size } = range;
        self.check_behind_front(offset)?;
        let end = offset.checked_add(size).filter(|_| size >= wanted);
        if end.is_some_and(|end| end <= self.flushed || self.end <= offset) {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: format!(
                "{size} bytes at byte {offset} of {} were given to a writer that asked for {wanted} and \
                 writes bytes {} to {}; check the federation",
                self.file.path.display(),
                self.flushed,
                self.end
            ),
        })
    }

    fn check_behind_front(&self, offset: u64) -> Result<()> {
        let front_end = self.file.front_end;
        if offset >= front_end {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: format!(
                "an extent at byte {offset} of {} would lie in its front, which ends at byte {front_end} \
                 or later; check the federation",
                self.file.path.display()
            ),
        })
    }

    /// Flushes the old extent and continues in another one.
    fn begin(&mut self, start: u64, payload: u64) -> Result<()> {
        self.flush()?;
        self.file.known.iter().for_each(|known| known.note_end(start + payload));
        (self.start, self.end) = (start, start + payload);
        (self.next, self.flushed, self.zeroed_end) = (start, start, start);
        self.durable_end = None;
        Ok(())
    }

    /// Takes a free range of the file; false if there is none that is worthwhile.
    fn take_free(&mut self, size: u64) -> Result<bool> {
        let worthwhile =
            (self.bytes_written / WORTHWHILE_DIVISOR).clamp(FREE_BYTES_MIN, FREE_BYTES_ENOUGH);
        let wanted = (size + ALIGNMENT).max(worthwhile);
        let Some(range) = self.catalog.take_free_extent(self.database, wanted)? else {
            return Ok(false);
        };
        self.check_given(range, wanted)?;
        {
            let _lock = self.catalog.locks().lock_allocation(self.database)?;
            self.give_back_rest()?;
        }
        self.has_key = false;
        self.begin(range.offset, range.size)?;
        Ok(true)
    }

    /// Gives back the unused end of the extent: cuts it off if it is the end of the file, else gives it to other
    /// writers. The caller holds the allocation lock.
    fn give_back_rest(&mut self) -> Result<()> {
        self.flush()?;
        if self.next == self.end {
            return Ok(());
        }
        if self.has_key && self.file.size()? == self.end {
            // The key is shortened before the file is cut: a key that reaches past the end of the file would
            // break the chain.
            self.write_key(self.start - RBLOB_KEY_LENGTH as u64, self.next - self.start)?;
            self.file.cut(self.next)?;
        } else if self.next.next_multiple_of(ALIGNMENT) + FREE_BYTES_MIN <= self.end {
            let offset = self.next.next_multiple_of(ALIGNMENT);
            let range = BlobRange { offset, size: self.end - offset };
            self.file.punch(offset..self.end)?;
            self.catalog.give_free_extent(self.database, range)?;
        }
        self.end = self.next;
        Ok(())
    }

    /// Extends the file, wholly or not at all.
    fn extend(&self, file_end: u64, size: u64) -> Result<()> {
        let extended = self.file.extend(file_end, size);
        if extended.is_err() {
            // A full disk may have extended the file in part. If it cannot be cut again, sealing marks a gap.
            drop(self.file.cut(file_end));
        }
        extended
    }

    fn write_key(&self, position: u64, payload: u64) -> Result<()> {
        let key = rblob_key_header(position, payload, now())
            .map_err(Error::storage(self.file.path.display().to_string()))?;
        self.file.write(&key, position)
    }

    /// Flushes, and gives back the unused end of the extent.
    pub(crate) fn trim(&mut self) -> Result<()> {
        self.check_usable()?;
        self.flush()?;
        let _lock = self.catalog.locks().lock_allocation(self.database)?;
        self.give_back_rest()
    }
}
