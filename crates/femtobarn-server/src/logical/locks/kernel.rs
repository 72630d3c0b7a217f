//! The kernel's locks that the server holds, so that local processes in the same folder and remote sessions exclude
//! each other.
//!
//! The table grants a request first, so all requests for one target that arrive here share it, or there is only one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Csn, DatabaseId, Error, LocalCatalogue, LockGuard, LockKind, LockTable, LockTarget, Result,
    clock,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// The shortest and the longest pause between two attempts to take a lock that a local process holds. Polling blocks no
/// thread of the small pool.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The kernel's locks that the server holds in one federation.
#[derive(Debug)]
pub struct ServerKernelLocks {
    catalog: Arc<LocalCatalogue>,
    locks: LockTable,
    held: Mutex<HashMap<LockTarget, CountedLock>>,
}

/// A lock that is held, or being taken, for `count` owners.
#[derive(Debug)]
struct CountedLock {
    count: usize,
    taken: Slot,
}

/// None until the lock is taken.
type Slot = Arc<tokio::sync::Mutex<Option<Taken>>>;

#[derive(Debug)]
struct Taken {
    _guard: LockGuard,
    /// The epoch of the database when it was locked.
    epoch: u64,
}

impl ServerKernelLocks {
    /// A holder of no locks.
    pub fn new(catalog: Arc<LocalCatalogue>) -> Self {
        ServerKernelLocks { locks: catalog.locks(), catalog, held: Mutex::default() }
    }

    /// Whether locks on a target are held in the kernel, too.
    pub fn has(target: &LockTarget) -> bool {
        !matches!(target, LockTarget::Container(..))
    }

    /// Locks a target for one more owner, waiting for local processes. Returns the epoch of its database when the first
    /// owner locked it; no process has locked the database exclusively since.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder if the lock was not free in time; [`Error::Io`] if the lock file or the
    /// catalogue cannot be read.
    pub async fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<u64> {
        let taken = {
            let mut held = self.held.lock();
            let new = || CountedLock { count: 0, taken: Arc::default() };
            let shared = held.entry(target).or_insert_with(new);
            shared.count += 1;
            Arc::clone(&shared.taken)
        };
        // Gives the count back if the future is dropped.
        let mut claim = CountClaim { locks: self, target, is_kept: false };
        let (started, mut pause) = (clock::now(), PAUSE_MIN);
        loop {
            match self.try_lock(target, kind, &taken).await {
                Ok(epoch) => {
                    claim.is_kept = true;
                    return Ok(epoch);
                }
                Err(Error::Busy { what, holder, .. }) => {
                    let waited = started.elapsed();
                    let left = wait.map_or(PAUSE_MAX, |wait| wait.saturating_sub(waited));
                    if left.is_zero() {
                        return Err(Error::Busy { what, holder, waited });
                    }
                    tokio::time::sleep(pause.min(left)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a lock if it is free, once for all owners.
    async fn try_lock(&self, target: LockTarget, kind: LockKind, taken: &Slot) -> Result<u64> {
        let mut taken = taken.lock().await;
        if let Some(taken) = &*taken {
            return Ok(taken.epoch);
        }
        let (locks, catalog) = (self.locks.clone(), Arc::clone(&self.catalog));
        let take = move || {
            let guard = locks.owner().lock(target, kind, Duration::ZERO)?;
            Ok(Taken { _guard: guard, epoch: epoch_of(&catalog, target.database())? })
        };
        let stopped = |error| Error::Internal { what: format!("locking stopped: {error}") };
        let new = spawn_blocking(take).await.unwrap_or_else(|error| Err(stopped(error)))?;
        Ok(taken.insert(new).epoch)
    }

    /// Frees a lock of one owner.
    pub fn unlock(&self, target: LockTarget) {
        let mut held = self.held.lock();
        if let Some(shared) = held.get_mut(&target) {
            shared.count -= 1;
            if shared.count == 0 {
                held.remove(&target);
            }
        }
    }
}

/// One owner's count of a lock.
struct CountClaim<'a> {
    locks: &'a ServerKernelLocks,
    target: LockTarget,
    is_kept: bool,
}

impl Drop for CountClaim<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.locks.unlock(self.target);
        }
    }
}

/// The epoch of a database; 0 if it does not exist yet.
fn epoch_of(catalog: &LocalCatalogue, database: Option<DatabaseId>) -> Result<u64> {
    let Some(database) = database else { return Ok(0) };
    match catalog.database_by_id(database, Csn::MAX) {
        Ok(row) => Ok(row.epoch),
        Err(Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
