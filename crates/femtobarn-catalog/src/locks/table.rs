//! All locks of a federation: makes their owners, and lists holders and waiters.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::backend::Backend;
use super::kernel::{self, KernelBackend, KernelOwner};
use super::leased::{LeasedLocks, LeasedOwner};
use super::monitor::{self, HeldLock};
use super::owner::{LockGuard, LockOwner};
use super::target::{LockCatalogue, LockTarget};
use super::waiters::Waiter;
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::ids::{ContainerId, DatabaseId};
use crate::paths::LOCKS_FOLDER;

/// The locks of one federation.
#[derive(Clone, Debug)]
pub struct LockTable {
    backend: Backend<KernelBackend, Arc<dyn LeasedLocks>>,
}

impl LockTable {
    /// The locks of the federation in the folder `federation`. Errors show the numbers of targets; those of
    /// [`LocalCatalogue::locks`](crate::LocalCatalogue::locks) show names.
    pub fn new(federation: &Path) -> Self {
        Self::in_kernel(federation, None)
    }

    /// The locks of the federation in the folder `federation`. Errors show the names of targets.
    pub(crate) fn with_catalogue(federation: &Path, catalogue: Arc<dyn LockCatalogue>) -> Self {
        Self::in_kernel(federation, Some(catalogue))
    }

    fn in_kernel(federation: &Path, catalogue: Option<Arc<dyn LockCatalogue>>) -> Self {
        let folder = federation.join(LOCKS_FOLDER);
        LockTable { backend: Backend::Kernel(KernelBackend::new(folder, catalogue)) }
    }

    /// The locks that a server keeps for a client's session.
    pub fn on_lease(locks: Arc<dyn LeasedLocks>) -> Self {
        LockTable { backend: Backend::Leased(locks) }
    }

    /// A new owner, for one transaction.
    pub fn owner(&self) -> LockOwner {
        let backend = match &self.backend {
            Backend::Kernel(locks) => Backend::Kernel(KernelOwner::new(locks.clone())),
            Backend::Leased(locks) => Backend::Leased(LeasedOwner::new(locks)),
        };
        LockOwner { backend }
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// Each call is a new owner, so a second call for the same container waits in vain.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock`].
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.owner().lock_container(database, container, wait)
    }

    /// Locks the allocation of space in a database's file, waiting without a time limit. A holder keeps the lock only
    /// while it extends the file.
    ///
    /// # Errors
    /// The errors of [`LockOwner::lock_allocation`].
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        self.owner().lock_allocation(database)
    }

    /// Removes the lock files of databases that are not in `known` and in which no lock is held; the next lock makes
    /// the file again. Returns the names of the files that cannot be used or removed, with the reasons. Does nothing if
    /// a server keeps the locks.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder of the lock files cannot be listed.
    pub fn remove_unused_files(&self, known: &HashSet<DatabaseId>) -> Result<Vec<(String, Error)>> {
        match &self.backend {
            Backend::Kernel(locks) => kernel::remove_unused(&locks.folder, known),
            Backend::Leased(_) => Ok(vec![]),
        }
    }

    /// The current holder of a container's lock; `None` if it is free.
    ///
    /// # Errors
    /// [`Error::Io`] if a lock file cannot be read; [`Error::Unavailable`] if a server does not answer.
    pub fn holder(&self, database: DatabaseId, container: ContainerId) -> Result<Option<Holder>> {
        let target = LockTarget::Container(database, container);
        match &self.backend {
            Backend::Kernel(locks) => monitor::holder(&locks.folder, &target),
            Backend::Leased(locks) => locks.holder(target),
        }
    }

    /// All held locks, ordered by database and container.
    ///
    /// # Errors
    /// The errors of [`LockTable::holder`].
    pub fn held(&self) -> Result<Vec<HeldLock>> {
        match &self.backend {
            Backend::Kernel(locks) => monitor::held(&locks.folder),
            Backend::Leased(locks) => locks.held(),
        }
    }

    /// All processes that have waited for a lock for some milliseconds, the longest waiting first.
    ///
    /// # Errors
    /// The errors of [`LockTable::holder`].
    pub fn waiting(&self) -> Result<Vec<Waiter>> {
        match &self.backend {
            Backend::Kernel(locks) => monitor::waiting(&locks.folder),
            Backend::Leased(locks) => locks.waiting(),
        }
    }
}
