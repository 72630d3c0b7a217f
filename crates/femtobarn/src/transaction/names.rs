//! Dropping and renaming databases and containers.
//!
//! Invariants:
//! 1. A dropped database or container stays in [`DroppedParts`] until the transaction ends, so that a
//!    rollback to a savepoint can restore it. The rest of the transaction does not see it.
//! 2. A name that this transaction freed can be reused by it at once, and by other transactions after its
//!    commit.

use std::collections::BTreeMap;

use femtobarn_catalog::{ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard};

use super::container::OpenContainer;
use super::{ContainerKey, OpenDatabase, Transaction};
use crate::description::DESCRIPTION;
use crate::error::{Error, Result};

/// The names that a transaction has changed, each with the head at that time.
#[derive(Clone, Default)]
pub(super) struct NameChanges {
    pub renamed_databases: BTreeMap<DatabaseId, (Csn, String)>,
    /// The flag: whether the file is kept, because it was attached.
    pub dropped_databases: BTreeMap<DatabaseId, (Csn, bool)>,
    /// The new names are in the open containers.
    pub renamed_containers: BTreeMap<ContainerKey, Csn>,
    pub dropped_containers: BTreeMap<ContainerKey, Csn>,
}

/// A database about to be dropped.
struct DatabaseToDrop {
    /// The head when the row was read.
    seen: Csn,
    row: DatabaseRow,
    /// The committed containers.
    containers: Vec<ContainerRow>,
    /// Its shared lock; `None` if it is open already.
    shared: Result<Option<LockGuard>>,
}

/// The databases and containers that a transaction dropped.
#[derive(Default)]
pub(super) struct DroppedParts {
    pub databases: BTreeMap<DatabaseId, OpenDatabase>,
    pub containers: BTreeMap<ContainerKey, OpenContainer>,
    /// Write locks of containers that were dropped without being opened.
    pub locks: BTreeMap<ContainerKey, LockGuard>,
}

impl Transaction {
    /// Drops a database with its containers. Vacuum removes its file once no snapshot needs it; an attached
    /// file stays. Links to its objects dangle.
    ///
    /// # Errors
    /// `NotFound`, with similar names; `Busy` if another transaction writes to it for longer than
    /// `lock_wait`; `Conflict` if it changed since the transaction's first read.
    pub fn drop_database(&mut self, name: &str) -> Result<()> {
        self.create_if_expected(name)?;
        let DatabaseToDrop { seen, row, containers, shared } = self.find_to_drop(name)?;
        self.note_head(seen);
        for container in containers {
            let key = ContainerKey { database: row.id, container: container.id };
            self.lock_to_drop(key)?;
            if self.snapshot.is_some() {
                let head = self.federation.catalog().version(row.id, container.id, Csn::MAX)?;
                let path = format!("{name}/{}", container.name);
                self.check_not_changed_since_read(head.map(|version| version.csn), &path)?;
            }
        }
        if row.state == DatabaseState::Open {
            // A database whose file is lost can be dropped, too; then no commit record reports it.
            match shared {
                Ok(Some(shared)) => drop(self.insert_database(row.clone(), shared)),
                Ok(None) => drop(self.open_database(row.id)),
                Err(_) => {}
            }
        }
        let is_inside = |key: &ContainerKey| key.database == row.id;
        self.dropped.containers.extend(self.containers.remove_database(row.id));
        self.dropped.databases.extend(self.databases.remove_entry(&row.id));
        let names = &mut self.names;
        names.renamed_containers.retain(|key, _| !is_inside(key));
        names.dropped_containers.retain(|key, _| !is_inside(key));
        names.renamed_databases.remove(&row.id);
        names.dropped_databases.insert(row.id, (seen, row.state == DatabaseState::Attached));
        Ok(())
    }

    /// Renames a database. Its file keeps its name.
    ///
    /// # Errors
    /// `NotFound`, with similar names; `Exists` if the new name is taken; `Invalid` if it is not a valid
    /// name.
    pub fn rename_database(&mut self, name: &str, new_name: &str) -> Result<()> {
        self.create_if_expected(name)?;
        self.create_if_expected(new_name)?;
        let row = self.database_row(name)?;
        femtobarn_catalog::check_database_name(new_name)?;
        if self.find_database(new_name)?.is_some() {
            return Err(Error::Exists { what: format!("database {new_name:?} already exists") });
        }
        let seen = self.federation.head()?;
        // A commit record states the new name of an open database; sealed and attached files get no records.
        if row.state == DatabaseState::Open {
            self.open_database(row.id)?.row.name = new_name.to_owned();
        }
        if !self.databases.get(&row.id).is_some_and(|open| open.is_new) {
            self.names.renamed_databases.insert(row.id, (seen, new_name.to_owned()));
        }
        Ok(())
    }

