//! Savepoints: partial rollback within a transaction.
//!
//! A savepoint writes a version of every open container that is not in the catalogue; a rollback continues
//! from it.

use std::collections::BTreeMap;

use femtobarn_catalog::{Csn, DatabaseId};
use uuid::Uuid;

use super::container::ContainerState;
use super::names::{Extract, NameChanges};
use super::receipt::Forks;
use super::{ContainerKey, OpenDatabase, Transaction, unopened};
use crate::error::{Error, Result};

/// A state of a transaction that it can return to.
pub struct Savepoint {
    transaction: Uuid,
    number: u64,
    /// Names of the open databases.
    databases: BTreeMap<DatabaseId, String>,
    containers: BTreeMap<ContainerKey, ContainerState>,
    names: NameChanges,
    new_classes: usize,
    forks: Forks,
}

impl Transaction {
    /// Saves the state of the transaction.
    ///
    /// # Errors
    /// `Io` or `Full` if pending changes cannot be written.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        self.check_open()?;
        self.create_expected()?;
        let mut containers = BTreeMap::new();
        for (key, open) in self.containers.iter_mut() {
            let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
            let what = format!("container {}/{}", database.row.name, open.row.name);
            containers.insert(*key, open.save(&mut database.extents, &what)?);
        }
        let number = self.savepoints_made;
        self.savepoints_made += 1;
        self.savepoints.push(number);
        let name = |(id, open): (&DatabaseId, &OpenDatabase)| (*id, open.row.name.clone());
        Ok(Savepoint {
            transaction: self.id,
            number,
            databases: self.databases.iter().map(name).collect(),
            containers,
            names: self.names.clone(),
            new_classes: self.new_classes.len(),
            forks: self.forks.clone(),
        })
    }

    /// Undoes all changes since a savepoint. The savepoint stays valid; later ones end. Locks taken since are
    /// kept, except those of containers and databases created since.
    ///
    /// # Errors
    /// `Invalid` if the savepoint belongs to another transaction, or has ended with an earlier rollback or a
    /// checkpoint; `Io` if the file cannot be read, and then the transaction has ended.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.check_open()?;
        let is_known =
            savepoint.transaction == self.id && self.savepoints.contains(&savepoint.number);
        if !is_known {
            return Err(Error::invalid(
                "invalid savepoint: it belongs to another transaction, or ended with a commit or a \
                 rollback to an earlier one",
            ));
        }
        self.savepoints.retain(|number| *number <= savepoint.number);
        self.new_classes.truncate(savepoint.new_classes);
        self.expected.clear();
        let restored = self.restore(savepoint);
        if restored.is_err() {
            self.close(false);
        }
        restored
    }

    fn restore(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.restore_dropped(&savepoint.names);
        self.forks.clone_from(&savepoint.forks);
        self.containers.retain(|key, open| savepoint.containers.contains_key(key) || !open.is_new);
        for (key, open) in self.containers.iter_mut() {
            let state = savepoint.containers.get(key).or(open.opened.as_ref()).cloned();
            let database = self.databases.get(&key.database).ok_or_else(unopened)?;
            let what = format!("container {}/{}", database.row.name, open.row.name);
            let source = database.extents.file().clone();
            open.restore(state.ok_or_else(unopened)?, source, &what)?;
        }
        self.containers.learn_names();
        let is_undone = |id: &DatabaseId| !savepoint.databases.contains_key(id);
        for (id, mut open) in self.databases.extract(is_undone) {
            if open.is_new {
                self.release_database(open, false)
            } else {
                // The transaction keeps its lock and extents, but not its new name.
                open.row.name = self.federation.catalog().database_by_id(id, Csn::MAX)?.name;
                self.databases.insert(id, open);
            }
        }
        for (id, name) in &savepoint.databases {
            if let Some(open) = self.databases.get_mut(id) {
                open.row.name.clone_from(name);
            }
        }
        Ok(())
    }
}
