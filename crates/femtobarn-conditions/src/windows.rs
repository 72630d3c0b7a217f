//! Windows: the parts of a series' clock that are read together.
//!
//! Windows are chosen by the statistics of the container's clusters: a window's clusters are those that may have
//! an object which is valid within it. A series that grows with time is read cluster by cluster, so a job that
//! needs one day of ten years reads little more than that day.
//!
//! 1. The windows of a series cover its clock without gaps, in order.
//! 2. An object that is valid at a moment is among the entries of the window with that moment.

use std::ops::Range;

use femtobarn::{ClusterBounds, Overlap, Result};
use rntuple::Bound;

use crate::sources::{Source, Sources};

/// Entries that a window gathers before the next one begins. A series with no more entries has a single window.
const WINDOW_ENTRIES: u64 = 16 << 10;
/// The entries that all windows together may read, as a multiple of those of the series; beyond that, the series has a
/// single window.
const REPEATED_READS_MAX: u64 = 3;

/// A part of a series' clock, and the entries that may be valid in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub range: Range<i64>,
    /// Ascending and disjoint.
    pub entries: Vec<Range<u64>>,
}

/// The validities of some neighbouring entries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClusterSpan {
    entries: Range<u64>,
    since: i64,
    /// The latest beginning.
    last_since: i64,
    until: i64,
}

/// The windows of a series.
///
/// # Errors
/// [`Error::Corrupt`](femtobarn::Error::Corrupt) if the statistics are damaged.
pub(crate) fn windows_of(sources: &Sources, overlap: Overlap) -> Result<Vec<Window>> {
    let list = sources.list();
    let entries: u64 = list.iter().map(|source| source.view.entries()).sum();
    let whole = || Window {
        range: i64::MIN..i64::MAX,
        entries: Some(0..entries).filter(|all| !all.is_empty()).into_iter().collect(),
    };
    if entries <= WINDOW_ENTRIES {
        return Ok(vec![whole()]);
    }
    let is_open = overlap == Overlap::Open;
    // An object with an early end may hide an older one of its channel, and the statistics do not distinguish channels.
    // Nor do they show replaced or deleted objects.
    let is_changed = sources.has_replacements()
        || list.iter().any(|source| source.view.live() < source.view.entries());
    if is_open && (is_changed || !has_one_channel(list)?) {
        return Ok(vec![whole()]);
    }
    let mut spans = vec![];
    for Source { view, first, .. } in list {
        let (since, until) = (view.statistics("since")?, view.statistics("until")?);
        let shifted = spans_of(&since, &until, view.entries()).into_iter().map(|span| {
            ClusterSpan { entries: first + span.entries.start..first + span.entries.end, ..span }
        });
        spans.extend(shifted);
    }
    let windows = cut(&spans, is_open);
    let read: u64 = windows.iter().flat_map(|it| &it.entries).map(|it| it.end - it.start).sum();
    if windows.len() < 2 || read > REPEATED_READS_MAX * entries {
        return Ok(vec![whole()]);
    }
    Ok(windows)
}

/// The spans of clusters; entries without statistics may be valid at any time.
fn spans_of(since: &[ClusterBounds], until: &[ClusterBounds], entries: u64) -> Vec<ClusterSpan> {
    let anything = |entries: Range<u64>| ClusterSpan {
        entries,
        since: i64::MIN,
        last_since: i64::MAX,
        until: i64::MAX,
    };
    let mut spans = vec![];
    let mut next = 0;
    for (since, until) in since.iter().zip(until) {
        let of = since.first_entry..since.first_entry + since.entries;
        if next < of.start {
            spans.push(anything(next..of.start));
        }
        next = of.end;
        let is_same = until.first_entry == of.start && until.entries == since.entries;
        match (integers(since), integers(until)) {
            (Some((since, last_since)), Some((_, until))) if is_same => {
                spans.push(ClusterSpan { entries: of, since, last_since, until });
            }
            _ => spans.push(anything(of)),
        }
    }
    if next < entries {
        spans.push(anything(next..entries));
    }
    spans
}

fn integers(cluster: &ClusterBounds) -> Option<(i64, i64)> {
    match cluster.bounds?.range? {
        (Bound::Int(least), Bound::Int(most)) => Some((least, most)),
        _ => None,
    }
}

