//! Sequences: reads without a plan that follow each other in a file.
//!
//! 1. A read that starts where another one ended, or up to [`GAP_BYTES_MAX`] behind, continues its sequence. So
//!    does a read within the bytes that were prefetched for the sequence: containers that were written in turn,
//!    and are read in turn, are one sequence.
//! 2. Once a sequence has [`SEQUENTIAL_BYTES_MIN`], the bytes that follow are prefetched, up to [`AHEAD_TIMES`] the
//!    bytes read so far, and the next buffer is fetched when the one before it is begun.
//! 3. Nothing is prefetched past the end of the versions that the sequence reads: those bytes belong to
//!    other containers.
//! 4. A container that was written in turn with others, and is read alone, is read in runs. A sequence that
//!    starts up to [`RUNS_APART_MAX`] behind one that ended is expected to be as long as that one, until it
//!    turns out longer.
//! 5. A sequence holds the buffer that is being read, the next one, and buffers up to half a buffer behind.

use std::ops::Range;
use std::sync::{Arc, Weak};

use super::buffer::PrefetchBuffer;

/// Bytes that a sequence reads before more is prefetched.
const SEQUENTIAL_BYTES_MIN: u64 = 192 << 10;
/// Bytes that are prefetched for each byte that a sequence has read. On a disk each fetch is a seek, so small fetches
/// should be few; a short read should fetch little.
const AHEAD_TIMES: u64 = 4;
/// Bytes that may lie between two reads of one sequence.
pub(super) const GAP_BYTES_MAX: u64 = 64 << 10;
/// Bytes that may lie between two runs of a container that was written in turn with others.
const RUNS_APART_MAX: u64 = 16 << 20;
/// Sequences of one file. Those of more places push out the ones that were continued longest ago.
const SEQUENCES_MAX: usize = 64;

/// The sequences of one file.
#[derive(Debug)]
pub(super) struct ReadSequences {
    buffer_bytes_max: u64,
    /// Bytes of all buffers of the federation.
    pool_bytes_max: u64,
    /// In the order in which they were continued, the latest last.
    sequences: Vec<ReadSequence>,
}

#[derive(Debug)]
struct ReadSequence {
    start: u64,
    /// The end of its last read.
    end: u64,
    bytes_read: u64,
    /// The end of the prefetched bytes; 0 if nothing was prefetched.
    fetched_end: u64,
    /// The end of the versions that it reads.
    version_end: u64,
    /// Where its run is expected to end.
    run_end: Option<u64>,
    buffers: Vec<Weak<PrefetchBuffer>>,
}

impl ReadSequences {
    pub(super) fn new(buffer_bytes_max: u64, pool_bytes_max: u64) -> Self {
        ReadSequences { buffer_bytes_max, pool_bytes_max, sequences: vec![] }
    }

    /// Records a read of a version that ends at `version_end`, and returns the range to prefetch, if it is time.
    pub(super) fn record_read(
        &mut self,
        range: Range<u64>,
        version_end: u64,
    ) -> Option<Range<u64>> {
        let mut sequence = self.take_continued(range.clone(), version_end);
        // Each sequence may fill an equal share of half the pool.
        let others = self.sequences.iter().filter(|sequence| sequence.has_buffers()).count() as u64;
        let share = self.pool_bytes_max / (2 * others + 2);
        let is_first = sequence.bytes_read == range.end - range.start;
        let is_long = sequence.bytes_read >= SEQUENTIAL_BYTES_MIN || sequence.run_end.is_some();
        let next = if is_first || !is_long {
            None
        } else {
            sequence.next_range(self.buffer_bytes_max.min(share))
        };
        self.sequences.push(sequence);
        if self.sequences.len() > SEQUENCES_MAX {
            self.sequences.remove(0);
        }
        next
    }

    /// Gives the sequence of the last recorded read its new buffer, and returns those of its buffers that it
    /// has passed by more than half a buffer.
    pub(super) fn attach(
        &mut self,
        buffer: Option<&Arc<PrefetchBuffer>>,
    ) -> Vec<Arc<PrefetchBuffer>> {
        let retained_bytes = self.retained_bytes();
        let Some(sequence) = self.sequences.last_mut() else { return vec![] };
        sequence.buffers.extend(buffer.map(Arc::downgrade));
        sequence.take_buffers_before(sequence.end.saturating_sub(retained_bytes))
    }

