//! Reading ahead from a server: bursts of bytes that are fetched before somebody asks for them.
//!
//! 1. Bursts belong to one version of a container: what it refers to was written before it was
//!    opened, so no burst has bytes from before they were written.
//! 2. A read that goes on where one before it ended is sequential. Once 512 KiB were read so, what
//!    comes next is fetched while that is used: as much again as was read, up to 4 MiB, and the next
//!    burst is on its way when one is begun.
//! 3. Ranges that somebody will need are one burst.
//! 4. A process holds at most so many bursts, whatever it reads; the oldest go first. A burst that is
//!    gone, or failed, is no error: its bytes are read when they are asked for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use rntuple::{ByteSource, ReadRequest};

use crate::file::DatabaseFile;

/// Bytes of a burst.
const BURST_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are read one after the other before more is fetched.
const SEQUENTIAL_BYTES_MIN: u64 = 512 << 10;
/// Bytes that may be left out between reads that follow each other.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Places of one version that are read sequentially at once.
const SEQUENCES_MAX: usize = 8;
/// Bursts that a federation holds.
const BURSTS_MAX: usize = 16;
/// Bursts that are gone whose memory is kept.
const FREE_MAX: usize = 4;

/// The bursts of a federation.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    held: Mutex<VecDeque<Arc<Burst>>>,
    /// Memory of bursts that are gone, for those to come.
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Bursts {
    /// Starts to fetch ranges, in their order.
    fn fetch(&self, file: &Arc<DatabaseFile>, ranges: Vec<Range<u64>>) -> Weak<Burst> {
        let (bytes, ready) = (Mutex::new(State::Fetching), Condvar::new());
        let free = self.free.clone();
        let burst = Arc::new(Burst { ranges, bytes, ready, free });
        let weak = Arc::downgrade(&burst);
        let (file, fetching) = (file.clone(), Fetching(burst.clone()));
        let named = std::thread::Builder::new().name("read-ahead".to_owned());
        if named.spawn(move || fetching.0.fill(&file)).is_err() {
            // Without a thread there is no reading ahead.
            return Weak::new();
        }
        let mut held = lock(&self.held);
        held.push_back(burst);
        if held.len() > BURSTS_MAX {
            held.pop_front();
        }
        weak
    }
}

/// Bytes of some ranges of a file, on their way or there.
#[derive(Debug)]
struct Burst {
    /// In their order, none within another.
    ranges: Vec<Range<u64>>,
    bytes: Mutex<State>,
    ready: Condvar,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Drop for Burst {
    fn drop(&mut self) {
        let state = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::There(bytes) = std::mem::replace(state, State::Failed) {
            let mut free = lock(&self.free);
            if free.len() < FREE_MAX {
                free.push(bytes);
            }
        }
    }
}

/// A burst that is being fetched, which ends whatever happens.
struct Fetching(Arc<Burst>);

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Debug)]
enum State {
    Fetching,
    /// The bytes of all ranges, one after the other.
    There(Vec<u8>),
    Failed,
}

impl Burst {
    fn fill(&self, file: &DatabaseFile) {
        let total: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        let mut bytes = lock(&self.free).pop().unwrap_or_default();
        bytes.resize(total as usize, 0);
        let fetched = match &self.ranges[..] {
            // It may go past the end of the file.
            [range] => {
                file.read_ahead_at(range.start, &mut bytes).map(|count| bytes.truncate(count))
            }
            ranges => {
                let mut rest = &mut bytes[..];
                let mut requests = Vec::with_capacity(ranges.len());
                for range in ranges {
                    let (buffer, behind) = rest.split_at_mut((range.end - range.start) as usize);
                    requests.push(ReadRequest { offset: range.start, buffer });
                    rest = behind;
                }
                file.read_ahead(&mut requests)
            }
        };
        if fetched.is_ok() {
            *lock(&self.bytes) = State::There(bytes);
        }
    }

    /// Tells who waits that no more comes.
    fn end(&self) {
        let mut state = lock(&self.bytes);
        if let State::Fetching = *state {
            *state = State::Failed;
        }
        self.ready.notify_all();
    }

    /// Whether it has, or will have, these bytes.
    fn covers(&self, offset: u64, length: usize) -> bool {
        self.place_of(offset, length).is_some()
    }

