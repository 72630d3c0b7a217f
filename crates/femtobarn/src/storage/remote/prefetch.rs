//! Reading ahead from a server: what is fetched before somebody asks for it, and when.
//!
//! 1. What is read ahead belongs to versions of containers of one file, of one commit or of earlier ones:
//!    what they refer to was written before the first of them was opened, so no burst has bytes from
//!    before they were written.
//! 2. A plan is what somebody will need, in this order. Its first bytes are fetched at once, and as
//!    they are used, what comes next, so that the next burst is on its way when one is begun. What
//!    others fetch already is left out.
//! 3. A read without a plan that goes on where one before it ended is sequential. Once 192 KiB were
//!    read so, what comes next is fetched while that is used: up to [`AHEAD_TIMES`] what was read. So is one
//!    of what was fetched so: containers that were written in turn, and are read in turn, are one sequence.
//!    Nothing is fetched behind the last byte of all versions that are read so: others have what is there.
//!    One of them that is read alone is read in runs of some length: a sequence that begins a little behind
//!    one that ended is taken to be as long, until it turns out to be longer.
//! 4. A sequence holds a burst that is used, one that comes next, and what is half a burst behind.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use rntuple::ReadRequest;

use crate::storage::remote::cached_file::CachedRemoteFile;
use crate::storage::remote::prefetch_buffer::{Fetch, PrefetchBuffer, PrefetchPool, lock};

/// Bytes that are read one after the other before more is fetched.
const SEQUENTIAL_BYTES_MIN: u64 = 192 << 10;
/// Bytes of a sequence that are fetched before they are asked for, for each byte that was read: on a disk
/// each burst is a seek, so small ones should be few; a reader of little should fetch little.
const AHEAD_TIMES: u64 = 4;
/// Bytes that may be left out between reads that follow each other.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Bytes between two runs of a container that was written in turn with others.
const RUNS_APART_MAX: u64 = 16 << 20;
/// Places of a file that are read sequentially at once.
const SEQUENCES_MAX: usize = 64;
/// Plans for a file; those of more threads push each other out.
const PLANS_MAX: usize = 16;
/// Bytes of a plan's first burst, which somebody waits for, if a burst may have so many.
const FIRST_BYTES: u64 = 1 << 20;

/// Reading ahead in one file.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bursts: Arc<PrefetchPool>,
    own: Mutex<Own>,
}

#[derive(Debug)]
struct Own {
    /// Bytes of the largest burst.
    burst_bytes_max: u64,
    /// Bytes of all bursts of a federation.
    held_bytes_max: u64,
    bursts: Vec<Weak<PrefetchBuffer>>,
    /// The oldest come first.
    plans: VecDeque<Plan>,
    plans_made: u64,
    /// Those that were gone on with last come last.
    sequences: Vec<Sequence>,
}

/// What somebody will need.
#[derive(Debug)]
struct Plan {
    number: u64,
    /// What is not fetched yet, in its order.
    ranges: VecDeque<Range<u64>>,
    /// Bytes of the next burst.
    burst_bytes: u64,
}

/// Reads that follow each other.
#[derive(Debug)]
struct Sequence {
    start: u64,
    /// Where the last one ended.
    end: u64,
    bytes: u64,
    /// Up to where bursts were fetched.
    fetched: u64,
    /// Where the versions end that are read so.
    versions_end: u64,
    /// Where it is taken to end.
    run_end: Option<u64>,
    bursts: Vec<Weak<PrefetchBuffer>>,
}

impl ReadAhead {
    pub fn new(bursts: Arc<PrefetchPool>) -> Self {
        let own = Mutex::new(Own::new(&bursts));
        ReadAhead { bursts, own }
    }

    /// Whether all is to be read when it is asked for, and nothing before.
    fn is_off(&self) -> bool {
        self.bursts.bytes_max == 0
    }

