//! Savepoints: going back within a transaction, without giving it up.
//!
//! A savepoint writes every open container as a version that nobody can find, and goes back by going
//! on from there.

use std::collections::BTreeMap;

use femtobarn_catalog::DatabaseId;
use uuid::Uuid;

use super::open::State;
use super::{ContainerKey, Transaction, unopened};
use crate::error::{Error, Result};
use crate::file;
use crate::view::Source;

/// A moment within a transaction that it can go back to.
pub struct Savepoint {
    transaction: Uuid,
    number: u64,
    databases: Vec<DatabaseId>,
    containers: BTreeMap<ContainerKey, State>,
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
        Ok(Savepoint {
            transaction: self.id,
            number,
            databases: self.databases.keys().copied().collect(),
            containers,
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
        self.containers.retain(|key, open| savepoint.containers.contains_key(key) || !open.is_new);
        for (key, open) in &mut self.containers {
            let state = savepoint.containers.get(key).or(open.opened.as_ref()).cloned();
            let database = self.databases.get(&key.database).ok_or_else(unopened)?;
            let what = format!("container {}/{}", database.row.name, open.row.name);
            let source = Source(database.extents.file().clone());
            open.restore(state.ok_or_else(unopened)?, source, &what)?;
        }
        let is_undone = |id: &DatabaseId| !savepoint.databases.contains(id);
        let undone: Vec<_> =
            self.databases.extract_if(.., |id, open| open.is_new && is_undone(id)).collect();
        for (_, open) in undone {
            // A file that cannot be removed is unknown to the catalogue and only takes space.
            drop(file::remove(&open.extents.file().path));
        }
        Ok(())
    }
}
