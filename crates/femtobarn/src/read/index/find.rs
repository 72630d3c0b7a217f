//! Finding objects by the values of their fields.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use femtobarn_catalog::BlobRange;
use rntuple::{Bound, Bounds, ByteSource, Value};

use super::fields::KeyFields;
use super::key::{self, Kind};
use super::run::Blocks;
use super::{ENTRIES_AT_ONCE, fields};
use crate::annex::{Annex, IndexState};
use crate::error::{Error, Result};
use crate::read::statistics::ClusterBounds;
use crate::read::version::{Version, file_number};
use crate::read::view::View;

/// Entries between two candidates that are read with them rather than passed over.
const GAP_MAX: u64 = 16;

/// An index of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, unique in the container.
    pub name: String,
    /// The fields that make the key, in its order.
    pub fields: Vec<String>,
    /// Whether no two objects may have the same key.
    pub unique: bool,
    /// Keys in all runs, with those that are out of date.
    pub keys: u64,
    /// Sorted runs: a look-up looks into each.
    pub runs: u64,
    /// Bytes that it takes in the database's file.
    pub bytes: u64,
}

/// The indexes of a version, read when first asked for.
pub(crate) struct Indexes {
    source: Arc<dyn ByteSource>,
    annex: BlobRange,
    prepared: OnceLock<Vec<Prepared>>,
}

/// An index that is ready for look-ups.
struct Prepared {
    state: IndexState,
    fields: KeyFields,
}

impl Indexes {
    pub fn new(source: Arc<dyn ByteSource>, annex: BlobRange) -> Self {
        Indexes { source, annex, prepared: OnceLock::new() }
    }

    fn prepared(&self, version: &Version) -> Result<&[Prepared]> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let annex = Annex::read(&*self.source, self.annex)?;
        let prepare = |state: IndexState| {
            let fields = KeyFields::new(&version.class, &version.reader, &state.fields)?;
            Ok(Prepared { state, fields })
        };
        let prepared = annex.indexes.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        // Another thread may have been faster, with the same.
        Ok(self.prepared.get_or_init(|| prepared))
    }
}

/// Objects that are looked for: those that have a key that begins with some bytes.
struct Sought<'a> {
    fields: &'a KeyFields,
    start: Vec<u8>,
}

impl View {
    /// The container's indexes.
    ///
    /// # Errors
    /// `Corrupt` if what is stored is damaged.
    pub fn indexes(&self) -> Result<Vec<Index>> {
        let prepared = self.opened_version().indexes.prepared(self.opened_version())?;
        let index = |Prepared { state, .. }: &Prepared| Index {
            name: state.name.clone(),
            fields: state.fields.clone(),
            unique: state.unique,
            keys: state.runs.iter().map(|run| run.keys).sum(),
            runs: state.runs.len() as u64,
            bytes: state.runs.iter().map(|run| run.blob.size).sum(),
        };
        Ok(prepared.iter().map(index).collect())
    }

    /// The first entry whose object has these values, such as `run` 7 and `event` 12345.
    ///
    /// A field in a list has a value if one of the list's items has it; of several fields in one list
    /// the same item has them. A link is searched for as a record of `database`, `container` and
    /// `entry`.
    ///
    /// With an index whose first fields are the given ones, in any order, this takes microseconds. With
    /// one of which only some of the first fields are given, the objects that these leave are read; with
    /// none, all objects that the statistics of clusters leave.
    ///
    /// # Errors
    /// `NotFound` if there is no such field; `Invalid` if it cannot have such a value; `Corrupt` if what
    /// is stored is damaged.
    pub fn find(&self, values: &[(impl AsRef<str>, Value)]) -> Result<Option<u64>> {
        let mut found = None;
        self.search(values, &mut |entry| {
            found = Some(entry);
            false
        })?;
        Ok(found)
    }

    /// All entries whose objects have these values, in order; as [`find`](Self::find).
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_all(&self, values: &[(impl AsRef<str>, Value)]) -> Result<Vec<u64>> {
        let mut found = vec![];
        self.search(values, &mut |entry| {
            found.push(entry);
            true
        })?;
        Ok(found)
    }

