//! The indexes and statistics of the containers that a transaction writes to.

use rntuple::{EnvelopeLink, Reader};

use super::open::OpenContainer;
use super::{ContainerKey, Transaction, unopened};
use crate::error::{Error, Result};
use crate::read::index::{self, Indexed, Pending};
use crate::read::statistics;
use crate::storage::extent::ExtentWriter;

impl Transaction {
    /// Makes an index of a container, over the objects that are there and all that will be. Its key is
    /// made of the values of `fields`: numbers, truth values, texts and links, at the top or in
    /// records, such as `run` or `header.run`. If they lie in a list, such as `tracks.id`, an object has
    /// a key for each item. `unique` makes every commit fail that would leave two objects with the same
    /// key.
    ///
    /// # Errors
    /// `Exists` if the container has an index of that name; `NotFound` if there is no such field;
    /// `Invalid` if the fields make no key. When the transaction commits or reads the container, `Exists`
    /// if the index is to be unique and keys are not.
    pub fn create_index(
        &mut self,
        key: ContainerKey,
        name: &str,
        fields: &[impl AsRef<str>],
        unique: bool,
    ) -> Result<()> {
        self.check_open()?;
        let open = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let fields = fields.iter().map(|field| field.as_ref().to_owned()).collect();
        let definition = (name, fields, unique);
        index::create(&mut open.annex.indexes, &mut open.indexing, &open.class, definition)?;
        open.touch();
        Ok(())
    }

    /// Takes an index away from a container; older snapshots keep it.
    ///
    /// # Errors
    /// `NotFound` if the container has no index of that name.
    pub fn drop_index(&mut self, key: ContainerKey, name: &str) -> Result<()> {
        self.check_open()?;
        let open = self.containers.get_mut(&key).ok_or_else(unopened)?;
        index::remove(&mut open.annex.indexes, &mut open.indexing, name)?;
        open.touch();
        Ok(())
    }
}

impl OpenContainer {
    /// Writes what is known of clusters.
    pub(super) fn keep_up_statistics(&mut self, extents: &mut ExtentWriter) -> Result<()> {
        let source = extents.file().clone();
        let paths = self.appender.column_paths();
        let runs = &mut self.annex.statistics;
        let size_before = statistics::size(runs);
        statistics::append(runs, &self.summaries, &paths, &source, extents)?;
        self.bytes = (self.bytes + statistics::size(runs)).saturating_sub(size_before);
        self.summaries.clear();
        Ok(())
    }

    /// Brings the indexes up to a version that was just written.
    pub(super) fn keep_up_indexes(
        &mut self,
        extents: &mut ExtentWriter,
        footer: &EnvelopeLink,
        what: &str,
    ) -> Result<()> {
        if self.annex.indexes.is_empty() {
            self.indexing = Pending::from(self.appender.entries());
            return Ok(());
        }
        extents.flush()?;
        let source = extents.file().clone();
        let reader = Reader::from_links(source.clone(), &self.header, footer);
        let deletions = &self.deletions;
        let indexed = Indexed {
            what,
            class: &self.class,
            reader: &reader.map_err(Error::storage(what))?,
            is_deleted: &|entry| Ok(deletions.contains(&*source, entry)?),
            source: &*source,
        };
        let size_before = index::size(&self.annex.indexes);
        indexed.keep_up(&mut self.annex.indexes, &mut self.indexing, extents)?;
        let size = index::size(&self.annex.indexes);
        self.bytes = (self.bytes + size).saturating_sub(size_before);
        Ok(())
    }
}
