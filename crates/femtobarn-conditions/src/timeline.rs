//! Timelines: the rows of a series resolved to disjoint segments.
//!
//! 1. The segments of a channel ascend, do not overlap, and are not empty.
//! 2. Each segment has the entry that is valid in all of it.

use std::collections::BinaryHeap;
use std::ops::Range;

use femtobarn::Overlap;

/// The validity of one object of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValidityRow {
    /// The channel.
    pub channel: i64,
    /// The first moment at which the object is valid.
    pub since: i64,
    /// The first moment at which it is no longer valid.
    pub until: i64,
    /// The object's entry in its container.
    pub entry: u64,
}

/// A range of a series' clock with one answer: an object, or that none is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The first moment of the range.
    pub since: i64,
    /// The first moment after it.
    pub until: i64,
    /// The entry of the valid object; `None` in a gap.
    pub entry: Option<u64>,
}

impl Interval {
    /// Whether the range has this moment.
    #[inline]
    pub fn contains(&self, at: i64) -> bool {
        self.since <= at && at < self.until
    }

    /// The part of the range that lies within another.
    #[inline]
    pub(crate) fn within(self, range: &Range<i64>) -> Self {
        Interval { since: self.since.max(range.start), until: self.until.min(range.end), ..self }
    }
}

/// A segment without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentStart {
    since: i64,
    entry: u64,
}

/// The segments of all channels of a series, within a window of its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// All channels with a segment, ascending.
    channels: Vec<i64>,
    /// The index of each channel's first segment, and the number of segments.
    starts: Vec<u32>,
    segments: Vec<SegmentStart>,
    /// The end of each segment. A look-up searches here, and most of the memory that it touches is used by the next
    /// look-up.
    ends: Vec<i64>,
}

impl Timeline {
    /// Resolves rows in any order. Of the result, only the part within `window` is kept. Rows with an empty validity
    /// are never valid.
    ///
    /// The cost is n log n comparisons for n rows, and n if they are in order and do not overlap.
    pub fn resolve(mut rows: Vec<ValidityRow>, overlap: Overlap, window: Range<i64>) -> Self {
        rows.retain(|row| row.since < row.until);
        let order = |row: &ValidityRow| (row.channel, row.since, row.entry);
        if !rows.is_sorted_by_key(order) {
            rows.sort_unstable_by_key(order);
        }
        let mut timeline = Timeline::default();
        timeline.segments.reserve(rows.len());
        timeline.ends.reserve(rows.len());
        for of_channel in rows.chunk_by(|a, b| a.channel == b.channel) {
            let first = timeline.segments.len();
            let Timeline { segments, ends, .. } = &mut timeline;
            let mut out = ChannelSegments { segments, ends, first, window: &window };
            match overlap {
                Overlap::Open => cut_at_next(of_channel, &mut out),
                Overlap::Newest | Overlap::Refuse => paint(of_channel, &mut out),
            }
            if timeline.segments.len() > first {
                timeline.channels.push(of_channel[0].channel);
                timeline.starts.push(first as u32);
            }
        }
        timeline.starts.push(timeline.segments.len() as u32);
        timeline
    }

    /// Gives segments other entries, different ones for different entries.
    pub(crate) fn renumber(&mut self, entry_of: impl Fn(u64) -> u64) {
        self.segments.iter_mut().for_each(|segment| segment.entry = entry_of(segment.entry));
    }

    /// All channels with a segment, ascending.
    pub fn channels(&self) -> &[i64] {
        &self.channels
    }

    /// The number of segments of all channels.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The interval of a channel at a moment.
    pub fn at(&self, channel: i64, at: i64) -> Interval {
        let segments = self.segments_of(channel);
        let mut hint = segments.start;
        self.find(segments, at, &mut hint)
    }

    /// Its size in memory, in bytes.
    pub(crate) fn size(&self) -> u64 {
        (size_of_val(&*self.segments) + size_of_val(&*self.ends) + size_of_val(&*self.channels))
            as u64
    }

    /// The indices of a channel's segments.
    #[inline]
    pub(crate) fn segments_of(&self, channel: i64) -> Range<usize> {
        // Channels are often numbered from the first without gaps.
        let guess = channel.wrapping_sub(*self.channels.first().unwrap_or(&0)) as usize;
        let at = match self.channels.get(guess) {
            Some(found) if *found == channel => Ok(guess),
            _ => self.channels.binary_search(&channel),
        };
        match at {
            Ok(at) => self.starts[at] as usize..self.starts[at + 1] as usize,
            Err(_) => 0..0,
        }
    }

