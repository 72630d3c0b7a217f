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

use std::collections::VecDeque;

use femtobarn_catalog::{Catalogue, ContainerId, Csn, DatabaseId, LockOwner};
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

/// What one process retains between transactions.
#[derive(Default)]
pub(crate) struct WriterPool {
    /// Each with the epoch of its database; the least recently used first.
    containers: Mutex<VecDeque<(ContainerKey, u64, OpenContainer)>>,
    owners: Mutex<Vec<LockOwner>>,
    database_numbers: NumberPool<DatabaseId>,
    container_numbers: NumberPool<ContainerId>,
}

impl WriterPool {
    /// Retains a container that was just committed, and releases its lock.
    pub(super) fn keep_container(
        &self,
        key: ContainerKey,
        epoch: u64,
        mut open: OpenContainer,
        grown: u64,
    ) {
        open.lock = None;
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
        containers.push_back((key, epoch, open));
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

    /// The container that had a name when it was retained; it may have another one now.
    pub(super) fn container_named(&self, database: DatabaseId, name: &str) -> Option<ContainerKey> {
        let containers = self.containers.lock();
        let mut kept = containers.iter().rev().filter(|(key, ..)| key.database == database);
        kept.find(|(.., open)| open.row.name == name).map(|(key, ..)| *key)
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
