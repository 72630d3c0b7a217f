//! Deleting objects.

use femtobarn_catalog::Oid;

use super::{ContainerKey, Transaction, unopened};
use crate::error::{Error, Result};
use crate::read::view::deleted;

impl Transaction {
    /// Deletes the objects at `entries`, which may include objects appended by this transaction. An entry is
    /// never given to another object. Returns how many objects were deleted.
    ///
    /// # Errors
    /// `NotFound` for an entry that does not exist or is deleted; `Invalid` for a duplicate entry; `Conflict`
    /// if the container changed since the transaction's first read. Then nothing is deleted.
    pub fn delete(&mut self, key: ContainerKey, entries: &[u64]) -> Result<u64> {
        self.check_entries(key, entries)?;
        let writer = self.writer(key)?;
        let source = writer.database.extents.file().clone();
        for &entry in entries {
            writer.container.deletions.insert(&source, entry)?;
        }
        if !entries.is_empty() {
            writer.container.touch();
        }
        Ok(entries.len() as u64)
    }

    /// Checks that objects can be changed: each exists, is named once, and has not changed since the
    /// transaction read it.
    ///
    /// # Errors
    /// The errors of [`delete`](Self::delete).
    pub fn check_entries(&self, key: ContainerKey, entries: &[u64]) -> Result<()> {
        self.check_open()?;
        let container = self.containers.get(&key).ok_or_else(unopened)?;
        let database = self.databases.get(&key.database).ok_or_else(unopened)?;
        let path = format!("{}/{}", database.row.name, container.row.name);
        self.check_unchanged(container, &path)?;
        let source = database.extents.file().clone();
        let end = container.appender.entries();
        for &entry in entries {
            if entry >= end {
                return Err(Error::NotFound {
                    what: format!("{path} has no entry {entry}: its entries are 0..{end}"),
                });
            }
            if container.deletions.contains(&source, entry)? {
                return Err(deleted(Oid::new(key.database, key.container, entry), &path));
            }
        }
        let mut sorted = entries.to_vec();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::invalid(format!("duplicate entry {} of {path}", pair[0]))),
            None => Ok(()),
        }
    }
}