    /// The interval at a moment, clipped to the window. The search begins at the segment with index `hint`; afterwards
    /// `hint` is the index of the first segment that ends after the moment.
    #[inline]
    pub(crate) fn find(&self, segments: Range<usize>, at: i64, hint: &mut usize) -> Interval {
        let ends = &self.ends[segments.clone()];
        let mut place = hint.wrapping_sub(segments.start);
        let is_first_after = |place: usize| {
            place <= ends.len()
                && ends.get(place).is_none_or(|end| at < *end)
                && place.checked_sub(1).is_none_or(|last| ends[last] <= at)
        };
        if !is_first_after(place) {
            place = place.wrapping_add(1);
            if !is_first_after(place) {
                place = first_after(ends, at);
            }
        }
        *hint = segments.start + place;
        let of = &self.segments[segments];
        match of.get(place) {
            Some(&SegmentStart { since, entry }) if since <= at => {
                Interval { since, until: ends[place], entry: Some(entry) }
            }
            next => Interval {
                since: place.checked_sub(1).map_or(i64::MIN, |last| ends[last]),
                until: next.map_or(i64::MAX, |next| next.since),
                entry: None,
            },
        }
    }

    /// The segments of a channel that meet a range of the clock, in order.
    pub fn intervals(&self, channel: i64, range: &Range<i64>) -> impl Iterator<Item = Interval> {
        let place = self.segments_of(channel);
        let (of, ends) = (&self.segments[place.clone()], &self.ends[place]);
        let first = first_after(ends, range.start);
        let end = range.end;
        let found = of[first..].iter().zip(&ends[first..]);
        found.take_while(move |(segment, _)| segment.since < end).map(
            |(&SegmentStart { since, entry }, &until)| Interval {
                since,
                until,
                entry: Some(entry),
            },
        )
    }
}

/// The index of the first of ascending ends that is after a moment.
///
/// Ends are often spread evenly, so the search begins at the place that an even spread predicts, and continues in steps
/// that double. At worst it takes twice as long as a binary search.
fn first_after(ends: &[i64], at: i64) -> usize {
    /// Ends of a cache line.
    const FIRST_STEP: usize = 8;
    // The last end may be that of the clock.
    let (Some(&first), Some(&last)) = (ends.first(), ends.iter().nth_back(1)) else {
        return ends.partition_point(|end| *end <= at);
    };
    if at < first {
        return 0;
    }
    if last <= at {
        return ends.len() - usize::from(at < ends[ends.len() - 1]);
    }
    let distance = |to: i64| to.wrapping_sub(first) as u64 as f64;
    let guess = (distance(at) / distance(last) * (ends.len() - 2) as f64) as usize;
    let (mut low, mut high) = (guess, guess + 1);
    let mut step = FIRST_STEP;
    while low > 0 && at < ends[low - 1] {
        high = low;
        low = low.saturating_sub(step);
        step *= 2;
    }
    while high < ends.len() && ends[high] <= at {
        low = high + 1;
        high = (high + step).min(ends.len());
        step *= 2;
    }
    low + ends[low..high].partition_point(|end| *end <= at)
}

/// Where the segments of one channel are added.
struct ChannelSegments<'a> {
    segments: &'a mut Vec<SegmentStart>,
    ends: &'a mut Vec<i64>,
    /// The index of the channel's first segment.
    first: usize,
    window: &'a Range<i64>,
}

impl ChannelSegments<'_> {
    /// Adds a segment behind the others; one that continues the last segment with the same entry extends it.
    fn push(&mut self, since: i64, until: i64, entry: u64) {
        let (since, until) = (since.max(self.window.start), until.min(self.window.end));
        if since >= until {
            return;
        }
        let last = self.segments[self.first..].last().zip(self.ends.last_mut());
        match last {
            Some((last, end)) if last.entry == entry && *end == since => *end = until,
            _ => {
                self.segments.push(SegmentStart { since, entry });
                self.ends.push(until);
            }
        }
    }
}

/// Resolves rows of which the one with the latest beginning is valid. They ascend by beginning and entry.
fn cut_at_next(rows: &[ValidityRow], out: &mut ChannelSegments<'_>) {
    for (at, row) in rows.iter().enumerate() {
        let next = rows.get(at + 1).map_or(i64::MAX, |next| next.since);
        out.push(row.since, row.until.min(next), row.entry);
    }
}

/// Resolves rows of which the newest is valid, as if each row was painted over the earlier ones. They ascend by
/// beginning.
fn paint(rows: &[ValidityRow], out: &mut ChannelSegments<'_>) {
    // Entry and end of the rows that have begun and may still be valid, the newest on top.
    let mut begun: BinaryHeap<(u64, i64)> = BinaryHeap::new();
    let mut at = i64::MIN;
    for (place, row) in rows.iter().enumerate() {
        advance(&mut begun, &mut at, row.since, out);
        let next = rows.get(place + 1);
        if begun.is_empty() && next.is_none_or(|next| next.since >= row.until) {
            out.push(row.since, row.until, row.entry);
        } else {
            begun.push((row.entry, row.until));
        }
    }
    advance(&mut begun, &mut at, i64::MAX, out);
}

