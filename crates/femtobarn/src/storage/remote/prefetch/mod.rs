//! Prefetching from a server: ranges of a file are fetched before they are requested.
//!
//! `pool` bounds the bytes of all prefetches, `memory` allocates them, `buffer` is one prefetch. `plan` has
//! ranges that readers announced, `sequence` detects reads in order. [`Prefetcher`] puts these together for one
//! file.
//!
//! 1. A prefetcher serves versions of containers of one file, all of one commit or of earlier ones. Every byte that
//!    they refer to was written before the first of them was opened, so no buffer has outdated bytes.
//! 2. No buffer fetches bytes that another one has, or is fetching.
//! 3. While one buffer of a plan is being read, the next one is already being fetched.

mod buffer;
mod memory;
mod plan;
mod pool;
mod sequence;

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rntuple::ReadRequest;

use crate::storage::remote::cached_file::CachedRemoteFile;
use buffer::{FetchMode, PrefetchBuffer};
use plan::PrefetchPlans;
use sequence::{GAP_BYTES_MAX, ReadSequences};

pub(crate) use pool::PrefetchPool;

/// Prefetches for the readers of one file.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    pool: Arc<PrefetchPool>,
    schedule: Mutex<PrefetchSchedule>,
}

/// The buffers of the file, and the ranges that are fetched next.
#[derive(Debug)]
struct PrefetchSchedule {
    /// The file's buffers. The pool decides how long they live.
    buffers: Vec<Weak<PrefetchBuffer>>,
    plans: PrefetchPlans,
    sequences: ReadSequences,
}

impl Prefetcher {
    pub(crate) fn new(pool: Arc<PrefetchPool>) -> Self {
        let schedule = Mutex::new(PrefetchSchedule::new(&pool));
        Prefetcher { pool, schedule }
    }

    /// Whether prefetching is off.
    fn is_off(&self) -> bool {
        self.pool.buffer_bytes_max() == 0
    }