    /// Drops a container with its objects. Vacuum releases its bytes once no snapshot needs them. Links to
    /// its objects dangle.
    ///
    /// # Errors
    /// `NotFound`, with similar names; `Busy`, with the lock's holder, if another transaction writes it for
    /// longer than `lock_wait`; `Conflict` if it changed since the transaction's first read; `Closed` for a
    /// database that takes no changes.
    pub fn drop_container(&mut self, database: DatabaseId, name: &str) -> Result<()> {
        let key = self.resolve_container(database, name)?;
        self.open_database(database)?;
        self.lock_to_drop(key)?;
        let head = match self.containers.get(&key) {
            Some(open) => open.base,
            None => {
                let catalog = self.federation.catalog();
                catalog.version(database, key.container, Csn::MAX)?.map(|version| version.csn)
            }
        };
        self.check_not_changed_since_read(head, name)?;
        let seen = self.federation.head()?;
        self.dropped.containers.extend(self.containers.remove(&key).map(|open| (key, open)));
        self.names.renamed_containers.remove(&key);
        self.names.dropped_containers.insert(key, seen);
        Ok(())
    }

    /// Renames a container.
    ///
    /// # Errors
    /// The errors of [`drop_container`](Self::drop_container); `Exists` if the new name is taken; `Invalid` if it is
    /// not a valid name.
    pub fn rename_container(
        &mut self,
        database: DatabaseId,
        name: &str,
        new_name: &str,
    ) -> Result<ContainerKey> {
        check_container_name(new_name)?;
        if self.find_container(database, new_name)?.is_some() {
            return Err(Error::Exists { what: format!("container {new_name:?} already exists") });
        }
        let key = self.container(database, name)?;
        let seen = self.federation.head()?;
        self.containers.rename(key, new_name);
        if self.containers.get(&key).is_some_and(|open| !open.is_new) {
            self.names.renamed_containers.insert(key, seen);
        }
        Ok(key)
    }

    /// Finds and locks the database to drop.
    fn find_to_drop(&self, name: &str) -> Result<DatabaseToDrop> {
        self.check_open()?;
        let catalog = self.federation.catalog();
        if self.own_database(name).is_some() {
            let row = self.database_row(name)?;
            let (seen, containers) = match self.databases.get(&row.id) {
                Some(open) if open.is_new => (self.federation.head()?, vec![]),
                _ => {
                    let (seen, _, containers) = catalog.database_to_drop(row.id)?;
                    (seen, containers)
                }
            };
            return Ok(DatabaseToDrop { seen, row, containers, shared: Ok(None) });
        }
        // The database was usually looked up by this name just now. Another database may have the name by the
        // time the lock is held.
        let found = self.found.filter(|id| !self.has_renamed(*id));
        if let Some(id) = found
            && let Some(doomed) = self.find_to_drop_if_called(name, id)?
        {
            return Ok(doomed);
        }
        let id = self.database_row(name)?.id;
        let doomed = self.find_to_drop_if_called(name, id)?;
        doomed.ok_or_else(|| Error::Conflict {
            what: format!("database {name:?} was renamed or dropped meanwhile; retry"),
        })
    }

