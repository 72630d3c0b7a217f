//! Read-ahead for clients that read a file in order, so that they do not wait for an origin or a disk at each read.
//!
//! 1. At most a sixth of the bytes that were read in order before are fetched ahead: a client that reads parts of a
//!    file costs the origin little more than these parts. Bytes that were skipped count as fetched ahead in vain, until
//!    they are read. Only a client that announces sequential reading (`fb.access=sequential`) gets more, and one that
//!    announces random reading (`fb.access=random`) gets nothing ahead.
//! 2. Several readers of one file are distinguished by their positions in it; sequential readers, if they are farther
//!    apart than the read-ahead.
//! 3. Half of the read-ahead is requested from a disk at once: with several readers, each such burst costs a seek. For
//!    clients without an announcement, disks do their own read-ahead.

use std::ops::Range;

use parking_lot::Mutex;

use super::hints::ReadOrder;

/// Bytes that are fetched ahead of one reader at most.
const WINDOW_MAX: u64 = 8 << 20;
/// Bytes that are fetched ahead at least: fewer are not worth a request.
const WINDOW_MIN: u64 = 64 << 10;
/// The divisor of the bytes that were read in order, which gives the bytes to fetch ahead.
const PART: u64 = 6;
/// The number of steps in which a window is fetched from an origin: with fewer, larger ones, readers would wait at its
/// end.
const STEPS: u64 = 8;
/// The number of steps in which a window is fetched from a disk.
const BURSTS: u64 = 2;
/// The most readers that are distinguished; the latest ones if there are more.
const RUNS_MAX: usize = 16;

/// The bytes that were read in order, as one run for each reader.
#[derive(Debug)]
pub(super) struct ReadAhead {
    order: ReadOrder,
    /// The number of steps in which a window is fetched.
    steps: u64,
    /// The latest one last.
    runs: Mutex<Vec<Run>>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Bytes that were read.
    bytes: u64,
    /// Bytes before the end that were not.
    gaps: u64,
    /// The offset at which the next read is expected.
    end: u64,
    /// The offset up to which bytes are fetched.
    fetched: u64,
}

impl ReadAhead {
    /// Read-ahead for the readers of an origin's file.
    pub(super) fn of_origin(order: ReadOrder) -> Self {
        ReadAhead { order, steps: STEPS, runs: Mutex::default() }
    }

    /// Read-ahead for the readers of a file on a disk; `None` unless they announce sequential reading.
    pub(super) fn of_disk(order: ReadOrder) -> Option<Self> {
        let runs = Mutex::default();
        (order == ReadOrder::Sequential).then_some(ReadAhead { order, steps: BURSTS, runs })
    }

    /// The range to fetch ahead after a read, if any.
    pub(super) fn after(&self, offset: u64, length: usize) -> Option<Range<u64>> {
        let read = offset..offset.saturating_add(length as u64);
        if self.order == ReadOrder::Random {
            return None;
        }
        let mut runs = self.runs.lock();
        let is_in_order = self.order == ReadOrder::Sequential;
        let near = if is_in_order { WINDOW_MAX } else { 4 * (read.end - read.start) };
        let known = runs.iter().rposition(|run| run.is_continued_by(&read, near));
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
        let is_due = end.saturating_sub(start) >= (window / self.steps).max(WINDOW_MIN);
        is_due.then_some(start..end)
    }
}

impl Run {
    /// Records a read. With several requests in flight, skipped bytes may be read a moment later.
    fn note(&mut self, read: &Range<u64>) {
        self.gaps += read.start.saturating_sub(self.end);
        let late = read.end.min(self.end).saturating_sub(read.start).min(self.gaps);
        self.gaps -= late;
        self.bytes += late + read.end.saturating_sub(self.end.max(read.start));
        self.end = self.end.max(read.end);
    }

