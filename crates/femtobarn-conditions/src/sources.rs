//! The containers that a series is read from, as one sequence of conditions.
//!
//! An ordinary series has one container. On a branch, the containers of branches are read in front of the one that
//! they are based on. Entries are counted through all containers, the base first: entry 10 of a branch whose base
//! has 8 entries is entry 2 of the branch's own container. Specified in docs/format.md.
//!
//! 1. Of two conditions the one with the higher entry is the newer, as in a single container.
//! 2. An object with a `replaced_entry` takes the place of that condition, and has its rank among the others.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use femtobarn::{
    ContainerOptions, Error, REPLACED_FIELD, Result, Selection, SeriesOptions, Snapshot,
    VALIDITY_FIELDS, View,
};
use rntuple::{Array, Bound};

use crate::class::payload_class;
use crate::timeline::ValidityRow;

pub(crate) struct Sources {
    /// The base first.
    list: Vec<Source>,
    /// The replacement of each replaced condition, by its entry.
    replaced: HashMap<u64, ValidityRow>,
    /// The entries of conditions that replace others.
    replacing: HashSet<u64>,
}

pub(crate) struct Source {
    pub(crate) view: View,
    validity: Selection,
    /// The entry of its first object.
    pub(crate) first: u64,
}

impl Sources {
    /// The containers of a series, the base first, and its options.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Invalid` if the first container is not a series, another container is not
    /// that of a branch, or their clocks or classes differ; `Corrupt` if stored bytes are damaged.
    pub(crate) fn open(views: Vec<View>) -> Result<(Self, SeriesOptions)> {
        let mut list: Vec<Source> = vec![];
        let mut first = 0;
        for view in views {
            check_place(&view, list.first().map(|base| &base.view))?;
            let entries = view.entries();
            list.push(Source { validity: view.select(&VALIDITY_FIELDS)?, view, first });
            first += entries;
        }
        let base = list.first().ok_or_else(|| Error::Invalid {
            what: "a series is read from one container or more, not from none".to_owned(),
        })?;
        let options = series_options(&base.view)?;
        let mut sources = Sources { list, replaced: HashMap::new(), replacing: HashSet::new() };
        for place in 1..sources.list.len() {
            sources.read_replacements(place)?;
        }
        Ok((sources, options))
    }

    /// The same containers through another snapshot, which has these versions of them.
    pub(crate) fn through(&self, snapshot: &Snapshot) -> Self {
        let source = |source: &Source| Source {
            view: source.view.through(snapshot),
            validity: source.validity.clone(),
            first: source.first,
        };
        Sources {
            list: self.list.iter().map(source).collect(),
            replaced: self.replaced.clone(),
            replacing: self.replacing.clone(),
        }
    }

    pub(crate) fn list(&self) -> &[Source] {
        &self.list
    }

