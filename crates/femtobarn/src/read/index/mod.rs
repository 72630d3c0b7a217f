//! Indexes: which entries of a container have which keys.
//!
//! An index is a list of sorted runs in the version's annex. Each commit adds a run with the keys of new
//! objects, and of objects whose key fields changed. `key`, `fields`, `block`, `run` and `sorter` encode, read,
//! store and sort keys, `run_reader` searches them; `fetch` reads blocks from a server in few round trips.
//! `find` and `referrers` look up objects, `verify` checks an index. Specified in docs/format.md.
//!
//! 1. Every key of every object that is not deleted is in a run of the index.
//! 2. A run may have keys that objects had before, and keys of deleted objects. So each found entry is checked.
//! 3. The cost of a commit does not depend on the number of keys, except for the merging of runs, in which each
//!    key is rewritten about log2 of the number of commits times.

mod block;
mod fetch;
mod fields;
mod find;
mod key;
mod referrers;
mod run;
mod run_reader;
mod sorter;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rntuple::{ByteSource, Reader};

use crate::annex::IndexState;
use crate::error::{Error, Result};
use crate::schema::class::Class;
use fields::KeyFields;
use run_reader::{RunCursors, RunReader};
use sorter::Sorter;

pub use find::Index;
pub(crate) use find::Indexes;
pub use referrers::{Referrer, Referrers};
pub(crate) use run::RunSink;
pub(crate) use run_reader::BlockCache;

/// Entries whose keys are read at once.
const ENTRIES_AT_ONCE: u64 = 16 << 10;
/// Bytes of the longest name of an index.
const NAME_BYTES_MAX: usize = 255;

/// The keys that are not in a container's indexes yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingKeys {
    /// All indexes that are not new have the keys of the entries before this one.
    indexed: u64,
    /// Indexes that have no keys yet.
    new: BTreeSet<String>,
    /// By index, entries before `indexed` whose key fields changed.
    updated: BTreeMap<String, Vec<Range<u64>>>,
}

impl PendingKeys {
    /// The keys of the entries from `indexed` on.
    pub(crate) fn from(indexed: u64) -> Self {
        PendingKeys { indexed, ..PendingKeys::default() }
    }

    /// Adds the keys of objects of which a field changed.
    pub(crate) fn update(&mut self, indexes: &[IndexState], path: &str, entries: &[u64]) {
        let is_part =
            |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|a| a.starts_with('.'));
        for index in indexes {
            if index.fields.iter().any(|field| is_part(field, path) || is_part(path, field)) {
                let ranges = self.updated.entry(index.name.clone()).or_default();
                for &entry in entries.iter().filter(|entry| **entry < self.indexed) {
                    match ranges.last_mut() {
                        Some(last) if last.end == entry => last.end = entry + 1,
                        _ => ranges.push(entry..entry + 1),
                    }
                }
            }
        }
    }

    /// Removes all runs of an index, and adds all its keys.
    pub(crate) fn rebuild(&mut self, index: &mut IndexState) {
        index.runs.clear();
        self.new.insert(index.name.clone());
    }

    /// The entries whose keys are not in an index, as ascending, disjoint ranges.
    fn entries(&self, index: &str, entries: u64) -> Vec<Range<u64>> {
        if self.new.contains(index) {
            return std::iter::once(0..entries).collect();
        }
        let mut ranges = self.updated.get(index).cloned().unwrap_or_default();
        ranges.push(self.indexed..entries);
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = vec![];
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Adds an index, which has no runs yet, to those of a container.
///
/// # Errors
/// [`Error::Exists`] if the name is in use; [`Error::Invalid`] if the name is not valid or there are no fields;
/// as [`fields::check`].
pub(crate) fn create(
    indexes: &mut Vec<IndexState>,
    pending: &mut PendingKeys,
    class: &Class,
    mut index: IndexState,
) -> Result<()> {
    let name = &index.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "invalid index name {name:?}: must be 1 to {NAME_BYTES_MAX} bytes"
        )));
    }
    if indexes.iter().any(|other| other.name == *name) {
        return Err(Error::Exists {
            what: format!("index {name:?} exists already; choose another name"),
        });
    }
    if index.fields.is_empty() {
        return Err(Error::invalid(format!("index {name:?} has no fields; name at least one")));
    }
    fields::check(class, &index.fields)?;
    pending.rebuild(&mut index);
    indexes.push(index);
    Ok(())
}

/// Removes an index.
///
/// # Errors
/// [`Error::NotFound`] if there is no index of that name.
pub(crate) fn remove(
    indexes: &mut Vec<IndexState>,
    pending: &mut PendingKeys,
    name: &str,
) -> Result<()> {
    let at = indexes.iter().position(|index| index.name == name).ok_or_else(|| {
        let names: Vec<&str> = indexes.iter().map(|index| &index.name[..]).collect();
        let others = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::NotFound {
            what: format!("index {name:?} does not exist; existing indexes: {others}"),
        }
    })?;
    indexes.remove(at);
    pending.new.remove(name);
    pending.updated.remove(name);
    Ok(())
}

