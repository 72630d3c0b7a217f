//! Prefetch buffers: ranges of a file on a server that are fetched before they are requested.
//!
//! 1. A buffer is fetched once. While the fetch is under way, a read of its ranges waits for it.
//! 2. A failed fetch is not an error: the buffer then returns no bytes, and the reader fetches them itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use rntuple::ReadRequest;

use super::memory::PrefetchMemory;
use crate::storage::remote::cached_file::CachedRemoteFile;

/// Which thread fetches a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchMode {
    /// The caller's, over the first connection, because the caller needs the bytes next.
    Now,
    /// A thread of its own, over a connection for prefetching.
    InBackground,
}

/// Some ranges of a file, fetched or being fetched.
#[derive(Debug)]
pub(super) struct PrefetchBuffer {
    /// In ascending order and disjoint.
    ranges: Vec<Range<u64>>,
    /// For each range, where its bytes start in the buffer.
    starts: Vec<u64>,
    /// Bytes of all ranges.
    size: u64,
    /// The number of the plan that it was fetched for; `None` for a sequence.
    plan: Option<u64>,
    /// Bytes that were copied out of it.
    used: AtomicU64,
    content: Mutex<BufferContent>,
    ready: Condvar,
    memory: PrefetchMemory,
}

#[derive(Debug)]
enum BufferContent {
    Fetching,
    /// The bytes of all ranges, back to back: the first `count` bytes of `bytes`.
    Fetched {
        bytes: Vec<u8>,
        count: usize,
    },
    Failed,
}

impl Drop for PrefetchBuffer {
    fn drop(&mut self) {
        if let BufferContent::Fetched { bytes, .. } =
            std::mem::replace(self.content.get_mut(), BufferContent::Failed)
        {
            self.memory.put_back(bytes, self.size);
        }
    }
}

/// A fetch under way. Dropping it wakes the readers that wait, also when the fetch failed or panicked.
struct FetchGuard(Arc<PrefetchBuffer>);

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let mut content = self.0.content.lock();
        if let BufferContent::Fetching = *content {
            *content = BufferContent::Failed;
        }
        self.0.ready.notify_all();
    }
}

impl PrefetchBuffer {
    pub(super) fn new(ranges: Vec<Range<u64>>, plan: Option<u64>, memory: PrefetchMemory) -> Self {
        let mut size = 0;
        let start = |range: &Range<u64>| {
            size += range.end - range.start;
            size - (range.end - range.start)
        };
        let starts = ranges.iter().map(start).collect();
        let (used, ready) = (AtomicU64::new(0), Condvar::new());
        let content = Mutex::new(BufferContent::Fetching);
        PrefetchBuffer { ranges, starts, size, plan, used, content, ready, memory }
    }

    /// Fetches the buffer. Called once.
    pub(super) fn fetch(self: Arc<Self>, file: &CachedRemoteFile, how: FetchMode) {
        let guard = FetchGuard(self);
        match how {
            FetchMode::Now => guard.0.fill(file, how),
            FetchMode::InBackground => {
                let file = file.clone();
                let thread = std::thread::Builder::new().name("prefetch".to_owned());
                // If no thread can be started, the dropped guard marks the buffer as failed.
                drop(thread.spawn(move || guard.0.fill(&file, how)));
            }
        }
    }

    fn fill(&self, file: &CachedRemoteFile, how: FetchMode) {
        let mut bytes = self.memory.take(self.size);
        let target = &mut bytes[..self.size as usize];
        let fetched = match (&self.ranges[..], self.plan) {
            // The range of a sequence may reach past the end of the file.
            ([range], None) => file.read_ahead_at(range.start, target),
            (ranges, _) => {
                let mut requests = requests_into(target, ranges);
                let read = match how {
                    FetchMode::Now => file.read_many(&mut requests),
                    FetchMode::InBackground => file.read_ahead(&mut requests),
                };
                read.map(|()| self.size as usize)
            }
        };
        if let Ok(count) = fetched {
            *self.content.lock() = BufferContent::Fetched { bytes, count };
        }
    }

