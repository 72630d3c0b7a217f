//! Extents: the pieces of a database file that writers own.
//!
//! Invariants:
//! 1. An extent is the payload of one `RBlob` key, or free space within one, so that the file stays
//!    a chain of keys.
//! 2. An extent belongs to one writer in one process until it is full. Nobody else writes into it,
//!    whatever becomes of locks, so bytes that are committed are never overwritten. Free space is
//!    what vacuum gave back, or writers did not use; the catalogue gives it to one writer each.
//! 3. What a writer has handed out is on disk in full after [`ExtentWriter::flush`] and a sync.
//! 4. After a failed write or sync the writer refuses all work: the kernel may have dropped what it
//!    could not write, and a later sync would not say so.
//! 5. An extent begins behind the front of the file, whoever gave it out. The front of a new file at a
//!    server is answered before the first extent is asked for: the two go over different connections,
//!    and the server takes the end of what it has for the end of the file.
//! 6. What is written past the page cache is a whole window: 2 MiB of the file at a multiple of 2 MiB,
//!    all of it the writer's. No page of the cache is larger, so none that a reader or another writer
//!    has there keeps the kernel from dropping what it had of the window. A server is sent windows of
//!    8 MiB: what hundreds of writers send lies on its disks in turns, and each turn costs a seek.
//!
//! Extents are as large as what the writer has written before, from 64 KiB (1 MiB at a server) to 64 MiB, so
//! that a writer of much soon has whole windows and extends the file rarely. The end of the last extent is cut off when the writer is done.
//!
//! A window that fills up goes past the page cache, which saves a copy and leaves the cache to what is
//! read often. The ends of what a transaction writes, and with them small transactions, go through
//! the cache: they are found there by whoever reads the newest objects.

use std::hash::Hasher;
use std::sync::Arc;

use femtobarn_catalog::{BlobRange, Catalogue, DatabaseId};
use memmap2::{Advice, MmapMut};
use rntuple::BlobSink;
use rntuple::tfile::{RBLOB_KEY_LENGTH, rblob_key_header};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::storage::file::{DatabaseFile, now};

/// Payload of the first extent of a writer.
const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// The same at a server: an extent that is full is written, so small ones would be many requests, and
/// many seeks of its disks. What is not needed is cut off again.
const REMOTE_EXTENT_BYTES_MIN: u64 = 1 << 20;
/// Payload beyond which extents do not grow.
const EXTENT_BYTES_MAX: u64 = 64 << 20;
/// Free space is worth taking from this part of what the writer has written.
const WORTHWHILE_DIVISOR: u64 = 8;
/// Free space smaller than this is not worth giving to a writer.
pub(crate) const FREE_BYTES_MIN: u64 = 4 << 10;
/// Free space of this size is worth taking however much is written.
const FREE_BYTES_ENOUGH: u64 = 1 << 20;
/// Bytes gathered before they are written, and where in the file they start and end. The kernel's
/// pages are not larger.
const WINDOW_BYTES: u64 = 2 << 20;
/// Those that are gathered for a server.
const REMOTE_WINDOW_BYTES: u64 = 8 << 20;
/// What is written ahead of small transactions.
static AHEAD: [u8; 64 << 10] = [0; 64 << 10];
/// Blobs start at multiples of this, so that numbers in them are aligned.
pub(crate) const ALIGNMENT: u64 = 8;

/// Writes blobs into extents of one database file.
pub(crate) struct ExtentWriter {
    file: Arc<DatabaseFile>,
    database: DatabaseId,
    /// In which the extents are the writer's: what is left of them in another may be somebody else's.
    epoch: u64,
    catalog: Arc<dyn Catalogue>,
    /// Where the next byte goes, and where the extent's payload starts and ends.
    next: u64,
    start: u64,
    end: u64,
    /// Whether the extent is all of what lies behind a key of its own.
    has_key: bool,
    /// Bytes from here to `next` are not written yet; they are in one window.
    flushed: u64,
    /// The window: byte `offset` of the file is at `offset` modulo its size. Mapped, so that it starts
    /// at a page of memory.
    window: MmapMut,
    is_one_page: bool,
    /// Up to here the extent has been written to once.
    ahead: u64,
    /// Bytes handed out so far, by which extents grow.
    written: u64,
    failed: bool,
    /// Whether the file has no extent yet.
    is_new_file: bool,
}

