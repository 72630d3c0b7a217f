//! The state of a session: its locks and pins, its waits, and the writes that use its locks.

use std::collections::{BTreeSet, HashMap};

use femtobarn_catalog::{
    Csn, DatabaseId, Error, Fence, Holder, LockKind, LockTarget, PinGuard, Result,
};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Locks, waits and pins of one session at most.
pub(super) const SHARE_MAX: usize = 100_000;

/// The locks, pins, waits and writes of a session.
#[derive(Debug)]
pub(super) struct SessionState {
    pub client: Holder,
    /// The number of streams that its client has opened. Requests of earlier streams are refused.
    pub generation: u64,
    pub is_over: bool,
    /// Why the session has ended, for the log.
    pub end: &'static str,
    /// Transactions that are being published. The session does not end before they are.
    pub publishing: usize,
    /// The number of published transactions.
    pub published: u64,
    /// By owner and target. Changed together with `writes`, by [`SessionState::hold`] and
    /// [`SessionState::release`].
    pub held: HashMap<(u64, LockTarget), HeldBy>,
    /// The writes to databases that it holds.
    pub writes: HashMap<DatabaseId, DatabaseWrites>,
    /// The requests in progress by owner and target: from before the table of locks has one until it is held or refused.
    /// They change together with the table, while the state is locked.
    pub requests: HashMap<(u64, LockTarget), PendingLock>,
    /// Requests of its client's last stream that wait until one of an earlier stream for the same lock has ended, or until the
    /// lock that their owner released is free. They are repeated then.
    pub postponed: HashMap<(u64, LockTarget), PendingLock>,
    pub pins: HashMap<Csn, (PinGuard, u32)>,
}

/// A lock that a session holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBy {
    /// Whether the lock is held in the kernel, too.
    pub in_kernel: bool,
    /// The epoch of its database when it was locked.
    pub epoch: u64,
    /// The epoch of this server then; 0 if the federation has no other.
    pub site_epoch: u64,
    pub kind: LockKind,
}

/// A request of a lock in progress, or postponed.
#[derive(Debug)]
pub(super) struct PendingLock {
    pub request: LockRequest,
    /// The task that ends its wait at the deadline; `None` without a wait or a deadline.
    pub timer: Option<AbortHandle>,
}

/// The request of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRequest {
    pub number: u64,
    pub owner: u64,
    pub target: LockTarget,
    pub kind: LockKind,
    pub generation: u64,
    pub since: Instant,
    /// `None` if the wait has no limit.
    pub deadline: Option<Instant>,
}

/// The result of a granted lock or pin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The epoch of the locked database.
    pub epoch: u64,
    /// The pinned snapshot.
    pub csn: Csn,
    /// The fence of the locked database, if the federation has several servers.
    pub fence: Option<Fence>,
}

/// The writes to a database that a session holds.
#[derive(Debug, Default)]
pub(super) struct DatabaseWrites {
    pub epoch: u64,
    /// The epoch of this server when the database was locked; 0 if the federation has no other.
    pub site_epoch: u64,
    /// The number of the session's transactions that hold the database.
    owners: usize,
    /// The number of writes under way.
    pub running: usize,
    /// Locks on the database that were released while a write was under way.
    to_free: Vec<(u64, HeldBy)>,
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        self.timer.iter().for_each(AbortHandle::abort);
    }
}

