//! Small ranges of files on a server that this process wrote or read recently: a small transaction mostly reads the
//! bytes that the one before it wrote.
//!
//! 1. The ranges of a file are those of one epoch of its database, in which no byte that a version refers to is
//!    written again.
//! 2. Memory is bounded, for each range, each file and all files.
//! 3. Bytes that a transaction wrote and did not commit are forgotten when it ends: no version refers to them, so they
//!    may not be durable at their place.
//! 4. If a checksum does not match, all ranges of the file are forgotten, and the server is asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::{BlobRange, Csn, DatabaseId};
use parking_lot::Mutex;
use rntuple::{ByteSource, ReadRequest};

/// Bytes of a range that was written, at most.
const WRITTEN_BYTES_MAX: usize = 64 << 10;
/// Bytes of one read that are retained, at most.
const READ_BYTES_MAX: usize = 16 << 10;
/// Bytes of one file, at most.
const FILE_BYTES_MAX: usize = 512 << 10;
/// Files, at most, but for those that are open for writing.
const FILES_MAX: usize = 64;

/// The ranges of all files, in the order in which these were opened first. All writers of a file in one epoch share its
/// ranges.
#[derive(Debug, Default)]
pub(crate) struct RecentFiles(Mutex<VecDeque<(DatabaseId, u64, Arc<RecentRanges>)>>);

impl RecentFiles {
    /// The ranges of a database's file in an epoch.
    pub(crate) fn ranges(&self, database: DatabaseId, epoch: u64) -> Arc<RecentRanges> {
        let mut files = self.0.lock();
        let found = files.iter().position(|(id, of, _)| (*id, *of) == (database, epoch));
        if let Some((.., ranges)) = found.and_then(|place| files.get(place)) {
            return ranges.clone();
        }
        let is_unused = |(.., ranges): &(_, _, Arc<_>)| Arc::strong_count(ranges) == 1;
        if files.len() >= FILES_MAX
            && let Some(place) = files.iter().position(is_unused)
        {
            files.remove(place);
        }
        let ranges = Arc::<RecentRanges>::default();
        files.push_back((database, epoch, ranges.clone()));
        ranges
    }

    /// Forgets all ranges.
    pub(crate) fn clear(&self) {
        self.0.lock().iter().for_each(|(.., ranges)| ranges.clear());
    }
}

/// A writer's knowledge of its file.
#[derive(Debug)]
pub(crate) struct KnownFile {
    pub ranges: Arc<RecentRanges>,
    /// A size that holds all that the writer reads; 0 if it is to be asked for.
    size: AtomicU64,
}

impl KnownFile {
    pub(crate) fn new(ranges: Arc<RecentRanges>) -> Self {
        KnownFile { ranges, size: AtomicU64::new(0) }
    }

    /// The size, which `ask` finds if it is not known.
    pub(crate) fn size(&self, ask: impl FnOnce() -> rntuple::Result<u64>) -> rntuple::Result<u64> {
        if let Some(known) = self.known_size() {
            return Ok(known);
        }
        let size = ask()?;
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// The size, if it is known. Containers that another writer of this process committed lie before its end, too.
    fn known_size(&self) -> Option<u64> {
        let known = self.size.load(Ordering::Relaxed);
        (known > 0).then(|| known.max(self.ranges.end.load(Ordering::Relaxed)))
    }

    /// Records that the writer was given an extent that ends at `end`.
    pub(crate) fn note_end(&self, end: u64) {
        self.ranges.end.fetch_max(end, Ordering::Relaxed);
    }

    /// Records that the writer committed versions, all of whose bytes lie in the file as the writer knows it.
    pub(crate) fn note_commit(&self, csn: Csn) {
        *self.ranges.committed.lock() = self.known_size().map(|size| (csn, size));
    }

    /// Forgets the size, before bytes of other writers are read.
    pub(crate) fn forget_size(&self) {
        self.size.store(0, Ordering::Relaxed);
    }
}

/// The ranges of one file in one epoch.
#[derive(Debug, Default)]
pub(crate) struct RecentRanges {
    ranges: Mutex<KeptRanges>,
    /// The end of the last of all extents that writers of this process were given.
    end: AtomicU64,
    /// The last commit of this process to the file, and a size that holds all bytes of its versions.
    committed: Mutex<Option<(Csn, u64)>>,
}

#[derive(Debug, Default)]
struct KeptRanges {
    by_start: BTreeMap<u64, Box<[u8]>>,
    /// Their starts, in the order in which they were added.
    order: VecDeque<u64>,
    bytes: usize,
}

impl RecentRanges {
    /// A size that holds all bytes of a version of this commit, if it is the last one of this process.
    pub(crate) fn size_as_of(&self, csn: Csn) -> Option<u64> {
        self.committed.lock().filter(|(last, _)| *last == csn).map(|(_, size)| size)
    }

