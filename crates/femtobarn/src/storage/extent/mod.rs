//! Extents: the pieces of a database file that one writer owns, and the writing of blobs into them.
//!
//! 1. An extent is the payload of one `RBlob` key, or free space within one, so that the file stays a chain of
//!    keys.
//! 2. An extent belongs to one writer in one process until it is full. No other writer writes into it, even if a lock
//!    is lost, so committed bytes are never overwritten. Free space was given back by vacuum or by a writer; the
//!    catalogue gives it to one writer. `allocation` takes and gives back extents. A file that its writer just created
//!    is *private*: it has the flushed bytes and no more, so that a small one can end with its bytes.
//! 3. All blobs written so far are on disk after [`ExtentWriter::flush`] and [`ExtentWriter::sync`]. After
//!    [`ExtentWriter::flush_for_log`] they are there once the bytes that it returned are durable in the catalogue.
//! 4. After a failed write or sync the writer refuses all work: the kernel may have dropped the bytes that it could not
//!    write, and a later sync would not report that.
//! 5. A write past the page cache lies in a window, 2 MiB of the file at a multiple of 2 MiB, that belongs wholly to
//!    the writer.

// No page of the page cache is larger than a window, so a page that a reader or another writer has there never keeps
// the kernel from dropping the cached bytes of the window. Writing past the cache saves a copy and leaves the cache to
// bytes that are read often. The last bytes of a transaction, and all of a small one, go through the cache, where
// readers of the newest objects find them.

mod allocation;

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, DatabaseId, FileWrite};
use memmap2::{Advice, MmapMut};
use rntuple::BlobSink;
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::storage::file::DatabaseFile;

pub(crate) use allocation::FREE_BYTES_MIN;

/// Bytes that are gathered before they are written; a window starts at a multiple of its size. No page of the page
/// cache is larger.
const WINDOW_BYTES: u64 = 2 << 20;
/// The window of a file on a server. The windows of hundreds of writers are interleaved on the server's disks, and each
/// change of writer costs a seek.
const REMOTE_WINDOW_BYTES: u64 = 8 << 20;
/// The alignment of writes past the page cache, at least: a block of a disk.
const BLOCK_BYTES: u64 = 4 << 10;
/// Least bytes for which a write past the page cache takes less time than one through it.
const BULK_BYTES_MIN: u64 = 128 << 10;
/// Zeros that are written ahead of small transactions.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Bytes that a small new file has beyond those of its first transaction, so that the commit record with which the
/// database is dropped needs no other extent.
const SLACK_BYTES: usize = 1 << 10;
/// Blobs start at multiples of this, so that numbers in them are aligned.
pub(crate) const ALIGNMENT: u64 = 8;

/// Writes blobs into extents of one database file.
pub(crate) struct ExtentWriter {
    file: Arc<DatabaseFile>,
    database: DatabaseId,
    /// The epoch of the database in which the writer owns its extents. In a later epoch, the rest of them may
    /// belong to another writer.
    epoch: u64,
    catalog: Arc<dyn Catalogue>,
    /// The offset in the file of the next byte that is written.
    next: u64,
    /// The extent's payload is `start..end`.
    start: u64,
    end: u64,
    /// The writer writes no byte of the file before this one: the start of the extent, or of a file that it made.
    owned_from: u64,
    /// Whether the extent is the whole payload of a key that this writer wrote.
    has_key: bool,
    /// Bytes `flushed..next` are in the window and not in the file. They never cross a multiple of the window's
    /// size.
    flushed: u64,
    /// Byte `offset` of the file is at `offset` modulo the size of the window. Mapped, so that it is aligned to
    /// a page.
    window: MmapMut,
    /// Whether the window is one huge page.
    is_huge_page: bool,
    /// The bytes of the extent before this one were written at least once.
    zeroed_end: u64,
    /// The extent and its bytes before this one are durable; `None` if the extent is not.
    durable_end: Option<u64>,
    /// Bytes of all blobs so far, by which the size of the next extent is chosen.
    bytes_written: u64,
    /// Whether a write or a sync failed.
    failed: bool,
    /// Whether no other writer knows the file yet.
    is_private: bool,
    /// Whether the next extent is to be at the end of the file.
    skips_free: bool,
}

impl ExtentWriter {
    pub(crate) fn new(
        file: Arc<DatabaseFile>,
        database: DatabaseId,
        epoch: u64,
        catalog: Arc<dyn Catalogue>,
    ) -> Result<Self> {
        let size = if file.is_local() { WINDOW_BYTES } else { REMOTE_WINDOW_BYTES };
        let window = MmapMut::map_anon(size as usize);
        Ok(ExtentWriter {
            window: window.map_err(|source| Error::io("buffer writes to", &file.path, source))?,
            is_huge_page: false,
            file,
            database,
            epoch,
            catalog,
            next: 0,
            start: 0,
            end: 0,
            owned_from: 0,
            has_key: false,
            flushed: 0,
            zeroed_end: 0,
            durable_end: None,
            bytes_written: 0,
            failed: false,
            is_private: false,
            skips_free: false,
        })
    }

