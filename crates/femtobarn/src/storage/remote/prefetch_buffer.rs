//! Prefetch buffers: the bytes of bursts, which are reads of a server's file ahead of their use.
//!
//! 1. A federation holds at most [`HELD_MAX`] times the bytes of the largest burst, whatever it reads. A buffer
//!    that was read to its end is freed at once, and its memory used for the next; of others the oldest go first.
//! 2. A burst that was dropped, or failed, is not an error: its bytes are read when they are asked for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rntuple::ReadRequest;

use crate::storage::remote::cached_file::CachedRemoteFile;

/// Bytes of a burst, whatever is asked for: one is memory at once.
const BURST_BYTES_MAX: u64 = 64 << 20;
/// PrefetchPool of the largest size that a federation holds.
const HELD_MAX: u64 = 8;
/// PrefetchPool that a federation holds, however small.
const COUNT_MAX: usize = 64;
/// PrefetchPool that are gone whose memory is kept.
const FREE_MAX: usize = 2;
/// PrefetchPool for which memory is used again.
const LARGE_BYTES: u64 = 512 << 10;

/// The prefetch buffers of a federation.
#[derive(Debug)]
pub(crate) struct PrefetchPool {
    /// Bytes of the largest; with 0 there are none.
    pub bytes_max: u64,
    held: Mutex<VecDeque<Arc<PrefetchBuffer>>>,
    /// Memory of bursts that are gone, for those to come.
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Who fetches a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// The caller, who needs it at once.
    Now,
    /// A thread, while the caller does something else.
    Meanwhile,
}

impl PrefetchPool {
    /// PrefetchPool of up to so many bytes, and of 64 MiB at most; with 0 none.
    pub fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max.min(BURST_BYTES_MAX);
        PrefetchPool { bytes_max, held: Mutex::default(), free: Arc::default() }
    }

    /// Bytes of all bursts that a federation holds.
    pub fn held_bytes_max(&self) -> u64 {
        self.bytes_max.saturating_mul(HELD_MAX)
    }

    /// A burst of ranges, sorted and apart, of `bytes_max` at most in all. It is to be
    /// [fetched](PrefetchBuffer::fetch); who reads it waits until then. `plan` tells for which plan.
    pub fn add(&self, ranges: Vec<Range<u64>>, plan: Option<u64>) -> Arc<PrefetchBuffer> {
        let burst = Arc::new(PrefetchBuffer::new(ranges, plan, self));
        let mut held = lock(&self.held);
        held.push_back(burst.clone());
        let mut bytes: u64 = held.iter().map(|burst| burst.size).sum();
        while (bytes > self.held_bytes_max() || held.len() > COUNT_MAX)
            && let Some(oldest) = held.pop_front()
        {
            bytes -= oldest.size;
        }
        burst
    }

    /// Lets go of a burst that was read to its end.
    pub fn release(&self, burst: &Arc<PrefetchBuffer>) {
        lock(&self.held).retain(|held| !Arc::ptr_eq(held, burst));
    }
}

/// Bytes of some ranges of a file, on their way or there.
#[derive(Debug)]
pub(crate) struct PrefetchBuffer {
    /// Sorted, none within another.
    ranges: Vec<Range<u64>>,
    /// Bytes of the ranges before each.
    before: Vec<u64>,
    size: u64,
    pub plan: Option<u64>,
    /// Bytes that were read from it.
    used: AtomicU64,
    bytes: Mutex<State>,
    ready: Condvar,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Bytes of memory that any burst fits into.
    room: u64,
}

#[derive(Debug)]
enum State {
    Fetching,
    /// The bytes of all ranges, one after the other: so many of them.
    There(Vec<u8>, usize),
    Failed,
}

impl Drop for PrefetchBuffer {
    fn drop(&mut self) {
        let state = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::There(bytes, _) = std::mem::replace(state, State::Failed)
            && self.size >= LARGE_BYTES
        {
            let mut free = lock(&self.free);
            if free.len() < FREE_MAX {
                free.push(bytes);
            }
        }
    }
}

