//! Locks and pins that a server keeps on lease for the sessions of its clients.
//!
//! The lease ends with the session. A lock that was lost so is not noticed by its guard, but by the
//! commit, which the server refuses.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::file::Kind;
use super::holder::Holder;
use super::monitor::{HeldLock, Waiter};
use super::target::LockTarget;
use crate::error::{Error, Result};
use crate::ids::Csn;

/// Who keeps the locks of a session.
pub trait LeasedLocks: Debug + Send + Sync {
    /// A number for an owner, which no other owner of the session has.
    fn new_owner(&self) -> u64;

    /// Locks something for an owner that has not locked it; as long as it takes unless `wait` says
    /// at most how long.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it; [`Error::Deadlock`] if waiting would never end;
    /// [`Error::Unavailable`] if nobody answers.
    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: Kind,
        wait: Option<Duration>,
    ) -> Result<()>;

    /// Frees a lock, soon. It does not wait for that.
    fn unlock(&self, owner: u64, target: LockTarget);

    /// Who holds something at the moment.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nobody answers.
    fn holder(&self, target: LockTarget) -> Result<Option<Holder>> {
        let held = self.held()?.into_iter().find(|lock| lock.target == target);
        Ok(held.map(|lock| lock.holder.unwrap_or_else(Holder::unknown)))
    }

    /// All locks that are held at the moment.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nobody answers.
    fn held(&self) -> Result<Vec<HeldLock>>;

    /// All who wait, the longest first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nobody answers.
    fn waiting(&self) -> Result<Vec<Waiter>>;
}

/// Who keeps the pins of a session.
pub trait LeasedPins: Debug + Send + Sync {
    /// Pins a snapshot once more that is pinned.
    fn pin_again(&self, csn: Csn);

    /// Takes one pin away, soon. It does not wait for that.
    fn unpin(&self, csn: Csn);
}

/// An owner whose locks are on lease.
#[derive(Debug)]
pub(super) struct LeasedOwner {
    locks: Arc<dyn LeasedLocks>,
    number: u64,
    held: Arc<Mutex<HashSet<LockTarget>>>,
}

/// A lock on lease, until this is dropped or the session ends.
#[derive(Debug)]
pub(super) struct LeasedGuard {
    locks: Arc<dyn LeasedLocks>,
    owner: u64,
    held: Arc<Mutex<HashSet<LockTarget>>>,
    target: LockTarget,
    is_held: bool,
}

impl LeasedOwner {
    pub(super) fn new(locks: &Arc<dyn LeasedLocks>) -> Self {
        let number = locks.new_owner();
        LeasedOwner { locks: locks.clone(), number, held: Arc::default() }
    }

    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: Kind,
        wait: Option<Duration>,
    ) -> Result<LeasedGuard> {
        if !lock(&self.held).insert(target) {
            return Err(Error::invalid(format!("{target} is already locked by this owner")));
        }
        let mut guard = LeasedGuard {
            locks: self.locks.clone(),
            owner: self.number,
            held: self.held.clone(),
            target,
            is_held: false,
        };
        self.locks.lock(self.number, target, kind, wait)?;
        guard.is_held = true;
        Ok(guard)
    }
}

impl Drop for LeasedGuard {
    fn drop(&mut self) {
        if self.is_held {
            self.locks.unlock(self.owner, self.target);
        }
        lock(&self.held).remove(&self.target);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
