//! Verification of an index: its runs are in order, and every object is found by its key.

use super::fields::KeyFields;
use super::run_reader::{RunCursors, RunReader, RunStream};
use super::sorter::Sorter;
use super::update::Indexed;
use crate::annex::IndexState;
use crate::error::{Error, Result};

impl Indexed<'_> {
    /// Reads an index as a whole, and looks up all objects in it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a run is damaged or out of order, or an object is not found by its key;
    /// [`Error::Storage`] if the objects cannot be read.
    pub(crate) fn verify(&self, index: &IndexState) -> Result<()> {
        for run in &index.runs {
            self.verify_order(index, RunStream::new(self.source, *run)?)?;
        }
        let fields = KeyFields::new(self.class, self.reader, &index.fields)?;
        let entries = 0..self.reader.entries();
        self.sorted_keys(&fields, std::slice::from_ref(&entries), &mut |keys| {
            self.verify_found(index, &fields, keys)
        })
    }

    fn verify_order(&self, index: &IndexState, mut pairs: RunStream<'_>) -> Result<()> {
        let mut last: Vec<u8> = vec![];
        while let Some((key, entry)) = pairs.pair() {
            if *key < *last || entry >= self.reader.entries() {
                return Err(self.wrong(index, "its keys are not in order, or past the last entry"));
            }
            key.clone_into(&mut last);
            pairs.advance()?;
        }
        Ok(())
    }

    fn verify_found(&self, index: &IndexState, fields: &KeyFields, sought: &Sorter) -> Result<()> {
        let reader = RunReader { source: self.source, cache: None };
        let mut cursors = RunCursors::new(&reader, &index.runs);
        for (key, entry) in sought.pairs() {
            let mut is_found = false;
            for cursor in cursors.seek(key)? {
                // Equal keys are in the order of their entries, both in runs and in `sought`.
                while cursor.starts_with(key) && cursor.entry() < entry {
                    cursor.advance()?;
                }
                is_found |= cursor.starts_with(key) && cursor.entry() == entry;
            }
            if !is_found {
                let what = format!("the key {} of object {entry} is missing", fields.show(key));
                return Err(self.wrong(index, &what));
            }
        }
        Ok(())
    }

    fn wrong(&self, index: &IndexState, what: &str) -> Error {
        Error::Corrupt { what: format!("index {:?} of {}: {what}", index.name, self.what) }
    }
}
