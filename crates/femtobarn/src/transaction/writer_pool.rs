//! What transactions leave to the next ones of the same process, so that those need not open and read it
//! again.
//!
//! Invariants:
//! 1. A kept container is one version, as it was committed. It is used only by who has locked the
//!    container and found in the catalogue that this version is still the newest, in the same epoch of the
//!    database, in which nothing of it was moved; otherwise it is forgotten. All else that may change, such as its name, comes from the catalogue.
//! 2. Little memory is kept: few containers, and no buffers of those that a large transaction wrote.
//! 3. A kept owner of locks holds none.
//! 4. Numbers that were reserved and not given yet are nobody else's.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{ContainerId, Csn, DatabaseId, LockOwner};

use super::ContainerKey;
use super::numbers::Numbers;
use super::open::OpenContainer;
use crate::error::Result;
use crate::federation::Federation;

/// Containers that are kept.
const CONTAINERS_MAX: usize = 64;
/// Bytes that a transaction writes to a container from which on its buffers are not kept.
const GROWN_BYTES_MAX: u64 = 256 << 10;
/// Owners of locks that are kept.
const OWNERS_MAX: usize = 8;

/// What is kept.
#[derive(Default)]
pub(crate) struct WriterPool {
    /// Each with the epoch of its database. The one that was used last is the last.
    containers: Mutex<VecDeque<(ContainerKey, u64, OpenContainer)>>,
    owners: Mutex<Vec<LockOwner>>,
    databases: Numbers<DatabaseId>,
    containers_to_come: Numbers<ContainerId>,
}

impl WriterPool {
    /// Keeps a container that was committed just now, and frees its lock.
    pub(super) fn keep_container(
        &self,
        (key, epoch): (ContainerKey, u64),
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
        let mut containers = lock(&self.containers);
        containers.retain(|(kept, ..)| *kept != key);
        if containers.len() == CONTAINERS_MAX {
            containers.pop_front();
        }
        containers.push_back((key, epoch, open));
    }

    /// A container, if it was kept as of the commit `base` in an epoch of its database.
    pub(super) fn take_container(
        &self,
        key: ContainerKey,
        base: Csn,
        epoch: u64,
    ) -> Option<OpenContainer> {
        let mut containers = lock(&self.containers);
        let position = containers.iter().rposition(|(kept, ..)| *kept == key)?;
        let (_, of, open) = containers.remove(position)?;
        (open.base == Some(base) && of == epoch).then_some(open)
    }

    /// The container that had a name when it was kept; it may have another one now.
    pub(super) fn container_named(&self, database: DatabaseId, name: &str) -> Option<ContainerKey> {
        let containers = lock(&self.containers);
        let mut kept = containers.iter().rev().filter(|(key, ..)| key.database == database);
        kept.find(|(.., open)| open.row.name == name).map(|(key, ..)| *key)
    }

    pub(super) fn keep_owner(&self, owner: LockOwner) {
        let mut owners = lock(&self.owners);
        if owners.len() < OWNERS_MAX && owner.is_reusable() {
            owners.push(owner);
        }
    }

    pub(super) fn take_owner(&self) -> Option<LockOwner> {
        // One from before a fork shares its locks with the parent.
        lock(&self.owners).pop().filter(LockOwner::is_reusable)
    }
}

impl Federation {
    /// A number for a new database, which nobody had before.
    pub(super) fn new_database_number(&self) -> Result<DatabaseId> {
        let reserve = |count| Ok(self.catalog().reserve_databases(count)?);
        self.inner.writers.databases.next(reserve)
    }

    /// A number for a new container, which nobody had before.
    pub(super) fn new_container_number(&self) -> Result<ContainerId> {
        let reserve = |count| Ok(self.catalog().reserve_containers(count)?);
        self.inner.writers.containers_to_come.next(reserve)
    }
}

/// What is kept is whole whatever happened to a thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