    /// Adds bytes that were written.
    pub(crate) fn add_written(&self, bytes: &[u8], offset: u64) {
        if bytes.len() <= WRITTEN_BYTES_MAX {
            self.ranges.lock().add(offset, bytes);
        }
    }

    /// Adds bytes that were read from the server.
    fn add_read(&self, requests: &[ReadRequest<'_>]) {
        if requests.iter().map(|request| request.buffer.len()).sum::<usize>() <= READ_BYTES_MAX {
            let mut ranges = self.ranges.lock();
            requests.iter().for_each(|request| ranges.add(request.offset, request.buffer));
        }
    }

    /// Fills requests from the ranges, and the rest by `fetch`, whose bytes are added to the ranges.
    pub(crate) fn read<'a>(
        &self,
        requests: &'a mut [ReadRequest<'_>],
        fetch: impl FnOnce(&mut [ReadRequest<'a>]) -> rntuple::Result<()>,
    ) -> rntuple::Result<()> {
        let mut missing = self.fill(requests);
        if !missing.is_empty() {
            fetch(&mut missing)?;
            self.add_read(&missing);
        }
        Ok(())
    }

    /// Reads several small ranges of a file at once and adds them, because they will be read one by one. Errors are
    /// left to those reads.
    pub(crate) fn add_together(&self, file: &dyn ByteSource, ranges: &[BlobRange]) {
        let total = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.size));
        if total > READ_BYTES_MAX as u64 {
            return;
        }
        let mut buffers: Vec<_> = ranges.iter().map(|range| vec![0; range.size as usize]).collect();
        let requests = ranges.iter().zip(&mut buffers).filter(|(range, _)| range.size > 0);
        let requests = requests.map(|(range, buffer)| ReadRequest { offset: range.offset, buffer });
        // The file adds the bytes that it reads.
        drop(file.read_many(&mut requests.collect::<Vec<_>>()));
    }

    /// Fills each request that lies within one range, and returns the other requests.
    fn fill<'a>(&self, requests: &'a mut [ReadRequest<'_>]) -> Vec<ReadRequest<'a>> {
        let ranges = self.ranges.lock();
        let requests =
            requests.iter_mut().filter_map(|ReadRequest { offset, buffer }| {
                match ranges.find(*offset, buffer.len()) {
                    Some(bytes) => {
                        buffer.copy_from_slice(bytes);
                        None
                    }
                    None => Some(ReadRequest { offset: *offset, buffer }),
                }
            });
        requests.collect()
    }

    pub(crate) fn clear(&self) {
        *self.ranges.lock() = KeptRanges::default();
    }
}

impl KeptRanges {
    fn find(&self, offset: u64, size: usize) -> Option<&[u8]> {
        let (start, bytes) = self.by_start.range(..=offset).next_back()?;
        let from = usize::try_from(offset - start).ok()?;
        bytes.get(from..from.checked_add(size)?)
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.by_start.insert(offset, bytes.into()) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(offset),
        }
        self.bytes += bytes.len();
        while self.bytes > FILE_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            let removed = self.by_start.remove(&oldest);
            self.bytes -= removed.map_or(0, |bytes| bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the ranges have; `None` if they lack some.
    fn read(ranges: &RecentRanges, offset: u64, size: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; size];
        let missing = ranges.fill(&mut [ReadRequest { offset, buffer: &mut buffer }]).len();
        (missing == 0).then_some(buffer)
    }

