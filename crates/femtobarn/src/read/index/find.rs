//! Lookup of objects by the values of their fields, through an index or by reading all objects.
//!
//! An index returns candidates: a run may have keys that objects had before, and keys of deleted objects. So every
//! candidate is read and compared.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use femtobarn_catalog::BlobRange;
use rntuple::{Bound, Bounds, ByteSource, Value};

use super::fields::KeyFields;
use super::key::{self, KeyKind};
use super::run_reader::RunReader;
use super::{ENTRIES_AT_ONCE, fields};
use crate::annex::{Annex, IndexState};
use crate::error::{Error, Result};
use crate::read::statistics::ClusterBounds;
use crate::read::version::{OpenVersion, file_number};
use crate::read::view::View;

/// The most entries between two candidates that are read together.
const GAP_MAX: u64 = 16;

/// An index of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, unique in the container.
    pub name: String,
    /// The fields that make up the key, in its order.
    pub fields: Vec<String>,
    /// Whether no two objects may have the same key.
    pub unique: bool,
    /// Number of keys in all runs, including keys that are out of date.
    pub keys: u64,
    /// Number of sorted runs; a lookup searches each.
    pub runs: u64,
    /// Its size in the database's file, in bytes.
    pub bytes: u64,
}

/// The indexes of a version, read at their first use.
pub(crate) struct Indexes {
    source: Arc<dyn ByteSource>,
    annex: BlobRange,
    prepared: OnceLock<Vec<Prepared>>,
}

/// An index that is ready for lookups.
struct Prepared {
    state: IndexState,
    fields: KeyFields,
}

impl Indexes {
    pub(crate) fn new(source: Arc<dyn ByteSource>, annex: BlobRange) -> Self {
        Indexes { source, annex, prepared: OnceLock::new() }
    }

    fn prepared(&self, version: &OpenVersion) -> Result<&[Prepared]> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let annex = Annex::read(&*self.source, self.annex)?;
        let prepare = |state: IndexState| {
            let fields = KeyFields::new(&version.class, &version.reader, &state.fields)?;
            Ok(Prepared { state, fields })
        };
        let prepared = annex.indexes.into_iter().map(prepare).collect::<Result<Vec<_>>>()?;
        // Another thread may have read them meanwhile.
        Ok(self.prepared.get_or_init(|| prepared))
    }
}

/// The objects that a lookup is for: those with a key over `fields` that starts with `start`.
struct Sought<'a> {
    fields: &'a KeyFields,
    start: Vec<u8>,
}

