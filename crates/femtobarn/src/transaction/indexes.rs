//! The indexes and statistics of the containers that a transaction writes to.

use super::{ContainerKey, Transaction, unopened};
use crate::annex::IndexState;
use crate::error::Result;
use crate::read::index;

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
        let new = IndexState { name: name.to_owned(), fields, unique, runs: vec![] };
        index::create(&mut open.annex.indexes, &mut open.indexing, &open.class, new)?;
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
