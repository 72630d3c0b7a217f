//! What the server holds of the kernel's locks, so that local processes on the same folder and remote
//! sessions respect each other.
//!
//! The table comes first, so whoever asks here shares with all who hold the same, or is alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    Csn, DatabaseId, Error, LocalCatalogue, LockGuard, LockKind, LockTable, LockTarget, Result,
};
use tokio::task::spawn_blocking;

/// The pauses between two looks at a lock that a local process holds, at first and at most. No thread is
/// kept waiting, since there are few.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The kernel's locks that the server holds in one federation.
#[derive(Debug)]
pub struct KernelLocks {
    catalog: Arc<LocalCatalogue>,
    locks: LockTable,
    held: Mutex<HashMap<LockTarget, Shared>>,
}

/// A lock that is held, or being taken, for so many.
#[derive(Debug)]
struct Shared {
    count: usize,
    taken: Slot,
}

/// None while it is not taken yet.
type Slot = Arc<tokio::sync::Mutex<Option<Taken>>>;

#[derive(Debug)]
struct Taken {
    _guard: LockGuard,
    /// The epoch of the database when it was locked.
    epoch: u64,
}

impl KernelLocks {
    /// None are held yet.
    pub fn new(catalog: Arc<LocalCatalogue>) -> Self {
        KernelLocks { locks: catalog.locks(), catalog, held: Mutex::default() }
    }

    /// Whether a target is locked in the kernel, too.
    pub fn has(target: &LockTarget) -> bool {
        !matches!(target, LockTarget::Container(..))
    }

    /// Locks a target once more, waiting for local processes. It returns the epoch that its database had
    /// when it was locked first; since then nobody has had the database alone.
    ///
    /// # Errors
    /// [`Error::Busy`] with who holds it.
    pub async fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<u64> {
        let taken = {
            let mut held = self.held();
            let new = || Shared { count: 0, taken: Arc::default() };
            let shared = held.entry(target).or_insert_with(new);
            shared.count += 1;
            Arc::clone(&shared.taken)
        };
        // Given back if this is not waited for to the end.
        let mut claim = Claim { locks: self, target, is_kept: false };
        let (started, mut pause) = (Instant::now(), PAUSE_MIN);
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

    /// Takes a lock if it is free; one thread does so for all who want it.
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

    /// Frees a target once.
    pub fn unlock(&self, target: LockTarget) {
        let mut held = self.held();
        if let Some(shared) = held.get_mut(&target) {
            shared.count -= 1;
            if shared.count == 0 {
                held.remove(&target);
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<LockTarget, Shared>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One count of a lock.
struct Claim<'a> {
    locks: &'a KernelLocks,
    target: LockTarget,
    is_kept: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.locks.unlock(self.target);
        }
    }
}

/// 0 for a database that does not exist yet.
fn epoch_of(catalog: &LocalCatalogue, database: Option<DatabaseId>) -> Result<u64> {
    let Some(database) = database else { return Ok(0) };
    match catalog.database_by_id(database, Csn::MAX) {
        Ok(row) => Ok(row.epoch),
        Err(Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
