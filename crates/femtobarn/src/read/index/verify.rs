//! Verifying an index: its runs are in order, and every object is found by its key.

use super::fields::KeyFields;
use super::run::{Blocks, Cursor, Stream};
use super::sorter::Sorter;
use super::{ENTRIES_AT_ONCE, Indexed};
use crate::annex::IndexState;
use crate::error::{Error, Result};

impl Indexed<'_> {
    /// Reads an index as a whole, and looks up all objects in it.
    ///
    /// # Errors
    /// `Corrupt` if a run is damaged or out of order, or an object is not found by its key; as
    /// reading the objects.
    pub fn verify(&self, index: &IndexState) -> Result<()> {
        index
            .runs
            .iter()
            .try_for_each(|run| self.verify_order(index, Stream::new(self.source, *run)?))?;
        let fields = KeyFields::new(self.class, self.reader, &index.fields)?;
        let mut sorter = Sorter::default();
        let entries = self.reader.entries();
        for first in (0..entries).step_by(ENTRIES_AT_ONCE as usize) {
            let end = entries.min(first + ENTRIES_AT_ONCE);
            fields.read(self.reader, first..end)?.each(|at, key| {
                let entry = first + at as u64;
                if !(self.is_deleted)(entry)? {
                    sorter.push(key, entry);
                }
                Ok(())
            })?;
            if sorter.is_full() || end == entries {
                sorter.sort();
                self.verify_found(index, &fields, &sorter)?;
                sorter.clear();
            }
        }
        Ok(())
    }

    fn verify_order(&self, index: &IndexState, mut pairs: Stream<'_>) -> Result<()> {
        let mut last: Vec<u8> = vec![];
        while let Some((key, entry)) = pairs.pair() {
            if *key < *last || entry >= self.reader.entries() {
                return Err(self.wrong(index, "its keys are not in order"));
            }
            key.clone_into(&mut last);
            pairs.advance()?;
        }
        Ok(())
    }

    fn verify_found(&self, index: &IndexState, fields: &KeyFields, sought: &Sorter) -> Result<()> {
        let blocks = Blocks { source: self.source, cache: None };
        let mut cursors: Option<Vec<Cursor<'_>>> = None;
        for (key, entry) in sought.pairs() {
            if cursors.is_none() {
                let seek = index.runs.iter().map(|run| blocks.seek(run, key));
                cursors = Some(seek.collect::<Result<_>>()?);
            }
            let mut is_found = false;
            for cursor in cursors.iter_mut().flatten() {
                cursor.seek_on(key)?;
                // Those of one key are in the order of their entries, as what is sought.
                while cursor.starts_with(key) && cursor.entry() < entry {
                    cursor.advance()?;
                }
                is_found |= cursor.starts_with(key) && cursor.entry() == entry;
            }
            if !is_found {
                let what = format!("object {entry} with {} is not in it", fields.show(key));
                return Err(self.wrong(index, &what));
            }
        }
        Ok(())
    }

    fn wrong(&self, index: &IndexState, what: &str) -> Error {
        Error::Corrupt { what: format!("index {:?} of {}: {what}", index.name, self.what) }
    }
}
