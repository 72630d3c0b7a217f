//! The indexes of the containers that a transaction writes to.

use super::{ContainerKey, Transaction, unopened};
use crate::annex::IndexState;
use crate::error::Result;
use crate::read::index;

impl Transaction {
    /// Creates an index over the present and future objects of a container. Its key consists of the values of
    /// `fields`: numbers, booleans, strings and links, at the top or in records, such as `run` or
    /// `header.run`. A field within a list, such as `tracks.id`, gives an object one key per item. With
    /// `unique`, a commit fails if two objects would have the same key.
    ///
    /// # Errors
    /// `Exists` if the container has an index of that name; `NotFound` for an unknown field; `Invalid` if the
    /// fields cannot be a key. A later commit or read of the container fails with `Exists` if keys of a
    /// unique index are not unique.
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
        let new = IndexState { name: name.to_owned(), fields, unique, runs: vec![] };
        index::create(&mut open.annex.indexes, &mut open.indexing, &open.class, new)?;
        open.touch();
        Ok(())
    }

    /// Drops an index of a container; older snapshots keep it.
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
