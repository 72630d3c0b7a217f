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
use crate::rows::{ContainerRow, DatabaseRow, VersionRow};

/// A client's session with the server that keeps its locks.
pub trait LeasedLocks: Debug + Send + Sync {
    /// A number for a new owner, unique in the session.
    fn new_owner(&self) -> u64;

    /// Locks a target for an owner that has not locked it. `wait` is the longest time to wait, without a limit if
    /// `None`.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder if the lock was not free in time; [`Error::Deadlock`] if the wait would close a
    /// cycle; [`Error::Unavailable`] if the server does not answer.
    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<()>;

    /// Locks several targets for an owner, each as [`lock`](Self::lock) does, in one round trip if the server supports
    /// that. Returns the result of each, and the newest rows of the last target while all locks are held; without rows,
    /// the caller looks them up.
    fn lock_together(
        &self,
        owner: u64,
        locks: &[(LockTarget, LockKind)],
        wait: Duration,
    ) -> (Vec<Result<()>>, Option<NewestRows>) {
        let lock =
            |(target, kind): &(LockTarget, LockKind)| self.lock(owner, *target, *kind, Some(wait));
        (locks.iter().map(lock).collect(), None)
    }

    /// Sends the server the request to free locks of an owner, and does not wait for it.
    fn unlock(&self, owner: u64, targets: &[LockTarget]);

    /// The current holder of a lock; `None` if it is free.
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

/// The newest state of a container, of its database and of its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestRows {
    /// The database.
    pub database: DatabaseRow,
    /// The container; `None` if the rows are those of a database alone.
    pub container: Option<ContainerRow>,
    /// The version of the container, if it has one.
    pub version: Option<VersionRow>,
    /// A commit not older than the rows.
    pub head: Csn,
}

/// A client's session with the server that keeps its pins.
pub trait LeasedPins: Debug + Send + Sync {
    /// Adds a pin to a snapshot that the session has pinned already.
    fn pin_again(&self, csn: Csn);

    /// Removes one pin, without waiting for the server.
    fn unpin(&self, csn: Csn);

    /// Whether the snapshot is still pinned, as far as the session knows: a server that was away may have given it up.
    fn is_pinned(&self, csn: Csn) -> bool;
}

/// An owner of locks on lease.
#[derive(Debug)]
pub(super) struct LeasedOwner {
    locks: Arc<dyn LeasedLocks>,
    number: u64,
    owned: Arc<Mutex<OwnedTargets>>,
}

/// The targets of an owner's guards.
#[derive(Debug, Default)]
struct OwnedTargets {
    held: HashSet<LockTarget>,
    /// Whether the remaining locks are freed together, when the last guard is dropped.
    is_ending: bool,
    /// Locks in `held` whose guards were dropped.
    to_free: Vec<LockTarget>,
}

/// A lock on lease, until this is dropped or the session ends.
#[derive(Debug)]
pub(super) struct LeasedGuard {
    locks: Arc<dyn LeasedLocks>,
    owner: u64,
    owned: Arc<Mutex<OwnedTargets>>,
    target: LockTarget,
    is_held: bool,
}

impl LeasedOwner {
    pub(super) fn new(locks: &Arc<dyn LeasedLocks>) -> Self {
        let number = locks.new_owner();
        LeasedOwner { locks: locks.clone(), number, owned: Arc::default() }
    }

    /// See [`LockOwner::end`](super::owner::LockOwner::end).
    pub(super) fn end(&self) {
        self.owned.lock().is_ending = true;
    }

    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<LeasedGuard> {
        let mut guard = self.new_guard(target)?;
        self.locks.lock(self.number, target, kind, wait)?;
        guard.is_held = true;
        Ok(guard)
    }

    /// Locks several targets, or none of them; see [`LeasedLocks::lock_together`].
    pub(super) fn lock_together(
        &self,
        locks: &[(LockTarget, LockKind)],
        wait: Duration,
    ) -> Result<(Vec<LeasedGuard>, Option<NewestRows>)> {
        let guards = locks.iter().map(|(target, _)| self.new_guard(*target));
        let mut guards = guards.collect::<Result<Vec<_>>>()?;
        let (locked, rows) = self.locks.lock_together(self.number, locks, wait);
        for (guard, locked) in guards.iter_mut().zip(&locked) {
            guard.is_held = locked.is_ok();
        }
        locked.into_iter().collect::<Result<()>>()?;
        Ok((guards, rows))
    }

    /// The guard of a lock that is not taken yet.
    fn new_guard(&self, target: LockTarget) -> Result<LeasedGuard> {
        if !self.owned.lock().held.insert(target) {
            return Err(Error::invalid(format!("{target} is already locked by this owner")));
        }
        Ok(LeasedGuard {
            locks: self.locks.clone(),
            owner: self.number,
            owned: self.owned.clone(),
            target,
            is_held: false,
        })
    }
}

impl Drop for LeasedGuard {
    fn drop(&mut self) {
        let mut owned = self.owned.lock();
        if self.is_held {
            owned.to_free.push(self.target);
        }
        if !owned.is_ending || owned.held.len() == 1 {
            let targets = std::mem::take(&mut owned.to_free);
            if !targets.is_empty() {
                self.locks.unlock(self.owner, &targets);
            }
        }
        owned.held.remove(&self.target);
    }
}
