//! Reading of the objects that links refer to, one or many at once, and of objects at many entries.

use std::collections::BTreeMap;
use std::ops::Range;

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{Array, bytes_of};

use crate::error::{Error, ErrorKind, Result};
use crate::read::selection::Selection;
use crate::read::snapshot::Snapshot;
use crate::read::view::View;

/// Stored bytes between two requested objects that are read with them, since another read would cost as much.
const GAP_BYTES: u64 = 4 << 10;
/// The most objects between two requested ones that are read with them.
const GAP_MAX: u64 = 64;
/// Entries that are read at once, unless they are consecutive. Objects in gaps take memory until they are dropped.
const ENTRIES_AT_ONCE: u64 = 16 << 10;

impl Snapshot {
    /// The container of the object that a link refers to, after checking that the object exists.
    ///
    /// # Errors
    /// [`Error::NotFound`] with the reason: the link is null, the object was deleted or does not exist yet, its
    /// container or database was dropped, or the database is not in this federation.
    pub fn target(&self, link: Oid) -> Result<View> {
        let broken = |reason: String| Error::NotFound {
            what: format!("the link to {link} is broken: {reason}"),
        };
        let csn = self.csn();
        match (link.database, link.container) {
            (_, ContainerId(0)) => return Err(broken("it is null".to_owned())),
            (DatabaseId(0), _) => {
                let reason = "its database is not in this federation; attach it".to_owned();
                return Err(broken(reason));
            }
            _ => {}
        }
        let view =
            self.view_by_id(link.database, link.container).map_err(|error| match error.kind() {
                ErrorKind::NotFound => broken(format!("as of commit {csn}, {error}")),
                _ => error,
            })?;
        let path = view.path();
        if link.entry >= view.entries() {
            let entries = view.entries();
            return Err(broken(format!("as of commit {csn}, {path} has {entries} entries")));
        }
        if view.is_deleted(link.entry)? {
            Err(broken(format!("the object in {path} was deleted")))
        } else {
            Ok(view)
        }
    }

    /// Reads fields of the objects that links refer to, in the order of the links; without `fields`, all
    /// fields. Objects of one container are read together. The objects may be in any containers, but each field
    /// must have one type. If a link is null, the array is one of optional records.
    ///
    /// # Errors
    /// The errors of [`target`](Self::target); [`ErrorKind`]: `NotFound` if a field does not exist; `Invalid` if a
    /// field has several types; `Corrupt` if the stored bytes are damaged.
    pub fn follow(&self, links: &[Oid], fields: &[impl AsRef<str>]) -> Result<Array> {
        let mut places: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (at, link) in links.iter().enumerate().filter(|(_, link)| link.container.0 > 0) {
            places.entry((link.database.0, link.container.0)).or_default().push(at);
        }
        let mut parts = vec![];
        let mut positions = vec![usize::MAX; links.len()];
        let mut count = 0;
        for chosen in places.values() {
            let view = self.target(links[chosen[0]])?;
            let entries: Vec<u64> = chosen.iter().map(|at| links[*at].entry).collect();
            let selection =
                if fields.is_empty() { view.select_all() } else { view.select(fields)? };
            let read = view.fetch(&selection, &entries);
            let read = read.map_err(|error| self.explain(error, links, chosen))?;
            for (position, at) in (count..).zip(chosen) {
                positions[*at] = position;
            }
            count += chosen.len();
            parts.push(read);
        }
        let joined = if parts.is_empty() {
            Array::Record { length: 0, members: vec![] }
        } else {
            Array::concatenate(&parts).map_err(Error::storage("the objects"))?
        };
        let present: Vec<usize> =
            positions.iter().copied().filter(|at| *at != usize::MAX).collect();
        let ordered = joined.take(&present).map_err(Error::storage("the objects"))?;
        if present.len() == links.len() {
            return Ok(ordered);
        }
        let mut offsets = vec![0_i64];
        for position in positions {
            let last = offsets[offsets.len() - 1];
            offsets.push(last + i64::from(position != usize::MAX));
        }
        Ok(Array::List { offsets: bytes_of(offsets), content: ordered.into(), optional: true })
    }

    /// The error of the first broken link; `error` if none is broken.
    fn explain(&self, error: Error, links: &[Oid], chosen: &[usize]) -> Error {
        match error.kind() {
            ErrorKind::NotFound => {
                let mut targets = chosen.iter().map(|at| self.target(links[*at]));
                targets.find_map(Result::err).unwrap_or(error)
            }
            _ => error,
        }
    }
}

impl View {
    /// Reads fields of the objects at many entries, in the order of `entries`. The disk is asked for many of
    /// them at once. If the entries ascend, objects that are near each other are read together.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`Error::NotFound`] if an object was deleted.
    pub fn fetch(&self, selection: &Selection, entries: &[u64]) -> Result<Array> {
        entries.iter().try_for_each(|entry| self.check_live(*entry))?;
        if !entries.is_sorted_by(|one, next| one < next) {
            return self.read_runs(selection, &consecutive_runs(entries));
        }
        let storage = |error| Error::storage(self.path())(error);
        let gap_max = self.gap_max();
        let mut parts = vec![];
        let mut left = entries;
        while !left.is_empty() {
            let (runs, places) = runs_over_gaps(left, gap_max);
            let read = self.read_runs(selection, &runs)?;
            left = &left[places.len()..];
            parts.push(if read.len() == places.len() {
                read
            } else {
                read.take(&places).map_err(storage)?
            });
        }
        if parts.is_empty() {
            self.read_stored(selection, 0..0)
        } else {
            Array::concatenate(&parts).map_err(storage)
        }
    }

    /// The most entries between two objects that are read together.
    fn gap_max(&self) -> u64 {
        let size = self.version().bytes / self.entries().max(1);
        (GAP_BYTES / size.max(1)).clamp(1, GAP_MAX)
    }
}

/// Joins consecutive entries to ranges.
fn consecutive_runs(entries: &[u64]) -> Vec<Range<u64>> {
    let follow = entries.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    follow.map(|run| run[0]..run[run.len() - 1].saturating_add(1)).collect()
}

/// Joins sorted entries to ranges, over gaps of less than `gap_max` entries, until a range has [`ENTRIES_AT_ONCE`]
/// entries. Returns the ranges, and for each entry its position among the entries read.
fn runs_over_gaps(sorted: &[u64], gap_max: u64) -> (Vec<Range<u64>>, Vec<usize>) {
    let mut runs: Vec<Range<u64>> = vec![];
    let mut places = Vec::with_capacity(sorted.len());
    let mut count = 0;
    for &entry in sorted {
        let end = entry.saturating_add(1);
        match runs.last_mut() {
            Some(run) if entry == run.end => run.end = end,
            _ if count >= ENTRIES_AT_ONCE => break,
            Some(run) if entry - run.end < gap_max => {
                count += entry - run.end;
                run.end = end;
            }
            _ => runs.push(entry..end),
        }
        places.push(count as usize);
        count += 1;
    }
    (runs, places)
}
