//! Owners of locks, their waits, and the guards that hold the locks.

use std::time::Duration;

use super::backend::Backend;
use super::file::LockKind;
use super::kernel::{KernelGuard, KernelOwner, KernelWait};
use super::leased::{LeasedGuard, LeasedOwner, NewestRows};
use super::target::LockTarget;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, DatabaseId};

/// The owner of one transaction's locks. An owner holds each lock at most once.
#[derive(Debug)]
pub struct LockOwner {
    pub(super) backend: Backend<KernelOwner, LeasedOwner>,
}

/// A held lock. It is freed when the guard is dropped, its process dies or its session ends.
#[derive(Debug)]
#[must_use = "the lock is freed when the guard is dropped"]
pub struct LockGuard {
    _guard: Backend<KernelGuard, LeasedGuard>,
}

/// A wait for a lock in the kernel, step by step. It keeps its place in the queue, whatever the caller does between two
/// steps; dropping it ends the wait.
#[derive(Debug)]
#[must_use = "the place in the queue is lost when the wait is dropped"]
pub struct LockWait {
    wait: KernelWait,
}

/// The result of a step of a [`LockWait`].
#[derive(Debug)]
pub enum LockStep {
    /// The lock is held.
    Locked(LockGuard),
    /// The lock is not free yet; continue with this wait.
    Waits(LockWait),
}

impl LockOwner {
    /// Whether it holds no lock, so that the process's next transaction may reuse it with its open files. An owner of
    /// leased locks has no files, and the server may free its locks only later, so it is never reused.
    pub fn is_reusable(&self) -> bool {
        match &self.backend {
            Backend::Kernel(owner) => owner.is_idle(),
            Backend::Leased(_) => false,
        }
    }

    /// Declares that the owner locks nothing any more; the caller drops all remaining guards right after. If a server
    /// keeps the locks, it then gets all their releases together.
    pub fn end(&self) {
        if let Backend::Leased(owner) = &self.backend {
            owner.end();
        }
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`].
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Container(database, container), LockKind::Exclusive, wait)
    }

    /// Locks the allocation of space in a database's file, waiting without a time limit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this owner holds it already; [`Error::Io`] if the lock file cannot be used;
    /// [`Error::Deadlock`] or [`Error::Unavailable`] from a server.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        let target = LockTarget::Allocation(database);
        let guard = match &self.backend {
            Backend::Kernel(owner) => Backend::Kernel(owner.lock_unrecorded(target)?),
            Backend::Leased(owner) => {
                Backend::Leased(owner.lock(target, LockKind::Exclusive, None)?)
            }
        };
        Ok(LockGuard { _guard: guard })
    }

    /// Shares a database with the other transactions that write to it. It waits, for at most `wait`, only while another
    /// owner holds the database exclusively or is next in the queue for that.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`].
    pub fn share_database(&self, database: DatabaseId, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), LockKind::Shared, wait)
    }

    /// Locks a database exclusively, waiting for at most `wait` for the transactions that share it. Meanwhile no other
    /// transaction can begin to share it.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`]; the holder in [`Error::Busy`] is one of those that share the database, if one
    /// is known.
    pub fn lock_database_exclusive(
        &self,
        database: DatabaseId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), LockKind::Exclusive, wait)
    }

    /// Locks a database exclusively if it is free, or returns `None`.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`], except [`Error::Busy`].
    pub fn try_exclusive_database(&self, database: DatabaseId) -> Result<Option<LockGuard>> {
        match self.lock_database_exclusive(database, Duration::ZERO) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the maintenance of the federation exclusively, for vacuum: no other vacuum and no backup runs
    /// meanwhile. Waits for at most `wait`.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`].
    pub fn lock_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, LockKind::Exclusive, wait)
    }

    /// Shares the maintenance of the federation with other backups, and keeps vacuum out.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`].
    pub fn share_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, LockKind::Shared, wait)
    }

    /// Locks several targets, waiting at most `wait` for each: one round trip if a server keeps the locks. A server may
    /// also send the newest rows of the last target, as they are while all locks are held; otherwise the caller looks
    /// them up.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`]; then none of the locks is held.
    pub fn lock_together(
        &self,
        locks: &[(LockTarget, LockKind)],
        wait: Duration,
    ) -> Result<(Vec<LockGuard>, Option<NewestRows>)> {
        match &self.backend {
            Backend::Kernel(_) => {
                let guards = locks.iter().map(|(target, kind)| self.lock(*target, *kind, wait));
                Ok((guards.collect::<Result<_>>()?, None))
            }
            Backend::Leased(owner) => {
                let (guards, rows) = owner.lock_together(locks, wait)?;
                let guards = guards.into_iter().map(Backend::Leased);
                Ok((guards.map(|guard| LockGuard { _guard: guard }).collect(), rows))
            }
        }
    }

    /// Locks a target, waiting for at most `wait`.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder if the lock was not free in time; [`Error::Invalid`] if this owner holds
    /// it already; [`Error::Io`] if the lock file cannot be used; [`Error::Deadlock`] or [`Error::Unavailable`]
    /// from a server.
    pub fn lock(&self, target: LockTarget, kind: LockKind, wait: Duration) -> Result<LockGuard> {
        let guard = match &self.backend {
            Backend::Kernel(owner) => Backend::Kernel(owner.lock(target, kind, wait)?),
            Backend::Leased(owner) => Backend::Leased(owner.lock(target, kind, Some(wait))?),
        };
        Ok(LockGuard { _guard: guard })
    }

    /// Begins to wait for a lock; the wait can end for other reasons than a time limit. The first step takes the lock
    /// if it is free.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this owner holds the lock already; [`Error::Io`] if the lock file cannot be used;
    /// [`Error::Unsupported`] if a server keeps the locks.
    pub fn queue(&self, target: LockTarget, kind: LockKind) -> Result<LockWait> {
        match &self.backend {
            Backend::Kernel(owner) => Ok(LockWait { wait: owner.queue(target, kind)? }),
            Backend::Leased(_) => {
                let what =
                    format!("the queue for {target} is at the server; lock it with a time limit");
                Err(Error::Unsupported { what })
            }
        }
    }
}

impl LockWait {
    /// Takes the lock if its turn has come; otherwise advances in the queue as far as is possible now. Never waits,
    /// except for the disk.
    ///
    /// # Errors
    /// [`Error::Io`] if the lock file cannot be used; then the wait is over.
    pub fn step(self) -> Result<LockStep> {
        Ok(match self.wait.step()? {
            Ok(guard) => LockStep::Locked(LockGuard { _guard: Backend::Kernel(guard) }),
            Err(wait) => LockStep::Waits(LockWait { wait }),
        })
    }

    /// How long to pause before the next step.
    pub fn pause_length(&self) -> Duration {
        self.wait.pause_length()
    }

    /// The error for a caller that ends the wait now: [`Error::Busy`] with the holder, or the reason why the holder
    /// cannot be read.
    pub fn busy(&self) -> Error {
        self.wait.busy()
    }

    /// Blocks the thread until it has the lock. `go_on` is called at least every 20 ms, and ends the wait by an error.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder after `wait`; the error of `go_on`; those of [`step`](Self::step).
    pub fn wait_while<E: From<Error>>(
        self,
        wait: Duration,
        go_on: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<LockGuard, E> {
        let guard = self.wait.wait_while(wait, go_on)?;
        Ok(LockGuard { _guard: Backend::Kernel(guard) })
    }
}
