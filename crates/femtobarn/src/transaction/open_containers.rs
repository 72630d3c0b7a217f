//! The containers that a transaction has open, by key and by name.
//!
//! 1. A container is found by its name in this transaction at a cost that does not depend on how many are open.
//! 2. Names follow insertions, removals and [`rename`](OpenContainers::rename). After other changes of names, such as a
//!    rollback, [`learn_names`](OpenContainers::learn_names) reads them anew.
//! 3. Of two containers with one name, which the commit refuses, the one that had it first is found.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Index};

use femtobarn_catalog::DatabaseId;

use super::container::{ContainerKey, OpenContainer};

/// Open containers.
#[derive(Default)]
pub(super) struct OpenContainers {
    by_key: BTreeMap<ContainerKey, OpenContainer>,
    names: HashMap<DatabaseId, HashMap<String, ContainerKey>>,
}

impl OpenContainers {
    /// The container that has a name in a database.
    pub(super) fn named(&self, database: DatabaseId, name: &str) -> Option<ContainerKey> {
        self.names.get(&database)?.get(name).copied()
    }

    pub(super) fn insert(&mut self, key: ContainerKey, open: OpenContainer) {
        self.learn_name(key, open.row.name.clone());
        self.by_key.insert(key, open);
    }

    pub(super) fn remove(&mut self, key: &ContainerKey) -> Option<OpenContainer> {
        let open = self.by_key.remove(key)?;
        self.forget_name(*key, &open.row.name);
        Some(open)
    }

    /// Removes and returns the containers of a database.
    pub(super) fn remove_database(
        &mut self,
        database: DatabaseId,
    ) -> BTreeMap<ContainerKey, OpenContainer> {
        self.names.remove(&database);
        super::names::Extract::extract(&mut self.by_key, |key| key.database == database)
    }

    /// Gives an open container another name, which no other one has.
    pub(super) fn rename(&mut self, key: ContainerKey, name: &str) {
        let Some(open) = self.by_key.get_mut(&key) else { return };
        let old = std::mem::replace(&mut open.row.name, name.to_owned());
        self.forget_name(key, &old);
        self.learn_name(key, name.to_owned());
    }

    /// Reads the names of all containers anew.
    pub(super) fn learn_names(&mut self) {
        self.names.clear();
        let names: Vec<_> =
            self.by_key.iter().map(|(key, open)| (*key, open.row.name.clone())).collect();
        names.into_iter().for_each(|(key, name)| self.learn_name(key, name));
    }

    pub(super) fn get_mut(&mut self, key: &ContainerKey) -> Option<&mut OpenContainer> {
        self.by_key.get_mut(key)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&ContainerKey, &mut OpenContainer)> {
        self.by_key.iter_mut()
    }

    /// Leaves the containers that satisfy `is_it`. Names are to be learned afterwards.
    pub(super) fn retain(&mut self, is_it: impl Fn(&ContainerKey, &OpenContainer) -> bool) {
        self.by_key.retain(|key, open| is_it(key, open));
    }

    /// Adds containers. Names are to be learned afterwards.
    pub(super) fn extend(&mut self, more: impl IntoIterator<Item = (ContainerKey, OpenContainer)>) {
        self.by_key.extend(more);
    }

    pub(super) fn into_map(self) -> BTreeMap<ContainerKey, OpenContainer> {
        self.by_key
    }

    fn learn_name(&mut self, key: ContainerKey, name: String) {
        self.names.entry(key.database).or_default().entry(name).or_insert(key);
    }

    fn forget_name(&mut self, key: ContainerKey, name: &str) {
        let Some(names) = self.names.get_mut(&key.database) else { return };
        if names.get(name) == Some(&key) {
            names.remove(name);
        }
    }
}

impl Deref for OpenContainers {
    type Target = BTreeMap<ContainerKey, OpenContainer>;

    fn deref(&self) -> &Self::Target {
        &self.by_key
    }
}

impl Index<&ContainerKey> for OpenContainers {
    type Output = OpenContainer;

    fn index(&self, key: &ContainerKey) -> &OpenContainer {
        &self.by_key[key]
    }
}