    /// The writer of an empty file that was just created. It writes the front with the first blobs.
    pub(crate) fn of_new_file(
        mut file: DatabaseFile,
        front: &[u8],
        database: DatabaseId,
        catalog: Arc<dyn Catalogue>,
    ) -> Result<Self> {
        file.front_end = front.len() as u64;
        let mut writer = Self::new(file.into(), database, 0, catalog)?;
        writer.is_private = true;
        writer.put(front)?;
        writer.end = writer.next;
        Ok(writer)
    }

    /// The same writer, which takes its first extent without looking for a free range.
    pub(crate) fn skipping_free(self) -> Self {
        ExtentWriter { skips_free: true, ..self }
    }

    /// The file that is written.
    pub(crate) fn file(&self) -> &Arc<DatabaseFile> {
        &self.file
    }

    /// The database's epoch in which the writer began.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes all blobs to the file.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check_usable()?;
        let is_whole = |it: &Self| it.next - it.flushed == it.window.len() as u64;
        if self.is_private && (is_whole(self) || !self.file.is_local()) {
            self.share()?;
        }
        if self.flushed < self.next {
            self.assert_owns(self.flushed, self.next);
            let is_whole = is_whole(self);
            let start = self.window_offset(self.flushed);
            let bytes = &self.window[start..][..(self.next - self.flushed) as usize];
            let written = if is_whole {
                self.file.write_past_cache(bytes, self.flushed)
            } else {
                self.file.write(bytes, self.flushed)
            };
            self.failed = written.is_err();
            self.flushed = self.next;
            written?;
            if is_whole && !self.is_huge_page {
                self.use_huge_page();
            }
        }
        Ok(())
    }

    /// Writes all blobs to the file, many of them past the page cache, as if their window were full. For blobs that the
    /// next writer need not read.
    pub(crate) fn flush_bulk(&mut self) -> Result<()> {
        self.check_usable()?;
        let window = self.flushed - self.flushed % WINDOW_BYTES;
        let is_ours = self.start <= window && window + WINDOW_BYTES <= self.end && !self.is_private;
        let blocks =
            self.flushed.next_multiple_of(BLOCK_BYTES)..self.next / BLOCK_BYTES * BLOCK_BYTES;
        if !is_ours || !self.file.is_local() || blocks.start + BULK_BYTES_MIN > blocks.end {
            return self.flush();
        }
        let bytes = |range: Range<u64>| {
            &self.window[(range.start - window) as usize..(range.end - window) as usize]
        };
        let written = self
            .file
            .write(bytes(self.flushed..blocks.start), self.flushed)
            .and_then(|()| self.file.write_past_cache(bytes(blocks.clone()), blocks.start));
        self.failed = written.is_err();
        self.flushed = blocks.end;
        written?;
        self.flush()
    }

    /// Writes all blobs to the file, to which other writers may add from then on.
    pub(crate) fn flush_for_others(&mut self) -> Result<()> {
        self.share()?;
        self.flush()
    }

    /// Panics unless bytes `start..end` of the file lie in the writer's extent, behind the front of the file if that is
    /// not the writer's, too.
    fn assert_owns(&self, start: u64, end: u64) {
        assert!(
            self.file.front_end <= self.start && self.owned_from <= start && end <= self.end,
            "bytes {start} to {end} of {} lie outside the writer's extent, bytes {} to {}",
            self.file.path.display(),
            self.start,
            self.end
        );
    }

    /// Where a byte of the file is in the window.
    fn window_offset(&self, offset: u64) -> usize {
        (offset % self.window.len() as u64) as usize
    }

    /// Replaces the window, which is empty, by one huge page, which the kernel hands to the disk faster than 512 small
    /// ones. Called after the first whole window: a small writer does not need 2 MiB of memory at once.
    fn use_huge_page(&mut self) {
        self.is_huge_page = true;
        if let Ok(window) = MmapMut::map_anon(self.window.len()) {
            // If the kernel ignores the advice, writes are only slower.
            drop(window.advise(Advice::HugePage));
            self.window = window;
        }
    }

    /// Makes all flushed blobs durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        self.share()?;
        let synced = self.write_zeros_ahead().and_then(|()| self.file.sync());
        self.failed = synced.is_err();
        self.durable_end = Some(self.flushed);
        synced
    }

    /// Makes the next commit sync the file, because other processes wrote bytes that it refers to.
    pub(crate) fn need_sync(&mut self) {
        self.durable_end = None;
    }

    /// Flushes, and returns the bytes that are not durable yet, if they are no more than `room`: the catalogue can make
    /// them durable. `None` if a sync is needed. A server writes the bytes with the commit.
    pub(crate) fn flush_for_log(&mut self, room: usize) -> Result<Option<Vec<FileWrite>>> {
        self.check_usable()?;
        // If the file is at a server and the catalogue is not, only this writer can write the bytes.
        let room = if self.file.is_local() == self.catalog.local().is_ok() { room } else { 0 };
        if self.is_private {
            if let Some(writes) = self.end_private(room)? {
                return Ok(Some(writes));
            }
            self.share()?;
        }
        // They are still in the window, unless they cross its end.
        let bytes = self.durable_end.and_then(|offset| {
            let in_window = &self.window[self.window_offset(offset)..];
            let size = usize::try_from(self.next - offset).ok().filter(|size| *size <= room)?;
            in_window.get(..size).map(|bytes| (offset, bytes.to_vec()))
        });
        let Some((offset, bytes)) = bytes else {
            self.flush()?;
            return Ok(None);
        };
        if self.file.is_local() {
            self.flush()?;
        } else {
            self.file.note_written(&bytes, offset);
        }
        (self.flushed, self.durable_end) = (self.next, Some(self.next));
        Ok(Some(vec![FileWrite { database: self.database, offset, bytes }]))
    }

    /// Writes zeros where the next small transactions will write. A sync of blocks that were written before
    /// needs no journal of the file system; one of blocks that were only allocated does.
    fn write_zeros_ahead(&mut self) -> Result<()> {
        let end = self.end.min(self.next + ZEROS.len() as u64);
        // On a server the gain is not known, and the zeros would cross the network.
        if !self.file.is_local()
            || self.is_huge_page
            || self.next <= self.zeroed_end
            || self.next == end
        {
            return Ok(());
        }
        self.zeroed_end = end;
        self.file.write(&ZEROS[..(end - self.next) as usize], self.next)
    }

    /// Drops blobs that are not flushed yet. Their space stays unused.
    pub(crate) fn discard(&mut self) {
        // The bytes that are logged next are in the file; the dropped bytes are not.
        let was_durable = self.durable_end == Some(self.flushed);
        if self.flushed < self.next {
            self.durable_end = was_durable.then_some(self.next);
            self.flushed = self.next;
        }
    }

    /// Fails if writes were lost with the connection to a server, and with [`Error::Closed`] if an earlier write or
    /// sync failed. The next transaction opens the file anew.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.file.is_broken() {
            // This reports which writes were lost.
            self.file.settle()?;
            // The server had acknowledged all of them, but they were not durable.
            let lost = "its connection was lost, and with it uncommitted writes; run the transaction again";
            let lost = std::io::Error::new(std::io::ErrorKind::ConnectionReset, lost);
            return Err(Error::io("write", &self.file.path, lost));
        }
        if self.failed {
            return Err(Error::Closed {
                what: format!(
                    "an earlier write to {} failed; open the federation again",
                    self.file.path.display()
                ),
            });
        }
        Ok(())
    }

    fn write(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.begin_blob(parts.iter().map(|part| part.len() as u64).sum())?;
        parts.iter().try_for_each(|part| self.put(part))?;
        Ok(offset)
    }

    /// Writes a blob and its checksum. If the blob lies in one window, the checksum is computed there, which is
    /// faster.
    fn write_with_checksum(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let offset = self.begin_blob((size + size_of::<u64>()) as u64)?;
        let start = self.window_offset(offset);
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

    /// Makes room for a blob in the extent or takes another one, and returns the offset where the blob starts.
    fn begin_blob(&mut self, size: u64) -> Result<u64> {
        self.reserve(size)?;
        let offset = self.next.next_multiple_of(ALIGNMENT);
        if size > 0 {
            self.assert_owns(offset, offset + size);
        }
        self.put(&[0; ALIGNMENT as usize][..(offset - self.next) as usize])?;
        self.bytes_written += size;
        Ok(offset)
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let start = self.window_offset(self.next);
            let room = &mut self.window[start..];
            let (fitting, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..fitting.len()].copy_from_slice(fitting);
            self.next += fitting.len() as u64;
            if self.window_offset(self.next) == 0 {
                self.flush()?;
            }
            bytes = rest;
        }
        Ok(())
    }
}

impl BlobSink for ExtentWriter {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        self.write(parts).map_err(|error| error.into_rntuple("cannot store a page"))
    }

    fn write_with_checksum(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        self.write_with_checksum(parts).map_err(|error| error.into_rntuple("cannot store a page"))
    }
}
