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

use femtobarn_catalog::{Catalogue, ContainerId, Csn, DatabaseId, LockOwner};
use parking_lot::Mutex;

use super::container::{ContainerKey, OpenContainer};
use super::numbers::NumberPool;
use crate::error::Result;

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
    database_numbers: NumberPool<DatabaseId>,
    container_numbers: NumberPool<ContainerId>,
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
        let mut containers = self.containers.lock();
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
        let mut containers = self.containers.lock();
        let position = containers.iter().rposition(|(kept, ..)| *kept == key)?;
        let (_, of, open) = containers.remove(position)?;
        (open.base == Some(base) && of == epoch).then_some(open)
    }

    /// The container that had a name when it was kept; it may have another one now.
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
        // One from before a fork shares its locks with the parent.
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
