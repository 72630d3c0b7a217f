//! Locks and pins of sessions.
//!
//! A lock is taken in the table first, and then in the kernel unless its target is a container. Only then does the
//! session hold it, so a lock that is granted after its session has ended is freed at once. Outcomes are delivered on the
//! stream that asked for them, and not after the session has ended: its client asks again in the next stream or session.
//!
//! The table, and the session's record of its locks and requests, change together while the session's state is locked. So
//! an owner that is in the table for a target has one request for it, or holds it, and only an operation of the client's
//! last stream changes either; a request of this stream waits until an earlier one has left the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use femtobarn_catalog::{Csn, Error, Fence, LockKind, LockTarget, Result, clock};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::Instant;

use super::pins::unpin;
use super::service::FederationService;
use super::session::{CatalogueSession, OperationOutcome, Ticket, session_over};
use super::state::{Granted, HeldBy, LockRequest, PendingLock, SessionState};
use crate::logical::latency::RequestKind;
use crate::logical::locks::{LockAnswer, OwnerId, QueuedRequest, ServerKernelLocks};

/// A client's operation on a lock or a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOperation {
    /// Locks a target.
    Lock {
        /// The number of the operation, which its outcome repeats.
        number: u64,
        /// The transaction.
        owner: u64,
        /// The target.
        target: LockTarget,
        /// Shared or exclusive.
        kind: LockKind,
        /// The longest time to wait; no limit if `None`.
        wait: Option<Duration>,
    },
    /// Frees a lock.
    Unlock {
        /// The transaction.
        owner: u64,
        /// The target.
        target: LockTarget,
        /// Whether a commit may still be under way at another server.
        is_in_doubt: bool,
    },
    /// Pins a snapshot.
    Pin {
        /// The number of the operation, which its outcome repeats.
        number: u64,
        /// The commit of the snapshot; the newest one if `None`.
        csn: Option<Csn>,
    },
    /// Removes one pin.
    Unpin {
        /// The commit of the snapshot.
        csn: Csn,
    },
}

impl FederationService {
    /// Begins an operation of a session. Returns the outcome if it is known at once; otherwise the session gets it
    /// later. Unlocking and unpinning have no outcome.
    ///
    /// # Errors
    /// [`Error::Closed`] if the session has ended, or its client has opened a stream after `generation`.
    pub fn operate(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        operation: SessionOperation,
    ) -> Result<Option<OperationOutcome>> {
        session.check_current(generation)?;
        let outcome = match operation {
            SessionOperation::Lock { number, owner, target, kind, wait } => {
                let since = Instant::now();
                let deadline = wait.and_then(|wait| since.checked_add(wait));
                let request =
                    LockRequest { number, owner, target, kind, generation, since, deadline };
                self.lock_here(session, request)
            }
            SessionOperation::Unlock { owner, target, is_in_doubt: true } => {
                self.unlock_fenced(session, generation, owner, target);
                None
            }
            SessionOperation::Unlock { owner, target, .. } => {
                self.unlock(session, generation, owner, target);
                None
            }
            SessionOperation::Pin { number, csn } => self.pin(session, generation, number, csn),
            SessionOperation::Unpin { csn } => {
                unpin(session, generation, csn);
                None
            }
        };
        // What was granted to a session that has ended meanwhile is free, and its client asks again in a new one.
        outcome.iter().try_for_each(|_| session.check_current(generation))?;
        Ok(outcome)
    }