    /// Whether conditions of the base or a branch were replaced by another branch.
    pub(crate) fn has_replacements(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// The number of conditions that replace others.
    pub(crate) fn replacements(&self) -> usize {
        self.replacing.len()
    }

    /// The entries of conditions that were replaced, in order.
    pub(crate) fn replaced_entries(&self) -> Vec<u64> {
        let mut entries: Vec<u64> = self.replaced.keys().copied().collect();
        entries.sort_unstable();
        entries
    }

    /// The entry where the values of a condition are, from the entry of its rank.
    pub(crate) fn stored_at(&self, entry: u64) -> u64 {
        self.newest(entry).map_or(entry, |row| row.entry)
    }

    /// The place of a container among all, and the entry there.
    pub(crate) fn place_of(&self, entry: u64) -> (usize, u64) {
        let place = self.list.partition_point(|source| source.first <= entry).saturating_sub(1);
        (place, entry - self.list[place].first)
    }

    /// Reads the validities of a range of entries that are not deleted.
    pub(crate) fn read_rows(
        &self,
        entries: &Range<u64>,
        rows: &mut Vec<ValidityRow>,
    ) -> Result<()> {
        for source in &self.list {
            let start = entries.start.max(source.first) - source.first;
            let end = entries.end.saturating_sub(source.first).min(source.view.entries());
            if start >= end {
                continue;
            }
            if self.replaced.is_empty() {
                source.read(start..end, |row| rows.push(row))?;
                continue;
            }
            source.read(start..end, |row| {
                if !self.replacing.contains(&row.entry) {
                    let newest = self.newest(row.entry).copied().unwrap_or(row);
                    rows.push(ValidityRow { entry: row.entry, ..newest });
                }
            })?;
        }
        Ok(())
    }

    /// Reads fields of the objects at many entries, in the order of `entries`.
    pub(crate) fn fetch(&self, paths: &[impl AsRef<str>], entries: &[u64]) -> Result<Array> {
        if let [only] = &*self.list {
            return only.view.fetch(&only.view.select(paths)?, entries);
        }
        let mut parts = vec![];
        let mut positions = vec![0; entries.len()];
        let mut read = 0;
        for (place, source) in self.list.iter().enumerate() {
            let mut chosen = vec![];
            for (position, entry) in positions.iter_mut().zip(entries) {
                if let (at, local) = self.place_of(*entry)
                    && at == place
                {
                    *position = read + chosen.len();
                    chosen.push(local);
                }
            }
            if !chosen.is_empty() || (entries.is_empty() && place == 0) {
                parts.push(source.view.fetch(&source.view.select(paths)?, &chosen)?);
                read += chosen.len();
            }
        }
        let path = self.list[0].view.path();
        let joined = Array::concatenate(&parts).and_then(|all| all.take(&positions));
        joined.map_err(|error| Error::Invalid { what: format!("{path}: {error}") })
    }

    /// The newest replacement of a condition.
    fn newest(&self, entry: u64) -> Option<&ValidityRow> {
        let mut found = None;
        let mut next = entry;
        // A replacement has a higher entry than the condition that it replaces.
        while let Some(row) = self.replaced.get(&next) {
            next = row.entry;
            found = Some(row);
        }
        found
    }

    fn read_replacements(&mut self, place: usize) -> Result<()> {
        let source = &self.list[place];
        let selection = source.view.select(&[REPLACED_FIELD])?;
        let mut found = vec![];
        for entries in may_replace(&source.view)? {
            let array = source.view.read(&selection, entries.clone())?;
            let mut replaced = column(&array, REPLACED_FIELD, &source.view)?.iter();
            source.read(entries, |row| found.extend(replaced.next().map(|at| (*at, row))))?;
        }
        let first = source.first;
        for (replaced, row) in found {
            // -1 stands for no entry.
            let Ok(replaced) = u64::try_from(replaced) else { continue };
            if replaced >= first {
                return Err(Error::Corrupt {
                    what: format!(
                        "{}: entry {} replaces entry {replaced}, which does not belong to the series behind the branch",
                        self.list[place].view.path(),
                        row.entry - first
                    ),
                });
            }
            self.replacing.insert(row.entry);
            self.replaced.insert(replaced, row);
        }
        Ok(())
    }
}

impl Source {
    /// Reads the validities of a range of its own entries that are not deleted.
    fn read(&self, entries: Range<u64>, mut each: impl FnMut(ValidityRow)) -> Result<()> {
        let array = self.view.read(&self.validity, entries.clone())?;
        let live = self.view.live_runs(entries)?.into_iter().flatten();
        let [since, until, channel] = VALIDITY_FIELDS.map(|name| column(&array, name, &self.view));
        let columns = since?.iter().zip(until?).zip(channel?).zip(live);
        columns.for_each(|(((&since, &until), &channel), entry)| {
            each(ValidityRow { channel, since, until, entry: self.first + entry });
        });
        Ok(())
    }
}

/// The series options of a container.
fn series_options(view: &View) -> Result<SeriesOptions> {
    let options = ContainerOptions::from_json(&view.container().options)?;
    options.series.ok_or_else(|| Error::Invalid {
        what: format!("{} is not a series of conditions but an ordinary container", view.path()),
    })
}

/// Checks that a container can be the base of a series, or a branch in front of one.
fn check_place(view: &View, base: Option<&View>) -> Result<()> {
    let options = series_options(view)?;
    let payload = payload_class(view.class())?;
    let refuse = |what: String| Err(Error::Invalid { what: format!("{} {what}", view.path()) });
    let Some(base) = base else {
        return if options.is_branch {
            refuse(
                "has only the changes of a branch to a series; read the series through the branch's global tag"
                    .to_owned(),
            )
        } else {
            Ok(())
        };
    };
    let expected = SeriesOptions { is_branch: true, ..series_options(base)? };
    if options != expected || payload.fields != payload_class(base.class())?.fields {
        return refuse(format!(
            "cannot be read in front of {}: it is not a container of a branch, or has another clock or class",
            base.path()
        ));
    }
    Ok(())
}

/// The ranges of entries that may have a replacement, by the statistics.
fn may_replace(view: &View) -> Result<Vec<Range<u64>>> {
    let mut ranges = vec![];
    let mut next = 0;
    for cluster in view.statistics(REPLACED_FIELD)?.iter() {
        let range = cluster.bounds.and_then(|bounds| bounds.range);
        if let Some((_, Bound::Int(most))) = range
            && most < 0
        {
            ranges.push(next..cluster.first_entry);
            next = cluster.first_entry + cluster.entries;
        }
    }
    ranges.push(next..view.entries());
    ranges.retain(|range| !range.is_empty());
    Ok(ranges)
}

/// The values of a field of validities.
fn column<'a>(array: &'a Array, name: &str, view: &View) -> Result<&'a [i64]> {
    let damaged =
        || Error::Corrupt { what: format!("{}: field {name:?} has no int64 values", view.path()) };
    let Array::Record { members, .. } = array else { return Err(damaged()) };
    let member = members.iter().find(|(member, _)| member == name);
    let Some((_, Array::Primitive { values, .. })) = member else { return Err(damaged()) };
    rntuple::values_of(values).map_err(|_| damaged())
}