impl View {
    /// The container's indexes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the annex is damaged.
    pub fn indexes(&self) -> Result<Vec<Index>> {
        let prepared = self.prepared_indexes()?;
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
    /// A field in a list has a value if one of the list's items has it; several fields in one list must have
    /// their values in the same item. A link is given as a record of `database`, `container` and `entry`.
    ///
    /// This takes microseconds if the first fields of an index are the given ones, in any order. If only some
    /// of the given fields are the first of an index, the objects that it finds by these are read; without an
    /// index, all objects are, except for clusters that statistics exclude.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a field does not exist; [`Error::Invalid`] if a value is not of the field's type;
    /// [`Error::Corrupt`] if the stored bytes are damaged.
    pub fn find(&self, values: &[(impl AsRef<str>, Value)]) -> Result<Option<u64>> {
        let mut found = None;
        self.search(values, &mut |entry| {
            found = Some(entry);
            false
        })?;
        Ok(found)
    }

    /// All entries whose objects have these values, ascending; see [`find`](Self::find).
    ///
    /// # Errors
    /// The errors of [`find`](Self::find).
    pub fn find_all(&self, values: &[(impl AsRef<str>, Value)]) -> Result<Vec<u64>> {
        let mut found = vec![];
        self.search(values, &mut |entry| {
            found.push(entry);
            true
        })?;
        Ok(found)
    }

    /// The index that a lookup by these fields uses, and how many of its first fields are among them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the annex is damaged.
    pub fn index_for(&self, fields: &[impl AsRef<str>]) -> Result<Option<(Index, usize)>> {
        let names: Vec<&str> = fields.iter().map(AsRef::as_ref).collect();
        match self.best(&names)? {
            Some((at, count)) => Ok(Some((self.indexes()?.swap_remove(at), count))),
            None => Ok(None),
        }
    }

    /// Whether these fields are the first of an index, in any order, so that a lookup by them takes microseconds.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the annex is damaged.
    pub fn is_indexed(&self, fields: &[impl AsRef<str>]) -> Result<bool> {
        let names: Vec<&str> = fields.iter().map(AsRef::as_ref).collect();
        Ok(self.best(&names)?.is_some_and(|(_, count)| count == names.len()))
    }

    fn prepared_indexes(&self) -> Result<&[Prepared]> {
        let version = self.opened_version();
        self.snapshot().kept(version.indexes.prepared(version))
    }

    /// Calls `take` with the entries found, ascending, until it returns false.
    fn search(
        &self,
        values: &[(impl AsRef<str>, Value)],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        self.snapshot().kept(self.search_stored(values, take))
    }

    fn search_stored(
        &self,
        values: &[(impl AsRef<str>, Value)],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let version = self.opened_version();
        let values: Vec<(&str, &Value)> =
            values.iter().map(|(name, value)| (name.as_ref(), value)).collect();
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Err(Error::invalid("no field to find objects by; name at least one"));
        }
        let best = self.best(&names)?;
        let candidates = match best {
            Some((at, count)) => {
                let Prepared { state, fields } = &version.indexes.prepared(version)?[at];
                let Some(start) = self.key(&fields.fields[..count], &values)? else {
                    return Ok(());
                };
                let candidates = self.candidates(state, key::truncate(&start))?;
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

    /// The position of the index with the most first fields among `names`, and their number.
    fn best(&self, names: &[&str]) -> Result<Option<(usize, usize)>> {
        let prepared = self.prepared_indexes()?;
        let count = |index: &Prepared| {
            let is_named = |field: &&String| names.contains(&field.as_str());
            index.state.fields.iter().take_while(is_named).count()
        };
        let counts = prepared.iter().map(count).enumerate().filter(|(_, count)| *count > 0);
        // Of several, the one with the fewest fields in all.
        let best = counts.max_by_key(|(at, count)| {
            (*count, std::cmp::Reverse(prepared[*at].state.fields.len()))
        });
        Ok(best)
    }

    /// The start of the key that the values of `fields` form; `None` if no object can have it.
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
            let (name, value) = named
                .ok_or_else(|| Error::invalid(format!("no value for field {}", field.path)))?;
            let is_whole = value.member("element").is_some();
            if field.kind == (KeyKind::Link { to_element: true })
                && !is_whole
                && at + 1 < fields.len()
            {
                return Err(Error::invalid(format!(
                    "the value for {name} has no element; add the one that it links to"
                )));
            }
            if !key::put_value(&mut out, field.kind, name, value, &position)? {
                return Ok(None);
            }
        }
        Ok(Some(out))
    }

    /// The entries with a key in the index that starts with `start`, ascending.
    fn candidates(&self, index: &IndexState, start: &[u8]) -> Result<Vec<u64>> {
        let version = self.opened_version();
        let inner = &self.snapshot().federation().inner;
        let file = file_number(version.row.database, version.epoch);
        let blocks = RunReader {
            source: &*version.indexes.source,
            cache: Some((inner.index_blocks(), file)),
        };
        blocks.fetch(&index.runs, start)?;
        let mut found = vec![];
        for run in &index.runs {
            blocks.entries_of(run, start, &mut found)?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Calls `take` with the candidates that are not deleted and have the key, until it returns false.
    fn verify(
        &self,
        sought: &Sought<'_>,
        candidates: &[u64],
        take: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        // A damaged index may have keys of entries past the last one.
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

    /// Calls `take` with the entries of a range that are not deleted and have the key; false once `take` has
    /// returned false.
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

    /// The entries that may have these values: those of all clusters that statistics do not exclude.
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

/// Whether no number within these bounds equals a value, in single or in double precision.
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
    // The float nearest to an integer bound may lie within the bounds.
    let (least, most) = (least.as_float().next_down(), most.as_float().next_up());
    value.max(single) < least || value.min(single) > most
}