/// A burst that is being fetched, which ends whatever happens.
struct Fetching(Arc<PrefetchBuffer>);

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl PrefetchBuffer {
    fn new(ranges: Vec<Range<u64>>, plan: Option<u64>, all: &PrefetchPool) -> Self {
        let mut size = 0;
        let count = |range: &Range<u64>| {
            size += range.end - range.start;
            size - (range.end - range.start)
        };
        let before = ranges.iter().map(count).collect();
        let (used, bytes, ready) = (AtomicU64::new(0), Mutex::new(State::Fetching), Condvar::new());
        let (free, room) = (all.free.clone(), all.bytes_max.max(size));
        PrefetchBuffer { ranges, before, size, plan, used, bytes, ready, free, room }
    }

    /// Fetches it, once.
    pub fn fetch(self: Arc<Self>, file: &CachedRemoteFile, how: Fetch) {
        let fetching = Fetching(self);
        match how {
            Fetch::Now => fetching.0.fill(file, how),
            Fetch::Meanwhile => {
                let file = file.clone();
                let named = std::thread::Builder::new().name("read-ahead".to_owned());
                // Without a thread there is no reading ahead.
                drop(named.spawn(move || fetching.0.fill(&file, how)));
            }
        }
    }

    fn fill(&self, file: &CachedRemoteFile, how: Fetch) {
        let mut bytes = self.memory();
        let room = &mut bytes[..self.size as usize];
        let fetched = match (&self.ranges[..], self.plan) {
            // It may go past the end of the file.
            ([range], None) => file.read_ahead_at(range.start, room),
            (ranges, _) => {
                let mut requests = parted(ranges, room);
                let read = match how {
                    Fetch::Now => file.read_many(&mut requests),
                    Fetch::Meanwhile => file.read_ahead(&mut requests),
                };
                read.map(|()| self.size as usize)
            }
        };
        if let Ok(count) = fetched {
            *lock(&self.bytes) = State::There(bytes, count);
        }
    }

    /// Memory for its bytes and maybe more: what is used again is not cleared, and has room for any
    /// burst.
    fn memory(&self) -> Vec<u8> {
        if self.size < LARGE_BYTES {
            return vec![0; self.size as usize];
        }
        let free = lock(&self.free).pop();
        free.unwrap_or_else(|| vec![0; self.room as usize])
    }

    /// Tells who waits that no more comes.
    fn end(&self) {
        let mut state = lock(&self.bytes);
        if let State::Fetching = *state {
            *state = State::Failed;
        }
        self.ready.notify_all();
    }

    /// What it has, or will have.
    #[cfg(test)]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Bytes of it that nobody has read yet.
    pub fn left(&self) -> u64 {
        self.size.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Whether it has, or will have, any of these bytes.
    pub fn has_some_of(&self, range: &Range<u64>) -> bool {
        let index = self.index_of(range.start);
        self.ranges.get(index).is_some_and(|own| own.start < range.end)
    }

    /// Whether all of it lies before a byte.
    pub fn is_before(&self, offset: u64) -> bool {
        self.ranges.last().is_none_or(|last| last.end <= offset)
    }

    /// Up to where it has, or will have, what follows a byte.
    pub fn end_of(&self, offset: u64) -> Option<u64> {
        let range = self.ranges.get(self.index_of(offset)).filter(|range| range.start <= offset)?;
        Some(range.end)
    }

    /// The first range that ends behind a byte.
    fn index_of(&self, offset: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= offset)
    }

    /// Copies what it has of a request's front, once that is there; tells how many bytes that are.
    pub fn copy_front(&self, request: &mut ReadRequest<'_>) -> usize {
        let index = self.index_of(request.offset);
        let range = self.ranges.get(index).filter(|range| range.start <= request.offset);
        let Some(Range { start, end }) = range.cloned() else { return 0 };
        let place = (self.before[index] + request.offset - start) as usize;
        let length = request.buffer.len().min((end - request.offset) as usize);
        let mut state = lock(&self.bytes);
        while let State::Fetching = *state {
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let State::There(bytes, count) = &*state else { return 0 };
        let found = bytes[..*count].get(place..).unwrap_or_default();
        let found = &found[..length.min(found.len())];
        request.buffer[..found.len()].copy_from_slice(found);
        self.used.fetch_add(found.len() as u64, Ordering::Relaxed);
        found.len()
    }
}

/// Requests for ranges, one behind the other in memory.
fn parted<'a>(ranges: &[Range<u64>], mut room: &'a mut [u8]) -> Vec<ReadRequest<'a>> {
    let part = |range: &Range<u64>| {
        let (buffer, behind) =
            std::mem::take(&mut room).split_at_mut((range.end - range.start) as usize);
        room = behind;
        ReadRequest { offset: range.start, buffer }
    };
    ranges.iter().map(part).collect()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is held is whole whatever happened to a thread that held it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn there(ranges: Vec<Range<u64>>, bytes: Vec<u8>) -> PrefetchBuffer {
        let burst = PrefetchBuffer::new(ranges, None, &PrefetchPool::new(1 << 20));
        let count = bytes.len();
        *lock(&burst.bytes) = State::There(bytes, count);
        burst
    }

    #[test]
    fn a_burst_knows_where_its_bytes_are() {
        let burst = there(vec![100..110, 200..220], (0..30).collect());
        let mut buffer = [0; 5];
        let mut read = |offset| {
            let count = burst.copy_front(&mut ReadRequest { offset, buffer: &mut buffer });
            buffer[..count].to_vec()
        };
        assert_eq!(read(100), [0, 1, 2, 3, 4]);
        assert_eq!(read(105), [5, 6, 7, 8, 9]);
        assert_eq!(read(217), [27, 28, 29], "up to a range's end");
        assert!(read(110).is_empty());
        assert!(read(99).is_empty());
        assert!(read(300).is_empty());
        assert_eq!(burst.left(), 17);
        assert!(burst.has_some_of(&(90..101)));
        assert!(!burst.has_some_of(&(110..200)));
        assert_eq!(burst.end_of(109), Some(110));
        assert_eq!(burst.end_of(110), None);
    }

    #[test]
    fn no_more_is_held_than_may_be() {
        let bursts = PrefetchPool::new(1 << 20);
        let burst = |index: u64| {
            let start = index << 20;
            bursts.add(std::iter::once(start..start + (1 << 20)).collect(), None)
        };
        let count = bursts.held_bytes_max() >> 20;
        let all: Vec<_> = (0..count + 3).map(burst).collect();
        assert_eq!(lock(&bursts.held).len() as u64, count);
        assert_eq!(Arc::strong_count(&all[2]), 1, "the oldest is gone");
        bursts.release(&all[3]);
        assert_eq!(Arc::strong_count(&all[3]), 1, "what was read is gone");
        assert_eq!(Arc::strong_count(&all[4]), 2);
    }
}