    /// Fills all requests, from bursts where these have them, for a version that is known to end at
    /// some byte.
    pub fn read_many(
        &self,
        file: &CachedRemoteFile,
        requests: &mut [ReadRequest<'_>],
        version_end: u64,
    ) -> rntuple::Result<()> {
        if self.is_off() {
            return file.read_many(requests);
        }
        let known = self.begin(file, requests, version_end);
        let requests = requests.iter_mut();
        let mut missing: Vec<_> = requests.filter_map(|request| left_of(request, &known)).collect();
        let used_up = known.iter().filter(|burst| burst.left() == 0);
        used_up.for_each(|burst| self.bursts.release(burst));
        match missing.is_empty() {
            true => Ok(()),
            false => file.read_many(&mut missing),
        }
    }

    /// The bursts that have what is read; those that come next are on their way.
    fn begin(
        &self,
        file: &CachedRemoteFile,
        requests: &[ReadRequest<'_>],
        version_end: u64,
    ) -> Vec<Arc<PrefetchBuffer>> {
        // Locked until the bursts are known, so that nobody else fetches the same.
        let mut own = lock(&self.own);
        let is_wanted = |burst: &Arc<PrefetchBuffer>| {
            requests.iter().any(|request| burst.has_some_of(&range_of(request)))
        };
        let mut known = own.live();
        known.retain(is_wanted);
        let mut plans = own.leave_out(requests);
        plans.extend(known.iter().filter_map(|burst| burst.plan));
        plans.sort_unstable();
        plans.dedup();
        let mut due = vec![];
        for &plan in &plans {
            due.extend(self.advance(&mut own, plan));
        }
        known.extend(due.iter().filter(|burst| is_wanted(burst)).cloned());
        if plans.is_empty()
            && let Some(range) = span(requests)
        {
            due.extend(self.go_on(&mut own, range, version_end));
        }
        drop(own);
        due.into_iter().for_each(|burst| burst.fetch(file, Fetch::Meanwhile));
        known
    }

    /// What is to be fetched, now that this range is read.
    fn go_on(
        &self,
        own: &mut Own,
        range: Range<u64>,
        version_end: u64,
    ) -> Option<Arc<PrefetchBuffer>> {
        let next = own.next_burst(range, version_end).and_then(|next| own.not_held(next));
        let burst = next.map(|next| self.add(own, std::iter::once(next).collect(), None));
        let behind = own.burst_bytes_max / 2;
        let sequence = own.sequences.last_mut()?;
        sequence.bursts.extend(burst.iter().map(Arc::downgrade));
        let passed = sequence.take_before(sequence.end.saturating_sub(behind));
        passed.iter().for_each(|burst| self.bursts.release(burst));
        burst
    }

    /// Fetches ranges that will be needed, in their order.
    pub fn will_need(&self, file: &CachedRemoteFile, ranges: &[Range<u64>]) {
        if self.is_off() {
            return;
        }
        let mut own = lock(&self.own);
        let Some(first) = ranges.first() else { return };
        let goes_on = own.live().iter().any(|burst| burst.end_of(first.start).is_some());
        // What is one request anyway needs no plan.
        let is_one = ranges.len() == 1 && first.end - first.start <= own.first_bytes();
        if is_one && !goes_on {
            return;
        }
        let plan = own.plan(ranges);
        let mut due = self.advance(&mut own, plan).into_iter();
        drop(own);
        // The first burst is awaited by the caller, which fetches it itself.
        let first = if goes_on { None } else { due.next() };
        due.for_each(|burst| burst.fetch(file, Fetch::Meanwhile));
        if let Some(first) = first {
            first.fetch(file, Fetch::Now);
        }
    }

    /// Fetches ranges, too, that may be needed after those that were planned last.
    pub fn may_need(&self, file: &CachedRemoteFile, ranges: &[Range<u64>]) {
        let mut own = lock(&self.own);
        let Some(plan) = own.plans.back_mut() else { return };
        plan.ranges.extend(ranges.iter().cloned());
        let number = plan.number;
        let due = self.advance(&mut own, number);
        drop(own);
        due.into_iter().for_each(|burst| burst.fetch(file, Fetch::Meanwhile));
    }

    /// What is to be fetched next for a plan.
    fn advance(&self, own: &mut Own, plan: u64) -> Vec<Arc<PrefetchBuffer>> {
        let of_plan = own.live().into_iter().filter(|burst| burst.plan == Some(plan));
        let mut ahead: u64 = of_plan.map(|burst| burst.left()).sum();
        let mut due = vec![];
        // The next burst is on its way when one is begun.
        while ahead < own.burst_bytes_max / 2 * 3
            && let Some(ranges) = own.next_of(plan)
        {
            let burst = self.add(own, ranges, Some(plan));
            ahead += burst.left();
            due.push(burst);
        }
        due
    }

    fn add(
        &self,
        own: &mut Own,
        ranges: Vec<Range<u64>>,
        plan: Option<u64>,
    ) -> Arc<PrefetchBuffer> {
        let burst = self.bursts.add(ranges, plan);
        own.bursts.push(Arc::downgrade(&burst));
        burst
    }
}

fn range_of(request: &ReadRequest<'_>) -> Range<u64> {
    request.offset..request.offset.saturating_add(request.buffer.len() as u64)
}

/// Fills a request from bursts, one after the other, up to what none of them has; what is left of it.
fn left_of<'a>(
    request: &'a mut ReadRequest<'_>,
    known: &[Arc<PrefetchBuffer>],
) -> Option<ReadRequest<'a>> {
    let mut left = ReadRequest { offset: request.offset, buffer: &mut *request.buffer };
    while !left.buffer.is_empty() {
        let count = known.iter().map(|burst| burst.copy_front(&mut left)).find(|&count| count > 0);
        let Some(count) = count else { return Some(left) };
        let buffer = left.buffer.split_at_mut(count).1;
        left = ReadRequest { offset: left.offset + count as u64, buffer };
    }
    None
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

impl Sequence {
    /// Whether a read goes on with it: where it ended, or beside that, in what was fetched.
    fn goes_on_at(&self, offset: u64, behind: u64) -> bool {
        let fetched = self.end.saturating_sub(behind)..self.fetched;
        (self.end..=self.end + GAP_BYTES_MAX).contains(&offset)
            || self.fetched > self.end && fetched.contains(&offset)
    }