    /// Bytes behind a sequence's last read whose buffers it retains.
    fn retained_bytes(&self) -> u64 {
        self.buffer_bytes_max / 2
    }

    /// Takes out the sequence that a read continues, with the read added; a new one if it continues none.
    fn take_continued(&mut self, range: Range<u64>, version_end: u64) -> ReadSequence {
        let retained_bytes = self.retained_bytes();
        let size = range.end - range.start;
        // A read past the known end of the version shows that the version ends elsewhere.
        let version_end = if range.end <= version_end { version_end } else { u64::MAX };
        let is_continued =
            |sequence: &ReadSequence| sequence.is_continued_at(range.start, retained_bytes);
        match self.sequences.iter().rposition(is_continued) {
            Some(index) => {
                let known = self.sequences.remove(index);
                ReadSequence {
                    end: known.end.max(range.end),
                    bytes_read: known.bytes_read + size,
                    run_end: known
                        .run_end
                        .filter(|&end| range.end <= end.saturating_add(GAP_BYTES_MAX)),
                    version_end: known.version_end.max(version_end),
                    ..known
                }
            }
            None => ReadSequence {
                start: range.start,
                end: range.end,
                bytes_read: size,
                fetched_end: 0,
                version_end,
                run_end: self
                    .length_of_run_before(range.start)
                    .map(|length| range.start.saturating_add(length)),
                buffers: vec![],
            },
        }
    }

    /// The length of the latest sequence that ended shortly before `offset`.
    fn length_of_run_before(&self, offset: u64) -> Option<u64> {
        let run = self.sequences.iter().rfind(|known| known.is_run_before(offset))?;
        Some(run.end - run.start)
    }
}

impl ReadSequence {
    /// Whether a read at `offset` continues it: where it ended, or within the prefetched bytes that it retains.
    fn is_continued_at(&self, offset: u64, retained_bytes: u64) -> bool {
        let prefetched = self.end.saturating_sub(retained_bytes)..self.fetched_end;
        (self.end..=self.end + GAP_BYTES_MAX).contains(&offset)
            || self.fetched_end > self.end && prefetched.contains(&offset)
    }

    /// The range to prefetch next. `None` while enough is prefetched: as much as was read, or one buffer.
    fn next_range(&mut self, buffer_bytes_max: u64) -> Option<Range<u64>> {
        let start = self.fetched_end.max(self.end);
        let ahead = start - self.end;
        if ahead >= self.bytes_read.min(buffer_bytes_max) || start >= self.prefetch_end() {
            return None;
        }
        let bytes = (self.bytes_read.saturating_mul(AHEAD_TIMES) - ahead).min(buffer_bytes_max);
        self.fetched_end = start.saturating_add(bytes).min(self.prefetch_end());
        Some(start..self.fetched_end)
    }

    /// Nothing is prefetched past this byte.
    fn prefetch_end(&self) -> u64 {
        self.run_end.map_or(self.version_end, |end| end.min(self.version_end))
    }

    /// Whether a new sequence at `offset` is likely the next run of the same container.
    fn is_run_before(&self, offset: u64) -> bool {
        self.bytes_read >= SEQUENTIAL_BYTES_MIN
            && (self.end..=self.end.saturating_add(RUNS_APART_MAX)).contains(&offset)
    }