fn has_one_channel(sources: &[Source]) -> Result<bool> {
    let mut only = None;
    for Source { view, .. } in sources {
        let channels = view.statistics("channel")?;
        let known: u64 = channels.iter().map(|it| it.entries).sum();
        let is_only = |cluster: &ClusterBounds| {
            integers(cluster)
                .is_some_and(|(least, most)| least == most && *only.get_or_insert(least) == least)
        };
        if known != view.entries() || !channels.iter().all(is_only) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Cuts the clock where clusters begin. If `is_open`, a validity ends where the next one begins, and all spans have
/// the same channel.
fn cut(spans: &[ClusterSpan], is_open: bool) -> Vec<Window> {
    let mut starts: Vec<(i64, u64)> =
        spans.iter().map(|span| (span.since, span.entries.end - span.entries.start)).collect();
    starts.sort_unstable();
    let mut cuts = vec![i64::MIN];
    let mut gathered = 0;
    for (since, entries) in starts {
        if gathered >= WINDOW_ENTRIES && cuts.last().is_some_and(|last| *last < since) {
            cuts.push(since);
            gathered = 0;
        }
        gathered += entries;
    }
    let ends = cuts[1..].iter().copied().chain([i64::MAX]);
    let ranges = cuts.iter().zip(ends).map(|(start, end)| *start..end);
    let mut windows = Vec::with_capacity(cuts.len());
    for range in ranges {
        let entries =
            if is_open { entries_of_open(spans, &range) } else { entries_of(spans, &range) };
        windows.push(Window { range, entries });
    }
    windows
}

/// The entries that may be valid within a range.
fn entries_of(spans: &[ClusterSpan], range: &Range<i64>) -> Vec<Range<u64>> {
    joined(spans.iter().filter(|span| span.since < range.end && span.until > range.start))
}

/// The entries that begin within a range, and those that begin last before it.
fn entries_of_open(spans: &[ClusterSpan], range: &Range<i64>) -> Vec<Range<u64>> {
    let before = spans.iter().filter(|span| span.last_since <= range.start);
    let last = before.map(|span| span.last_since).max();
    joined(spans.iter().filter(|span| {
        (span.since < range.end && span.last_since > range.start) || Some(span.last_since) == last
    }))
}

/// The entries of spans, neighbours joined.
fn joined<'a>(spans: impl Iterator<Item = &'a ClusterSpan>) -> Vec<Range<u64>> {
    let mut entries: Vec<Range<u64>> = vec![];
    for span in spans {
        match entries.last_mut() {
            Some(last) if last.end == span.entries.start => last.end = span.entries.end,
            _ => entries.push(span.entries.clone()),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::timeline::{Timeline, ValidityRow};

    proptest! {
        /// Clusters of a few rows, as for a series whose windows are too small to be worth it.
        #[test]
        fn every_window_answers_as_the_whole_series(
            rows in vec((0..3_i64, 0..60_i64, 1..20_i64, any::<bool>()), 1..60),
            size in 1..6_usize,
            (overlap, channels) in prop_oneof![
                (Just(Overlap::Newest), 1..3_i64), (Just(Overlap::Open), Just(1)),
            ],
        ) {
            let rows: Vec<ValidityRow> = rows.into_iter().zip(0..).map(|((channel, since, length, is_endless), entry)| {
                let until = if is_endless { i64::MAX } else { since + length };
                ValidityRow { channel: channel % channels, since, until, entry }
            }).collect();
            let spans: Vec<ClusterSpan> = rows.chunks(size).map(|rows| ClusterSpan {
                entries: rows[0].entry..rows[rows.len() - 1].entry + 1,
                since: rows.iter().map(|row| row.since).min().unwrap(),
                last_since: rows.iter().map(|row| row.since).max().unwrap(),
                until: rows.iter().map(|row| row.until).max().unwrap(),
            }).collect();
            let whole = Timeline::resolve(rows.clone(), overlap, i64::MIN..i64::MAX);
            let mut starts: Vec<i64> = spans.iter().map(|span| span.since).collect();
            starts.sort_unstable();
            starts.dedup();
            let ends = starts.iter().skip(1).copied().chain([i64::MAX]);
            for range in starts.iter().copied().zip(ends).map(|(start, end)| start..end) {
                let entries = match overlap {
                    Overlap::Open => entries_of_open(&spans, &range),
                    _ => entries_of(&spans, &range),
                };
                let part = entries.into_iter().flat_map(|it| rows[it.start as usize..it.end as usize].to_vec());
                let part = Timeline::resolve(part.collect(), overlap, range.clone());
                for channel in 0..channels {
                    for at in range.start..range.end.min(90) {
                        let found = part.at(channel, at).entry;
                        let expected = whole.at(channel, at).entry;
                        prop_assert_eq!(found, expected, "channel {} at {}", channel, at);
                    }
                }
            }
        }
    }
}