/// Adds the segments from `at` to `end` of the rows that have begun, and drops the rows that end before.
#[inline]
fn advance(
    begun: &mut BinaryHeap<(u64, i64)>,
    at: &mut i64,
    end: i64,
    out: &mut ChannelSegments<'_>,
) {
    while let Some(&(entry, until)) = begun.peek() {
        if until <= *at {
            begun.pop();
        } else if *at < end {
            let stop = until.min(end);
            out.push(*at, stop, entry);
            *at = stop;
        } else {
            break;
        }
    }
    *at = end;
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const END: i64 = 40;

    /// The entry that is valid at a moment, found by looking at every row.
    fn plain(rows: &[ValidityRow], overlap: Overlap, channel: i64, at: i64) -> Option<u64> {
        let begun = rows.iter().filter(|row| row.channel == channel && row.since < row.until);
        let begun: Vec<_> = begun.filter(|row| row.since <= at).collect();
        match overlap {
            Overlap::Open => {
                let last = begun.iter().max_by_key(|row| (row.since, row.entry))?;
                (at < last.until).then_some(last.entry)
            }
            Overlap::Newest | Overlap::Refuse => {
                begun.iter().filter(|row| at < row.until).map(|row| row.entry).max()
            }
        }
    }

    fn rows() -> impl Strategy<Value = Vec<ValidityRow>> {
        let row = (0..3_i64, 0..END, prop_oneof![0..END, Just(i64::MAX)]);
        vec(row, 0..30).prop_shuffle().prop_map(|rows| {
            let numbered = rows.into_iter().zip(0..);
            numbered
                .map(|((channel, since, until), entry)| ValidityRow {
                    channel,
                    since,
                    until,
                    entry,
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn a_timeline_answers_as_a_look_at_every_row(
            rows in rows(),
            overlap in prop_oneof![Just(Overlap::Newest), Just(Overlap::Open)],
            times in vec(-2..END + 2, 1..60),
            window in (0..END, 1..END).prop_map(|(start, length)| start..start + length),
        ) {
            let whole = Timeline::resolve(rows.clone(), overlap, i64::MIN..i64::MAX);
            let part = Timeline::resolve(rows.clone(), overlap, window.clone());
            for channel in -1..4 {
                let mut hint = 0;
                for &at in &times {
                    let found = whole.find(whole.segments_of(channel), at, &mut hint);
                    let expected = plain(&rows, overlap, channel, at);
                    prop_assert_eq!(found.entry, expected, "channel {} at {}", channel, at);
                    prop_assert!(found.contains(at));
                    for moment in [found.since.max(-2), found.until.min(END + 2) - 1] {
                        prop_assert_eq!(plain(&rows, overlap, channel, moment), expected);
                    }
                    if window.contains(&at) {
                        let found = part.at(channel, at);
                        prop_assert_eq!(found.entry, expected);
                    }
                }
            }
        }

        #[test]
        fn a_guessed_search_and_a_binary_search_agree(
            steps in vec(prop_oneof![1..3_i64, 1..1000_i64, Just(1 << 50)], 0..300),
            start in prop_oneof![Just(i64::MIN), Just(-500), Just(0)],
            is_open in any::<bool>(),
        ) {
            let mut ends: Vec<i64> = steps
                .iter()
                .scan(start, |end, step| {
                    *end = end.saturating_add(*step);
                    Some(*end)
                })
                .collect();
            ends.extend(is_open.then_some(i64::MAX));
            let around = ends.iter().flat_map(|end| [end.saturating_sub(1), *end, end.saturating_add(1)]);
            for at in around.chain([i64::MIN, i64::MAX, 0]) {
                prop_assert_eq!(first_after(&ends, at), ends.partition_point(|end| *end <= at));
            }
        }

        #[test]
        fn segments_ascend_and_are_not_empty(rows in rows()) {
            let timeline = Timeline::resolve(rows, Overlap::Newest, i64::MIN..i64::MAX);
            for &channel in timeline.channels() {
                let segments: Vec<_> =
                    timeline.intervals(channel, &(i64::MIN..i64::MAX)).collect();
                prop_assert!(!segments.is_empty());
                prop_assert!(segments.iter().all(|it| it.since < it.until));
                prop_assert!(segments.windows(2).all(|pair| pair[0].until <= pair[1].since));
            }
        }
    }

    #[test]
    fn a_late_row_splits_the_one_that_it_lies_in() {
        let row = |since, until, entry| ValidityRow { channel: 0, since, until, entry };
        let timeline = Timeline::resolve(
            vec![row(0, 100, 0), row(40, 60, 1)],
            Overlap::Newest,
            i64::MIN..i64::MAX,
        );
        let found: Vec<_> = timeline.intervals(0, &(i64::MIN..i64::MAX)).collect();
        let of = |since, until, entry| Interval { since, until, entry: Some(entry) };
        assert_eq!(found, [of(0, 40, 0), of(40, 60, 1), of(60, 100, 0)]);
    }
}