    /// What is to be fetched next, if it is time: the next burst is on its way when one is begun, and
    /// small ones are so large that there are few.
    fn next_burst(&mut self, burst_bytes_max: u64) -> Option<Range<u64>> {
        let start = self.fetched.max(self.end);
        let ahead = start - self.end;
        if ahead >= self.bytes.min(burst_bytes_max) || start >= self.ahead_end() {
            return None;
        }
        let bytes = (self.bytes.saturating_mul(AHEAD_TIMES) - ahead).min(burst_bytes_max);
        self.fetched = start.saturating_add(bytes).min(self.ahead_end());
        Some(start..self.fetched)
    }

    /// Nothing is fetched behind this.
    fn ahead_end(&self) -> u64 {
        self.run_end.map_or(self.versions_end, |end| end.min(self.versions_end))
    }

    /// Whether a read that goes on with none comes a little behind it.
    fn is_run_before(&self, offset: u64) -> bool {
        self.bytes >= SEQUENTIAL_BYTES_MIN
            && (self.end..=self.end.saturating_add(RUNS_APART_MAX)).contains(&offset)
    }

    fn has_bursts(&self) -> bool {
        self.bursts.iter().any(|burst| burst.strong_count() > 0)
    }

    /// Its bursts that lie before a byte.
    fn take_before(&mut self, offset: u64) -> Vec<Arc<PrefetchBuffer>> {
        let mut passed = vec![];
        self.bursts.retain(|known| {
            let Some(burst) = known.upgrade() else { return false };
            let is_before = burst.is_before(offset);
            passed.extend(is_before.then_some(burst));
            !is_before
        });
        passed
    }
}

impl Own {
    fn new(bursts: &PrefetchPool) -> Self {
        Own {
            burst_bytes_max: bursts.bytes_max,
            held_bytes_max: bursts.held_bytes_max(),
            bursts: vec![],
            plans: VecDeque::new(),
            plans_made: 0,
            sequences: vec![],
        }
    }

