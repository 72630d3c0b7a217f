//! Following links: one, or many at once.

use std::collections::BTreeMap;
use std::ops::Range;

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{Array, bytes_of};

use crate::error::{Error, ErrorKind, Result};
use crate::read::selection::Selection;
use crate::read::snapshot::Snapshot;
use crate::read::view::View;

/// Stored bytes between two wanted objects that are read with them: about what another read costs.
const GAP_BYTES: u64 = 4 << 10;
/// Objects between two wanted ones that are read with them at most.
const GAP_MAX: u64 = 64;
/// Entries that are read at once unless they follow each other: gaps take memory until they are left out.
const ENTRIES_AT_ONCE: u64 = 16 << 10;

impl Snapshot {
    /// The container of the object that a link leads to. The object is there.
    ///
    /// # Errors
    /// `NotFound` that names the link and says why it leads nowhere: the link is null, the object was
    /// deleted or is not there yet, its container or database was dropped, or the database is not in
    /// this federation.
    pub fn target(&self, link: Oid) -> Result<View> {
        let nowhere = |reason: String| Error::NotFound {
            what: format!("the link to {link} leads nowhere: {reason}"),
        };
        let csn = self.csn();
        match (link.database, link.container) {
            (_, ContainerId(0)) => return Err(nowhere("it is null".to_owned())),
            (DatabaseId(0), _) => {
                let reason = "its database is not in this federation; attach it".to_owned();
                return Err(nowhere(reason));
            }
            _ => {}
        }
        let view =
            self.view_by_id(link.database, link.container).map_err(|error| match error.kind() {
                ErrorKind::NotFound => nowhere(format!("as of commit {csn}, {error}")),
                _ => error,
            })?;
        let path = view.path();
        if link.entry >= view.entries() {
            let entries = view.entries();
            return Err(nowhere(format!("as of commit {csn}, {path} has {entries} entries")));
        }
        match view.is_deleted(link.entry)? {
            true => Err(nowhere(format!("the object in {path} was deleted"))),
            false => Ok(view),
        }
    }

    /// Reads fields of the objects that links lead to, in the order of the links; all fields if none is
    /// named. Objects of one container are read together, neighbours at once. The objects may lie in
    /// any containers, but what is read of them must be of one type. If a link is null, the array is one
    /// of optional records.
    ///
    /// # Errors
    /// As [`target`](Self::target); `NotFound` if there is no such field; `Invalid` if the fields are not
    /// of one type; `Corrupt` if what is stored is damaged.
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
            let selection = match fields.is_empty() {
                true => view.select_all(),
                false => view.select(fields)?,
            };
            let read = view.fetch(&selection, &entries);
            let read = read.map_err(|error| self.explained(error, links, chosen))?;
            for (position, at) in (count..).zip(chosen) {
                positions[*at] = position;
            }
            count += chosen.len();
            parts.push(read);
        }
        let joined = match parts.is_empty() {
            true => Array::Record { length: 0, members: vec![] },
            false => Array::concatenate(&parts).map_err(Error::storage("the objects"))?,
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

    /// The error of the first link that leads nowhere; `error` if all lead somewhere.
    fn explained(&self, error: Error, links: &[Oid], chosen: &[usize]) -> Error {
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
    /// Reads fields of many objects, in the order asked for; all are asked of the disk before any is
    /// waited for. If the entries ascend, objects that are near each other are read together.
    ///
    /// # Errors
    /// As [`read`](Self::read); `NotFound` if one of them was deleted.
    pub fn fetch(&self, selection: &Selection, entries: &[u64]) -> Result<Array> {
        entries.iter().try_for_each(|entry| self.check_live(*entry))?;
        if !entries.is_sorted_by(|one, next| one < next) {
            return self.read_runs(selection, &neighbours(entries));
        }
        let storage = |error| Error::storage(self.path())(error);
        let gap_max = self.gap_max();
        let mut parts = vec![];
        let mut left = entries;
        while !left.is_empty() {
            let (runs, places) = together(left, gap_max);
            let read = self.read_runs(selection, &runs)?;
            left = &left[places.len()..];
            parts.push(match read.len() == places.len() {
                true => read,
                false => read.take(&places).map_err(storage)?,
            });
        }
        match parts.is_empty() {
            true => self.read_stored(selection, 0..0),
            false => Array::concatenate(&parts).map_err(storage),
        }
    }

    /// How far apart two objects may be to be read together.
    fn gap_max(&self) -> u64 {
        let size = self.version().bytes / self.entries().max(1);
        (GAP_BYTES / size.max(1)).clamp(1, GAP_MAX)
    }
}

/// The runs of entries that follow each other.
fn neighbours(entries: &[u64]) -> Vec<Range<u64>> {
    let follow = entries.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    follow.map(|run| run[0]..run[run.len() - 1].saturating_add(1)).collect()
}

/// The runs of entries that the first of some sorted ones are read by, and where these are in what is
/// read: of all of them, unless there are so many with others between them.
fn together(sorted: &[u64], gap_max: u64) -> (Vec<Range<u64>>, Vec<usize>) {
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
