//! The kept pages of one file: at their offsets in a sparse file, with a table of their checksums.
//!
//! ```text
//! NAME.pages   | header: 4096 bytes | page 0: u64 | page 1: u64 | ..
//! NAME.bytes   | page 0: 4096 bytes | page 1: 4096 bytes | ..         as in the origin's file
//! ```
//!
//! 1. An entry of the table is 0, or [`KEPT`] above the page's CRC32C, little-endian. It is written after the page, and
//!    neither is synced: the checksum decides whether a page is valid.
//! 2. The header names the file and its version. Files of another version, or with a damaged header, are replaced by
//!    new ones, so no page of another version is ever found.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use nix::libc;

use super::header::{
    HEADER_BYTES, TABLE, Version, decode_header, encode_header, name_in, read_header,
};

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// The extension of the pages' file.
pub(super) const BYTES: &str = "bytes";

/// The largest size of a file.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64 - PAGE_BYTES;

/// Entries that are read together.
const LOOKED_AT: u64 = 8192;
/// The upper half of the entry of a kept page.
const KEPT: u64 = 0x4b45_5054 << 32;
const ENTRY_BYTES: u64 = 8;

/// The kept pages of one version of a file.
#[derive(Debug)]
pub(super) struct KeptPages {
    bytes: File,
    table: File,
    size: u64,
    /// The error number of the last read that the disk refused; 0 if there is none to report.
    refused: AtomicI32,
}

/// Whether reading may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadMode {
    Blocking,
    NonBlocking,
}