    /// Bytes of a plan's first burst.
    fn first_bytes(&self) -> u64 {
        FIRST_BYTES.min(self.burst_bytes_max)
    }

    fn live(&mut self) -> Vec<Arc<PrefetchBuffer>> {
        self.bursts.retain(|known| known.strong_count() > 0);
        self.bursts.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes a plan, whose number is returned. What it has is taken out of the others.
    fn plan(&mut self, ranges: &[Range<u64>]) -> u64 {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| range.start);
        let is_here = |range: &Range<u64>| {
            let index = sorted.partition_point(|known| known.end <= range.start);
            sorted.get(index).is_some_and(|known| known.start <= range.start)
        };
        self.plans.iter_mut().for_each(|plan| plan.ranges.retain(|range| !is_here(range)));
        self.plans_made += 1;
        let (number, ranges) = (self.plans_made, ranges.iter().cloned().collect());
        let burst_bytes = self.first_bytes();
        self.plans.push_back(Plan { number, ranges, burst_bytes });
        if self.plans.len() > PLANS_MAX {
            self.plans.pop_front();
        }
        number
    }

    /// The ranges of a plan's next burst, without what others have.
    fn next_of(&mut self, plan: u64) -> Option<Vec<Range<u64>>> {
        let position = self.plans.iter().position(|known| known.number == plan)?;
        let (mut ranges, mut bytes) = (vec![], 0);
        while bytes < self.plans[position].burst_bytes {
            let Some(range) = self.plans[position].ranges.pop_front() else { break };
            let Some(mut range) = self.not_held(range) else { continue };
            let plan = &mut self.plans[position];
            let fitting = range.start + (plan.burst_bytes - bytes);
            if fitting < range.end {
                plan.ranges.push_front(fitting..range.end);
                range.end = fitting;
            }
            bytes += range.end - range.start;
            ranges.push(range);
        }
        let burst_bytes = &mut self.plans[position].burst_bytes;
        *burst_bytes = (*burst_bytes * 2).min(self.burst_bytes_max);
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let is_joined = next.start <= before.end;
            before.end = if is_joined { before.end.max(next.end) } else { before.end };
            is_joined
        });
        (!ranges.is_empty()).then_some(ranges)
    }

    /// Takes what is read out of the plans that come to it next; tells which these are.
    fn leave_out(&mut self, requests: &[ReadRequest<'_>]) -> Vec<u64> {
        let mut found = vec![];
        for plan in &mut self.plans {
            for request in requests {
                let Some(front) = plan.ranges.front_mut() else { break };
                if !front.contains(&request.offset) {
                    continue;
                }
                front.start = front.end.min(request.offset + request.buffer.len() as u64);
                if front.is_empty() {
                    plan.ranges.pop_front();
                }
                found.push(plan.number);
            }
        }
        found
    }

    /// What is left of a range without that at its front which other bursts have: places that are read
    /// sequentially run into each other.
    fn not_held(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        let bursts = self.live();
        let mut start = range.start;
        while let Some(end) = bursts.iter().find_map(|burst| burst.end_of(start)) {
            start = end;
        }
        (start < range.end).then_some(start..range.end)
    }

    /// What is to be fetched, now that this range of a version is read.
    fn next_burst(&mut self, range: Range<u64>, version_end: u64) -> Option<Range<u64>> {
        let mut sequence = self.gone_on_with(range.clone(), version_end);
        // Each place has its share of what is held at once.
        let others = self.sequences.iter().filter(|sequence| sequence.has_bursts()).count() as u64;
        let share = self.held_bytes_max / (2 * others + 2);
        let is_first = sequence.bytes == range.end - range.start;
        let is_long = sequence.bytes >= SEQUENTIAL_BYTES_MIN || sequence.run_end.is_some();
        let next = match is_first || !is_long {
            true => None,
            false => sequence.next_burst(self.burst_bytes_max.min(share)),
        };
        self.sequences.push(sequence);
        if self.sequences.len() > SEQUENCES_MAX {
            self.sequences.remove(0);
        }
        next
    }

    /// Bytes of the run that ended last before a byte, if that is near.
    fn run_before(&self, offset: u64) -> Option<u64> {
        let known = self.sequences.iter().rfind(|known| known.is_run_before(offset));
        known.map(|run| run.end - run.start)
    }

    /// The sequence that a read goes on with, or begins, taken out of those that are known.
    fn gone_on_with(&mut self, range: Range<u64>, version_end: u64) -> Sequence {
        let behind = self.burst_bytes_max / 2;
        let size = range.end - range.start;
        // It may end elsewhere than it seemed to.
        let version_end = if range.end <= version_end { version_end } else { u64::MAX };
        let follows = |sequence: &Sequence| sequence.goes_on_at(range.start, behind);
        match self.sequences.iter().rposition(follows) {
            Some(place) => {
                let known = self.sequences.remove(place);
                Sequence {
                    end: known.end.max(range.end),
                    bytes: known.bytes + size,
                    run_end: known
                        .run_end
                        .filter(|&end| range.end <= end.saturating_add(GAP_BYTES_MAX)),
                    versions_end: known.versions_end.max(version_end),
                    ..known
                }
            }
            None => Sequence {
                start: range.start,
                end: range.end,
                bytes: size,
                fetched: 0,
                versions_end: version_end,
                run_end: self
                    .run_before(range.start)
                    .map(|bytes| range.start.saturating_add(bytes)),
                bursts: vec![],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::remote::prefetch_buffer::tests::there;

    const BURST_BYTES: u64 = 4 << 20;
    /// Where versions end that are longer than what is read of them.
    const END: u64 = u64::MAX;

    fn own() -> Own {
        Own::new(&PrefetchPool::new(BURST_BYTES))
    }

    #[test]
    fn what_is_read_one_after_the_other_is_fetched_ahead() {
        let mut own = own();
        let step = 256 << 10;
        let read = |index: u64| index * step..(index + 1) * step;
        assert_eq!(own.next_burst(read(0), END), None, "the first one");
        assert_eq!(own.next_burst(read(1), END), Some(2 * step..10 * step));
        let mut fetched = 10 * step;
        for index in 2..200 {
            if let Some(next) = own.next_burst(read(index), END) {
                assert_eq!(next.start, fetched, "without a gap");
                assert!(next.end - next.start <= BURST_BYTES);
                fetched = next.end;
            }
            assert!(fetched > (index + 1) * step, "the next burst is on its way");
            assert!(fetched <= (index + 1) * step + 2 * BURST_BYTES, "and no more than that");
        }
    }

    #[test]
    fn containers_that_were_written_in_turn_are_one_sequence() {
        let (ahead, mut own) = ahead();
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
                asked += u64::from(own.not_held(range.clone()).is_some());
                ranges.extend(
                    ahead.go_on(&mut own, range, END).map(|burst| burst.ranges()[0].clone()),
                );
                let held: u64 = own.live().iter().map(|burst| burst.left()).sum();
                assert!(held <= 4 * BURST_BYTES, "{held}");
            }
        }
        assert!(asked < 100, "{asked} of {} were not fetched ahead", 32 * 40 * 3);
        let last = &ranges[ranges.len() - 4..];
        assert!(last.iter().all(|range| range.end - range.start == BURST_BYTES), "{last:?}");
        assert!(last.windows(2).all(|pair| pair[0].end == pair[1].start), "{last:?}");
    }

    #[test]
    fn bursts_that_were_passed_are_let_go_of() {
        let (ahead, mut own) = ahead();
        for index in 0..4000 {
            ahead.go_on(&mut own, index * 16384..index * 16384 + 10_000, END);
            let held: u64 = own.live().iter().map(|burst| burst.left()).sum();
            assert!(held <= 3 * BURST_BYTES, "{held}");
        }
    }

    #[test]
    fn nothing_is_fetched_behind_the_last_byte_of_what_is_read() {
        let mut own = own();
        let mut fetched = |read: Range<u64>, version_end: u64| {
            let starts = (read.start..read.end).step_by(10_000);
            let bursts = starts.filter_map(|at| own.next_burst(at..at + 10_000, version_end));
            bursts.map(|burst| burst.end).max().unwrap_or(0)
        };
        assert_eq!(fetched(0..8_000_000, 9_001_234), 9_001_234);
        assert_eq!(fetched(8_000_000..9_000_000, 9_001_234), 0, "all of it is there");
        let behind = fetched(9_000_000..12_000_000, 12_001_234);
        assert_eq!(behind, 12_001_234, "one that lies behind it is read, too");
        assert!(fetched(12_000_000..13_000_000, 12_001_234) > 13_000_000, "it ends elsewhere");
    }

    #[test]
    fn few_bursts_are_small_and_none_reach_far() {
        let mut own = own();
        let (mut count, mut fetched) = (0, 0);
        for index in 0..800 {
            let range = index * 10_000..(index + 1) * 10_000;
            let read = range.end;
            if let Some(next) = own.next_burst(range, END) {
                count += 1;
                fetched = next.end;
            }
            assert!(fetched <= read * (AHEAD_TIMES + 1), "{fetched} at {read}");
        }
        assert!(count <= 7, "{count}");
    }

    #[test]
    fn of_containers_that_were_written_in_turn_one_is_fetched_alone() {
        let mut own = own();
        let (mut bursts, mut fetched) = (0, 0);
        // Runs of about 250,000 bytes, each about a million behind the one before it.
        for index in 0..25 * 40 {
            let (run, within) = (index / 25, index % 25);
            let start = run * (1_000_000 + run % 3 * 100) + within * (10_000 + run % 3);
            if let Some(next) = own.next_burst(start..start + 10_000 + run % 3, END) {
                bursts += 1;
                fetched += next.end - next.start;
            }
        }
        assert!(fetched < 40 * 250_000 + 1_000_000, "{fetched}");
        assert!(bursts <= 40 * 5, "{bursts}");
    }

    #[test]
    fn what_is_read_here_and_there_is_not() {
        let mut own = own();
        for index in 0..100_u64 {
            let start = (index * 7919 % 100) << 30;
            assert_eq!(own.next_burst(start..start + (1 << 20), END), None);
        }
    }

    #[test]
    fn sequences_at_several_places_are_kept_apart() {
        let mut own = own();
        let mut fetched = 0;
        for index in 0..20_u64 {
            for place in 0..40_u64 {
                let start = (place << 40) + (index << 20);
                let next = own.next_burst(start..start + (1 << 20), END);
                fetched += next.map_or(0, |next| next.end - next.start);
            }
        }
        assert!(fetched >= (40 * 18) << 20, "{fetched}");
    }

    #[test]
    fn what_lies_in_several_bursts_is_put_together() {
        let bytes = |range: Range<u64>| range.map(|at| at as u8).collect::<Vec<_>>();
        let burst = |range: Range<u64>| {
            Arc::new(there(std::iter::once(range.clone()).collect(), bytes(range)))
        };
        let known = [burst(150..160), burst(100..150), burst(170..200)];
        let mut buffer = [0; 80];
        let mut request = ReadRequest { offset: 110, buffer: &mut buffer };
        let left = left_of(&mut request, &known).map(|left| (left.offset, left.buffer.len()));
        assert_eq!(left, Some((160, 30)));
        assert!(buffer[..50].iter().copied().eq(110..160));
        let mut request = ReadRequest { offset: 145, buffer: &mut buffer[..15] };
        assert!(left_of(&mut request, &known).is_none());
        assert!(buffer[..15].iter().copied().eq(145..160));
        assert_eq!([known[0].left(), known[1].left(), known[2].left()], [0, 5, 30]);
    }

    /// PrefetchPool that nobody fetches.
    fn ahead() -> (ReadAhead, Own) {
        (ReadAhead::new(Arc::new(PrefetchPool::new(BURST_BYTES))), own())
    }

    #[test]
    fn nothing_is_fetched_twice() {
        let (ahead, mut own) = ahead();
        ahead.add(&mut own, vec![100..150, 150..200], None);
        ahead.add(&mut own, vec![200..300, 400..500], None);
        assert_eq!(own.not_held(50..150), Some(50..150));
        assert_eq!(own.not_held(100..350), Some(300..350));
        assert_eq!(own.not_held(120..300), None);
        assert_eq!(own.not_held(450..600), Some(500..600));
        drop(ahead);
        assert_eq!(own.not_held(120..300), Some(120..300), "it is gone");
    }

    #[test]
    fn a_plan_is_fetched_in_its_order_and_not_too_far_ahead() {
        let (ahead, mut own) = ahead();
        let column = |place: u64| (place << 40)..(place << 40) + (3 << 20);
        let ranges: Vec<_> = [3, 1, 2, 5, 4].map(column).into();
        let plan = own.plan(&ranges);
        let due = ahead.advance(&mut own, plan);
        let front = |place: u64, from: u64, to: u64| {
            let start = place << 40;
            start + (from << 20)..start + (to << 20)
        };
        let fetched: Vec<_> = due.iter().map(|burst| burst.ranges().to_vec()).collect();
        assert_eq!(
            fetched,
            [vec![front(3, 0, 1)], vec![front(3, 1, 3)], vec![front(1, 0, 3), front(2, 0, 1)],]
        );
        assert!(ahead.advance(&mut own, plan).is_empty(), "nothing of it was used");
        due.iter().for_each(|burst| ahead.bursts.release(burst));
        drop(due);
        let next = ahead.advance(&mut own, plan);
        assert_eq!(next[0].ranges(), [front(2, 1, 3), front(5, 0, 2)]);
    }

    #[test]
    fn a_plan_leaves_out_what_others_have() {
        let (ahead, mut own) = ahead();
        let mib = |from: u64, to: u64| from << 20..to << 20;
        let first = own.plan(&[mib(0, 20), mib(30, 40)]);
        ahead.advance(&mut own, first);
        let held = own.not_held(mib(0, 20)).expect("it is more than one burst").start >> 20;
        let second = own.plan(&[mib(0, 10), mib(30, 40)]);
        assert_eq!(own.next_of(second), Some(vec![mib(held, held + 1)]));
        assert!(own.plans[0].ranges.iter().all(|range| range.start < 20 << 20), "{own:?}");
    }

    #[test]
    fn what_is_read_before_it_was_fetched_is_left_out() {
        let mut own = own();
        let plan = own.plan(&[0..100, 200..300]);
        let mut buffer = [0; 100];
        let requests = [ReadRequest { offset: 0, buffer: &mut buffer }];
        assert_eq!(own.leave_out(&requests), [plan]);
        assert_eq!(own.next_of(plan), Some(std::iter::once(200..300).collect()));
        assert!(own.leave_out(&requests).is_empty());
    }
}
