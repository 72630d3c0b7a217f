//! Savepoints: going back within a transaction, without giving it up.
//!
//! A savepoint writes every open container as a version that nobody can find, and goes back by going
//! on from there.

use std::collections::BTreeMap;

use femtobarn_catalog::{Csn, DatabaseId};
use uuid::Uuid;

use super::container::ContainerState;
use super::names::{Extract, NameChanges};
use super::{ContainerKey, OpenDatabase, Transaction, unopened};
use crate::error::{Error, Result};

/// A moment within a transaction that it can go back to.
pub struct Savepoint {
    transaction: Uuid,
    number: u64,
    /// The open databases with their names.
    databases: BTreeMap<DatabaseId, String>,
    containers: BTreeMap<ContainerKey, ContainerState>,
    names: NameChanges,
    new_classes: usize,
}

impl Transaction {
    /// Remembers everything as it is now.
    ///
    /// # Errors
    /// As the disk.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        self.check_open()?;
        let mut containers = BTreeMap::new();
        for (key, open) in &mut self.containers {
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
        })
    }

    /// Undoes everything since a savepoint, which can be gone back to again; later ones cannot.
    /// Locks that were taken since are kept, except those of what was created.
    ///
    /// # Errors
    /// `Invalid` if the savepoint is of another transaction, or was made before one that was gone
    /// back to or before a checkpoint; as the disk, and then the transaction is over.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.check_open()?;
        let is_known =
            savepoint.transaction == self.id && self.savepoints.contains(&savepoint.number);
        if !is_known {
            return Err(Error::invalid(
                "this savepoint cannot be gone back to: the transaction is another one, has been \
                 committed since, or has gone back to an earlier one",
            ));
        }
        self.savepoints.retain(|number| *number <= savepoint.number);
        self.new_classes.truncate(savepoint.new_classes);
        let restored = self.restore(savepoint);
        if restored.is_err() {
            self.close(false);
        }
        restored
    }

    fn restore(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.restore_dropped(&savepoint.names);
        self.containers.retain(|key, open| savepoint.containers.contains_key(key) || !open.is_new);
        for (key, open) in &mut self.containers {
            let state = savepoint.containers.get(key).or(open.opened.as_ref()).cloned();
            let database = self.databases.get(&key.database).ok_or_else(unopened)?;
            let what = format!("container {}/{}", database.row.name, open.row.name);
            let source = database.extents.file().clone();
            open.restore(state.ok_or_else(unopened)?, source, &what)?;
        }
        let is_undone = |id: &DatabaseId| !savepoint.databases.contains_key(id);
        for (id, mut open) in self.databases.extract(is_undone) {
            if open.is_new {
                self.release_database(id, open, false)
            } else {
                // Its lock and its extents stay with the transaction, its name does not.
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