    fn has_buffers(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.strong_count() > 0)
    }

    /// Takes out its buffers that end at or before `offset`.
    fn take_buffers_before(&mut self, offset: u64) -> Vec<Arc<PrefetchBuffer>> {
        let mut passed = vec![];
        self.buffers.retain(|known| {
            let Some(buffer) = known.upgrade() else { return false };
            let is_before = buffer.is_before(offset);
            passed.extend(is_before.then_some(buffer));
            !is_before
        });
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER_BYTES: u64 = 4 << 20;
    /// The end of a version that extends past all reads of a test.
    const END: u64 = u64::MAX;

    fn sequences() -> ReadSequences {
        ReadSequences::new(BUFFER_BYTES, 8 * BUFFER_BYTES)
    }

    #[test]
    fn reads_in_order_are_prefetched_without_a_gap() {
        let mut sequences = sequences();
        let step = 256 << 10;
        let read = |index: u64| index * step..(index + 1) * step;
        assert_eq!(sequences.record_read(read(0), END), None, "the first read");
        assert_eq!(sequences.record_read(read(1), END), Some(2 * step..10 * step));
        let mut fetched = 10 * step;
        for index in 2..200 {
            if let Some(next) = sequences.record_read(read(index), END) {
                assert_eq!(next.start, fetched, "without a gap");
                assert!(next.end - next.start <= BUFFER_BYTES);
                fetched = next.end;
            }
            assert!(fetched > (index + 1) * step, "the next buffer is on its way");
            assert!(fetched <= (index + 1) * step + 2 * BUFFER_BYTES, "at most two buffers ahead");
        }
    }

    #[test]
    fn nothing_is_prefetched_past_the_end_of_the_version() {
        let mut sequences = sequences();
        let mut fetched = |read: Range<u64>, version_end: u64| {
            let starts = (read.start..read.end).step_by(10_000);
            let ranges =
                starts.filter_map(|at| sequences.record_read(at..at + 10_000, version_end));
            ranges.map(|range| range.end).max().unwrap_or(0)
        };
        assert_eq!(fetched(0..8_000_000, 9_001_234), 9_001_234);
        assert_eq!(fetched(8_000_000..9_000_000, 9_001_234), 0, "the whole version is fetched");
        let behind = fetched(9_000_000..12_000_000, 12_001_234);
        assert_eq!(behind, 12_001_234, "the next version is fetched");
        assert!(
            fetched(12_000_000..13_000_000, 12_001_234) > 13_000_000,
            "the read is past that end"
        );
    }

    #[test]
    fn small_sequential_reads_cause_few_and_short_fetches() {
        let mut sequences = sequences();
        let (mut count, mut fetched) = (0, 0);
        for index in 0..800 {
            let range = index * 10_000..(index + 1) * 10_000;
            let read = range.end;
            if let Some(next) = sequences.record_read(range, END) {
                count += 1;
                fetched = next.end;
            }
            assert!(fetched <= read * (AHEAD_TIMES + 1), "{fetched} at {read}");
        }
        assert!(count <= 7, "{count}");
    }

    #[test]
    fn one_of_several_containers_written_in_turn_is_prefetched_alone() {
        let mut sequences = sequences();
        let (mut fetches, mut fetched) = (0, 0);
        // Runs of about 250,000 bytes, each about a million behind the one before it.
        for index in 0..25 * 40 {
            let (run, within) = (index / 25, index % 25);
            let start = run * (1_000_000 + run % 3 * 100) + within * (10_000 + run % 3);
            if let Some(next) = sequences.record_read(start..start + 10_000 + run % 3, END) {
                fetches += 1;
                fetched += next.end - next.start;
            }
        }
        assert!(fetched < 40 * 250_000 + 1_000_000, "{fetched}");
        assert!(fetches <= 40 * 5, "{fetches}");
    }

    #[test]
    fn reads_in_no_order_are_not_prefetched() {
        let mut sequences = sequences();
        for index in 0..100_u64 {
            let start = (index * 7919 % 100) << 30;
            assert_eq!(sequences.record_read(start..start + (1 << 20), END), None);
        }
    }

    #[test]
    fn sequences_at_several_places_are_kept_apart() {
        let mut sequences = sequences();
        let mut fetched = 0;
        for index in 0..20_u64 {
            for place in 0..40_u64 {
                let start = (place << 40) + (index << 20);
                let next = sequences.record_read(start..start + (1 << 20), END);
                fetched += next.map_or(0, |next| next.end - next.start);
            }
        }
        assert!(fetched >= (40 * 18) << 20, "{fetched}");
    }
}
