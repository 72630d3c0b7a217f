//! Writers of ended transactions, retained for the next ones of this process, which then need not open and
//! read containers.
//!
//! Invariants:
//! 1. A retained container is one committed version. It is used only under the container's write lock, and
//!    only if the catalogue names this version as the newest in the same epoch of the database, in which no
//!    byte of it was moved; otherwise it is dropped. Everything else that may change, such as its name, is
//!    taken from the catalogue.
//! 2. Memory is bounded: at most 64 containers, and no buffers of containers that a large transaction wrote.
//! 3. A retained lock owner holds no locks.
//! 4. Reserved numbers are used by no other process.
//! 5. Names are only a guess: their users compare the rows that are read under the lock.

use std::collections::{HashMap, VecDeque};

use femtobarn_catalog::{
    Catalogue, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, LockOwner,
};
use parking_lot::Mutex;

use super::container::{ContainerKey, OpenContainer};
use super::numbers::NumberPool;
use crate::error::Result;

/// Retained containers, at most.
const CONTAINERS_MAX: usize = 64;
/// Bytes written by one transaction to a container beyond which its buffers are released.
const GROWN_BYTES_MAX: u64 = 256 << 10;
/// Retained lock owners, at most.
const OWNERS_MAX: usize = 8;
/// Remembered names of containers, at most; with one more, all are forgotten.
const NAMES_MAX: usize = 4096;

/// The state that one process retains between transactions.
#[derive(Default)]
pub(crate) struct WriterPool {
    /// Each with the epoch of its database; the least recently used first.
    containers: Mutex<VecDeque<(ContainerKey, u64, OpenContainer)>>,
    names: Mutex<LastNames>,
    owners: Mutex<Vec<LockOwner>>,
    database_numbers: NumberPool<DatabaseId>,
    container_numbers: NumberPool<ContainerId>,
}

/// The numbers of databases and containers by the names that they had when a transaction last wrote to them.
#[derive(Default)]
struct LastNames {
    databases: HashMap<String, DatabaseId>,
    containers: HashMap<DatabaseId, HashMap<String, ContainerId>>,
    count: usize,
}

impl WriterPool {
    /// Retains a container that was just committed, and releases its lock.
    pub(super) fn keep_container(
        &self,
        key: ContainerKey,
        database: &DatabaseRow,
        mut open: OpenContainer,
        grown: u64,
    ) {
        open.lock = None;
        self.learn_names(database, &open.row);
        if open.written.is_none() {
            return;
        }
        if grown > GROWN_BYTES_MAX {
            open.appender.release_memory();
        }
        let mut containers = self.containers.lock();
        containers.retain(|(kept, ..)| *kept != key);
        if containers.len() == CONTAINERS_MAX {
            containers.pop_front();
        }
        containers.push_back((key, database.epoch, open));
    }

    /// Takes a container out, if it was retained as of commit `base` in this epoch of its database.
    pub(super) fn take_container(
        &self,
        key: ContainerKey,
        base: Csn,
        epoch: u64,
    ) -> Option<OpenContainer> {
        let mut containers = self.containers.lock();
        let position = containers.iter().rposition(|(kept, ..)| *kept == key)?;
        let (_, of, open) = containers.remove(position)?;
        (open.base == Some(base) && of == epoch).then_some(open)
    }

    /// Remembers the names of a container and its database.
    pub(super) fn learn_names(&self, database: &DatabaseRow, container: &ContainerRow) {
        let mut names = self.names.lock();
        if names.container_named(database.id, &container.name) == Some(container.id)
            && names.databases.get(&database.name) == Some(&database.id)
        {
            return;
        }
        if names.count >= NAMES_MAX {
            *names = LastNames::default();
        }
        names.count += 1;
        names.databases.insert(database.name.clone(), database.id);
        let inside = names.containers.entry(database.id).or_default();
        inside.insert(container.name.clone(), container.id);
    }

    /// Forgets all names, because one of them was wrong.
    pub(super) fn forget_names(&self) {
        *self.names.lock() = LastNames::default();
    }

    /// The database that had a name when this process last wrote to it; it may have another one now.
    pub(super) fn database_named(&self, name: &str) -> Option<DatabaseId> {
        self.names.lock().databases.get(name).copied()
    }

    /// The container that had a name when this process last wrote to it; it may have another one now.
    pub(super) fn container_named(&self, database: DatabaseId, name: &str) -> Option<ContainerKey> {
        let container = self.names.lock().container_named(database, name)?;
        Some(ContainerKey { database, container })
    }

    pub(super) fn keep_owner(&self, owner: LockOwner) {
        let mut owners = self.owners.lock();
        if owners.len() < OWNERS_MAX && owner.is_reusable() {
            owners.push(owner);
        }
    }

    pub(super) fn take_owner(&self) -> Option<LockOwner> {
        // An owner created before a fork shares its locks with the parent.
        self.owners.lock().pop().filter(LockOwner::is_reusable)
    }

    /// A number for a new database, unique in the federation for ever.
    pub(super) fn next_database(&self, catalog: &dyn Catalogue) -> Result<DatabaseId> {
        self.database_numbers.next(|count| Ok(catalog.reserve_databases(count)?))
    }

    /// A number for a new container, unique in the federation for ever.
    pub(super) fn next_container(&self, catalog: &dyn Catalogue) -> Result<ContainerId> {
        self.container_numbers.next(|count| Ok(catalog.reserve_containers(count)?))
    }
}

impl LastNames {
    fn container_named(&self, database: DatabaseId, name: &str) -> Option<ContainerId> {
        self.containers.get(&database)?.get(name).copied()
    }
}
