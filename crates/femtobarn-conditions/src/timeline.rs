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
    /// The first moment at which it is not valid any more.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimelineSegment {
    since: i64,
    until: i64,
    entry: u64,
}

/// The segments of all channels of a series, within a window of its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// All channels with a segment, ascending.
    channels: Vec<i64>,
    /// The index of each channel's first segment, and the number of segments.
    starts: Vec<u32>,
    segments: Vec<TimelineSegment>,
}

impl Timeline {
    /// Resolves rows in any order. Of the result, only what lies within `window` is kept. Rows whose validity is
    /// empty are never valid.
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
        for of_channel in rows.chunk_by(|a, b| a.channel == b.channel) {
            let first = timeline.segments.len();
            let mut out =
                ChannelSegments { segments: &mut timeline.segments, first, window: &window };
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
        (size_of_val(&*self.segments) + size_of_val(&*self.channels)) as u64
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

    /// The interval at a moment, within the window. `hint` is the index of a segment where the search begins, and
    /// becomes that of the first segment that ends after the moment.
    #[inline]
    pub(crate) fn find(&self, segments: Range<usize>, at: i64, hint: &mut usize) -> Interval {
        let of = &self.segments[segments.clone()];
        let ends_before = |segment: &TimelineSegment| segment.until <= at;
        let mut place = hint.wrapping_sub(segments.start);
        let is_first_after = |place: usize| {
            place <= of.len()
                && of.get(place).is_none_or(|it| !ends_before(it))
                && place.checked_sub(1).is_none_or(|last| ends_before(&of[last]))
        };
        if !is_first_after(place) {
            place = place.wrapping_add(1);
            if !is_first_after(place) {
                place = of.partition_point(ends_before);
            }
        }
        *hint = segments.start + place;
        match of.get(place) {
            Some(&TimelineSegment { since, until, entry }) if since <= at => {
                Interval { since, until, entry: Some(entry) }
            }
            next => Interval {
                since: place.checked_sub(1).map_or(i64::MIN, |last| of[last].until),
                until: next.map_or(i64::MAX, |next| next.since),
                entry: None,
            },
        }
    }

    /// The segments of a channel that meet a range of the clock, in order.
    pub fn intervals(&self, channel: i64, range: &Range<i64>) -> impl Iterator<Item = Interval> {
        let of = &self.segments[self.segments_of(channel)];
        let first = of.partition_point(|segment| segment.until <= range.start);
        let end = range.end;
        of[first..].iter().take_while(move |segment| segment.since < end).map(
            |&TimelineSegment { since, until, entry }| Interval {
                since,
                until,
                entry: Some(entry),
            },
        )
    }
}

/// Where the segments of one channel are added.
struct ChannelSegments<'a> {
    segments: &'a mut Vec<TimelineSegment>,
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
        match self.segments[self.first..].last_mut() {
            Some(last) if last.entry == entry && last.until == since => last.until = until,
            _ => self.segments.push(TimelineSegment { since, until, entry }),
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

/// Resolves rows of which the newest is valid, as if each was painted over the earlier ones. They ascend by
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

/// Adds the segments from `at` to `end` of the rows that have begun, and forgets the rows that end before.
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