    /// Whether a read continues this run. Clients with several requests in flight read in order with few exceptions.
    fn is_continued_by(&self, read: &Range<u64>, near: u64) -> bool {
        let near = near.min(WINDOW_MAX);
        read.start <= self.end.saturating_add(near) && read.end.saturating_add(near) >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Reads in order from `start` on. Returns the number of bytes after the last read that were fetched.
    fn read_in_order(ahead: &ReadAhead, start: u64, count: u64, length: u64) -> u64 {
        let reads = (0..count).map(|number| start + number * length);
        let fetched = reads.filter_map(|at| ahead.after(at, length as usize)).last();
        fetched.map_or(0, |range| range.end.saturating_sub(start + count * length))
    }

    #[test]
    fn sequential_reads_are_fetched_ahead_without_gaps() {
        let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
        let mut covered = None;
        for number in 0..4096 {
            let read = number * 64 * KIB..(number + 1) * 64 * KIB;
            if let Some(end) = covered {
                assert!(read.start < end, "a read at {} found nothing fetched", read.start);
            }
            if let Some(range) = ahead.after(read.start, 64 << 10) {
                assert_eq!(range.start, covered.unwrap_or(read.end).max(read.end));
                assert!(range.end - read.end <= (read.end / PART).min(WINDOW_MAX));
                covered = Some(range.end);
            }
        }
        assert!(covered.is_some_and(|end| end > 4096 * 64 * KIB + WINDOW_MAX / 2));
    }

    #[test]
    fn parts_of_a_file_cost_a_sixth_more_at_most() {
        let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
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
            let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
            let reads = (0..2000).map(|number| number * stride * KIB);
            let fetched = reads.filter_map(|at| ahead.after(at, (length * KIB) as usize));
            let fetched: u64 = fetched.map(|range| range.end - range.start).sum();
            assert_eq!(fetched, 0, "{length} KiB of each {stride}");
        }
    }

    #[test]
    fn reads_that_overtake_each_other_are_in_order() {
        let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
        let mut end = 0;
        for pair in 0..500 {
            for number in [2 * pair + 1, 2 * pair] {
                let at = number * 64 * KIB;
                end = ahead.after(at, 64 << 10).map_or(end, |range| range.end);
            }
        }
        assert!(end > 1000 * 64 * KIB + 4096 * KIB, "{end}");
    }

    #[test]
    fn reading_the_same_bytes_again_is_not_progress() {
        let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
        let fetched = (0..1000).map(|_| read_in_order(&ahead, 0, 4, 64 * KIB));
        assert_eq!(fetched.sum::<u64>(), 0);
    }

    #[test]
    fn readers_at_different_offsets_are_distinguished() {
        let ahead = ReadAhead::of_origin(ReadOrder::Unknown);
        let mut ends = [0; 8];
        for number in 0..256 {
            for (reader, end) in ends.iter_mut().enumerate() {
                let at = ((reader as u64) << 32) + number * 64 * KIB;
                *end = ahead.after(at, 64 << 10).map_or(*end, |range| range.end - at);
            }
        }
        assert!(ends.iter().all(|end| *end > 1024 * KIB), "{ends:?}");
    }

    #[test]
    fn an_announced_order_of_reads_is_trusted() {
        let said = ReadAhead::of_origin;
        let at_once = said(ReadOrder::Sequential).after(0, 100);
        assert_eq!(at_once, Some(100..100 + WINDOW_MAX));
        assert_eq!(read_in_order(&said(ReadOrder::Random), 0, 1000, 64 * KIB), 0);
        assert!(read_in_order(&said(ReadOrder::Unknown), 0, 1000, 64 * KIB) > 0);
        assert_eq!(said(ReadOrder::Sequential).after(u64::MAX - 1, 1), None);
    }

    #[test]
    fn a_disk_is_asked_for_long_bursts() {
        assert!(ReadAhead::of_disk(ReadOrder::Unknown).is_none(), "the disk reads ahead itself");
        assert!(ReadAhead::of_disk(ReadOrder::Random).is_none());
        let ahead = ReadAhead::of_disk(ReadOrder::Sequential).expect("it is read in order");
        let reads = (0..1024).map(|number| number * 64 * KIB);
        let bursts: Vec<_> = reads.filter_map(|at| ahead.after(at, 64 << 10)).collect();
        assert_eq!(bursts[0], 64 * KIB..64 * KIB + WINDOW_MAX);
        assert_eq!(bursts.len(), 16, "{bursts:?}");
        assert!(bursts[1..].iter().all(|burst| burst.end - burst.start >= WINDOW_MAX / 2));
        assert!(bursts.windows(2).all(|pair| pair[0].end == pair[1].start), "nothing is left out");
        // The sender of a long range reads only its first and last byte here.
        let ends = [100 << 20, (102 << 20) - 1];
        assert_eq!(ends.map(|at| ahead.after(at, 1).is_some()), [true, false]);
    }
}