impl KeptPages {
    /// The version of a file whose pages are kept; `None` if none are, or its header is damaged.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub(super) fn version(stem: &Path, name: &[u8]) -> io::Result<Option<Version>> {
        Ok(read_header(stem)?.and_then(|header| decode_header(&header, name)))
    }

    /// The name of the file whose pages are kept; `None` if none are, or its header is damaged.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub(super) fn name(stem: &Path) -> io::Result<Option<Vec<u8>>> {
        Ok(read_header(stem)?.and_then(|header| name_in(&header).map(<[u8]>::to_vec)))
    }

    /// Opens the kept pages of a file if they are of the right version.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn open_kept(
        stem: &Path,
        name: &[u8],
        is_right: impl Fn(Version) -> bool,
    ) -> io::Result<Option<Self>> {
        let Some(version) = Self::version(stem, name)?.filter(|kept| is_right(*kept)) else {
            return Ok(None);
        };
        match Self::open_files(stem, version.size, false) {
            Ok(pages) => Ok(Some(pages)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Opens the kept pages of a file if they are of the right version; otherwise replaces them by an empty table of
    /// this version.
    ///
    /// # Errors
    /// If the files cannot be opened or created, or the name is too long for the header.
    pub(super) fn open(
        stem: &Path,
        name: &[u8],
        version: Version,
        is_right: impl Fn(Version) -> bool,
    ) -> io::Result<Self> {
        if let Some(pages) = Self::open_kept(stem, name, is_right)? {
            return Ok(pages);
        }
        remove(stem);
        let header = encode_header(name, version)?;
        let pages = Self::open_files(stem, version.size, true)?;
        // The rest of a sparse file reads as zeros: no page is kept.
        pages.bytes.set_len(version.size)?;
        pages.table.set_len(HEADER_BYTES as u64 + page_count(version.size) * ENTRY_BYTES)?;
        pages.table.write_all_at(&header, 0)?;
        Ok(pages)
    }

    fn open_files(stem: &Path, size: u64, is_new: bool) -> io::Result<Self> {
        let open = |extension| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create_new(is_new)
                .mode(0o600)
                .open(stem.with_extension(extension))
        };
        let (table, bytes) = (open(TABLE)?, open(BYTES)?);
        if !is_new && bytes.metadata()?.len() != size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(KeptPages { bytes, table, size, refused: AtomicI32::new(0) })
    }

    /// Why the disk refused a read, if it did since the last call.
    pub(super) fn take_refusal(&self) -> Option<io::Error> {
        let number = self.refused.swap(0, Ordering::Relaxed);
        (number != 0).then(|| io::Error::from_raw_os_error(number))
    }

    /// Records the use of the file: its time of modification is that of the last use.
    pub(super) fn touch(&self) {
        // If this fails, the file is evicted a little earlier.
        let _ = self.bytes.set_modified(clock::utc());
    }

    /// Whether all pages have an entry.
    pub(super) fn are_all_there(&self) -> bool {
        let pages = 0..page_count(self.size);
        let parts = pages.step_by(LOOKED_AT as usize);
        parts.into_iter().all(|first| {
            let last = (first + LOOKED_AT).min(page_count(self.size));
            self.lacking(first..last).is_empty()
        })
    }

    /// Fills a range within the file from the kept pages, and returns the missing pages as ascending, separate ranges;
    /// their bytes in the buffer are unspecified. `None` if a non-blocking read would have to wait.
    pub(super) fn fill(
        &self,
        offset: u64,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Option<Vec<Range<u64>>> {
        let pages = pages_of(offset, buffer.len() as u64);
        let entries = self.entries(pages.clone(), mode)?;
        if entries.iter().all(|entry| checksum_of(*entry).is_none()) {
            return Some(runs(pages.start, entries.iter().map(|_| false)));
        }
        let mut before = [0; PAGE_BYTES as usize];
        let mut after = [0; PAGE_BYTES as usize];
        let before = &mut before[..(offset - pages.start * PAGE_BYTES) as usize];
        let end = offset + buffer.len() as u64;
        let after = &mut after[..((pages.end * PAGE_BYTES).min(self.size) - end) as usize];
        let whole = (before.len() + buffer.len() + after.len()) as u64;
        let read = self.read_parts([before, buffer, after], pages.start * PAGE_BYTES, mode)?;
        if read != whole {
            // Another program has truncated the file, or the disk fails.
            return Some(runs(pages.start, entries.iter().map(|_| false)));
        }
        let mut rest = [&*before, &*buffer, &*after];
        let are_right =
            entries.iter().map(|entry| Some(next_checksum(&mut rest)) == checksum_of(*entry));
        Some(runs(pages.start, are_right))
    }

    /// The pages of a range that have no entry.
    pub(super) fn lacking(&self, pages: Range<u64>) -> Vec<Range<u64>> {
        let entries = self.entries(pages.clone(), ReadMode::Blocking).unwrap_or_default();
        runs(pages.start, entries.iter().map(|entry| checksum_of(*entry).is_some()))
    }

    /// Keeps whole pages; the last of the file may be shorter. Returns the bytes that they take of the disk.
    ///
    /// # Errors
    /// If the disk refuses them.
    pub(super) fn keep(&self, first: u64, bytes: &[u8]) -> io::Result<u64> {
        self.bytes.write_all_at(bytes, first * PAGE_BYTES)?;
        let entries: Vec<u8> = bytes
            .chunks(PAGE_BYTES as usize)
            .flat_map(|page| (KEPT | u64::from(crc32c::crc32c(page))).to_le_bytes())
            .collect();
        self.table.write_all_at(&entries, HEADER_BYTES as u64 + first * ENTRY_BYTES)?;
        Ok(page_count(bytes.len() as u64) * (PAGE_BYTES + ENTRY_BYTES))
    }

    /// The entries of pages. Those that cannot be read are 0.
    fn entries(&self, pages: Range<u64>, mode: ReadMode) -> Option<Vec<u64>> {
        let mut bytes = vec![0; ((pages.end - pages.start) * ENTRY_BYTES) as usize];
        let offset = HEADER_BYTES as u64 + pages.start * ENTRY_BYTES;
        let slices = &mut [io::IoSliceMut::new(&mut bytes)];
        let read = self.read_at(&self.table, slices, offset, mode)?;
        bytes[read..].fill(0);
        let words = bytes.chunks_exact(ENTRY_BYTES as usize);
        Some(words.flat_map(<[u8; 8]>::try_from).map(u64::from_le_bytes).collect())
    }

    fn read_parts(&self, parts: [&mut [u8]; 3], offset: u64, mode: ReadMode) -> Option<u64> {
        let mut slices = parts.map(io::IoSliceMut::new);
        self.read_at(&self.bytes, &mut slices, offset, mode).map(|read| read as u64)
    }

    /// One read. Errors are recorded, and count as missing bytes. `None` if a non-blocking read would have to wait for
    /// the disk.
    fn read_at(
        &self,
        file: &File,
        slices: &mut [io::IoSliceMut<'_>],
        offset: u64,
        mode: ReadMode,
    ) -> Option<usize> {
        let Ok(offset) = libc::off_t::try_from(offset) else { return Some(0) };
        let flags = if mode == ReadMode::NonBlocking { libc::RWF_NOWAIT } else { 0 };
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let count = slices.len() as libc::c_int;
        // SAFETY: `IoSliceMut` has the layout of `iovec`, the buffers are borrowed exclusively, and the descriptor is open.
        let read = unsafe {
            libc::preadv2(file.as_raw_fd(), slices.as_mut_ptr().cast(), count, offset, flags)
        };
        match Errno::result(read) {
            Ok(read) if mode == ReadMode::NonBlocking && (read as usize) < wanted => None,
            Ok(read) => Some(read as usize),
            Err(_) if mode == ReadMode::NonBlocking => None,
            Err(errno) => {
                self.refused.store(errno as i32, Ordering::Relaxed);
                Some(0)
            }
        }
    }
}

/// Removes the kept pages of a file. Clients that have it open can continue to read.
pub(super) fn remove(stem: &Path) {
    for extension in [TABLE, BYTES] {
        // Another thread may have removed it.
        drop(fs::remove_file(stem.with_extension(extension)));
    }
}

/// The bytes that a file takes on the disk; 0 if it does not exist.
pub(super) fn blocks(metadata: io::Result<fs::Metadata>) -> u64 {
    // `st_blocks` counts units of 512 bytes, whatever the file system's block size is.
    metadata.map_or(0, |metadata| metadata.blocks() * 512)
}

/// The pages that a range of bytes touches.
pub(super) fn pages_of(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE_BYTES..page_count(offset + length)
}

fn page_count(size: u64) -> u64 {
    size.div_ceil(PAGE_BYTES)
}

fn checksum_of(entry: u64) -> Option<u32> {
    (entry & !u64::from(u32::MAX) == KEPT).then_some(entry as u32)
}

/// The checksum of the next page of bytes in several parts, which are shortened by it.
fn next_checksum(parts: &mut [&[u8]; 3]) -> u32 {
    let (mut checksum, mut left) = (0, PAGE_BYTES as usize);
    for part in parts {
        let (now, later) = part.split_at(left.min(part.len()));
        checksum = crc32c::crc32c_append(checksum, now);
        left -= now.len();
        *part = later;
    }
    checksum
}

/// The runs of missing pages, from `first` on.
fn runs(first: u64, are_there: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = vec![];
    for (page, _) in (first..).zip(are_there).filter(|(_, is_there)| !is_there) {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::header::LEAD_BYTES;
    use super::*;

    const SIZE: u64 = 10 * PAGE_BYTES + 100;
    const VERSION: Version = Version { id: 7, size: SIZE, modified: 1234 };

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at * 31 / 7) as u8).collect()
    }

    fn open(folder: &Path, version: Version) -> KeptPages {
        KeptPages::open(&folder.join("x"), b"/a/b", version, |kept| kept == version).unwrap()
    }

    fn lacking(pages: &KeptPages, range: Range<u64>) -> Vec<Range<u64>> {
        let mut buffer = vec![0; (range.end - range.start) as usize];
        let lacking = pages.fill(range.start, &mut buffer, ReadMode::Blocking).unwrap();
        if lacking.is_empty() {
            assert_eq!(buffer, content()[range.start as usize..range.end as usize]);
        }
        lacking
    }

    #[test]
    fn kept_pages_are_read_at_any_offset_and_missing_ones_returned() {
        let folder = tempfile::tempdir().unwrap();
        let pages = open(folder.path(), VERSION);
        assert_eq!(lacking(&pages, 0..SIZE), [0..11]);
        let content = content();
        pages.keep(2, &content[2 * 4096..5 * 4096]).unwrap();
        pages.keep(10, &content[10 * 4096..]).unwrap();
        for range in [8192..20_480, 8193..8194, 10_000..20_479, 40_960..SIZE, SIZE - 1..SIZE] {
            assert_eq!(lacking(&pages, range), [] as [Range<u64>; 0]);
        }
        assert_eq!(lacking(&pages, 5000..SIZE), [1..2, 5..10]);
        assert_eq!(pages.lacking(0..11), [0..2, 5..10]);
        let again = open(folder.path(), VERSION);
        assert_eq!(lacking(&again, 0..SIZE), [0..2, 5..10]);
        assert_eq!(KeptPages::version(&folder.path().join("x"), b"/a/b").unwrap(), Some(VERSION));
        assert_eq!(KeptPages::version(&folder.path().join("x"), b"/a/c").unwrap(), None);
        assert_eq!(
            KeptPages::name(&folder.path().join("x")).unwrap().as_deref(),
            Some(&b"/a/b"[..])
        );
        assert_eq!(KeptPages::name(&folder.path().join("y")).unwrap(), None);
        assert!(!again.are_all_there());
        pages.keep(0, &content).unwrap();
        assert!(again.are_all_there());
    }

    #[test]
    fn damaged_pages_and_entries_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let pages = open(folder.path(), VERSION);
        pages.keep(0, &content()).unwrap();
        pages.bytes.write_all_at(b"!", 3 * 4096 + 17).unwrap();
        pages.table.write_all_at(b"!", HEADER_BYTES as u64 + 5 * 8).unwrap();
        pages.table.write_all_at(&[0; 8], HEADER_BYTES as u64 + 7 * 8).unwrap();
        assert_eq!(lacking(&pages, 0..SIZE), [3..4, 5..6, 7..8]);
        pages.bytes.set_len(9000).unwrap();
        assert_eq!(lacking(&pages, 0..SIZE), [0..11]);
        assert_eq!(lacking(&pages, 0..8192), []);
        assert_eq!(
            lacking(&open(folder.path(), VERSION), 0..SIZE),
            [0..11],
            "the cut file is replaced"
        );
    }

    #[test]
    fn a_read_that_the_disk_refuses_is_noted_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut pages = open(folder.path(), VERSION);
        pages.keep(0, &content()).unwrap();
        // The lowest addresses of this process are unmapped.
        pages.bytes = File::open("/proc/self/mem").unwrap();
        assert_eq!(lacking(&pages, 0..SIZE), [0..11], "the bytes are not there");
        let refused = pages.take_refusal().and_then(|error| error.raw_os_error());
        assert_eq!(refused, Some(Errno::EIO as i32));
        assert!(pages.take_refusal().is_none());
    }

    #[test]
    fn another_version_or_a_damaged_header_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("x");
        let others = [
            Version { id: 8, ..VERSION },
            Version { modified: 1235, ..VERSION },
            Version { size: SIZE + 1, ..VERSION },
        ];
        for version in others {
            open(folder.path(), VERSION).keep(0, &content()).unwrap();
            assert_eq!(open(folder.path(), version).lacking(0..11), [0..11], "{version:?}");
        }
        open(folder.path(), VERSION).keep(0, &content()).unwrap();
        let mut header = fs::read(stem.with_extension(TABLE)).unwrap();
        header[40] ^= 1;
        fs::write(stem.with_extension(TABLE), &header).unwrap();
        assert_eq!(KeptPages::name(&stem).unwrap(), None);
        assert_eq!(open(folder.path(), VERSION).lacking(0..11), [0..11]);
        header[LEAD_BYTES - 8..LEAD_BYTES].fill(0xff);
        fs::write(stem.with_extension(TABLE), &header).unwrap();
        assert_eq!(KeptPages::name(&stem).unwrap(), None, "no name is so long");
        assert!(KeptPages::open(&stem, &[b'a'; 5000], VERSION, |_| true).is_err());
    }
}
