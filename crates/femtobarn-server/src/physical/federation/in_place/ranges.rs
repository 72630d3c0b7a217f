//! The announced and the fetched ranges of a copy.
//!
//! 1. Fetched ranges do not overlap, and have at most [`FETCH_BYTES`]. A byte is fetched once for all readers that wait
//!    for it.
//! 2. Announced ranges are fetched together with the next read, so that the ranges of one request are planned as a
//!    whole.
//! 3. A fetched range is dropped when as many bytes as it has were read, or after [`UNREAD_TIME`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::physical::federation::budget::{Budget, Share};
use crate::physical::fetch::Fetch;

/// Bytes of one call to a store.
const FETCH_BYTES: u64 = 1 << 20;
/// Ranges of one call to a store: as many as a vector read of XRootD may have.
const FETCH_RANGES: usize = 1024;
/// Bytes that are announced before a read.
const ANNOUNCED_BYTES: u64 = 8 << 20;
/// How long announced bytes wait for their reader, which may have disconnected.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// Ranges that are fetched with one call.
pub(super) type RangeBatch = Vec<Arc<Fetch>>;

/// Ranges of one copy.
#[derive(Debug, Default)]
pub(super) struct CopyRanges {
    announced: Vec<Range<u64>>,
    announced_bytes: u64,
    /// Ranges that are being fetched, or wait for their readers, by their first byte.
    fetched: BTreeMap<u64, FetchedRange>,
}

#[derive(Debug)]
struct FetchedRange {
    fetch: Arc<Fetch>,
    /// Bytes that were not read yet.
    unread: u64,
    since: Instant,
    /// The part of the budget of announced bytes that this range takes.
    _share: Option<Share>,
}

impl CopyRanges {
    /// Records that a range, or its first part, will be read soon.
    pub(super) fn announce(&mut self, range: Range<u64>) {
        let room = ANNOUNCED_BYTES - self.announced_bytes;
        let mut end = range.end.min(range.start.saturating_add(room));
        if end < range.end {
            // The rest is announced later, in pieces as other ranges are read: no piece should be a separate call.
            end = end / FETCH_BYTES * FETCH_BYTES;
        }
        if range.start < end {
            self.announced_bytes += end - range.start;
            self.announced.push(range.start..end);
        }
    }

    /// Whether announced ranges are not fetched yet.
    pub(super) fn has_announced(&self) -> bool {
        !self.announced.is_empty()
    }

    /// Plans the fetches of the missing parts of a range, and of announced ranges as far as the budget allows. Returns
    /// the calls.
    pub(super) fn plan(
        &mut self,
        wanted: Range<u64>,
        budget: &Arc<Budget>,
        now: Instant,
    ) -> Vec<RangeBatch> {
        self.fetched.retain(|_, known| now.saturating_duration_since(known.since) < UNREAD_TIME);
        let mut new = vec![];
        for piece in self.lacking(&wanted) {
            new.push(self.begin(piece, None, now));
        }
        self.announced_bytes = 0;
        for range in std::mem::take(&mut self.announced) {
            for piece in self.lacking(&range) {
                let mut share = budget.share();
                if share.grow(piece.end - piece.start) {
                    new.push(self.begin(piece, Some(share), now));
                }
            }
        }
        new.sort_unstable_by_key(|fetch| fetch.range.start);
        batches(new)
    }

    fn begin(&mut self, piece: Range<u64>, share: Option<Share>, now: Instant) -> Arc<Fetch> {
        let (first, unread) = (piece.start, piece.end - piece.start);
        let fetch = Arc::new(Fetch::new(piece));
        let known = FetchedRange { fetch: Arc::clone(&fetch), unread, since: now, _share: share };
        self.fetched.insert(first, known);
        fetch
    }

    /// The parts of a range that are not fetched, in pieces.
    fn lacking(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut pieces, mut at) = (vec![], range.start);
        let known = self.touching(range).into_iter().map(|fetch| fetch.range.clone());
        for known in known.chain([range.end..range.end]) {
            while at < known.start {
                let end = known.start.min(at + FETCH_BYTES);
                pieces.push(at..end);
                at = end;
            }
            at = at.max(known.end);
        }
        pieces
    }

    /// The fetched ranges that have bytes of a range, ascending.
    pub(super) fn touching(&self, range: &Range<u64>) -> Vec<Arc<Fetch>> {
        let before = self.fetched.range(..range.end).rev();
        let touching = before.take_while(|(_, known)| known.fetch.range.end > range.start);
        let mut found: Vec<_> = touching.map(|(_, known)| Arc::clone(&known.fetch)).collect();
        found.reverse();
        found
    }

    /// Notes that a range was read.
    pub(super) fn note_read(&mut self, range: &Range<u64>) {
        for fetch in self.touching(range) {
            let Fetch { range: of, .. } = &*fetch;
            let read = of.end.min(range.end) - of.start.max(range.start);
            let known = self.fetched.get_mut(&of.start);
            let left = known.map_or(0, |known| {
                known.unread = known.unread.saturating_sub(read);
                known.unread
            });
            if left == 0 {
                self.fetched.remove(&of.start);
            }
        }
    }
}

