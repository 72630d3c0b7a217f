//! Plans: ranges of a file that a reader has announced, in the order in which it will read them.
//!
//! A plan is fetched in buffers that double in size, from 1 MiB up to the largest: the reader waits for the first
//! one. A new plan takes ranges that start within its own out of the older plans.

use std::collections::VecDeque;
use std::ops::Range;

use rntuple::ReadRequest;

/// Plans for one file. Those of more threads push out the oldest.
const PLANS_MAX: usize = 16;
/// Bytes of a plan's first buffer, unless no buffer may be so large.
const FIRST_BYTES: u64 = 1 << 20;

/// The plans for one file.
#[derive(Debug)]
pub(super) struct PrefetchPlans {
    buffer_bytes_max: u64,
    /// The oldest first.
    plans: VecDeque<PrefetchPlan>,
    /// Plans made so far, which is the number of the newest.
    count: u64,
}

#[derive(Debug)]
struct PrefetchPlan {
    number: u64,
    /// Ranges that are neither fetched nor being fetched, in the order of the plan.
    ranges: VecDeque<Range<u64>>,
    /// Bytes of its next buffer.
    next_bytes: u64,
}

impl PrefetchPlans {
    pub(super) fn new(buffer_bytes_max: u64) -> Self {
        PrefetchPlans { buffer_bytes_max, plans: VecDeque::new(), count: 0 }
    }

    /// Bytes of a plan's first buffer.
    pub(super) fn first_bytes(&self) -> u64 {
        FIRST_BYTES.min(self.buffer_bytes_max)
    }

    /// Makes a plan of `ranges`, takes these out of the other plans, and returns the number of the new one.
    pub(super) fn add(&mut self, ranges: &[Range<u64>]) -> u64 {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| range.start);
        let is_replanned = |range: &Range<u64>| {
            let index = sorted.partition_point(|new| new.end <= range.start);
            sorted.get(index).is_some_and(|new| new.start <= range.start)
        };
        self.plans.iter_mut().for_each(|plan| plan.ranges.retain(|range| !is_replanned(range)));
        self.count += 1;
        let ranges = ranges.iter().cloned().collect();
        let next_bytes = self.first_bytes();
        self.plans.push_back(PrefetchPlan { number: self.count, ranges, next_bytes });
        if self.plans.len() > PLANS_MAX {
            self.plans.pop_front();
        }
        self.count
    }

    /// Appends ranges to the newest plan and returns its number; `None` if there is no plan.
    pub(super) fn extend_newest(&mut self, ranges: &[Range<u64>]) -> Option<u64> {
        let plan = self.plans.back_mut()?;
        plan.ranges.extend(ranges.iter().cloned());
        Some(plan.number)
    }

    /// Takes the ranges of a plan's next buffer out of it, ascending and disjoint; `None` if everything is fetched.
    /// `without_buffered` cuts off the front of a range that other buffers have.
    pub(super) fn take_next(
        &mut self,
        number: u64,
        without_buffered: impl Fn(Range<u64>) -> Option<Range<u64>>,
    ) -> Option<Vec<Range<u64>>> {
        let plan = self.plans.iter_mut().find(|plan| plan.number == number)?;
        let (mut ranges, mut bytes) = (vec![], 0);
        while bytes < plan.next_bytes {
            let Some(range) = plan.ranges.pop_front() else { break };
            let Some(mut range) = without_buffered(range) else { continue };
            let fitting_end = range.start + (plan.next_bytes - bytes);
            if fitting_end < range.end {
                plan.ranges.push_front(fitting_end..range.end);
                range.end = fitting_end;
            }
            bytes += range.end - range.start;
            ranges.push(range);
        }
        plan.next_bytes = (plan.next_bytes * 2).min(self.buffer_bytes_max);
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let is_joined = next.start <= before.end;
            before.end = if is_joined { before.end.max(next.end) } else { before.end };
            is_joined
        });
        (!ranges.is_empty()).then_some(ranges)
    }

    /// Takes requests that begin in the first range of a plan out of it: they are read before they were fetched.
    /// Returns the numbers of these plans, a plan once for each such request.
    pub(super) fn skip(&mut self, requests: &[ReadRequest<'_>]) -> Vec<u64> {
        let mut skipped = vec![];
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
                skipped.push(plan.number);
            }
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_read_before_it_was_fetched_is_taken_out_of_its_plan() {
        let mut plans = PrefetchPlans::new(4 << 20);
        let plan = plans.add(&[0..100, 200..300]);
        let mut buffer = [0; 100];
        let requests = [ReadRequest { offset: 0, buffer: &mut buffer }];
        assert_eq!(plans.skip(&requests), [plan]);
        assert_eq!(plans.take_next(plan, Some), Some(std::iter::once(200..300).collect()));
        assert!(plans.skip(&requests).is_empty());
    }

    #[test]
    fn a_new_plan_takes_its_ranges_out_of_older_ones() {
        let mut plans = PrefetchPlans::new(4 << 20);
        let mib = |from: u64, to: u64| from << 20..to << 20;
        plans.add(&[mib(0, 20), mib(30, 40)]);
        plans.add(&[mib(30, 40), mib(50, 60)]);
        assert_eq!(plans.plans[0].ranges, [mib(0, 20)]);
    }
}
