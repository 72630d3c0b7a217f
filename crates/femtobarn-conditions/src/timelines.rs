//! The timelines that a process keeps of one federation, within a budget of bytes for all of its series.
//!
//! 1. A timeline that was dropped is read again when it is needed, with the same content.
//! 2. A timeline that is too large for the budget is kept by its series; otherwise every look-up would read it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use femtobarn::Federation;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::timeline::Timeline;

/// Parts of the cache, each with a lock and an equal part of the budget.
const SHARDS: usize = 4;
/// Bytes of a timeline besides its segments.
const TIMELINE_BYTES: u64 = 256;

/// The timelines of a federation's series.
pub(crate) struct Timelines {
    kept: Cache<u64, Arc<Timeline>, TimelineWeight>,
    bytes_max: u64,
    slots: AtomicU64,
}

/// The place of the timeline of one window.
pub(crate) struct TimelineSlot {
    number: u64,
    large: OnceLock<Arc<Timeline>>,
}

#[derive(Clone)]
struct TimelineWeight;

impl Weighter<u64, Arc<Timeline>> for TimelineWeight {
    fn weight(&self, _: &u64, timeline: &Arc<Timeline>) -> u64 {
        TIMELINE_BYTES + timeline.size()
    }
}

impl Timelines {
    /// The timelines that this process keeps of a federation.
    pub(crate) fn of(federation: &Federation) -> Arc<Self> {
        federation.extension_cache(|| Arc::new(Timelines::new(federation.timeline_bytes()))).clone()
    }

    fn new(bytes_max: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes_max / TIMELINE_BYTES / 16) as usize)
            .weight_capacity(bytes_max)
            .shards(SHARDS)
            .build()
            .expect("a capacity is given");
        let (hash, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let kept = Cache::with_options(options, TimelineWeight, hash, life);
        Timelines { kept, bytes_max, slots: AtomicU64::new(0) }
    }

    pub(crate) fn new_slot(&self) -> TimelineSlot {
        let number = self.slots.fetch_add(1, Ordering::Relaxed);
        TimelineSlot { number, large: OnceLock::new() }
    }

    /// The timeline of a slot, if it is still kept.
    #[inline]
    pub(crate) fn get(&self, slot: &TimelineSlot) -> Option<Arc<Timeline>> {
        slot.large.get().cloned().or_else(|| self.kept.get(&slot.number))
    }

    /// Keeps the timeline of a slot, in place of timelines that were not used for long.
    pub(crate) fn keep(&self, slot: &TimelineSlot, timeline: Timeline) -> Arc<Timeline> {
        let timeline = Arc::new(timeline);
        if timeline.size() > self.bytes_max / SHARDS as u64 / 2 {
            return slot.large.get_or_init(|| timeline).clone();
        }
        self.kept.insert(slot.number, timeline.clone());
        timeline
    }

    /// Bytes of the timeline of a slot, if it is kept. Does not count as a use of it.
    pub(crate) fn held_bytes(&self, slot: &TimelineSlot) -> u64 {
        let held = slot.large.get().cloned().or_else(|| self.kept.peek(&slot.number));
        held.map_or(0, |timeline| timeline.size())
    }

    /// Drops the timeline of a slot that will not be requested any more.
    pub(crate) fn remove(&self, slot: &TimelineSlot) {
        self.kept.remove(&slot.number);
    }
}

#[cfg(test)]
mod tests {
    use femtobarn::{OpenOptions, Overlap};

    use super::*;
    use crate::timeline::ValidityRow;

    fn timeline(segments: i64) -> Timeline {
        let row = |since| ValidityRow { channel: 0, since, until: since + 1, entry: since as u64 };
        let rows = (0..segments).map(row).collect();
        Timeline::resolve(rows, Overlap::Newest, i64::MIN..i64::MAX)
    }

    #[test]
    fn the_budget_is_a_part_of_the_federations_setting() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("lhc.fed");
        drop(Federation::create(&place, "lhc").unwrap());
        let options = OpenOptions { metadata_bytes: 3 << 20, ..OpenOptions::default() };
        let federation = Federation::open_with(&place, options).unwrap();
        assert_eq!(Timelines::of(&federation).bytes_max, 2 << 20);
    }

    #[test]
    fn the_budget_holds_and_used_timelines_stay() {
        let timelines = Timelines::new(256 << 10);
        let used = timelines.new_slot();
        let slots: Vec<_> = (0..1000).map(|_| timelines.new_slot()).collect();
        timelines.keep(&used, timeline(100));
        for slot in &slots {
            timelines.keep(slot, timeline(100));
            assert!(timelines.kept.weight() <= 256 << 10);
            assert!(timelines.get(&used).is_some(), "used between all others");
        }
        let kept = slots.iter().filter(|slot| timelines.get(slot).is_some()).count();
        let each = TIMELINE_BYTES + timeline(100).size();
        assert!(kept > 10 && kept as u64 * each <= 256 << 10, "{kept}");
        slots.iter().for_each(|slot| timelines.remove(slot));
        assert_eq!(timelines.kept.weight(), each, "the one that is used");
    }

    #[test]
    fn a_timeline_too_large_for_the_budget_is_kept_by_its_slot() {
        let timelines = Timelines::new(256 << 10);
        let slot = timelines.new_slot();
        let large = timelines.keep(&slot, timeline(10_000));
        assert!(large.size() > 64 << 10);
        assert_eq!((timelines.kept.weight(), timelines.held_bytes(&slot)), (0, large.size()));
        assert!(Arc::ptr_eq(&large, &timelines.get(&slot).unwrap()));
    }
}
