//! Indexes: which entries of a container have which keys.
//!
//! An index is a list of sorted runs in the version's annex. Each commit adds a run with the keys of
//! new objects, and of those that changed in a key field; nothing is ever taken out of a run.
//!
//! Invariants:
//! 1. Every key of every object that is not deleted is in a run of the index.
//! 2. A run may have keys that their objects had before, and of deleted objects. Whoever finds an entry
//!    looks whether it is there and has the key.
//! 3. The cost of a commit does not depend on how many keys there are, but for the merging of runs, which
//!    costs each key as many rewrites as the number of commits has binary digits.

mod block;
mod fetch;
mod fields;
mod find;
mod key;
mod referrers;
mod run;
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
use run::{Blocks, Cursor};
use sorter::Sorter;

pub use find::Index;
pub(crate) use find::Indexes;
pub use referrers::{Referrer, Referrers};
pub(crate) use run::{BlockCache, RunSink};

/// Entries whose keys are read at once.
const ENTRIES_AT_ONCE: u64 = 16 << 10;
/// Bytes of the longest name of an index.
const NAME_BYTES_MAX: usize = 255;

/// What of a container's indexes has to be written yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    /// Entries before this one are in all indexes that are not new.
    indexed: u64,
    /// Indexes that no entry is in yet.
    new: BTreeSet<String>,
    /// Entries before `indexed` that changed in a key field, by index.
    updated: BTreeMap<String, Vec<Range<u64>>>,
}

impl Pending {
    /// Nothing but the entries from `indexed` on.
    pub fn from(indexed: u64) -> Self {
        Pending { indexed, ..Pending::default() }
    }

    /// Notes that a field of some objects changed.
    pub fn update(&mut self, indexes: &[IndexState], path: &str, entries: &[u64]) {
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

    /// Notes that all keys of an index have to be written anew.
    pub fn rebuild(&mut self, index: &mut IndexState) {
        index.runs.clear();
        self.new.insert(index.name.clone());
    }

    /// The entries whose keys an index has to be given, in order.
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

/// Adds an index to those of a container.
///
/// # Errors
/// `Exists` if the name is taken; as [`fields::check`].
pub(crate) fn create(
    indexes: &mut Vec<IndexState>,
    pending: &mut Pending,
    class: &Class,
    (name, fields, unique): (&str, Vec<String>, bool),
) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{name:?} is not a name for an index, which has 1 to {NAME_BYTES_MAX}"
        )));
    }
    if indexes.iter().any(|index| index.name == name) {
        return Err(Error::Exists { what: format!("index {name:?} exists already") });
    }
    if fields.is_empty() {
        return Err(Error::invalid(format!("index {name:?} needs a field to be made of")));
    }
    fields::check(class, &fields)?;
    let mut index = IndexState { name: name.to_owned(), fields, unique, runs: vec![] };
    pending.rebuild(&mut index);
    indexes.push(index);
    Ok(())
}

/// Takes an index away.
///
/// # Errors
/// `NotFound` if there is none of that name.
pub(crate) fn remove(
    indexes: &mut Vec<IndexState>,
    pending: &mut Pending,
    name: &str,
) -> Result<()> {
    let at = indexes.iter().position(|index| index.name == name).ok_or_else(|| {
        let names: Vec<&str> = indexes.iter().map(|index| &index.name[..]).collect();
        let there_is = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::NotFound { what: format!("there is no index {name:?}; there is {there_is}") }
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

/// A version of a container whose indexes are brought up to it.
pub(crate) struct Indexed<'a> {
    /// The container, for messages.
    pub what: &'a str,
    pub class: &'a Class,
    pub reader: &'a Reader,
    pub is_deleted: &'a dyn Fn(u64) -> Result<bool>,
    /// Where runs are read.
    pub source: &'a dyn ByteSource,
}

impl Indexed<'_> {
    /// Writes the keys that are missing from the indexes.
    ///
    /// # Errors
    /// `Exists` if two objects have the same key in an index that allows none; `Invalid` if a field of an
    /// index makes no key any more; as the disk.
    pub fn keep_up(
        &self,
        indexes: &mut [IndexState],
        pending: &mut Pending,
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        for index in indexes {
            let entries = pending.entries(&index.name, self.reader.entries());
            if !entries.is_empty() {
                self.add(index, entries, sink)?;
            }
        }
        *pending = Pending::from(self.reader.entries());
        Ok(())
    }

    fn add(
        &self,
        index: &mut IndexState,
        entries: Vec<Range<u64>>,
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        let fields = KeyFields::new(self.class, self.reader, &index.fields)?;
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
                    self.write(index, &fields, &mut sorter, sink)?;
                }
            }
        }
        self.write(index, &fields, &mut sorter, sink)
    }

    fn write(
        &self,
        index: &mut IndexState,
        fields: &KeyFields,
        sorter: &mut Sorter,
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        if sorter.is_empty() {
            return Ok(());
        }
        sorter.sort();
        if index.unique {
            sink.settle()?;
            self.check_unique(index, fields, sorter)?;
        }
        sorter.write(&mut index.runs, self.source, sink)?;
        sorter.clear();
        Ok(())
    }

    /// Refuses keys that another object has.
    fn check_unique(&self, index: &IndexState, fields: &KeyFields, new: &Sorter) -> Result<()> {
        let blocks = Blocks { source: self.source, cache: None };
        let mut cursors: Option<Vec<Cursor<'_>>> = None;
        let mut last: Option<(&[u8], u64)> = None;
        for (key, entry) in new.pairs() {
            if let Some((_, other)) = last.filter(|(last, _)| *last == key) {
                self.check_distinct(index, fields, other, entry)?;
            }
            last = Some((key, entry));
            if cursors.is_none() {
                let seek = index.runs.iter().map(|run| blocks.seek(run, key));
                cursors = Some(seek.collect::<Result<_>>()?);
            }
            for cursor in cursors.iter_mut().flatten() {
                cursor.seek_on(key)?;
                while cursor.starts_with(key) {
                    self.check_distinct(index, fields, cursor.entry(), entry)?;
                    cursor.advance()?;
                }
            }
        }
        Ok(())
    }

    /// Refuses two objects that have a key in common.
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