    pub(super) fn lock(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Option<OperationOutcome> {
        let refused = |error| Some(OperationOutcome { number: request.number, result: Err(error) });
        let answer = match self.ask_table(session, request) {
            Ok(answer) => answer,
            Err(error) => return refused(error),
        };
        match answer {
            LockAnswer::Granted => {
                let mut granted = vec![];
                let outcome = self.take_in_kernel(session, request, &mut granted);
                self.grant(granted);
                outcome
            }
            LockAnswer::Waits => None,
            LockAnswer::Busy => {
                let busy = move |service: &Self| service.busy(&request.target, Duration::ZERO);
                self.refuse(session, request, busy)
            }
            LockAnswer::Duplicate => self.refuse(session, request, move |service| Error::Invalid {
                what: format!(
                    "{} is already locked by this owner",
                    service.describe(&request.target)
                ),
            }),
            LockAnswer::Deadlock(cycle) => {
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                self.refuse(session, request, move |service| {
                    let cycle =
                        cycle.iter().map(|link| service.describe_wait(link.waiter, &link.target));
                    Error::Deadlock { cycle: cycle.collect() }
                })
            }
        }
    }

    /// Asks the table for a lock, and records the request if it is granted or queued. It is postponed if its owner released
    /// the lock during a write, or has a request of an earlier stream in progress.
    ///
    /// # Errors
    /// [`Error::Denied`] if the session may not lock; [`Error::Invalid`] if it has too many locks; [`Error::Closed`] if it
    /// has ended, or its client has opened another stream.
    pub(super) fn ask_table(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Result<LockAnswer> {
        if self.is_read_only() || !session.may_write {
            return Err(Error::Denied {
                what: format!("federation {} is read-only for this session", self.name),
            });
        }
        let LockRequest { owner, target, kind, .. } = request;
        let owner = OwnerId { session: session.number(), number: owner };
        let mut state = session.lock();
        if !state.is_current(request.generation) {
            return Err(session_over());
        }
        state.check_share()?;
        if state.must_postpone(&request) {
            if request.is_late() {
                return Ok(LockAnswer::Busy);
            }
            let timer = self.give_up_later(session, request);
            state.postponed.insert(request.place(), PendingLock { request, timer });
            return Ok(LockAnswer::Waits);
        }
        let mut answer = self.table.try_lock(owner, target, kind);
        if answer == LockAnswer::Busy && !request.is_late() {
            let session = Arc::clone(session);
            let ticket = Ticket { session, request, since_ms: clock::utc_ms() };
            answer = self.table.lock(owner, target, kind, ticket);
        }
        let timer = match answer {
            LockAnswer::Granted => None,
            LockAnswer::Waits => self.give_up_later(session, request),
            answer => return Ok(answer),
        };
        state.requests.insert(request.place(), PendingLock { request, timer });
        Ok(answer)
    }

    /// Repeats a request that was postponed, in a task of its own: the caller is ending another request.
    pub(super) fn repeat(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        postponed: Option<PendingLock>,
    ) {
        let Some(PendingLock { request, .. }) = postponed.as_ref() else { return };
        let (service, session, request) = (Arc::clone(self), Arc::clone(session), *request);
        tokio::spawn(async move {
            if let Some(outcome) = service.lock(&session, request) {
                session.push_outcome(request.generation, outcome);
            }
        });
    }

    /// Sends a session the error of a refused lock later, because the error's text has names from the catalogue, which
    /// may have to be read from the disk.
    fn refuse(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        why: impl FnOnce(&Self) -> Error + Send + 'static,
    ) -> Option<OperationOutcome> {
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        spawn_blocking(move || {
            let outcome = OperationOutcome { number: request.number, result: Err(why(&service)) };
            session.push_outcome(request.generation, outcome);
        });
        None
    }

    /// Ends a wait at its deadline, if it has one.
    fn give_up_later(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Option<AbortHandle> {
        let deadline = request.deadline?;
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        let give_up = async move {
            tokio::time::sleep_until(deadline).await;
            service.end_wait(&session, request, move |service, target| {
                let waited = request.since.elapsed();
                service.latencies.record(RequestKind::LockWait, waited);
                service.busy(target, waited)
            });
        };
        Some(tokio::spawn(give_up).abort_handle())
    }

    /// Ends the wait of a request in the table, or of one that was postponed, with an error, unless it is over already.
    pub(super) fn end_wait(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        why: impl FnOnce(&Self, &LockTarget) -> Error + Send + 'static,
    ) {
        let LockRequest { owner, target, .. } = request;
        let (is_ended, granted) = {
            let mut state = session.lock();
            if state.end_postponed(&request) {
                (true, vec![])
            } else if state.has(&request) {
                let waiter = OwnerId { session: session.number(), number: owner };
                let (ended, granted) = self.table.give_up(waiter, target);
                if ended.is_some() {
                    state.requests.remove(&request.place());
                }
                (ended.is_some(), granted)
            } else {
                return;
            }
        };
        if is_ended {
            self.refuse(session, request, move |service| why(service, &target));
        }
        self.grant(granted);
    }

    /// Frees a lock of a session, unless its client has opened a stream after `generation`: then the client has claimed
    /// the lock, or it is free.
    pub(super) fn unlock(
        self: &Arc<Self>,
        session: &CatalogueSession,
        generation: u64,
        owner: u64,
        target: LockTarget,
    ) {
        let granted = {
            let mut state = session.lock();
            if !state.is_current(generation) {
                return;
            }
            let Some(held) = state.release(owner, target) else { return };
            self.release(OwnerId { session: session.number(), number: owner }, target, held)
        };
        self.grant(granted);
        self.sweep(target);
    }

    /// Frees a lock in the kernel and in the table while the session's state is locked, and returns the queued requests
    /// that this grants.
    pub(super) fn release(
        &self,
        owner: OwnerId,
        target: LockTarget,
        held: HeldBy,
    ) -> Vec<QueuedRequest<Ticket>> {
        if held.in_kernel {
            self.kernel.unlock(target);
        }
        self.table.unlock(owner, target)
    }

    /// Frees locks of a session but those of `is_kept`, and ends its waits in the table, whose outcomes no client will
    /// read. Requests that were granted go on, and are refused. Returns the freed targets, which are to be swept, and the
    /// requests that this grants.
    pub(super) fn release_unless(
        &self,
        session: &CatalogueSession,
        state: &mut SessionState,
        is_kept: impl Fn(&(u64, LockTarget)) -> bool,
    ) -> (Vec<LockTarget>, Vec<QueuedRequest<Ticket>>) {
        let (mut freed, mut granted) = (vec![], vec![]);
        let owner_of = |number| OwnerId { session: session.number(), number };
        state.postponed.clear();
        state.requests.retain(|&(number, target), _| {
            let (ended, others) = self.table.give_up(owner_of(number), target);
            granted.extend(others);
            ended.is_none()
        });
        for ((number, target), held) in state.release_unless(is_kept) {
            granted.extend(self.release(owner_of(number), target, held));
            freed.push(target);
        }
        (freed, granted)
    }

    /// Completes requests that were granted in the table. A request that is refused now grants the next one of its queue,
    /// and after its database has moved all are refused: so this is a loop, which needs the same stack for any queue.
    pub(super) fn grant(self: &Arc<Self>, mut granted: Vec<QueuedRequest<Ticket>>) {
        while !granted.is_empty() {
            for QueuedRequest { ticket, .. } in std::mem::take(&mut granted) {
                let Ticket { session, request, .. } = ticket;
                if let Some(outcome) = self.take_in_kernel(&session, request, &mut granted) {
                    session.push_outcome(request.generation, outcome);
                }
            }
        }
    }

    /// Takes a lock in the kernel that was granted in the table: at once if no other process holds it. Adds the requests
    /// that are granted by a refusal to `granted`.
    fn take_in_kernel(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        granted: &mut Vec<QueuedRequest<Ticket>>,
    ) -> Option<OperationOutcome> {
        if !ServerKernelLocks::has(&request.target) {
            return Some(self.hold(session, request, Ok(0), granted));
        }
        if let Some(epoch) = self.kernel.lock_now(request.target, request.kind) {
            return Some(self.hold(session, request, Ok(epoch), granted));
        }
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            let wait = request.deadline.map(|deadline| deadline - Instant::now());
            let go_on = || session.check_current(request.generation);
            let locked = service.kernel.lock(request.target, request.kind, wait, go_on).await;
            let mut granted = vec![];
            let outcome = service.hold(&session, request, locked, &mut granted);
            session.push_outcome(request.generation, outcome);
            service.grant(granted);
        });
        None
    }

    /// Records a lock that was granted in the table. Frees it instead if the kernel refused it, or the session has
    /// ended, and adds the requests that this grants to `granted`.
    pub(super) fn hold(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        locked: Result<u64>,
        granted: &mut Vec<QueuedRequest<Ticket>>,
    ) -> OperationOutcome {
        let LockRequest { number, target, kind, since, .. } = request;
        self.latencies.record(RequestKind::LockWait, since.elapsed());
        let in_kernel = ServerKernelLocks::has(&target) && locked.is_ok();
        let locked = locked.and_then(|epoch| Ok((epoch, self.site_epoch_of(&target)?)));
        let (epoch, site_epoch) = *locked.as_ref().unwrap_or(&(0, 0));
        let held = HeldBy { in_kernel, epoch, site_epoch, kind };
        let result = self.settle(session, request, held, locked.map(drop), granted);
        let result = result.map(|fence| Granted { epoch, fence, ..Granted::default() });
        OperationOutcome { number, result }
    }

    /// Ends a request that was granted in the table: the session holds the lock, whose fence this returns, or it is free.
    /// Then the requests that this grants are added to `granted`, and the caller completes them.
    ///
    /// # Errors
    /// That of `locked`; [`Error::Closed`] if the session has ended, or its client has opened another stream.
    pub(super) fn settle(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        held: HeldBy,
        locked: Result<()>,
        granted: &mut Vec<QueuedRequest<Ticket>>,
    ) -> Result<Option<Fence>> {
        let LockRequest { owner, target, .. } = request;
        let mut state = session.lock();
        state.requests.remove(&request.place());
        let is_current = state.is_current(request.generation);
        let locked = locked.and_then(|()| is_current.then_some(()).ok_or_else(session_over));
        if let Err(error) = locked {
            let owner = OwnerId { session: session.number(), number: owner };
            let others = self.release(owner, target, held);
            let postponed = state.postponed.remove(&request.place());
            drop(state);
            self.repeat(session, postponed);
            // If others are granted, the last of them sweeps.
            if others.is_empty() {
                self.sweep(target);
            }
            granted.extend(others);
            return Err(error);
        }
        state.hold(owner, target, held);
        Ok(self.fence(&target))
    }

    fn busy(&self, target: &LockTarget, waited: Duration) -> Error {
        let holder = self.table.holder(target).and_then(|owner| self.holder(owner));
        Error::Busy { what: self.describe(target), holder: holder.map(Box::new), waited }
    }

    fn describe_wait(&self, waiter: OwnerId, target: &LockTarget) -> String {
        let name = match self.holder(waiter) {
            Some(holder) => holder.name(),
            None => "a session that ended".to_owned(),
        };
        self.describe_wait_of(&name, waiter.number, target)
    }

    /// A wait of a transaction of a client, in the cycle of a deadlock.
    pub(super) fn describe_wait_of(
        &self,
        client: &str,
        number: u64,
        target: &LockTarget,
    ) -> String {
        format!("transaction {number} of {client} waits for {}", self.describe(target))
    }
}