impl ExtentWriter {
    pub fn new(
        file: Arc<DatabaseFile>,
        database: DatabaseId,
        epoch: u64,
        catalog: Arc<dyn Catalogue>,
    ) -> Result<Self> {
        let size = if file.is_remote() { REMOTE_WINDOW_BYTES } else { WINDOW_BYTES };
        let window = MmapMut::map_anon(size as usize);
        Ok(ExtentWriter {
            window: window.map_err(|source| Error::io("buffer writes to", &file.path, source))?,
            is_one_page: false,
            file,
            database,
            epoch,
            catalog,
            next: 0,
            start: 0,
            end: 0,
            has_key: false,
            flushed: 0,
            ahead: 0,
            written: 0,
            failed: false,
            is_new_file: false,
        })
    }

    /// In a file that was just made, whose front may still be on its way to a server: no free ranges are
    /// looked for before the first extent.
    pub fn of_new_file(self) -> Self {
        ExtentWriter { is_new_file: true, ..self }
    }

    /// The file that is written.
    pub fn file(&self) -> &Arc<DatabaseFile> {
        &self.file
    }

    /// The database's epoch in which the writer began.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes all blobs to the file.
    pub fn flush(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.flushed < self.next {
            let start = self.within(self.flushed);
            let bytes = &self.window[start..][..(self.next - self.flushed) as usize];
            let is_whole = bytes.len() == self.window.len();
            let written = match is_whole {
                true => self.file.write_past_cache(bytes, self.flushed),
                false => self.file.write(bytes, self.flushed),
            };
            self.failed = written.is_err();
            self.flushed = self.next;
            written?;
            if is_whole && !self.is_one_page {
                self.take_one_page();
            }
        }
        Ok(())
    }

    /// Where a byte of the file is in the window.
    fn within(&self, offset: u64) -> usize {
        (offset % self.window.len() as u64) as usize
    }

    /// Makes the window, which is empty, one large page of memory: the kernel hands that to the disk
    /// faster than 512 small ones. Writers of little do not need 2 MiB at once.
    fn take_one_page(&mut self) {
        self.is_one_page = true;
        if let Ok(window) = MmapMut::map_anon(self.window.len()) {
            // Advice that is not taken costs time, no more.
            drop(window.advise(Advice::HugePage));
            self.window = window;
        }
    }