impl SessionState {
    /// Whether the session goes on, and `generation` is its client's last stream.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        !self.is_over && self.generation == generation
    }

    /// Refuses more locks and pins than a client can need.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the session has [`SHARE_MAX`] of them.
    pub(super) fn check_share(&self) -> Result<()> {
        if self.held.len() + self.waits() + self.pins.len() >= SHARE_MAX {
            let what = format!("too many locks and pins in one session: at most {SHARE_MAX}");
            return Err(Error::Invalid { what });
        }
        Ok(())
    }

    /// The number of locks that it waits for.
    pub(super) fn waits(&self) -> usize {
        self.requests.len() + self.postponed.len()
    }

    /// Whether a request of an earlier stream for the same lock by the same owner is still in progress. It ends soon,
    /// and is refused.
    pub(super) fn has_earlier(&self, request: &LockRequest) -> bool {
        let earlier = self.requests.get(&(request.owner, request.target));
        earlier.is_some_and(|earlier| earlier.request.generation < request.generation)
    }

    /// Whether exactly this request is in progress, and not one of another stream for the same lock.
    pub(super) fn has(&self, request: &LockRequest) -> bool {
        self.requests.get(&request.place()).is_some_and(|it| it.request.is(request))
    }

    /// Whether a request has to wait until an earlier one of its owner for the same lock has ended, or the lock that its
    /// owner released is free.
    pub(super) fn must_postpone(&self, request: &LockRequest) -> bool {
        let LockTarget::Database(database) = request.target else {
            return self.has_earlier(request);
        };
        let released = self.writes.get(&database).into_iter().flat_map(|it| &it.to_free);
        released.into_iter().any(|&(owner, _)| owner == request.owner) || self.has_earlier(request)
    }

    /// Ends the wait of exactly this request if it is postponed; returns whether it was.
    pub(super) fn end_postponed(&mut self, request: &LockRequest) -> bool {
        let is_it = self.postponed.get(&request.place()).is_some_and(|it| it.request.is(request));
        if is_it {
            self.postponed.remove(&request.place());
        }
        is_it
    }

    /// Records a lock that the session got.
    pub(super) fn hold(&mut self, owner: u64, target: LockTarget, held: HeldBy) {
        self.held.insert((owner, target), held);
        if let LockTarget::Database(database) = target {
            let writes = self.writes.entry(database).or_default();
            writes.owners += 1;
            writes.epoch = held.epoch;
            // A lock of an earlier epoch of the server is lost, and stays lost beside a new one.
            let is_first = writes.owners == 1;
            writes.site_epoch =
                if is_first { held.site_epoch } else { writes.site_epoch.min(held.site_epoch) };
        }
    }

    /// Records that a lock is no longer held, and returns it if the caller must free it now. If a write is in progress,
    /// the end of the last write frees it.
    pub(super) fn release(&mut self, owner: u64, target: LockTarget) -> Option<HeldBy> {
        let held = self.held.remove(&(owner, target))?;
        let LockTarget::Database(database) = target else { return Some(held) };
        let Some(writes) = self.writes.get_mut(&database) else { return Some(held) };
        writes.owners -= 1;
        if writes.running > 0 {
            writes.to_free.push((owner, held));
            return None;
        }
        if writes.owners == 0 {
            self.writes.remove(&database);
        }
        Some(held)
    }

    /// Whether one of its transactions holds `target` exclusively.
    pub(super) fn holds_alone(&self, target: LockTarget) -> bool {
        let mut held = self.held.iter().filter(|((_, held), _)| *held == target);
        held.any(|(_, held)| held.kind == LockKind::Exclusive)
    }

    /// The databases that the session holds by locks other than those of `is_kept`.
    pub(super) fn databases_unless(
        &self,
        is_kept: impl Fn(&(u64, LockTarget)) -> bool,
    ) -> Vec<DatabaseId> {
        let gone = self.held.keys().filter(|key| !is_kept(key));
        let databases: BTreeSet<_> = gone
            .filter_map(|(_, target)| match target {
                LockTarget::Database(database) => Some(*database),
                _ => None,
            })
            .collect();
        databases.into_iter().collect()
    }

    /// Releases all locks but those of `is_kept`, and returns those that the caller must free now.
    pub(super) fn release_unless(
        &mut self,
        is_kept: impl Fn(&(u64, LockTarget)) -> bool,
    ) -> Vec<((u64, LockTarget), HeldBy)> {
        let gone: Vec<_> = self.held.keys().filter(|key| !is_kept(key)).copied().collect();
        let free = gone.into_iter().filter_map(|(owner, target)| {
            self.release(owner, target).map(|held| ((owner, target), held))
        });
        free.collect()
    }

    /// The writes to a database, if the session may write to it.
    pub(super) fn may_write(&self, database: DatabaseId) -> Option<&DatabaseWrites> {
        let writes = self.writes.get(&database)?;
        (!self.is_over && writes.owners > 0).then_some(writes)
    }

    /// Records the beginning of writes to databases that the session may write to.
    pub(super) fn begin_writes<'a>(&mut self, databases: impl IntoIterator<Item = &'a DatabaseId>) {
        for database in databases {
            if let Some(writes) = self.writes.get_mut(database) {
                writes.running += 1;
            }
        }
    }

    /// Records the end of a write. After the last one, returns the locks to be freed. Then the requests of their owners that
    /// were postponed are to be repeated.
    pub(super) fn end_write(&mut self, database: DatabaseId) -> Vec<(u64, HeldBy)> {
        let Some(writes) = self.writes.get_mut(&database) else { return vec![] };
        writes.running -= 1;
        if writes.running > 0 {
            return vec![];
        }
        let to_free = std::mem::take(&mut writes.to_free);
        if writes.owners == 0 {
            self.writes.remove(&database);
        }
        to_free
    }
}

impl LockRequest {
    /// The owner and the target.
    pub(super) fn place(&self) -> (u64, LockTarget) {
        (self.owner, self.target)
    }

    /// Whether it is the same operation of the same stream.
    fn is(&self, other: &LockRequest) -> bool {
        (self.generation, self.number) == (other.generation, other.number)
    }

    /// Whether its deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}
