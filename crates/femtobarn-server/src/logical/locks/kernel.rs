//! What the server holds of the kernel's locks, so that local processes on the same folder and remote
//! sessions respect each other.
//!
//! The table comes first, so whoever asks here shares with all who hold the same, or is alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use femtobarn_catalog::{
    Catalog, Csn, DatabaseId, LockGuard, LockKind, LockTable, LockTarget, Result,
};
use tokio::task::spawn_blocking;

/// The longest wait, for those who wait as long as it takes.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// The kernel's locks that the server holds in one federation.
#[derive(Debug)]
pub struct KernelLocks {
    catalog: Arc<Catalog>,
    locks: LockTable,
    held: Mutex<HashMap<LockTarget, Shared>>,
}

/// A lock that is held, or being taken, for so many.
#[derive(Debug)]
struct Shared {
    count: usize,
    taken: Arc<tokio::sync::Mutex<Option<Taken>>>,
}

#[derive(Debug)]
struct Taken {
    _guard: LockGuard,
    /// The epoch of the database when it was locked.
    epoch: u64,
}

impl KernelLocks {
    /// None are held yet.
    pub fn new(catalog: Arc<Catalog>) -> Self {
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
    /// [`femtobarn_catalog::Error::Busy`] with who holds it.
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
        let mut taken = taken.lock().await;
        let epoch = match &*taken {
            Some(taken) => taken.epoch,
            None => {
                let new = self.take(target, kind, wait.unwrap_or(WAIT_MAX)).await?;
                taken.insert(new).epoch
            }
        };
        claim.is_kept = true;
        Ok(epoch)
    }

    async fn take(&self, target: LockTarget, kind: LockKind, wait: Duration) -> Result<Taken> {
        let (locks, catalog) = (self.locks.clone(), Arc::clone(&self.catalog));
        let take = move || {
            let guard = locks.owner().lock(target, kind, wait)?;
            Ok(Taken { _guard: guard, epoch: epoch_of(&catalog, target.database())? })
        };
        spawn_blocking(take).await.unwrap_or_else(|error| {
            Err(femtobarn_catalog::Error::Internal { what: format!("locking stopped: {error}") })
        })
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
fn epoch_of(catalog: &Catalog, database: Option<DatabaseId>) -> Result<u64> {
    let Some(database) = database else { return Ok(0) };
    match catalog.database_by_id(database, Csn::MAX) {
        Ok(row) => Ok(row.epoch),
        Err(femtobarn_catalog::Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
