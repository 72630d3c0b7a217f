//! The kernel's locks that the server holds, so that local processes in the same folder and remote sessions exclude
//! each other.
//!
//! The table grants a request first, so if several requests for one target arrive here, they share the lock.
//!
//! The server waits for each target once, with a place in the kernel's queue that it keeps while any owner wants the
//! lock. One of the owners makes the steps of the wait, and between two steps it sleeps as a task; the others sleep
//! until it has the lock or gives up. So neither owners nor targets need threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Csn, DatabaseId, Error, LocalCatalogue, LockGuard, LockKind, LockStep, LockTable, LockTarget,
    LockWait, Result, clock,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// How often a sleeping owner checks whether its lock is still wanted.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The kernel's locks that the server holds in one federation.
#[derive(Debug)]
pub struct ServerKernelLocks {
    catalog: Arc<LocalCatalogue>,
    locks: LockTable,
    held: Mutex<HashMap<LockTarget, CountedLock>>,
}

/// A lock that is held, or waited for, for `count` owners.
#[derive(Debug)]
struct CountedLock {
    count: usize,
    lock: Arc<SharedLock>,
}

/// A lock that all its owners share.
#[derive(Debug, Default)]
struct SharedLock {
    /// Held while a step is made.
    state: Arc<tokio::sync::Mutex<LockState>>,
    /// Held by the owner that makes the steps of the wait.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
enum LockState {
    #[default]
    Free,
    Waits(LockWait),
    Taken(Taken),
}

#[derive(Debug)]
struct Taken {
    _guard: LockGuard,
    /// The epoch of the database when it was locked.
    epoch: u64,
}

/// The result of an attempt to take a lock.
enum LockAttempt {
    /// The lock is held.
    Taken {
        /// The epoch of its database when it was taken.
        epoch: u64,
    },
    /// The next attempt is due after this pause.
    Pauses(Duration),
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

    /// Locks a target for one more owner, if no other process must be waited for. Returns the epoch as
    /// [`lock`](Self::lock) does; `None` also after a failure, which `lock` then reports.
    ///
    /// It calls the kernel and reads one row of the catalogue, as look-ups on the calling task do: handing that to
    /// another thread would take longer.
    pub fn lock_now(&self, target: LockTarget, kind: LockKind) -> Option<u64> {
        let (lock, mut claim) = self.claim(target);
        let mut state = lock.state.try_lock().ok()?;
        let LockAttempt::Taken { epoch } =
            state.attempt(&self.locks, &self.catalog, (target, kind), false).ok()?
        else {
            return None;
        };
        claim.is_kept = true;
        Some(epoch)
    }

    /// Counts one more owner of a lock.
    fn claim(&self, target: LockTarget) -> (Arc<SharedLock>, CountClaim<'_>) {
        let mut held = self.held.lock();
        let new = || CountedLock { count: 0, lock: Arc::default() };
        let shared = held.entry(target).or_insert_with(new);
        shared.count += 1;
        (Arc::clone(&shared.lock), CountClaim { locks: self, target, is_kept: false })
    }

    /// Locks a target for one more owner, waiting for local processes in the order of arrival while `go_on`, which is
    /// called repeatedly, returns no error. Returns the epoch of its database when the first owner locked it; no
    /// process has locked the database exclusively since.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder if the lock was not free in time; the error of `go_on`; [`Error::Io`] if the
    /// lock file or the catalogue cannot be read.
    pub async fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
        go_on: impl Fn() -> Result<()>,
    ) -> Result<u64> {
        // Gives the count back if the future is dropped.
        let (lock, mut claim) = self.claim(target);
        let (began, mut turn) = (clock::now(), None);
        loop {
            let left = wait.map_or(LOOK_TIME, |wait| wait.saturating_sub(began.elapsed()));
            let pause = match lock.attempt(self, (target, kind), left.is_zero()).await? {
                LockAttempt::Taken { epoch } => {
                    claim.is_kept = true;
                    return Ok(epoch);
                }
                LockAttempt::Pauses(pause) => pause,
            };
            go_on()?;
            if turn.is_some() {
                sleep(pause.min(left)).await;
            } else {
                turn = timeout(left.min(LOOK_TIME), lock.turn.lock()).await.ok();
            }
        }
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

impl SharedLock {
    /// Takes the lock if its turn has come, once for all owners.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is the owner's last attempt; [`Error::Io`] if the lock file or the catalogue cannot be
    /// read.
    async fn attempt(
        &self,
        of: &ServerKernelLocks,
        (target, kind): (LockTarget, LockKind),
        is_last: bool,
    ) -> Result<LockAttempt> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        if let LockState::Taken(taken) = &*state {
            return Ok(LockAttempt::Taken { epoch: taken.epoch });
        }
        let (locks, catalog) = (of.locks.clone(), Arc::clone(&of.catalog));
        // The attempt ends even if the future is dropped, so that the other owners do not lose the place in the queue.
        let attempt = move || state.attempt(&locks, &catalog, (target, kind), is_last);
        let stopped = |error| Error::Internal { what: format!("locking stopped: {error}") };
        spawn_blocking(attempt).await.unwrap_or_else(|error| Err(stopped(error)))
    }
}

impl LockState {
    /// Makes one step towards the lock. Reads the lock's file and one row of the catalogue.
    ///
    /// # Errors
    /// The errors of [`SharedLock::attempt`].
    fn attempt(
        &mut self,
        locks: &LockTable,
        catalog: &LocalCatalogue,
        (target, kind): (LockTarget, LockKind),
        is_last: bool,
    ) -> Result<LockAttempt> {
        let waits = match std::mem::take(self) {
            LockState::Waits(waits) => waits,
            LockState::Free => locks.owner().queue(target, kind)?,
            LockState::Taken(taken) => {
                let epoch = taken.epoch;
                *self = LockState::Taken(taken);
                return Ok(LockAttempt::Taken { epoch });
            }
        };
        let waits = match waits.step()? {
            LockStep::Waits(waits) => waits,
            LockStep::Locked(guard) => {
                let epoch = epoch_of(catalog, target.database())?;
                *self = LockState::Taken(Taken { _guard: guard, epoch });
                return Ok(LockAttempt::Taken { epoch });
            }
        };
        let (pause, busy) = (waits.pause_length(), is_last.then(|| waits.busy()));
        *self = LockState::Waits(waits);
        busy.map_or(Ok(LockAttempt::Pauses(pause)), Err)
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