    /// Where these bytes are among its own.
    fn place_of(&self, offset: u64, length: usize) -> Option<usize> {
        let end = offset.checked_add(length as u64)?;
        let index = self.ranges.partition_point(|range| range.end < end);
        let range = self.ranges.get(index).filter(|range| range.start <= offset)?;
        let before: u64 = self.ranges[..index].iter().map(|range| range.end - range.start).sum();
        Some((before + offset - range.start) as usize)
    }

    /// Waits for the bytes and copies them; false if they did not come.
    fn copy_to(&self, request: &mut ReadRequest<'_>) -> bool {
        let Some(place) = self.place_of(request.offset, request.buffer.len()) else { return false };
        let mut state = lock(&self.bytes);
        while let State::Fetching = *state {
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let State::There(bytes) = &*state else { return false };
        match bytes.get(place..place + request.buffer.len()) {
            Some(found) => {
                request.buffer.copy_from_slice(found);
                true
            }
            None => false,
        }
    }
}

/// Reading ahead of one version of a container.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bursts: Arc<Bursts>,
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    bursts: Vec<Weak<Burst>>,
    /// Those that were gone on with last come last.
    sequences: Vec<Sequence>,
}

/// Reads that follow each other.
#[derive(Debug)]
struct Sequence {
    /// Where the last one ended.
    end: u64,
    bytes: u64,
    /// Up to where bursts were fetched.
    fetched: u64,
}

impl ReadAhead {
    pub fn new(bursts: Arc<Bursts>) -> Self {
        ReadAhead { bursts, own: Mutex::default() }
    }