    /// Locks a database, then reads its row, which states the epoch to write in. `None` if it has another name or no
    /// longer exists.
    fn find_to_drop_if_called(&self, name: &str, id: DatabaseId) -> Result<Option<DatabaseToDrop>> {
        let shared = self.share_database(id);
        match self.federation.catalog().database_to_drop(id) {
            Ok((seen, row, containers)) => {
                let is_called = row.name == name;
                Ok(is_called.then_some(DatabaseToDrop { seen, row, containers, shared }))
            }
            Err(error) if error.kind() == femtobarn_catalog::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The row of the database that has a name in this transaction.
    fn database_row(&self, name: &str) -> Result<DatabaseRow> {
        self.check_open()?;
        let Some(id) = self.own_database(name) else {
            let row = self.federation.catalog().database(name, Csn::MAX)?;
            return if self.has_renamed(row.id) { Err(renamed_or_dropped(name)) } else { Ok(row) };
        };
        match self.databases.get(&id) {
            Some(open) => Ok(open.row.clone()),
            None => Ok(self.federation.catalog().database_by_id(id, Csn::MAX)?),
        }
    }

    /// The database that has a name in this transaction, if any.
    ///
    /// # Errors
    /// `Unavailable` if the catalogue's server does not answer; `Io` if the catalogue cannot be read.
    pub fn find_database(&self, name: &str) -> Result<Option<DatabaseId>> {
        Ok(self.find_named(name)?.0)
    }

    /// Like [`find_database`](Self::find_database); also remembers the head, which a new database's commit record
    /// needs.
    pub(super) fn look_for_database(&mut self, name: &str) -> Result<Option<DatabaseId>> {
        let (found, seen) = self.find_named(name)?;
        self.note_head(seen);
        Ok(found)
    }

    /// The database that has a name, and the head at the lookup; zero if the catalogue was not asked.
    fn find_named(&self, name: &str) -> Result<(Option<DatabaseId>, Csn)> {
        self.check_open()?;
        if let Some(id) = self.own_database(name) {
            return Ok((Some(id), Csn::ZERO));
        }
        let (known, seen) = self.federation.catalog().find_current_database(name)?;
        Ok((known.map(|row| row.id).filter(|id| !self.has_renamed(*id)), seen))
    }

    /// The database that this transaction has open or renamed to a name.
    pub(super) fn own_database(&self, name: &str) -> Option<DatabaseId> {
        let mut renamed = self.names.renamed_databases.iter();
        let renamed = renamed.find(|(_, (_, given))| given == name).map(|(id, _)| *id);
        let open = || self.databases.values().find(|open| open.row.name == name);
        renamed.or_else(|| open().map(|open| open.row.id))
    }

    /// Whether the catalogue's name of a database is out of date in this transaction.
    pub(super) fn has_renamed(&self, id: DatabaseId) -> bool {
        self.names.dropped_databases.contains_key(&id)
            || self.names.renamed_databases.contains_key(&id)
    }

    /// Whether the catalogue's name of a container is out of date in this transaction.
    pub(super) fn has_renamed_container(&self, key: ContainerKey) -> bool {
        self.names.dropped_databases.contains_key(&key.database)
            || self.names.dropped_containers.contains_key(&key)
            || self.names.renamed_containers.contains_key(&key)
    }

    /// The container that has a name in this transaction, if any.
    ///
    /// # Errors
    /// `Unavailable` if the catalogue's server does not answer; `Io` if the catalogue cannot be read.
    pub fn find_container(&self, database: DatabaseId, name: &str) -> Result<Option<ContainerKey>> {
        self.check_open()?;
        if let Some(key) = self.containers.named(database, name) {
            return Ok(Some(key));
        }
        // No other transaction can add containers to a database that this one created.
        if self.databases.get(&database).is_some_and(|open| open.is_new) {
            return Ok(None);
        }
        let known = self.federation.catalog().find_container(database, name, Csn::MAX)?;
        let known = known.map(|row| ContainerKey { database, container: row.id });
        Ok(known.filter(|key| !self.has_renamed_container(*key)))
    }

    /// Like [`find_container`](Self::find_container); a missing container is an error.
    pub(super) fn resolve_container(
        &self,
        database: DatabaseId,
        name: &str,
    ) -> Result<ContainerKey> {
        if let Some(key) = self.find_container(database, name)? {
            return Ok(key);
        }
        // The catalogue's error lists similar names.
        self.federation.catalog().container(database, name, Csn::MAX)?;
        Err(Error::NotFound {
            what: format!("container {name:?} was renamed or dropped by this transaction"),
        })
    }

    /// Takes a container's write lock, unless this transaction holds it.
    fn lock_to_drop(&mut self, key: ContainerKey) -> Result<()> {
        let is_locked = self.containers.contains_key(&key)
            || self.dropped.containers.contains_key(&key)
            || self.dropped.locks.contains_key(&key);
        if !is_locked {
            let wait = self.options.lock_wait;
            let lock = self.owner.lock_container(key.database, key.container, wait)?;
            self.dropped.locks.insert(key, lock);
        }
        Ok(())
    }

    /// Restores databases and containers that were dropped since `names` was saved.
    pub(super) fn restore_dropped(&mut self, names: &NameChanges) {
        let is_back = |id: &DatabaseId| !names.dropped_databases.contains_key(id);
        let is_here = |key: &ContainerKey| {
            is_back(&key.database) && !names.dropped_containers.contains_key(key)
        };
        self.databases.extend(self.dropped.databases.extract(is_back));
        self.containers.extend(self.dropped.containers.extract(is_here));
        self.names = names.clone();
    }
}

pub(super) fn renamed_or_dropped(name: &str) -> Error {
    Error::NotFound {
        what: format!("database {name:?} was renamed or dropped by this transaction"),
    }
}

/// Checks the name of a new container.
pub(super) fn check_container_name(name: &str) -> Result<()> {
    femtobarn_catalog::check_container_name(name)?;
    if name == DESCRIPTION {
        Err(Error::invalid(format!("invalid container name {name:?}: reserved by Femtobarn")))
    } else {
        Ok(())
    }
}

/// Removing entries from a map.
pub(super) trait Extract<K, V> {
    /// Removes and returns the entries whose keys satisfy `is_it`.
    fn extract(&mut self, is_it: impl Fn(&K) -> bool) -> BTreeMap<K, V>;
}

impl<K: Ord, V> Extract<K, V> for BTreeMap<K, V> {
    fn extract(&mut self, is_it: impl Fn(&K) -> bool) -> BTreeMap<K, V> {
        let (out, rest) = std::mem::take(self).into_iter().partition(|(key, _)| is_it(key));
        *self = rest;
        out
    }
}
