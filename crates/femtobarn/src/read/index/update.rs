//! Writing of pending keys into the indexes of a container.

use std::ops::Range;

use rntuple::{ByteSource, Reader};

use super::ENTRIES_AT_ONCE;
use super::fields::KeyFields;
use super::pending::PendingKeys;
use super::run::RunSink;
use super::run_reader::{RunCursors, RunReader};
use super::sorter::Sorter;
use crate::annex::IndexState;
use crate::error::{Error, Result};
use crate::schema::class::Class;

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
    pub(super) fn sorted_keys(
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
