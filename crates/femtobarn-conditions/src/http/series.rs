//! Pages of a series: its description, the intervals in a window, the values of entries.

use std::ops::Range;

use femtobarn::{Error, Overlap, Result, Selection, SeriesClock, View};
use rntuple::Value;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::answers::Page;
use super::json::JsonValue;
use crate::class::payload_class;
use crate::series::Series;

/// Entries of one page, at most.
const ENTRIES_MAX: u64 = 64 << 10;
/// Bytes of a page with the values of entries, at most.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the entries that are read at once for such a page, if they are as large as the ones before. These are one entry
/// at first, and at most [`GROWTH`] times as many each time.
const VALUES_BYTES: u64 = 4 << 20;
const GROWTH: u64 = 4;
/// Stored bytes that are read at once to compute digests.
const DIGESTED_BYTES: u64 = 32 << 20;

#[derive(Serialize)]
struct SeriesDescription<'a> {
    path: &'a str,
    version: &'a str,
    clock: SeriesClock,
    overlap: Overlap,
    /// Entries, including hidden and deleted ones.
    entries: u64,
    class: serde_json::Value,
    windows: Vec<WindowRange>,
}

#[derive(Serialize)]
struct WindowRange {
    since: i64,
    until: i64,
}

/// A series, and the windows of its clock.
pub(super) fn description(series: &Series, version: &str, path: &str) -> Result<Page> {
    let options = series.options();
    let class = payload_class(series.view().class())?.to_json();
    Page::json(&SeriesDescription {
        path,
        version,
        clock: options.clock,
        overlap: options.overlap,
        entries: entries_of(series),
        class: serde_json::from_str(&class).expect("a class is written as JSON"),
        windows: series
            .windows()
            .map(|Range { start, end }| WindowRange { since: start, until: end })
            .collect(),
    })
}

/// The intervals of all channels in a window, by channel and beginning, as columns.
#[derive(Default, Serialize)]
struct Intervals {
    since: i64,
    until: i64,
    channels: Vec<i64>,
    /// The place of each channel's first interval, and the number of intervals.
    starts: Vec<usize>,
    intervals: IntervalColumns,
}

#[derive(Default, Serialize)]
struct IntervalColumns {
    since: Vec<i64>,
    until: Vec<i64>,
    entry: Vec<u64>,
    /// A hash of each condition's values, if the client wants to compare versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    digest: Vec<u64>,
}

/// The intervals in a window, with a hash of each condition's values if requested.
pub(super) fn window(series: &Series, number: usize, with_digests: bool) -> Result<Page> {
    let Some(range) = series.windows().nth(number) else {
        let count = series.windows().len();
        return Err(not_found(format!("there is no window {number}; the series has {count}")));
    };
    let timeline = series.window(number)?;
    let mut found = Intervals { since: range.start, until: range.end, ..Default::default() };
    let columns = &mut found.intervals;
    for channel in timeline.channels() {
        found.channels.push(*channel);
        found.starts.push(columns.since.len());
        for interval in timeline.intervals(*channel, &range) {
            columns.since.push(interval.since);
            columns.until.push(interval.until);
            columns.entry.extend(interval.entry);
        }
    }
    found.starts.push(columns.since.len());
    if with_digests {
        columns.digest = digests(series, &columns.entry)?;
    }
    Page::json(&found)
}