    /// Fills all requests, from buffers as far as these have the bytes. `version_end` is the last byte that is
    /// known to belong to the version that is read.
    pub(crate) fn read_many(
        &self,
        file: &CachedRemoteFile,
        requests: &mut [ReadRequest<'_>],
        version_end: u64,
    ) -> rntuple::Result<()> {
        if self.is_off() {
            return file.read_many(requests);
        }
        // Prefetches are due only for bytes that the tiers lack.
        if file.has_tiers() && self.schedule.lock().wanted(requests).is_empty() {
            let mut missing = file.fill(requests);
            if missing.is_empty() {
                return Ok(());
            }
            return self
                .read_many_with(file, &mut missing, version_end, |missing| file.fetch(missing));
        }
        self.read_many_with(file, requests, version_end, |missing| file.read_many(missing))
    }

    /// Fills all requests from buffers, and the remaining bytes by `read`.
    fn read_many_with(
        &self,
        file: &CachedRemoteFile,
        requests: &mut [ReadRequest<'_>],
        version_end: u64,
        read: impl FnOnce(&mut [ReadRequest<'_>]) -> rntuple::Result<()>,
    ) -> rntuple::Result<()> {
        let buffers = self.begin_read(file, requests, version_end);
        let mut missing: Vec<_> =
            requests.iter_mut().filter_map(|request| fill_from(request, &buffers)).collect();
        let used_up = buffers.iter().filter(|buffer| buffer.unused_bytes() == 0);
        used_up.for_each(|buffer| self.pool.release(buffer));
        if !missing.is_empty() {
            read(&mut missing)?;
        }
        // Bytes fetched for a sequence are added to the tiers only here, once they are read: the rest may belong to
        // other containers.
        if buffers.iter().any(|buffer| buffer.plan().is_none()) {
            file.tiers.insert(requests);
        }
        Ok(())
    }

    /// The buffers that have requested bytes. Starts the prefetches that the read makes due.
    fn begin_read(
        &self,
        file: &CachedRemoteFile,
        requests: &[ReadRequest<'_>],
        version_end: u64,
    ) -> Vec<Arc<PrefetchBuffer>> {
        // Locked until the new buffers are listed, so that no other thread fetches the same ranges.
        let mut schedule = self.schedule.lock();
        let mut wanted = schedule.wanted(requests);
        let mut plans = schedule.plans.skip(requests);
        plans.extend(wanted.iter().filter_map(|buffer| buffer.plan()));
        plans.sort_unstable();
        plans.dedup();
        let mut due = vec![];
        for &plan in &plans {
            due.extend(self.advance_plan(&mut schedule, plan));
        }
        wanted.extend(due.iter().filter(|buffer| overlaps(buffer, requests)).cloned());
        if plans.is_empty()
            && let Some(range) = span(requests)
        {
            due.extend(self.advance_sequence(&mut schedule, range, version_end));
        }
        drop(schedule);
        due.into_iter().for_each(|buffer| buffer.fetch(file, FetchMode::InBackground));
        wanted
    }

    /// Announces ranges in the order in which they will be read. Returns when the first buffer of them is fetched;
    /// the others are fetched in the background.
    pub(crate) fn will_need(&self, file: &CachedRemoteFile, ranges: &[Range<u64>]) {
        if self.is_off() {
            return;
        }
        let mut schedule = self.schedule.lock();
        let Some(first) = ranges.first() else { return };
        let buffers = schedule.buffers();
        if ranges.iter().all(|range| without_buffered(&buffers, range.clone()).is_none()) {
            return;
        }
        let is_buffered =
            buffers.iter().any(|buffer| buffer.end_of_range_at(first.start).is_some());
        // A range that is one request in any case needs no plan.
        let is_one_request =
            ranges.len() == 1 && first.end - first.start <= schedule.plans.first_bytes();
        if is_one_request && !is_buffered {
            return;
        }
        let plan = schedule.plans.add(ranges);
        let mut due = self.advance_plan(&mut schedule, plan).into_iter();
        drop(schedule);
        // The caller needs the first buffer next, and fetches it itself.
        let first = if is_buffered { None } else { due.next() };
        due.for_each(|buffer| buffer.fetch(file, FetchMode::InBackground));
        if let Some(first) = first {
            first.fetch(file, FetchMode::Now);
        }
    }

    /// Appends ranges that may be needed to the newest plan.
    pub(crate) fn may_need(&self, file: &CachedRemoteFile, ranges: &[Range<u64>]) {
        let mut schedule = self.schedule.lock();
        let Some(plan) = schedule.plans.extend_newest(ranges) else { return };
        let due = self.advance_plan(&mut schedule, plan);
        drop(schedule);
        due.into_iter().for_each(|buffer| buffer.fetch(file, FetchMode::InBackground));
    }

    /// Adds the buffers of a plan that are due: until one and a half of the largest are unread.
    fn advance_plan(&self, schedule: &mut PrefetchSchedule, plan: u64) -> Vec<Arc<PrefetchBuffer>> {
        let of_plan = schedule.buffers().into_iter().filter(|buffer| buffer.plan() == Some(plan));
        let mut unused: u64 = of_plan.map(|buffer| buffer.unused_bytes()).sum();
        let mut due = vec![];
        while unused < self.pool.buffer_bytes_max() / 2 * 3
            && let Some(ranges) = schedule.take_next_of_plan(plan)
        {
            let buffer = self.add_buffer(schedule, ranges, Some(plan));
            unused += buffer.unused_bytes();
            due.push(buffer);
        }
        due
    }

    /// Records a read without a plan, and adds the buffer that it makes due. Releases the buffers that it has
    /// passed.
    fn advance_sequence(
        &self,
        schedule: &mut PrefetchSchedule,
        range: Range<u64>,
        version_end: u64,
    ) -> Option<Arc<PrefetchBuffer>> {
        let next = schedule.sequences.record_read(range, version_end);
        let next = next.and_then(|next| schedule.without_buffered(next));
        let buffer =
            next.map(|next| self.add_buffer(schedule, std::iter::once(next).collect(), None));
        let passed = schedule.sequences.attach(buffer.as_ref());
        passed.iter().for_each(|buffer| self.pool.release(buffer));
        buffer
    }

    fn add_buffer(
        &self,
        schedule: &mut PrefetchSchedule,
        ranges: Vec<Range<u64>>,
        plan: Option<u64>,
    ) -> Arc<PrefetchBuffer> {
        let buffer = self.pool.add(ranges, plan);
        schedule.buffers.push(Arc::downgrade(&buffer));
        buffer
    }
}

impl PrefetchSchedule {
    fn new(pool: &PrefetchPool) -> Self {
        PrefetchSchedule {
            buffers: vec![],
            plans: PrefetchPlans::new(pool.buffer_bytes_max()),
            sequences: ReadSequences::new(pool.buffer_bytes_max(), pool.bytes_max()),
        }
    }

    /// The buffers that still exist.
    fn buffers(&mut self) -> Vec<Arc<PrefetchBuffer>> {
        self.buffers.retain(|buffer| buffer.strong_count() > 0);
        self.buffers.iter().filter_map(Weak::upgrade).collect()
    }

    /// The buffers that have, or will have, bytes of requests.
    fn wanted(&mut self, requests: &[ReadRequest<'_>]) -> Vec<Arc<PrefetchBuffer>> {
        let mut buffers = self.buffers();
        buffers.retain(|buffer| overlaps(buffer, requests));
        buffers
    }

    /// A range without its front, as far as buffers have it: sequences at several places run into each other. `None` if
    /// nothing is left.
    fn without_buffered(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        without_buffered(&self.buffers(), range)
    }

    /// The ranges of a plan's next buffer.
    fn take_next_of_plan(&mut self, plan: u64) -> Option<Vec<Range<u64>>> {
        let buffers = self.buffers();
        self.plans.take_next(plan, |range| without_buffered(&buffers, range))
    }
}

fn without_buffered(buffers: &[Arc<PrefetchBuffer>], range: Range<u64>) -> Option<Range<u64>> {
    let mut start = range.start;
    while let Some(end) = buffers.iter().find_map(|buffer| buffer.end_of_range_at(start)) {
        start = end;
    }
    (start < range.end).then_some(start..range.end)
}

fn overlaps(buffer: &PrefetchBuffer, requests: &[ReadRequest<'_>]) -> bool {
    requests.iter().any(|request| buffer.overlaps(&range_of(request)))
}

fn range_of(request: &ReadRequest<'_>) -> Range<u64> {
    request.offset..request.offset.saturating_add(request.buffer.len() as u64)
}

/// Fills a request from buffers up to the first byte that none of them has; returns the rest of it.
fn fill_from<'a>(
    request: &'a mut ReadRequest<'_>,
    buffers: &[Arc<PrefetchBuffer>],
) -> Option<ReadRequest<'a>> {
    let mut rest = ReadRequest { offset: request.offset, buffer: &mut *request.buffer };
    while !rest.buffer.is_empty() {
        let mut counts = buffers.iter().map(|buffer| buffer.copy_front(&mut rest));
        let Some(count) = counts.find(|&count| count > 0) else { return Some(rest) };
        let buffer = rest.buffer.split_at_mut(count).1;
        rest = ReadRequest { offset: rest.offset + count as u64, buffer };
    }
    None
}

/// The range that requests lie in, if they are in order with small gaps.
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

#[cfg(test)]
mod tests {
    use super::buffer::tests::fetched;
    use super::*;

    const BUFFER_BYTES: u64 = 4 << 20;
    /// The end of a version that extends past all reads of a test.
    const END: u64 = u64::MAX;

    /// A prefetcher whose buffers are never fetched, and a schedule for its methods.
    fn prefetcher() -> (Prefetcher, PrefetchSchedule) {
        let pool = Arc::new(PrefetchPool::new(BUFFER_BYTES));
        let schedule = PrefetchSchedule::new(&pool);
        (Prefetcher::new(pool), schedule)
    }

    fn unused_bytes(schedule: &mut PrefetchSchedule) -> u64 {
        schedule.buffers().iter().map(|buffer| buffer.unused_bytes()).sum()
    }

    #[test]
    fn containers_written_in_turn_and_read_in_turn_are_one_sequence() {
        let (prefetcher, mut schedule) = prefetcher();
        // Three containers, each 320 KiB in turn, are read in turn by 10 KiB.
        let read = |container: u64, index: u64| {
            let (run, within) = (index / 32, index % 32);
            let start = ((run * 3 + container) * 32 + within) * 10 * 1024;
            start..start + 10 * 1024
        };
        let (mut ranges, mut asked) = (vec![], 0);
        for index in 0..32 * 40 {
            for container in 0..3 {
                let range = read(container, index);
                asked += u64::from(schedule.without_buffered(range.clone()).is_some());
                let added = prefetcher.advance_sequence(&mut schedule, range, END);
                ranges.extend(added.map(|buffer| buffer.ranges()[0].clone()));
                let held = unused_bytes(&mut schedule);
                assert!(held <= 4 * BUFFER_BYTES, "{held}");
            }
        }
        assert!(asked < 100, "{asked} of {} were not prefetched", 32 * 40 * 3);
        let last = &ranges[ranges.len() - 4..];
        assert!(last.iter().all(|range| range.end - range.start == BUFFER_BYTES), "{last:?}");
        assert!(last.windows(2).all(|pair| pair[0].end == pair[1].start), "{last:?}");
    }

    #[test]
    fn buffers_that_a_sequence_has_passed_are_released() {
        let (prefetcher, mut schedule) = prefetcher();
        for index in 0..4000 {
            let range = index * 16384..index * 16384 + 10_000;
            prefetcher.advance_sequence(&mut schedule, range, END);
            let held = unused_bytes(&mut schedule);
            assert!(held <= 3 * BUFFER_BYTES, "{held}");
        }
    }

    #[test]
    fn a_request_is_filled_from_several_buffers() {
        let bytes = |range: Range<u64>| range.map(|at| at as u8).collect::<Vec<_>>();
        let buffer = |range: Range<u64>| {
            Arc::new(fetched(std::iter::once(range.clone()).collect(), bytes(range)))
        };
        let buffers = [buffer(150..160), buffer(100..150), buffer(170..200)];
        let mut target = [0; 80];
        let mut request = ReadRequest { offset: 110, buffer: &mut target };
        let rest = fill_from(&mut request, &buffers).map(|rest| (rest.offset, rest.buffer.len()));
        assert_eq!(rest, Some((160, 30)));
        assert!(target[..50].iter().copied().eq(110..160));
        let mut request = ReadRequest { offset: 145, buffer: &mut target[..15] };
        assert!(fill_from(&mut request, &buffers).is_none());
        assert!(target[..15].iter().copied().eq(145..160));
        assert_eq!(buffers.map(|buffer| buffer.unused_bytes()), [0, 5, 30]);
    }

    #[test]
    fn no_range_is_fetched_twice() {
        let (prefetcher, mut schedule) = prefetcher();
        prefetcher.add_buffer(&mut schedule, vec![100..150, 150..200], None);
        prefetcher.add_buffer(&mut schedule, vec![200..300, 400..500], None);
        assert_eq!(schedule.without_buffered(50..150), Some(50..150));
        assert_eq!(schedule.without_buffered(100..350), Some(300..350));
        assert_eq!(schedule.without_buffered(120..300), None);
        assert_eq!(schedule.without_buffered(450..600), Some(500..600));
        drop(prefetcher);
        assert_eq!(schedule.without_buffered(120..300), Some(120..300), "the buffers were dropped");
    }

    #[test]
    fn a_plan_is_fetched_in_its_order_and_not_too_far_ahead() {
        let (prefetcher, mut schedule) = prefetcher();
        let column = |number: u64| (number << 40)..(number << 40) + (3 << 20);
        let ranges: Vec<_> = [3, 1, 2, 5, 4].map(column).into();
        let plan = schedule.plans.add(&ranges);
        let due = prefetcher.advance_plan(&mut schedule, plan);
        let front = |number: u64, from: u64, to: u64| {
            let start = number << 40;
            start + (from << 20)..start + (to << 20)
        };
        let fetched: Vec<_> = due.iter().map(|buffer| buffer.ranges().to_vec()).collect();
        assert_eq!(
            fetched,
            [vec![front(3, 0, 1)], vec![front(3, 1, 3)], vec![front(1, 0, 3), front(2, 0, 1)],]
        );
        assert!(
            prefetcher.advance_plan(&mut schedule, plan).is_empty(),
            "none of its buffers was used"
        );
        due.iter().for_each(|buffer| prefetcher.pool.release(buffer));
        drop(due);
        let next = prefetcher.advance_plan(&mut schedule, plan);
        assert_eq!(next[0].ranges(), [front(2, 1, 3), front(5, 0, 2)]);
    }

    #[test]
    fn a_plan_leaves_out_ranges_that_other_buffers_have() {
        let (prefetcher, mut schedule) = prefetcher();
        let mib = |from: u64, to: u64| from << 20..to << 20;
        let first = schedule.plans.add(&[mib(0, 20), mib(30, 40)]);
        prefetcher.advance_plan(&mut schedule, first);
        let rest =
            schedule.without_buffered(mib(0, 20)).expect("the plan is longer than one buffer");
        let held = rest.start >> 20;
        let second = schedule.plans.add(&[mib(0, 10), mib(30, 40)]);
        assert_eq!(schedule.take_next_of_plan(second), Some(vec![mib(held, held + 1)]));
        while let Some(ranges) = schedule.take_next_of_plan(first) {
            assert!(ranges.iter().all(|range| range.start < 20 << 20), "{ranges:?}");
        }
    }
}