    /// Makes all flushed blobs durable.
    pub fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        let synced = self.write_ahead().and_then(|()| self.file.sync());
        self.failed = synced.is_err();
        synced
    }

    /// Writes zeros where the next small transactions will write. Blocks that were written before
    /// are synced without the file system's journal, which those set aside by `extend` take part in.
    fn write_ahead(&mut self) -> Result<()> {
        let end = self.end.min(self.next + AHEAD.len() as u64);
        // A server's file system is not known, and the zeros have a way to go.
        if self.file.is_remote() || self.is_one_page || self.next <= self.ahead || self.next == end
        {
            return Ok(());
        }
        self.ahead = end;
        self.file.write(&AHEAD[..(end - self.next) as usize], self.next)
    }

    /// Forgets blobs that are not written yet; the space that they were to take stays unused.
    pub fn discard(&mut self) {
        self.flushed = self.next;
    }

    pub fn check_usable(&self) -> Result<()> {
        match self.failed || self.file.is_broken() {
            false => Ok(()),
            true => Err(Error::Closed {
                what: format!(
                    "an earlier write to {} failed; open the federation again",
                    self.file.path.display()
                ),
            }),
        }
    }

    /// Sees to it that blobs of up to `size` bytes in all follow each other without a gap, if their
    /// sizes are multiples of the alignment.
    pub fn reserve(&mut self, size: u64) -> Result<()> {
        self.check_usable()?;
        if self.next.next_multiple_of(ALIGNMENT) + size > self.end {
            self.allocate(size)?;
        }
        Ok(())
    }

    /// Takes an extent with room for `size` bytes, unless so much is left of the last one. What is left of
    /// that is given back.
    pub fn set_aside(&mut self, size: u64) -> Result<()> {
        if self.next + size <= self.end {
            return self.check_usable();
        }
        if self.next < self.end {
            // At a server it cannot be where the database is not committed yet; then it stays unused.
            drop(self.trim());
        }
        self.reserve(size)
    }

    fn write(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.begin_blob(parts.iter().map(|part| part.len() as u64).sum())?;
        parts.iter().try_for_each(|part| self.put(part))?;
        Ok(offset)
    }

    /// Writes a blob and its checksum, which is quickly computed in the window.
    fn write_with_checksum(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let offset = self.begin_blob((size + size_of::<u64>()) as u64)?;
        let start = self.within(offset);
        let checksum = if start + size < self.window.len() {
            parts.iter().try_for_each(|part| self.put(part))?;
            XxHash3_64::oneshot(&self.window[start..][..size])
        } else {
            let mut hasher = XxHash3_64::new();
            for part in parts {
                hasher.write(part);
                self.put(part)?;
            }
            hasher.finish()
        };
        self.put(&checksum.to_le_bytes())?;
        Ok(offset)
    }

    /// Makes room for a blob, and returns where it starts.
    fn begin_blob(&mut self, size: u64) -> Result<u64> {
        self.check_usable()?;
        if self.next.next_multiple_of(ALIGNMENT) + size > self.end {
            self.allocate(size)?;
        }
        let offset = self.next.next_multiple_of(ALIGNMENT);
        self.put(&[0; ALIGNMENT as usize][..(offset - self.next) as usize])?;
        self.written += size;
        Ok(offset)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let start = self.within(self.next);
            let room = &mut self.window[start..];
            let (fitting, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..fitting.len()].copy_from_slice(fitting);
            self.next += fitting.len() as u64;
            if self.within(self.next) == 0 {
                self.flush()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Takes a new extent with room for a blob of `size` bytes: space that vacuum gave back, or at
    /// the end of the file. If the writer's last extent is there, that one is lengthened.
    fn allocate(&mut self, size: u64) -> Result<()> {
        if self.is_new_file {
            self.file.settle()?;
            self.is_new_file = false;
        } else if self.take_free(size)? {
            return Ok(());
        }
        let least = if self.file.is_remote() { REMOTE_EXTENT_BYTES_MIN } else { EXTENT_BYTES_MIN };
        let grown = self.written.clamp(least, EXTENT_BYTES_MAX);
        let payload = (size + ALIGNMENT).max(grown).next_multiple_of(ALIGNMENT);
        if self.catalog.local().is_err() {
            return self.allocate_at_server(payload);
        }
        let _lock = self.catalog.locks().lock_allocation(self.database)?;
        let file_end = self.file.size()?;
        self.check_behind_front(file_end)?;
        let lengthened = (file_end + payload).saturating_sub(self.start);
        if self.has_key && self.end == file_end && lengthened <= EXTENT_BYTES_MAX {
            self.extend(file_end, payload)?;
            self.write_key(self.start - RBLOB_KEY_LENGTH as u64, lengthened)?;
            self.end += payload;
            return Ok(());
        }
        self.extend(file_end, RBLOB_KEY_LENGTH as u64 + payload)?;
        self.write_key(file_end, payload)?;
        self.has_key = true;
        self.begin(file_end + RBLOB_KEY_LENGTH as u64, payload)
    }

    /// Takes a new extent from the server that has the file. Its end is not cut off later, since the file
    /// may be longer by then; it is given to other writers.
    fn allocate_at_server(&mut self, payload: u64) -> Result<()> {
        let path = self.file.on_server().expect("who has the catalogue has the file");
        let range = self.catalog.extend_file(self.database, path, payload)?;
        self.check_given(range, payload)?;
        self.has_key = false;
        self.begin(range.offset, range.size)
    }

    /// Refuses a range that is not what was asked for: shorter, over the front of the file, or over what
    /// the writer is still to write. What it wrote before may be given to it again: vacuum gives back old
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
                 writes bytes {} to {}",
                self.file.path.display(),
                self.flushed,
                self.end
            ),
        })
    }

    fn check_behind_front(&self, offset: u64) -> Result<()> {
        let front_end = self.file.front_end;
        match offset >= front_end {
            true => Ok(()),
            false => Err(Error::Corrupt {
                what: format!(
                    "an extent at byte {offset} of {} would lie in its front, which ends at byte {front_end} \
                     or later; check the federation",
                    self.file.path.display()
                ),
            }),
        }
    }

    /// Goes on in another extent.
    fn begin(&mut self, start: u64, payload: u64) -> Result<()> {
        self.flush()?;
        (self.start, self.end) = (start, start + payload);
        (self.next, self.flushed, self.ahead) = (start, start, start);
        Ok(())
    }

    /// Takes a free range of the file, if there is one that is worth it: a writer of much is not
    /// scattered over many small ones.
    fn take_free(&mut self, size: u64) -> Result<bool> {
        let worthwhile =
            (self.written / WORTHWHILE_DIVISOR).clamp(FREE_BYTES_MIN, FREE_BYTES_ENOUGH);
        let wanted = (size + ALIGNMENT).max(worthwhile);
        let Some(range) = self.catalog.take_free_extent(self.database, wanted)? else {
            return Ok(false);
        };
        self.check_given(range, wanted)?;
        {
            let _lock = self.catalog.locks().lock_allocation(self.database)?;
            self.leave()?;
        }
        self.has_key = false;
        self.begin(range.offset, range.size)?;
        Ok(true)
    }

    /// Gives the unused end of the extent back to the file system, and the place to other writers if
    /// it is not at the end of the file. The caller has locked the allocation.
    fn leave(&mut self) -> Result<()> {
        self.flush()?;
        if self.next == self.end {
            return Ok(());
        }
        if self.has_key && self.file.size()? == self.end {
            // The key is shortened first: cut short of its key, a file would not be a chain of keys.
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
            // A full disk may have given a part. If it cannot be given back, sealing marks a hole.
            drop(self.file.cut(file_end));
        }
        extended
    }

    fn write_key(&self, position: u64, payload: u64) -> Result<()> {
        let key = rblob_key_header(position, payload, now())
            .map_err(Error::storage(self.file.path.display().to_string()))?;
        self.file.write(&key, position)
    }

    /// Gives the unused end of the extent back.
    pub fn trim(&mut self) -> Result<()> {
        self.check_usable()?;
        self.flush()?;
        let _lock = self.catalog.locks().lock_allocation(self.database)?;
        self.leave()
    }
}

impl BlobSink for ExtentWriter {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        self.write(parts).map_err(unstored)
    }

    fn write_with_checksum(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        self.write_with_checksum(parts).map_err(unstored)
    }
}

fn unstored(error: Error) -> rntuple::Error {
    rntuple::Error::Io {
        what: "cannot store a page".to_owned(),
        source: match error {
            Error::Io { source, what } => {
                std::io::Error::new(source.kind(), format!("{what}: {source}"))
            }
            // With its kind: `Error::kind` looks for it there.
            other => std::io::Error::other(other),
        },
    }
}