/// Bytes of all runs.
pub(crate) fn size(indexes: &[IndexState]) -> u64 {
    indexes.iter().flat_map(|index| &index.runs).map(|run| run.blob.size).sum()
}

/// A version of a container whose indexes are updated or verified.
pub(crate) struct Indexed<'a> {
    /// The container, for error texts.
    pub what: &'a str,
    pub class: &'a Class,
    pub reader: &'a Reader,
    pub is_deleted: &'a dyn Fn(u64) -> Result<bool>,
    /// The file that has the runs.
    pub source: &'a dyn ByteSource,
}

impl Indexed<'_> {
    /// Writes pending keys into the indexes.
    ///
    /// # Errors
    /// [`Error::Exists`] if two objects have the same key in a unique index; [`Error::Invalid`] if a field of
    /// an index cannot be part of a key any more; [`Error::Io`] or [`Error::Storage`] if the file cannot be
    /// read or written.
    pub(crate) fn update(
        &self,
        indexes: &mut [IndexState],
        pending: &mut PendingKeys,
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        for index in indexes {
            let entries = pending.entries(&index.name, self.reader.entries());
            if !entries.is_empty() {
                self.add_keys(index, &entries, sink)?;
            }
        }
        *pending = PendingKeys::from(self.reader.entries());
        Ok(())
    }

    fn add_keys(
        &self,
        index: &mut IndexState,
        entries: &[Range<u64>],
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        let fields = KeyFields::new(self.class, self.reader, &index.fields)?;
        self.sorted_keys(&fields, entries, &mut |sorter| {
            if index.unique {
                sink.settle()?;
                self.check_unique(index, &fields, sorter)?;
            }
            sorter.write(&mut index.runs, self.source, sink)
        })
    }

    /// Reads the keys of entries that are not deleted, and calls `each` with them in sorted batches that fit in
    /// memory.
    fn sorted_keys(
        &self,
        fields: &KeyFields,
        entries: &[Range<u64>],
        each: &mut dyn FnMut(&Sorter) -> Result<()>,
    ) -> Result<()> {
        let mut sorter = Sorter::default();
        for range in entries {
            for first in range.clone().step_by(ENTRIES_AT_ONCE as usize) {
                let end = range.end.min(first + ENTRIES_AT_ONCE);
                fields.read(self.reader, first..end)?.each(|at, key| {
                    let entry = first + at as u64;
                    if !(self.is_deleted)(entry)? {
                        sorter.push(key, entry);
                    }
                    Ok(())
                })?;
                if sorter.is_full() {
                    sorter.sort();
                    each(&sorter)?;
                    sorter.clear();
                }
            }
        }
        if sorter.is_empty() {
            return Ok(());
        }
        sorter.sort();
        each(&sorter)
    }

    /// Refuses keys that two objects have.
    fn check_unique(&self, index: &IndexState, fields: &KeyFields, new: &Sorter) -> Result<()> {
        let reader = RunReader { source: self.source, cache: None };
        let mut cursors = RunCursors::new(&reader, &index.runs);
        let mut last: Option<(&[u8], u64)> = None;
        for (key, entry) in new.pairs() {
            if let Some((_, other)) = last.filter(|(last, _)| *last == key) {
                self.check_distinct(index, fields, other, entry)?;
            }
            last = Some((key, entry));
            for cursor in cursors.seek(key)? {
                while cursor.starts_with(key) {
                    self.check_distinct(index, fields, cursor.entry(), entry)?;
                    cursor.advance()?;
                }
            }
        }
        Ok(())
    }

    /// Refuses two objects that have a key in common. Keys that are cut off are compared in full.
    fn check_distinct(
        &self,
        index: &IndexState,
        fields: &KeyFields,
        first: u64,
        second: u64,
    ) -> Result<()> {
        if first == second || first >= self.reader.entries() || (self.is_deleted)(first)? {
            return Ok(());
        }
        let keys_of = |entry: u64| {
            let mut keys = vec![];
            fields.read(self.reader, entry..entry + 1)?.each(|_, key| {
                keys.push(key.to_vec());
                Ok(())
            })?;
            Ok::<_, Error>(keys)
        };
        let others = keys_of(first)?;
        match keys_of(second)?.iter().find(|key| others.contains(key)) {
            None => Ok(()),
            Some(key) => Err(Error::Exists {
                what: format!(
                    "{}: entries {first} and {second} both have the key {} of index {:?}, which must \
                     be unique",
                    self.what,
                    fields.show(key),
                    index.name
                ),
            }),
        }
    }
}