    #[test]
    fn requests_within_one_range_are_filled_and_all_others_remain() {
        let ranges = RecentRanges::default();
        ranges.add_written(&[1, 2, 3, 4], 100);
        ranges.add_read(&[ReadRequest { offset: 200, buffer: &mut [5, 6] }]);
        assert_eq!(read(&ranges, 101, 3), Some(vec![2, 3, 4]));
        assert_eq!(read(&ranges, 200, 2), Some(vec![5, 6]));
        for (offset, size) in [(101, 4), (99, 2), (104, 1), (202, 1), (u64::MAX, 1)] {
            assert_eq!(read(&ranges, offset, size), None, "{offset}, {size}");
        }
        ranges.clear();
        assert_eq!(read(&ranges, 101, 3), None);
    }

    #[test]
    fn the_oldest_ranges_make_room_and_large_ones_are_not_kept() {
        let ranges = RecentRanges::default();
        ranges.add_written(&vec![7; WRITTEN_BYTES_MAX + 1], 0);
        ranges.add_read(&[ReadRequest { offset: 0, buffer: &mut vec![7; READ_BYTES_MAX + 1] }]);
        assert_eq!(read(&ranges, 0, 1), None);
        let block = vec![8; WRITTEN_BYTES_MAX];
        let count = FILE_BYTES_MAX / WRITTEN_BYTES_MAX;
        (0..=count).for_each(|at| ranges.add_written(&block, (at * WRITTEN_BYTES_MAX) as u64));
        assert_eq!(read(&ranges, 0, 1), None);
        assert_eq!(read(&ranges, WRITTEN_BYTES_MAX as u64, 1), Some(vec![8]));
    }

    #[test]
    fn a_writer_knows_of_extents_that_another_one_was_given() {
        let ranges = Arc::<RecentRanges>::default();
        let [first, second] = [0, 1].map(|_| KnownFile::new(ranges.clone()));
        assert_eq!(first.size(|| Ok(100)).unwrap(), 100);
        second.note_end(300);
        assert_eq!(first.size(|| Ok(0)).unwrap(), 300);
        first.note_commit(Csn(7));
        assert_eq!(ranges.size_as_of(Csn(7)), Some(300));
        first.forget_size();
        assert_eq!(first.size(|| Ok(400)).unwrap(), 400);
    }

    #[test]
    fn ranges_of_open_files_are_kept() {
        let files = RecentFiles::default();
        let open = files.ranges(DatabaseId(1), 0);
        (2..200).for_each(|id| drop(files.ranges(DatabaseId(id), 0)));
        assert!(Arc::ptr_eq(&open, &files.ranges(DatabaseId(1), 0)));
        assert_eq!(files.0.lock().len(), FILES_MAX);
    }

    #[test]
    fn a_file_has_other_ranges_in_another_epoch() {
        let files = RecentFiles::default();
        files.ranges(DatabaseId(1), 4).add_written(&[1], 0);
        assert_eq!(read(&files.ranges(DatabaseId(1), 4), 0, 1), Some(vec![1]));
        assert_eq!(read(&files.ranges(DatabaseId(1), 5), 0, 1), None);
        assert_eq!(read(&files.ranges(DatabaseId(2), 4), 0, 1), None);
        files.clear();
        assert_eq!(read(&files.ranges(DatabaseId(1), 4), 0, 1), None);
    }
}
