//! Reading ahead of those who read a file in order, so that they do not wait for the origin at each read.
//!
//! 1. What is fetched ahead is at most a sixth of what was read in order before: whoever reads parts of a file costs
//!    the origin hardly more than these. What was left out counts as fetched ahead in vain, until it is read. Only a
//!    client that says it reads in order (`fb.access=sequential`) gets more, and one that says it does not
//!    (`fb.access=random`) gets nothing ahead.
//! 2. Several readers of one file are told apart by their places in it.

use std::ops::Range;

use parking_lot::Mutex;

use crate::physical::Opaque;

/// Bytes that are fetched ahead of one reader at most.
const WINDOW_MAX: u64 = 8 << 20;
/// Bytes that are fetched ahead at least: fewer are not worth a request.
const WINDOW_MIN: u64 = 64 << 10;
/// The part of what was read in order that is fetched ahead.
const PART: u64 = 6;
/// The part of the window that is fetched at once: with larger ones, readers would wait at its end.
const STEP: u64 = 8;
/// Readers that are told apart. Of more, those that have read the latest count.
const RUNS_MAX: usize = 16;

/// How a client says that it reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOrder {
    /// It has not said it.
    Unknown,
    Sequential,
    Random,
}

/// What was read in order, a run for each reader.
#[derive(Debug)]
pub(super) struct ReadAhead {
    order: ReadOrder,
    /// The latest one last.
    runs: Mutex<Vec<Run>>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Bytes that were read.
    bytes: u64,
    /// Bytes before the end that were not.
    gaps: u64,
    /// Where the next read is expected.
    end: u64,
    /// Where what is fetched ends.
    fetched: u64,
}

impl ReadOrder {
    pub(super) fn said(opaque: Opaque<'_>) -> Self {
        match opaque.value_of("fb.access") {
            Some(b"sequential") => ReadOrder::Sequential,
            Some(b"random") => ReadOrder::Random,
            _ => ReadOrder::Unknown,
        }
    }
}

impl ReadAhead {
    pub(super) fn new(order: ReadOrder) -> Self {
        ReadAhead { order, runs: Mutex::default() }
    }

    /// What is worth fetching now that a range is read.
    pub(super) fn after(&self, read: Range<u64>) -> Option<Range<u64>> {
        if self.order == ReadOrder::Random {
            return None;
        }
        let mut runs = self.runs.lock();
        let known = runs.iter().rposition(|run| run.is_continued_by(&read));
        let mut run = match known {
            Some(place) => runs.remove(place),
            None => Run { bytes: 0, gaps: 0, end: read.start, fetched: read.end },
        };
        run.note(&read);
        let ahead = self.ahead_of(&run);
        run.fetched = ahead.as_ref().map_or(run.fetched.max(run.end), |ahead| ahead.end);
        if runs.len() == RUNS_MAX {
            runs.remove(0);
        }
        runs.push(run);
        ahead
    }

    /// The next bytes of a run, if enough of the window is not fetched.
    fn ahead_of(&self, run: &Run) -> Option<Range<u64>> {
        let window = match self.order {
            ReadOrder::Sequential => WINDOW_MAX,
            _ => (run.bytes / PART).saturating_sub(run.gaps).min(WINDOW_MAX),
        };
        let (start, end) = (run.fetched.max(run.end), run.end.saturating_add(window));
        let is_due = end.saturating_sub(start) >= (window / STEP).max(WINDOW_MIN);
        is_due.then_some(start..end)
    }
}

impl Run {
    /// Notes a read. With several requests under way, what was left out may be read a moment later.
    fn note(&mut self, read: &Range<u64>) {
        self.gaps += read.start.saturating_sub(self.end);
        let late = read.end.min(self.end).saturating_sub(read.start).min(self.gaps);
        self.gaps -= late;
        self.bytes += late + read.end.saturating_sub(self.end.max(read.start));
        self.end = self.end.max(read.end);
    }