    /// The index that finds objects by these fields, and how many of its first fields are among them.
    ///
    /// # Errors
    /// `Corrupt` if what is stored is damaged.
    pub fn index_for(&self, fields: &[impl AsRef<str>]) -> Result<Option<(Index, usize)>> {
        let names: Vec<&str> = fields.iter().map(AsRef::as_ref).collect();
        match self.best(&names)? {
            Some((at, count)) => Ok(Some((self.indexes()?.swap_remove(at), count))),
            None => Ok(None),
        }
    }

    /// Gives entries in order to `take` until that says that it is enough.
    fn search(
        &self,
        values: &[(impl AsRef<str>, Value)],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let version = self.opened_version();
        let values: Vec<(&str, &Value)> =
            values.iter().map(|(name, value)| (name.as_ref(), value)).collect();
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Err(Error::invalid("name a field to find objects by"));
        }
        let best = self.best(&names)?;
        let candidates = match best {
            Some((at, count)) => {
                let Prepared { state, fields } = &version.indexes.prepared(version)?[at];
                let Some(start) = self.key(&fields.fields[..count], &values)? else {
                    return Ok(());
                };
                let candidates = self.candidates(state, key::kept(&start))?;
                if count == names.len() {
                    return self.verify(&Sought { fields, start }, &candidates, take);
                }
                Some(candidates)
            }
            None => None,
        };
        let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let fields = KeyFields::new(&version.class, &version.reader, &owned)?;
        let Some(start) = self.key(&fields.fields, &values)? else { return Ok(()) };
        let sought = Sought { fields: &fields, start };
        match candidates {
            Some(candidates) => self.verify(&sought, &candidates, take),
            None => self.scan(&sought, &values, take),
        }
    }

    /// The index with the most first fields among these.
    fn best(&self, names: &[&str]) -> Result<Option<(usize, usize)>> {
        let version = self.opened_version();
        let prepared = version.indexes.prepared(version)?;
        let count = |index: &Prepared| {
            let is_named = |field: &&String| names.contains(&field.as_str());
            index.state.fields.iter().take_while(is_named).count()
        };
        let counts = prepared.iter().map(count).enumerate().filter(|(_, count)| *count > 0);
        // Of equals, the one with the fewest fields beyond.
        let best = counts.max_by_key(|(at, count)| {
            (*count, std::cmp::Reverse(prepared[*at].state.fields.len()))
        });
        Ok(best)
    }

    /// The key that the values make for fields; `None` if no object has it.
    fn key(
        &self,
        fields: &[fields::KeyField],
        values: &[(&str, &Value)],
    ) -> Result<Option<Vec<u8>>> {
        let databases = &self.opened_version().link_databases;
        let position = |number: u32| {
            let position = databases.iter().position(|database| *database == number && number > 0);
            position.and_then(|position| u32::try_from(position).ok())
        };
        let mut out = vec![];
        for (at, field) in fields.iter().enumerate() {
            let named = values.iter().find(|(name, _)| *name == field.path);
            let (name, value) = named.ok_or_else(|| Error::invalid("a value has no field"))?;
            let is_whole = value.member("element").is_some();
            if field.kind == (Kind::Link { to_element: true }) && !is_whole && at + 1 < fields.len()
            {
                return Err(Error::invalid(format!("{name} needs the element that it links to")));
            }
            if !key::put_value(&mut out, field.kind, name, value, &position)? {
                return Ok(None);
            }
        }
        Ok(Some(out))
    }

    /// Entries that have, or had, a key that begins like this; in order.
    fn candidates(&self, index: &IndexState, start: &[u8]) -> Result<Vec<u64>> {
        let version = self.opened_version();
        let inner = &self.snapshot().federation().inner;
        let file = file_number(version.row.database, version.epoch);
        let blocks =
            Blocks { source: &*version.indexes.source, cache: Some((inner.index_blocks(), file)) };
        blocks.fetch(&index.runs, start)?;
        let mut found = vec![];
        for run in &index.runs {
            blocks.entries_of(run, start, &mut found)?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Gives those of the candidates to `take` that are there and have the key.
    fn verify(
        &self,
        sought: &Sought<'_>,
        candidates: &[u64],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        // A version that is damaged may have keys of entries that are not there.
        let known = candidates.partition_point(|entry| *entry < self.entries());
        let mut left = &candidates[..known];
        while let Some(&first) = left.first() {
            let is_near =
                |pair: &&[u64]| pair[1] - pair[0] <= GAP_MAX && pair[1] - first < ENTRIES_AT_ONCE;
            let count = left.windows(2).take_while(is_near).count() + 1;
            let (together, rest) = left.split_at(count);
            let last = together.last().copied().unwrap_or(first);
            if !self.matches(sought, first..last + 1, &mut |entry| {
                together.binary_search(&entry).is_err() || take(entry)
            })? {
                return Ok(());
            }
            left = rest;
        }
        Ok(())
    }

    /// Gives the entries of a range to `take` that are there and have the key, and says whether it
    /// wants more.
    fn matches(
        &self,
        sought: &Sought<'_>,
        entries: Range<u64>,
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let first = entries.start;
        let keys = sought.fields.read(&self.opened_version().reader, entries)?;
        let (mut wants_more, mut last) = (true, None);
        keys.each(|at, key| {
            let entry = first + at as u64;
            if wants_more && last != Some(entry) && key.starts_with(&sought.start) {
                last = Some(entry);
                wants_more = self.is_deleted(entry)? || take(entry);
            }
            Ok(())
        })?;
        Ok(wants_more)
    }

    fn scan(
        &self,
        sought: &Sought<'_>,
        values: &[(&str, &Value)],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        for range in self.clusters_with(values)? {
            for first in range.clone().step_by(ENTRIES_AT_ONCE as usize) {
                let end = range.end.min(first + ENTRIES_AT_ONCE);
                if !self.matches(sought, first..end, take)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The entries that may have these values, as far as the statistics of clusters tell.
    fn clusters_with(&self, values: &[(&str, &Value)]) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = std::iter::once(0..self.entries()).collect();
        for (name, value) in values.iter().filter(|(_, value)| value.as_float().is_some()) {
            let clusters = self.statistics(name)?;
            let is_out = |it: &&ClusterBounds| it.bounds.is_some_and(|it| excludes(&it, value));
            for cluster in clusters.iter().filter(is_out) {
                let out = cluster.first_entry..cluster.first_entry + cluster.entries;
                let first = ranges.partition_point(|range| range.end <= out.start);
                let count = ranges[first..].iter().take_while(|it| it.start < out.end).count();
                let touched = ranges[first..first + count].to_vec();
                let left = touched.into_iter().flat_map(|range| {
                    [range.start..range.end.min(out.start), range.start.max(out.end)..range.end]
                });
                let left: Vec<Range<u64>> = left.filter(|range| range.start < range.end).collect();
                ranges.splice(first..first + count, left);
            }
        }
        Ok(ranges)
    }
}

/// Whether a number is certainly not among those with these bounds, be it of single precision or double.
fn excludes(bounds: &Bounds, value: &Value) -> bool {
    let Some((least, most)) = bounds.range else { return !bounds.has_nan };
    let exact = |bound: Bound| match bound {
        Bound::Int(bound) => Some(i128::from(bound)),
        Bound::UInt(bound) => Some(i128::from(bound)),
        Bound::Float(_) => None,
    };
    if let (Some(value), Some(least), Some(most)) = (value.as_integer(), exact(least), exact(most))
    {
        return value < least || value > most;
    }
    let Some(value) = value.as_float() else { return false };
    let single = f64::from(value as f32);
    // An integer may be farther out than the nearest real number.
    let (least, most) = (least.as_float().next_down(), most.as_float().next_up());
    value.max(single) < least || value.min(single) > most
}