    /// Fills all requests, from bursts where these have them.
    pub fn read_many(
        &self,
        file: &Arc<DatabaseFile>,
        requests: &mut [ReadRequest<'_>],
    ) -> rntuple::Result<()> {
        self.go_on(file, requests);
        let mut missing = Vec::with_capacity(requests.len());
        for request in requests {
            if !self.find(request).is_some_and(|burst| burst.copy_to(request)) {
                missing.push(ReadRequest { offset: request.offset, buffer: &mut *request.buffer });
            }
        }
        match missing.is_empty() {
            true => Ok(()),
            false => file.read_many(&mut missing),
        }
    }

    /// Fetches ranges that will be needed, as many as fit into a burst.
    pub fn will_need(&self, file: &Arc<DatabaseFile>, ranges: &[Range<u64>]) {
        let mut left = BURST_BYTES_MAX;
        let fitting = ranges.iter().take_while(|range| {
            let size = range.end.saturating_sub(range.start);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        });
        let wanted: Vec<Range<u64>> =
            fitting.filter(|range| range.start < range.end).cloned().collect();
        if !wanted.is_empty() {
            let burst = self.bursts.fetch(file, wanted);
            lock(&self.own).add(burst);
        }
    }

    fn find(&self, request: &ReadRequest<'_>) -> Option<Arc<Burst>> {
        let own = lock(&self.own);
        let bursts = own.bursts.iter().rev().filter_map(Weak::upgrade);
        bursts.into_iter().find(|burst| burst.covers(request.offset, request.buffer.len()))
    }

    /// Notes what is read, and fetches what comes next if that is sequential.
    fn go_on(&self, file: &Arc<DatabaseFile>, requests: &[ReadRequest<'_>]) {
        let Some(range) = span(requests) else { return };
        // Locked until the burst is known, so that nobody else fetches the same.
        let mut own = lock(&self.own);
        if let Some(next) = own.next_burst(range)
            && let Some(missing) = own.not_held(next)
        {
            let burst = self.bursts.fetch(file, vec![missing]);
            own.add(burst);
        }
    }
}

/// The range that requests lie in, if they follow each other with small gaps.
fn span(requests: &[ReadRequest<'_>]) -> Option<Range<u64>> {
    let first = requests.first()?;
    let mut end = first.offset;
    for request in requests {
        if !(end..=end + GAP_BYTES_MAX).contains(&request.offset) {
            return None;
        }
        end = request.offset + request.buffer.len() as u64;
    }
    Some(first.offset..end)
}

impl Own {
    fn add(&mut self, burst: Weak<Burst>) {
        self.bursts.retain(|known| known.strong_count() > 0);
        self.bursts.push(burst);
    }

    /// What is left of a range without that at its front which other bursts have: places that are read
    /// sequentially run into each other.
    fn not_held(&self, range: Range<u64>) -> Option<Range<u64>> {
        let bursts: Vec<Arc<Burst>> = self.bursts.iter().filter_map(Weak::upgrade).collect();
        let held = || bursts.iter().flat_map(|burst| &burst.ranges);
        let mut start = range.start;
        while let Some(known) = held().find(|known| known.contains(&start)) {
            start = known.end;
        }
        (start < range.end).then_some(start..range.end)
    }

    /// What is to be fetched, now that this range is read.
    fn next_burst(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        let follows = |sequence: &Sequence| {
            (sequence.end..=sequence.end + GAP_BYTES_MAX).contains(&range.start)
        };
        let size = range.end - range.start;
        let mut sequence = match self.sequences.iter().position(follows) {
            Some(place) => {
                let known = self.sequences.remove(place);
                Sequence { end: range.end, bytes: known.bytes + size, ..known }
            }
            None => Sequence { end: range.end, bytes: size, fetched: 0 },
        };
        let burst_bytes = sequence.bytes.min(BURST_BYTES_MAX);
        let is_due = sequence.bytes >= SEQUENTIAL_BYTES_MIN
            && sequence.bytes > size
            && sequence.end + burst_bytes > sequence.fetched;
        let next = is_due.then(|| {
            let start = sequence.fetched.max(sequence.end);
            sequence.fetched = start + burst_bytes;
            start..sequence.fetched
        });
        self.sequences.push(sequence);
        if self.sequences.len() > SEQUENCES_MAX {
            self.sequences.remove(0);
        }
        next
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is held is whole whatever happened to a thread that held it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_one_after_the_other_is_fetched_ahead() {
        let mut own = Own::default();
        let step = 256 << 10;
        let read = |index: u64| index * step..(index + 1) * step;
        assert_eq!(own.next_burst(read(0)), None, "the first one");
        assert_eq!(own.next_burst(read(1)), Some(2 * step..4 * step));
        let mut fetched = 4 * step;
        for index in 2..200 {
            if let Some(next) = own.next_burst(read(index)) {
                assert_eq!(next.start, fetched, "without a gap");
                assert!(next.end - next.start <= BURST_BYTES_MAX);
                fetched = next.end;
            }
            assert!(fetched > (index + 1) * step, "the next burst is on its way");
            assert!(fetched <= (index + 1) * step + 2 * BURST_BYTES_MAX, "and no more than that");
        }
    }

    #[test]
    fn what_is_read_here_and_there_is_not() {
        let mut own = Own::default();
        for index in 0..100_u64 {
            let start = (index * 7919 % 100) << 30;
            assert_eq!(own.next_burst(start..start + (1 << 20)), None);
        }
    }

    #[test]
    fn sequences_at_several_places_are_kept_apart() {
        let mut own = Own::default();
        let mut bursts = 0;
        for index in 0..20_u64 {
            for place in 0..4_u64 {
                let start = (place << 40) + (index << 20);
                bursts += usize::from(own.next_burst(start..start + (1 << 20)).is_some());
            }
        }
        assert!(bursts >= 16, "{bursts}");
    }

    fn burst(ranges: Vec<Range<u64>>, bytes: Vec<u8>) -> Burst {
        let (bytes, ready) = (Mutex::new(State::There(bytes)), Condvar::new());
        Burst { ranges, bytes, ready, free: Arc::default() }
    }

    #[test]
    fn nothing_is_fetched_twice() {
        let held =
            [burst(vec![100..150, 150..200], vec![]), burst(vec![200..300, 400..500], vec![])];
        let held = held.map(Arc::new);
        let mut own = Own::default();
        held.iter().for_each(|burst| own.add(Arc::downgrade(burst)));
        assert_eq!(own.not_held(50..150), Some(50..150));
        assert_eq!(own.not_held(100..350), Some(300..350));
        assert_eq!(own.not_held(120..300), None);
        assert_eq!(own.not_held(450..600), Some(500..600));
        drop(held);
        assert_eq!(own.not_held(120..300), Some(120..300), "it is gone");
    }

    #[test]
    fn a_burst_knows_where_its_bytes_are() {
        let burst = burst(vec![100..110, 200..220], (0..30).collect());
        let mut buffer = [0; 5];
        let mut read = |offset| {
            let there = burst.copy_to(&mut ReadRequest { offset, buffer: &mut buffer });
            there.then_some(buffer[0])
        };
        assert_eq!(read(100), Some(0));
        assert_eq!(read(105), Some(5));
        assert_eq!(read(215), Some(25));
        assert_eq!(read(106), None, "past a range's end");
        assert_eq!(read(99), None);
        assert_eq!(read(300), None);
    }
}
