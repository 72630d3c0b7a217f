//! Locks between writers: politeness, so that nobody works in vain.
//!
//! Where the federation's folder is, locks are byte ranges of small files in the federation's `locks` folder, locked in the kernel
//! for an *open file description*. They cost a few microseconds and no server. Most are *slots* of
//! 64 bytes: who holds a slot has locked its first 16 bytes, who waits one of the 16 from byte 32.
//! Elsewhere a server keeps them, on lease ([`LeasedLocks`]).
//!
//! | file | slot or byte | locks |
//! |---|---|---|
//! | `locks/<database id>` | slot 0 | the allocation of space in the database's file |
//! | `locks/<database id>` | slot 1 | the database: shared by transactions, or by one alone |
//! | `locks/<database id>` | slot: container id + 1 | a container, for the transaction that writes it |
//! | `locks/maintenance` | slot 0 | the federation: shared by backups, or by one vacuum alone |
//! | `locks/snapshots` | the byte at a CSN | shared: somebody reads that snapshot |
//! | `locks/commit` | slots 0 and 1 | the turn to commit |
//! | `locks/commit` | slot 2 | making the catalogue's log durable, for all who wait |
//! | `locks/waits/*` | byte 0 | somebody waits for what the file says |
//!
//! Invariants:
//! 1. Safety never rests on a lock of a container: the version check of the commit does that.
//! 2. When a process dies, the kernel frees its locks. There is nothing to clean up.
//! 3. Every [`LockOwner`] has an open file description of its own, so two transactions of the same
//!    process exclude each other as two processes do.
//! 4. The 64 bytes of a slot name who holds it alone, for the others' error messages. They are
//!    written after the lock is taken and wiped before it is freed; they mean nothing while the
//!    slot is not locked.
//!
//! A guard must not be used after a fork. The child shares the open file description: its copy of
//! the guard neither frees the lock when dropped, nor keeps it once the parent has freed it, but
//! if the parent is killed the lock stays until the child's copy is closed. Pins are the exception.
//!
//! Lock order: maintenance, databases, containers (all with a time-out, so any order will do), then
//! allocation, then the turn to commit, then the sync of the log. Nobody who holds a later one waits
//! for an earlier one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::ids::{ContainerId, DatabaseId};
use crate::local::{LOCKS_FOLDER, Labels};

mod file;
mod holder;
mod kernel;
mod leased;
mod monitor;
mod order;
mod owner;
mod pins;
mod progress;
mod target;
mod wait;

pub use file::Kind as LockKind;
pub use holder::Holder;
pub use leased::{LeasedLocks, LeasedPins};
pub use monitor::{HeldLock, Waiter};
pub(crate) use order::CommitOrder;
pub use owner::{LockGuard, LockOwner};
pub use pins::{PinGuard, SnapshotPins};
pub(crate) use progress::{LogProgress, Numbers as LogNumbers};
pub use target::LockTarget;

/// Bytes of a slot, which are those of the record of who holds it.
pub(crate) const SLOT_BYTES: u64 = 64;
/// The slot of the allocation lock. It and the next are in front, so that lock files stay short.
const ALLOCATION_SLOT: u64 = 0;
/// The slot of the lock of a whole database.
const DATABASE_SLOT: u64 = 1;
/// The slot of container 1, the first that there can be.
const FIRST_CONTAINER_SLOT: u64 = 2;
/// The slot behind those of all containers that there can be.
const SLOTS_END: u64 = FIRST_CONTAINER_SLOT + u32::MAX as u64;
/// The lock file of maintenance, beside those of databases.
const MAINTENANCE_FILE: &str = "maintenance";
/// The folder of those who wait, in that of the locks.
const WAITS_FOLDER: &str = "waits";

/// The locks of one federation.
#[derive(Clone, Debug)]
pub struct LockTable {
    keeper: Keeper,
}

#[derive(Clone, Debug)]
enum Keeper {
    /// With the folder of the lock files, and what knows names for errors.
    Kernel(PathBuf, Option<Labels>),
    Leased(Arc<dyn LeasedLocks>),
}

impl LockTable {
    /// The locks of the federation in `federation`; errors tell numbers, where those of a catalogue tell names.
    pub fn new(federation: &Path) -> Self {
        LockTable { keeper: Keeper::Kernel(federation.join(LOCKS_FOLDER), None) }
    }

    /// The locks of the federation in `federation`, told of by names.
    pub(crate) fn named(federation: &Path, labels: Labels) -> Self {
        LockTable { keeper: Keeper::Kernel(federation.join(LOCKS_FOLDER), Some(labels)) }
    }

    /// Locks that somebody else keeps.
    pub fn on_lease(locks: Arc<dyn LeasedLocks>) -> Self {
        LockTable { keeper: Keeper::Leased(locks) }
    }

    /// A new owner, for one transaction.
    pub fn owner(&self) -> LockOwner {
        match &self.keeper {
            Keeper::Kernel(folder, labels) => LockOwner::in_kernel(folder.clone(), labels.clone()),
            Keeper::Leased(locks) => LockOwner::on_lease(locks),
        }
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// Each call is an owner of its own, so locking one container twice waits in vain.
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.owner().lock_container(database, container, wait)
    }

    /// Locks the allocation of space in a database's file, waiting as long as it takes.
    ///
    /// It is held only while a file is extended.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        self.owner().lock_allocation(database)
    }

    /// Who holds a container at the moment, for tools that list locks.
    pub fn holder(&self, database: DatabaseId, container: ContainerId) -> Result<Option<Holder>> {
        let target = LockTarget::Container(database, container);
        match &self.keeper {
            Keeper::Kernel(folder, _) => monitor::holder(folder, &target),
            Keeper::Leased(locks) => locks.holder(target),
        }
    }

    /// All locks that are held at the moment, by database and container.
    pub fn held(&self) -> Result<Vec<HeldLock>> {
        match &self.keeper {
            Keeper::Kernel(folder, _) => monitor::held(folder),
            Keeper::Leased(locks) => locks.held(),
        }
    }

    /// All who have been waiting for a lock for more than some milliseconds, the longest first.
    pub fn waiting(&self) -> Result<Vec<Waiter>> {
        match &self.keeper {
            Keeper::Kernel(folder, _) => monitor::waiting(folder),
            Keeper::Leased(locks) => locks.waiting(),
        }
    }
}
