//! Owners of locks, and the guards that hold them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::file::Kind;
use super::kernel::{KernelGuard, KernelOwner};
use super::leased::{LeasedGuard, LeasedLocks, LeasedOwner};
use super::target::LockTarget;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, DatabaseId};
use crate::local::Labels;

/// One transaction's share of the locks: it never excludes itself.
#[derive(Debug)]
pub struct LockOwner {
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    Kernel(KernelOwner),
    Leased(LeasedOwner),
}

/// A lock that is held, until this is dropped, or its process dies or its session ends.
#[derive(Debug)]
#[must_use = "the lock is freed when the guard is dropped"]
pub struct LockGuard {
    _kept: Kept,
}

/// It is only ever dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "a lock is freed by dropping it")]
enum Kept {
    Kernel(KernelGuard),
    Leased(LeasedGuard),
}

impl LockOwner {
    pub(super) fn in_kernel(folder: PathBuf, labels: Option<Labels>) -> Self {
        LockOwner { keeper: Keeper::Kernel(KernelOwner::new(folder, labels)) }
    }

    pub(super) fn on_lease(locks: &Arc<dyn LeasedLocks>) -> Self {
        LockOwner { keeper: Keeper::Leased(LeasedOwner::new(locks)) }
    }

    /// Whether it holds nothing, so that another transaction of this process may have it, with the
    /// files that it has open. One of a server has none, and what it held may be freed only later.
    pub fn is_reusable(&self) -> bool {
        match &self.keeper {
            Keeper::Kernel(owner) => owner.is_idle(),
            Keeper::Leased(_) => false,
        }
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it; [`Error::Invalid`] if this owner holds it already.
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Container(database, container), Kind::Exclusive, wait)
    }

    /// Locks the allocation of space in a database's file, waiting as long as it takes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this owner holds it already; as whoever keeps the locks.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        let target = LockTarget::Allocation(database);
        let kept = match &self.keeper {
            Keeper::Kernel(owner) => Kept::Kernel(owner.lock_unsigned(target)?),
            Keeper::Leased(owner) => Kept::Leased(owner.lock(target, Kind::Exclusive, None)?),
        };
        Ok(LockGuard { _kept: kept })
    }

    /// Locks a database together with the other transactions that write to it. It waits, for at
    /// most `wait`, only while somebody has the database exclusively or is the next to have it.
    ///
    /// # Errors
    /// [`Error::Busy`], with who has it; [`Error::Invalid`] if this owner holds it already.
    pub fn share_database(&self, database: DatabaseId, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), Kind::Shared, wait)
    }

    /// Locks a database against all transactions, waiting for at most `wait` for those that are
    /// under way. Meanwhile no others begin.
    ///
    /// # Errors
    /// [`Error::Busy`], with one of those that have it, if that can be found out;
    /// [`Error::Invalid`] if this owner holds it already.
    pub fn lock_database_exclusive(
        &self,
        database: DatabaseId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), Kind::Exclusive, wait)
    }

    /// As [`LockOwner::lock_database_exclusive`], if nobody has the database; `None` if somebody has.
    pub fn try_exclusive_database(&self, database: DatabaseId) -> Result<Option<LockGuard>> {
        match self.lock_database_exclusive(database, Duration::ZERO) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the maintenance of the federation, waiting for at most `wait`: for vacuum, against
    /// other vacuums and against backups.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it.
    pub fn lock_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, Kind::Exclusive, wait)
    }

    /// Locks the maintenance of the federation together with other backups, against vacuum.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it.
    pub fn share_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, Kind::Shared, wait)
    }

    /// Locks anything that can be locked, waiting for at most `wait`.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it; [`Error::Invalid`] if this owner holds it already.
    pub fn lock(&self, target: LockTarget, kind: Kind, wait: Duration) -> Result<LockGuard> {
        let kept = match &self.keeper {
            Keeper::Kernel(owner) => Kept::Kernel(owner.lock(target, kind, wait)?),
            Keeper::Leased(owner) => Kept::Leased(owner.lock(target, kind, Some(wait))?),
        };
        Ok(LockGuard { _kept: kept })
    }
}
