//! Taking extents for a writer, and giving back their unused rest.
//!
//! A new extent is as large as all bytes that the writer wrote before, from 64 KiB (1 MiB on a server) to 64 MiB, so
//! that a large writer soon has whole windows and extends the file rarely. An extent lies behind the front of the file,
//! whether the catalogue, a server or this module chose it.
//!
//! The first extent of a new file is in the file before another writer may know of it ([`ExtentWriter::share`]). If its
//! bytes are logged before that, it gets only these and some slack, and the file ends with it.

use femtobarn_catalog::{BlobRange, FileWrite};
use rntuple::tfile::{RBLOB_KEY_LENGTH, rblob_key_header};

use super::{ALIGNMENT, ExtentWriter, SLACK_BYTES};
use crate::error::{Error, Result};
use crate::storage::file::now;

/// Payload of the first extent of a writer.
const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// The smallest extent on a server. A full extent is written at once, so small ones would be many requests, and many
/// seeks of the server's disks. The unused rest is given back.
const REMOTE_EXTENT_BYTES_MIN: u64 = 1 << 20;
/// Payload of the largest extent, unless one blob is larger.
const EXTENT_BYTES_MAX: u64 = 64 << 20;
/// A free range is taken only if it has this part of the bytes that the writer wrote so far, so that a large writer is
/// not scattered over many small ranges.
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

    /// Takes an extent with room for `size` bytes, and gives back the rest of the last one, unless that has enough
    /// room.
    pub(crate) fn set_aside(&mut self, size: u64) -> Result<()> {
        if self.next + size <= self.end {
            self.check_usable()?;
            return self.share();
        }
        if self.next < self.end && !self.is_private {
            // A server refuses the rest while the database is not committed yet. Then it stays unused.
            drop(self.trim());
        }
        self.reserve(size)?;
        self.share()
    }

    /// Takes an extent with room for a blob of `size` bytes: a free range, or space at the end of the file. If the
    /// writer's last extent is at the end of the file, that one is lengthened.
    fn allocate(&mut self, size: u64) -> Result<()> {
        let least = if self.file.is_local() { EXTENT_BYTES_MIN } else { REMOTE_EXTENT_BYTES_MIN };
        let grown = self.bytes_written.clamp(least, EXTENT_BYTES_MAX);
        let payload = (size + ALIGNMENT).max(grown).next_multiple_of(ALIGNMENT);
        if self.is_private && self.start == 0 {
            return self.begin_private(payload);
        }
        self.share()?;
        if !std::mem::take(&mut self.skips_free) && self.take_free(size)? {
            return Ok(());
        }
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

    /// Begins the first extent of a private file, which follows the front.
    fn begin_private(&mut self, payload: u64) -> Result<()> {
        let key = self.key(self.next, payload)?;
        self.put(&key)?;
        (self.start, self.end) = (self.next, self.next + payload);
        self.zeroed_end = self.start;
        Ok(())
    }

    /// Gives a private file its first extent, so that other writers find where it ends.
    pub(super) fn share(&mut self) -> Result<()> {
        if !self.is_private {
            return Ok(());
        }
        if self.start == 0 {
            self.begin_private(EXTENT_BYTES_MIN)?;
        }
        if self.catalog.local().is_ok() {
            // The file ends with the flushed bytes.
            self.extend(self.flushed, self.end - self.flushed)?;
            (self.is_private, self.has_key) = (false, true);
            self.flush()?;
            return self.file.settle();
        }
        self.is_private = false;
        let front = &self.window[..self.file.front_end as usize];
        let payload = self.end - self.start;
        let begun = self.file.write(front, 0).and_then(|()| {
            // The front and the request for an extent go to a server over different connections, and the server
            // takes the end of the file that it has.
            self.file.settle()?;
            self.extend_on_server(payload)
        });
        self.failed = begun.is_err();
        let range = begun?;
        if (range.offset, range.size) != (self.start, payload) {
            self.failed = true;
            return Err(Error::Corrupt {
                what: format!(
                    "the first extent of {}, {payload} bytes at byte {}, was asked for, and the server gave {} bytes \
                     at byte {}; run the transaction again",
                    self.file.path.display(),
                    self.start,
                    range.size,
                    range.offset
                ),
            });
        }
        self.note_end();
        self.owned_from = self.start;
        self.flushed = self.start;
        Ok(())
    }

    /// Ends a private file after its bytes, some slack, and one byte that belongs to no blob. Returns the file's first
    /// bytes and its last one, from which a file of this size can be made; `None` if they exceed `room`.
    pub(super) fn end_private(&mut self, room: usize) -> Result<Option<Vec<FileWrite>>> {
        let size = self.next as usize;
        let room = room.min(self.window.len());
        if self.start == 0 || size >= room {
            return Ok(None);
        }
        let slack = SLACK_BYTES.min(room - size - 1).min((self.end - self.next) as usize);
        let last = size + slack;
        let front_end = self.file.front_end;
        let key = self.key(front_end, last as u64 + 1 - self.start)?;
        self.window[front_end as usize..self.start as usize].copy_from_slice(&key);
        self.window[size..=last].fill(0);
        if self.file.is_local() {
            let written = self.file.write(&self.window[..=last], 0);
            self.failed = written.is_err();
            written?;
        } else {
            self.file.note_written(&self.window[..size], 0);
        }
        self.file.known.iter().for_each(|known| known.note_end(last as u64 + 1));
        self.is_private = false;
        self.end = last as u64;
        (self.flushed, self.durable_end) = (self.next, Some(self.next));
        let write = |offset, bytes| FileWrite { database: self.database, offset, bytes };
        let first = write(0, self.window[..size].to_vec());
        Ok(Some(vec![first, write(last as u64, vec![0])]))
    }

    fn note_end(&self) {
        self.file.known.iter().for_each(|known| known.note_end(self.end));
    }

    /// Takes an extent from the server that has the file. The file may have grown when the writer is done, so
    /// the unused end is not cut off but given to other writers.
    fn allocate_on_server(&mut self, payload: u64) -> Result<()> {
        let range = self.extend_on_server(payload)?;
        self.check_given(range, payload)?;
        self.has_key = false;
        self.begin(range.offset, range.size)
    }

    fn extend_on_server(&self, payload: u64) -> Result<BlobRange> {
        let path = self.file.path_on_server().expect("the server of the catalogue has the file");
        Ok(self.catalog.extend_file(self.database, path, payload)?)
    }

    /// Refuses a range that is shorter than `wanted`, overlaps the front of the file, or overlaps the part of the
    /// extent that is not flushed. It may overlap bytes that the writer wrote before, since vacuum gives back old
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
        (self.start, self.end, self.owned_from) = (start, start + payload, start);
        self.note_end();
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

    /// Gives back the unused end of the extent: cuts it off if it is the end of the file, otherwise gives it to other
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
        self.file.write(&self.key(position, payload)?, position)
    }

    fn key(&self, position: u64, payload: u64) -> Result<[u8; RBLOB_KEY_LENGTH]> {
        let key = rblob_key_header(position, payload, now());
        key.map_err(Error::storage(self.file.path.display().to_string()))
    }

    /// Flushes, and gives back the unused end of the extent.
    pub(crate) fn trim(&mut self) -> Result<()> {
        self.check_usable()?;
        self.flush()?;
        let _lock = self.catalog.locks().lock_allocation(self.database)?;
        self.give_back_rest()
    }
}