/// Divides ascending ranges into calls.
fn batches(fetches: Vec<Arc<Fetch>>) -> Vec<RangeBatch> {
    let mut batches: Vec<RangeBatch> = vec![];
    let mut left = 0;
    for fetch in fetches {
        let bytes = fetch.range.end - fetch.range.start;
        match batches.last_mut() {
            Some(batch) if bytes <= left && batch.len() < FETCH_RANGES => {
                left -= bytes;
                batch.push(fetch);
            }
            _ => {
                left = FETCH_BYTES.saturating_sub(bytes);
                batches.push(vec![fetch]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::clock;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn planned(ranges: &mut CopyRanges, wanted: Range<u64>) -> Vec<Vec<Range<u64>>> {
        let batches = ranges.plan(wanted, &Budget::new(u64::MAX), clock::now());
        let of = |batch: &RangeBatch| batch.iter().map(|fetch| fetch.range.clone()).collect();
        batches.iter().map(of).collect()
    }

    #[test]
    fn announced_ranges_are_fetched_with_the_first_read_of_them() {
        let mut ranges = CopyRanges::default();
        ranges.announce(500..600);
        ranges.announce(100..200);
        assert_eq!(planned(&mut ranges, 100..150), [[100..150, 150..200, 500..600]]);
        assert!(planned(&mut ranges, 100..200).is_empty(), "both are on their way");
        assert_eq!(planned(&mut ranges, 550..700), [[600..700]]);
    }

    #[test]
    fn ranges_are_dropped_once_they_were_read() {
        let mut ranges = CopyRanges::default();
        planned(&mut ranges, 0..100);
        ranges.note_read(&(0..60));
        assert!(planned(&mut ranges, 50..100).is_empty());
        ranges.note_read(&(60..100));
        assert_eq!(planned(&mut ranges, 0..100), [[0..100]]);
        assert_eq!(ranges.touching(&(99..200)).len(), 1);
        assert!(ranges.touching(&(100..200)).is_empty());
    }

    #[test]
    fn a_call_has_a_mebibyte_and_a_thousand_ranges_at_most() {
        let mut ranges = CopyRanges::default();
        let batches = planned(&mut ranges, 0..FETCH_BYTES * 5 / 2);
        let ends: Vec<u64> = batches.iter().map(|batch| batch[batch.len() - 1].end).collect();
        assert_eq!(ends, [FETCH_BYTES, 2 * FETCH_BYTES, FETCH_BYTES * 5 / 2]);
        let mut ranges = CopyRanges::default();
        (0..1500).for_each(|number| ranges.announce(number * 100..number * 100 + 10));
        assert_eq!(
            planned(&mut ranges, 0..0).iter().map(Vec::len).collect::<Vec<_>>(),
            [1024, 476]
        );
    }

    #[test]
    fn of_a_long_announced_range_the_beginning_is_fetched_in_whole_steps() {
        let mut ranges = CopyRanges::default();
        ranges.announce(300 * KIB..1 << 40);
        let batches = planned(&mut ranges, 0..0);
        assert_eq!(
            batches.last().and_then(|batch| batch.last()).map(|last| last.end),
            Some(8 << 20)
        );
        ranges.announce(556 * KIB..1 << 40);
        assert!(planned(&mut ranges, 0..0).is_empty(), "a quarter of a MiB more is no call");
    }

    #[test]
    fn announced_bytes_keep_to_the_budget_and_are_given_up_after_a_while() {
        let (mut ranges, budget, now) = (CopyRanges::default(), Budget::new(100), clock::now());
        ranges.announce(0..80);
        ranges.announce(1000..1080);
        assert_eq!(ranges.plan(0..0, &budget, now).concat().len(), 1);
        assert_eq!(
            ranges.plan(1000..1080, &budget, now).concat().len(),
            1,
            "what is read is fetched"
        );
        ranges.announce(2000..2080);
        let later = now + UNREAD_TIME;
        assert_eq!(ranges.plan(0..0, &budget, later).concat().len(), 1);
        assert!(ranges.touching(&(0..80)).is_empty());
    }
}
