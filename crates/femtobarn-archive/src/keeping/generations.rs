//! Marks of generations in stores, which inform a leader of its successor if nothing else does.
//!
//! A forced promotion that gets no answer from the former leader leaves two leaders, which write below the same archive
//! and share only the stores. So the leader of generation n puts an object `ARCHIVE/generation-n` into each store,
//! after the marks of earlier generations, and a leader that removes objects from a store first asks it for the mark of
//! the next generation.
//!
//! 1. Only the existence of a mark matters, which every kind of store can report at once; nothing depends on its bytes.
//! 2. A mark is never removed.
//! 3. A mark may be made after the store's answer and before a removal: a store cannot compare and remove in one step.
//!    So each batch of removals asks anew.

use std::collections::BTreeMap;
use std::io::Write;

use tempfile::NamedTempFile;

use super::archive::Archive;
use super::silent_stores::SilentStores;
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, Store};

/// Generations before its own that a leader also marks: their leaders may not have reached the stores.
const EARLIER_MARKS: u64 = 15;

/// The answers of stores in one batch of removals: `None`, or the reason why nothing is removed there.
#[derive(Debug, Default)]
pub(super) struct MarksRead(BTreeMap<String, Option<String>>);

impl Archive {
    /// Marks the stores in which the federation has objects with its current generation, and returns the stores that
    /// could not be marked, with the error (`Stopped` by the watch included). In marked stores, the leader of an
    /// earlier generation removes nothing any more.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn mark_generation(&self, watch: &mut ByteWatch<'_>) -> Result<Vec<(String, Error)>> {
        self.mark_in_pass(&mut SilentStores::default(), watch)
    }

    /// Like [`mark_generation`](Self::mark_generation), in a pass over many databases.
    pub(super) fn mark_in_pass(
        &self,
        silent: &mut SilentStores,
        watch: &mut ByteWatch<'_>,
    ) -> Result<Vec<(String, Error)>> {
        let (generation, archive) = (self.local()?.generation()?, self.local()?.archive_id()?);
        let mut failed = vec![];
        let Some(archive) = archive.filter(|_| generation > 0) else { return Ok(failed) };
        for name in self.local()?.stores_with_objects()? {
            let marked = self.store(&name).and_then(|store| {
                let mark = |watch: &mut ByteWatch<'_>| mark(&*store, &archive, generation, watch);
                silent.ask((&name, &*store), watch, mark)
            });
            failed.extend(marked.err().map(|error| (name, error)));
        }
        Ok(failed)
    }
}

impl MarksRead {
    /// Refuses to remove objects of an archive from a store that the leader of a later generation has marked.
    ///
    /// # Errors
    /// `Denied` if it is marked; the errors of the store if it cannot answer.
    pub(super) fn check(
        &mut self,
        archive: (&str, u64),
        (name, store): (&str, &dyn Store),
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let why = match self.0.get(name) {
            Some(known) => known.clone(),
            None => {
                let why = led_elsewhere(archive, (name, store), watch)?;
                self.0.insert(name.to_owned(), why.clone());
                why
            }
        };
        why.map_or(Ok(()), |what| Err(Error::Denied { what }))
    }
}

/// The reason why nothing may be removed from a store, if another leader has marked it.
fn led_elsewhere(
    (archive, generation): (&str, u64),
    (name, store): (&str, &dyn Store),
    watch: &mut ByteWatch<'_>,
) -> Result<Option<String>> {
    let next = mark_of(archive, generation.saturating_add(1));
    match store.examine(&next, 0, watch) {
        // To users who may not list it, a bucket also answers this for any object that it does not have.
        Err(Error::NoObject { .. } | Error::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(Some(format!(
            "nothing is removed from store {name:?}: another leader of the federation, which could not notify this \
             one, has begun generation {} there ({next}) and may need the objects; stop this leader, and follow the \
             other",
            generation.saturating_add(1)
        ))),
    }
}

/// Puts the mark of a generation into a store that has none, after those of the generations before.
fn mark(
    store: &dyn Store,
    archive: &str,
    generation: u64,
    watch: &mut ByteWatch<'_>,
) -> Result<()> {
    match store.examine(&mark_of(archive, generation), 0, watch) {
        Ok(_) => return Ok(()),
        Err(Error::NoObject { .. } | Error::Denied { .. }) => {}
        Err(error) => return Err(error),
    }
    let cannot = |source| Error::Io { what: "cannot write a temporary file".to_owned(), source };
    let mut text = NamedTempFile::new().map_err(cannot)?;
    text.write_all(b"A generation of a Femtobarn federation has begun; leaders of earlier ones remove nothing here.\n")
        .map_err(cannot)?;
    for generation in generation.saturating_sub(EARLIER_MARKS).max(1)..=generation {
        store.put(&mark_of(archive, generation), text.path(), watch)?;
    }
    Ok(())
}

fn mark_of(archive: &str, generation: u64) -> String {
    format!("{archive}/generation-{generation}")
}