/// Numbers that differ if the values do: the first 48 bits of the SHA-256 of their JSON, which a number of JavaScript
/// can hold.
fn digests(series: &Series, entries: &[u64]) -> Result<Vec<u64>> {
    let mut names = fields_of(series)?;
    // The hash of a payload stands for its bytes.
    if names.iter().any(|name| name == "sha256") {
        names.retain(|name| name != "data");
    }
    let stored: u64 = series.views().map(|view| view.version().bytes).sum();
    let at_once = DIGESTED_BYTES / (stored / entries_of(series).max(1)).max(1);
    let mut digests = vec![];
    for some in entries.chunks(at_once.clamp(1, ENTRIES_MAX) as usize) {
        let array = series.fetch(&names, some)?;
        for place in 0..some.len() {
            let value = JsonValue(value_at(series.view(), &array, place)?);
            let json = serde_json::to_vec(&value).expect("values are written as JSON");
            let hash = Sha256::digest(json);
            digests.push(hash[..6].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
    }
    Ok(digests)
}

/// The names of the fields of the values.
fn fields_of(series: &Series) -> Result<Vec<String>> {
    let class = payload_class(series.view().class())?;
    Ok(class.fields.into_iter().map(|field| field.name).collect())
}

/// The values of the entries of a range, such as `0-1023`, with null for a deleted entry.
///
/// # Errors
/// [`Error::Invalid`] if the page would be larger than [`PAGE_BYTES_MAX`]. Values are written as they are read, some at
/// once.
pub(super) fn conditions(series: &Series, entries: &str, fields: Option<&str>) -> Result<Page> {
    let range = range_of(entries, entries_of(series))?;
    let names: Vec<String> = match fields {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => fields_of(series)?,
    };
    let mut page =
        format!(r#"{{"first":{},"last":{},"values":["#, range.start, range.end - 1).into_bytes();
    let mut first = 0;
    for view in series.views() {
        let end = first + view.entries();
        let part = range.start.max(first)..range.end.min(end);
        if !part.is_empty() {
            write_values(view, &names, part.start - first..part.end - first, &mut page)?;
        }
        first = end;
    }
    // Instead of the last comma.
    page.pop();
    page.extend(b"]}");
    Ok(Page::of_json(page))
}

/// Appends the values of a range of a container's entries, each with a comma.
fn write_values(
    view: &View,
    names: &[String],
    range: Range<u64>,
    page: &mut Vec<u8>,
) -> Result<()> {
    let selection = view.select(names)?;
    let (mut start, mut at_once) = (range.start, 1);
    while start < range.end {
        let end = range.end.min(start.saturating_add(at_once));
        let before = page.len();
        for value in values_of(view, &selection, start..end)? {
            serde_json::to_writer(&mut *page, &value).expect("values are written as JSON");
            page.push(b',');
            if page.len() > PAGE_BYTES_MAX {
                let most = PAGE_BYTES_MAX >> 20;
                let what = format!(
                    "the entries have more than {most} MiB; ask for fewer at once, for some fields \
                     (fields=), or for bytes from /payloads"
                );
                return Err(Error::Invalid { what });
            }
        }
        let bytes_of_each = ((page.len() - before) as u64 / (end - start)).max(1);
        at_once = (VALUES_BYTES / bytes_of_each).clamp(1, at_once * GROWTH);
        start = end;
    }
    Ok(())
}

/// Entries of all containers.
fn entries_of(series: &Series) -> u64 {
    series.views().map(View::entries).sum()
}

/// The values of a range of a container's entries; `None` for a deleted one.
fn values_of(
    view: &View,
    selection: &Selection,
    range: Range<u64>,
) -> Result<Vec<Option<JsonValue>>> {
    let array = view.read(selection, range.clone())?;
    let mut values: Vec<Option<JsonValue>> =
        std::iter::repeat_with(|| None).take((range.end - range.start) as usize).collect();
    for (place, entry) in view.live_entries(range.clone())?.into_iter().enumerate() {
        values[(entry - range.start) as usize] = Some(JsonValue(value_at(view, &array, place)?));
    }
    Ok(values)
}

fn value_at(view: &View, array: &rntuple::Array, place: usize) -> Result<Value> {
    array.value(place).map_err(|source| Error::Storage { what: view.path(), source })
}

fn range_of(entries: &str, end: u64) -> Result<Range<u64>> {
    let pair = entries.split_once('-').unwrap_or((entries, entries));
    let (Ok(first), Ok(last)) = (pair.0.parse::<u64>(), pair.1.parse::<u64>()) else {
        return Err(Error::Invalid {
            what: format!("{entries:?} is not a range of entries, such as 0-1023"),
        });
    };
    if first > last || first >= end {
        return Err(not_found(format!("there are no entries {entries}; the series has {end}")));
    }
    if last - first >= ENTRIES_MAX {
        return Err(Error::Invalid {
            what: format!("entries {entries} are too many; ask for {ENTRIES_MAX} at most"),
        });
    }
    Ok(first..last.saturating_add(1).min(end))
}

fn not_found(what: String) -> Error {
    Error::NotFound { what }
}
