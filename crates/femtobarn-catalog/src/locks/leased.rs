//! Locks and pins that a server keeps for its clients, on the lease of the client's session.
//!
//! All locks and pins of a session are lost when its lease ends. The guard of a lost lock does not notice; the
//! server refuses the commit.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::file::LockKind;
use super::monitor::HeldLock;
use super::target::LockTarget;
use super::waiters::Waiter;
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::ids::Csn;

/// A client's session with the server that keeps its locks.
pub trait LeasedLocks: Debug + Send + Sync {
    /// A number for a new owner, unique in the session.
    fn new_owner(&self) -> u64;

    /// Locks a target for an owner that has not locked it. `wait` is the longest time to wait; `None` waits for
    /// as long as it takes.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder if the lock was not free in time; [`Error::Deadlock`] if the wait would
    /// close a cycle; [`Error::Unavailable`] if the server does not answer.
    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<()>;

    /// Sends the server the request to free a lock, and does not wait for it.
    fn unlock(&self, owner: u64, target: LockTarget);

    /// The current holder of a lock; none if it is free.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server does not answer.
    fn holder(&self, target: LockTarget) -> Result<Option<Holder>> {
        let held = self.held()?.into_iter().find(|lock| lock.target == target);
        Ok(held.map(|lock| lock.holder.unwrap_or_else(Holder::unknown)))
    }

    /// All locks of the federation that are held now.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server does not answer.
    fn held(&self) -> Result<Vec<HeldLock>>;

    /// All waiters of the federation, the longest waiting first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server does not answer.
    fn waiting(&self) -> Result<Vec<Waiter>>;
}

/// A client's session with the server that keeps its pins.
pub trait LeasedPins: Debug + Send + Sync {
    /// Adds a pin to a snapshot that the session has pinned already.
    fn pin_again(&self, csn: Csn);

    /// Removes one pin, without waiting for the server.
    fn unpin(&self, csn: Csn);
}

/// An owner of locks on lease.
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
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<LeasedGuard> {
        if !self.held.lock().insert(target) {
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
        self.held.lock().remove(&self.target);
    }
}