    /// Whether a read goes on where this one ends. Clients with several requests under way read in order but for a few.
    fn is_continued_by(&self, read: &Range<u64>) -> bool {
        let length = read.end - read.start;
        let near = (4 * length).min(WINDOW_MAX);
        read.start <= self.end.saturating_add(near) && read.end.saturating_add(near) >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Reads in order from `start` on. Returns how many bytes behind the last of them were fetched.
    fn read_in_order(ahead: &ReadAhead, start: u64, count: u64, length: u64) -> u64 {
        let reads = (0..count).map(|number| start + number * length);
        let fetched = reads.filter_map(|at| ahead.after(at..at + length)).last();
        fetched.map_or(0, |range| range.end.saturating_sub(start + count * length))
    }

    #[test]
    fn what_is_read_in_order_is_fetched_ahead_without_gaps() {
        let ahead = ReadAhead::new(ReadOrder::Unknown);
        let mut covered = None;
        for number in 0..4096 {
            let read = number * 64 * KIB..(number + 1) * 64 * KIB;
            if let Some(end) = covered {
                assert!(read.start < end, "a read at {} found nothing fetched", read.start);
            }
            if let Some(range) = ahead.after(read.clone()) {
                assert_eq!(range.start, covered.unwrap_or(read.end).max(read.end));
                assert!(range.end - read.end <= (read.end / PART).min(WINDOW_MAX));
                covered = Some(range.end);
            }
        }
        assert!(covered.is_some_and(|end| end > 4096 * 64 * KIB + WINDOW_MAX / 2));
    }

    #[test]
    fn parts_of_a_file_cost_a_sixth_more_at_most() {
        let ahead = ReadAhead::new(ReadOrder::Unknown);
        let parts = 100;
        let fetched = (0..parts).map(|part| read_in_order(&ahead, part << 30, 50, 16 * KIB));
        let fetched = fetched.sum::<u64>();
        assert!(fetched > 0 && fetched <= parts * 50 * 16 * KIB / PART, "{fetched}");
        let far = (0..1000).map(|number| read_in_order(&ahead, number * 10_000 * KIB, 1, 16 * KIB));
        assert_eq!(far.sum::<u64>(), 0);
    }

    #[test]
    fn a_stride_is_not_in_order() {
        for (length, stride) in [(16, 80), (32, 128), (32, 64), (64, 100)] {
            let ahead = ReadAhead::new(ReadOrder::Unknown);
            let reads = (0..2000).map(|number| number * stride * KIB);
            let fetched = reads.filter_map(|at| ahead.after(at..at + length * KIB));
            let fetched: u64 = fetched.map(|range| range.end - range.start).sum();
            assert_eq!(fetched, 0, "{length} KiB of each {stride}");
        }
    }

    #[test]
    fn reads_that_overtake_each_other_are_in_order() {
        let ahead = ReadAhead::new(ReadOrder::Unknown);
        let mut end = 0;
        for pair in 0..500 {
            for number in [2 * pair + 1, 2 * pair] {
                let at = number * 64 * KIB;
                end = ahead.after(at..at + 64 * KIB).map_or(end, |range| range.end);
            }
        }
        assert!(end > 1000 * 64 * KIB + 4096 * KIB, "{end}");
    }

    #[test]
    fn reading_the_same_bytes_again_is_not_progress() {
        let ahead = ReadAhead::new(ReadOrder::Unknown);
        let fetched = (0..1000).map(|_| read_in_order(&ahead, 0, 4, 64 * KIB));
        assert_eq!(fetched.sum::<u64>(), 0);
    }

    #[test]
    fn readers_at_several_places_are_told_apart() {
        let ahead = ReadAhead::new(ReadOrder::Unknown);
        let mut ends = [0; 8];
        for number in 0..256 {
            for (reader, end) in ends.iter_mut().enumerate() {
                let at = ((reader as u64) << 32) + number * 64 * KIB;
                *end = ahead.after(at..at + 64 * KIB).map_or(*end, |range| range.end - at);
            }
        }
        assert!(ends.iter().all(|end| *end > 1024 * KIB), "{ends:?}");
    }

    #[test]
    fn a_client_that_says_how_it_reads_is_believed() {
        let said = |text: &'static str| ReadAhead::new(ReadOrder::said(Opaque(text.as_bytes())));
        let at_once = said("fb.csn=4&fb.access=sequential").after(0..100);
        assert_eq!(at_once, Some(100..100 + WINDOW_MAX));
        assert_eq!(read_in_order(&said("fb.access=random"), 0, 1000, 64 * KIB), 0);
        assert!(read_in_order(&said("fb.access=other"), 0, 1000, 64 * KIB) > 0);
        assert_eq!(said("fb.access=sequential").after(u64::MAX - 1..u64::MAX), None);
    }
}