    /// Its ranges.
    #[cfg(test)]
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Bytes of all ranges.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The number of the plan that it was fetched for; `None` for a sequence.
    pub(super) fn plan(&self) -> Option<u64> {
        self.plan
    }

    /// Bytes that were not copied out yet.
    pub(super) fn unused_bytes(&self) -> u64 {
        self.size.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Whether one of its ranges overlaps `range`.
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        let index = self.index_of(range.start);
        self.ranges.get(index).is_some_and(|own| own.start < range.end)
    }

    /// Whether all its ranges end at or before `offset`.
    pub(super) fn is_before(&self, offset: u64) -> bool {
        self.ranges.last().is_none_or(|last| last.end <= offset)
    }

    /// The end of the range that contains byte `offset`.
    pub(super) fn end_of_range_at(&self, offset: u64) -> Option<u64> {
        let range = self.ranges.get(self.index_of(offset)).filter(|range| range.start <= offset)?;
        Some(range.end)
    }

    /// The index of the first range that ends after `offset`.
    fn index_of(&self, offset: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= offset)
    }

    /// Copies the bytes at the front of a request that one of its ranges covers, and returns how many. Waits for
    /// a fetch that is under way.
    pub(super) fn copy_front(&self, request: &mut ReadRequest<'_>) -> usize {
        let index = self.index_of(request.offset);
        let range = self.ranges.get(index).filter(|range| range.start <= request.offset);
        let Some(Range { start, end }) = range.cloned() else { return 0 };
        let from = (self.starts[index] + request.offset - start) as usize;
        let length = request.buffer.len().min((end - request.offset) as usize);
        let mut content = self.content.lock();
        while let BufferContent::Fetching = *content {
            self.ready.wait(&mut content);
        }
        let BufferContent::Fetched { bytes, count } = &*content else { return 0 };
        let found = bytes[..*count].get(from..).unwrap_or_default();
        let found = &found[..length.min(found.len())];
        request.buffer[..found.len()].copy_from_slice(found);
        self.used.fetch_add(found.len() as u64, Ordering::Relaxed);
        found.len()
    }
}

/// Requests for ranges, whose bytes go to `target` back to back.
fn requests_into<'a>(mut target: &'a mut [u8], ranges: &[Range<u64>]) -> Vec<ReadRequest<'a>> {
    let request = |range: &Range<u64>| {
        let size = (range.end - range.start) as usize;
        let (buffer, rest) = std::mem::take(&mut target).split_at_mut(size);
        target = rest;
        ReadRequest { offset: range.start, buffer }
    };
    ranges.iter().map(request).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A buffer of these ranges that was fetched.
    pub(in super::super) fn fetched(ranges: Vec<Range<u64>>, bytes: Vec<u8>) -> PrefetchBuffer {
        let buffer = PrefetchBuffer::new(ranges, None, PrefetchMemory::new(1 << 20));
        let count = bytes.len();
        *buffer.content.lock() = BufferContent::Fetched { bytes, count };
        buffer
    }

    #[test]
    fn a_buffer_copies_only_bytes_of_its_ranges() {
        let buffer = fetched(vec![100..110, 200..220], (0..30).collect());
        let mut target = [0; 5];
        let mut read = |offset| {
            let count = buffer.copy_front(&mut ReadRequest { offset, buffer: &mut target });
            target[..count].to_vec()
        };
        assert_eq!(read(100), [0, 1, 2, 3, 4]);
        assert_eq!(read(105), [5, 6, 7, 8, 9]);
        assert_eq!(read(217), [27, 28, 29], "up to a range's end");
        assert!(read(110).is_empty());
        assert!(read(99).is_empty());
        assert!(read(300).is_empty());
        assert_eq!(buffer.unused_bytes(), 17);
        assert!(buffer.overlaps(&(90..101)));
        assert!(!buffer.overlaps(&(110..200)));
        assert_eq!(buffer.end_of_range_at(109), Some(110));
        assert_eq!(buffer.end_of_range_at(110), None);
    }
}
