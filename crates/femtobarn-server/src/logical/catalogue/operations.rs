//! Locks and pins of sessions.
//!
//! A lock is taken in the table first, and then in the kernel unless its target is a container. Only then does the
//! session hold it, so a lock that is granted after its session has ended is freed at once. Outcomes are delivered on the
//! stream that asked for them, and not after the session has ended: its client asks again in the next stream or session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use femtobarn_catalog::{Csn, Error, LockKind, LockTarget, Result, clock};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::service::FederationService;
use super::session::{CatalogueSession, OperationOutcome, Ticket, session_over};
use super::state::{Granted, HeldBy, LockRequest, PendingLock};
use crate::logical::latency::RequestKind;
use crate::logical::locks::{LockAnswer, OwnerId, QueuedRequest, ServerKernelLocks};

/// The pause before a request is repeated because its owner still waits for the same lock by a request of an earlier
/// stream.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

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
                self.unlock_fenced(session, owner, target);
                None
            }
            SessionOperation::Unlock { owner, target, .. } => {
                let held = session.lock().release(owner, target);
                if let Some(held) = held {
                    self.free(OwnerId { session: session.number(), number: owner }, target, held);
                }
                None
            }
            SessionOperation::Pin { number, csn } => self.pin(session, generation, number, csn),
            SessionOperation::Unpin { csn } => {
                unpin(session, csn);
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
        if let Err(error) = self.check_lock(session) {
            return refused(error);
        }
        if session.lock().postpone(request) {
            return None;
        }
        let owner = OwnerId { session: session.number(), number: request.owner };
        let has_earlier = session.lock().has_earlier(&request);
        let mut answer = self.table.try_lock(owner, request.target, request.kind);
        if answer == LockAnswer::Busy && !request.is_late() {
            // The wait is recorded before the request is queued, because the thread that grants the lock looks it up.
            if let Err(error) = self.begin_wait(session, request) {
                return refused(error);
            }
            let ticket =
                Ticket { session: Arc::clone(session), request, since_ms: clock::utc_ms() };
            answer = self.table.lock(owner, request.target, request.kind, ticket);
            if answer != LockAnswer::Waits {
                end_wait(session, request.number);
            }
        }
        match answer {
            LockAnswer::Granted => self.take_in_kernel(session, request),
            LockAnswer::Waits => None,
            LockAnswer::Busy => {
                let busy = move |service: &Self| service.busy(&request.target, Duration::ZERO);
                self.refuse(session, request, busy)
            }
            LockAnswer::Duplicate if has_earlier => {
                self.repeat(session, request);
                None
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

    /// Repeats a request a moment later, when that of an earlier stream may have ended.
    fn repeat(self: &Arc<Self>, session: &Arc<CatalogueSession>, request: LockRequest) {
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            sleep(REPEAT_AFTER).await;
            if session.check_current(request.generation).is_ok()
                && let Some(outcome) = service.lock(&session, request)
            {
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

    fn check_lock(&self, session: &CatalogueSession) -> Result<()> {
        if self.is_read_only() || !session.may_write {
            return Err(Error::Denied {
                what: format!("federation {} is read-only for this session", self.name),
            });
        }
        session.lock().check_share()
    }

    /// Records a wait, unless the session has ended or its client has opened another stream.
    fn begin_wait(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Result<()> {
        let LockRequest { number, owner, target, .. } = request;
        let mut state = session.lock();
        if !state.is_current(request.generation) {
            return Err(session_over());
        }
        let timer = request.deadline.map(|deadline| {
            let (service, session, since) = (Arc::clone(self), Arc::clone(session), Instant::now());
            let give_up = async move {
                tokio::time::sleep_until(deadline).await;
                service.give_up(&session, number, since.elapsed());
            };
            tokio::spawn(give_up).abort_handle()
        });
        state.waiting.insert(number, PendingLock { owner, target, timer });
        Ok(())
    }

    /// Ends a wait that reached its deadline.
    fn give_up(self: &Arc<Self>, session: &Arc<CatalogueSession>, number: u64, waited: Duration) {
        self.end_wait_by(session, number, move |service, target| {
            service.latencies.record(RequestKind::LockWait, waited);
            service.busy(target, waited)
        });
    }

    /// Ends a wait with an error, unless it is over already.
    pub(super) fn end_wait_by(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        number: u64,
        why: impl FnOnce(&Self, &LockTarget) -> Error + Send + 'static,
    ) {
        let Some(wait) = session.lock().waiting.remove(&number) else { return };
        let owner = OwnerId { session: session.number(), number: wait.owner };
        let (gone, granted) = self.table.give_up(owner, wait.target);
        if let Some(gone) = gone {
            self.refuse(session, gone.ticket.request, move |service| why(service, &wait.target));
        }
        self.grant(granted);
        if let Some(timer) = wait.timer {
            timer.abort();
        }
    }

    /// Frees a lock of a session.
    pub(super) fn free(self: &Arc<Self>, owner: OwnerId, target: LockTarget, held: HeldBy) {
        self.grant(self.release(owner, target, held));
        self.sweep(target);
    }

    /// Frees a lock of a session, and returns the queued requests that this grants.
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

    /// Ends waits of a session whose outcomes no client will read.
    pub(super) fn give_up_all(
        self: &Arc<Self>,
        session: &CatalogueSession,
        waits: Vec<PendingLock>,
    ) {
        for wait in waits {
            if let Some(timer) = wait.timer {
                timer.abort();
            }
            let owner = OwnerId { session: session.number(), number: wait.owner };
            let (_, granted) = self.table.give_up(owner, wait.target);
            self.grant(granted);
        }
    }

    /// Completes requests that were granted in the table.
    pub(super) fn grant(self: &Arc<Self>, granted: Vec<QueuedRequest<Ticket>>) {
        for QueuedRequest { ticket: Ticket { session, request, .. }, .. } in granted {
            end_wait(&session, request.number);
            if let Some(outcome) = self.take_in_kernel(&session, request) {
                session.push_outcome(request.generation, outcome);
            }
        }
    }

    /// Takes a lock in the kernel that was granted in the table: at once if no other process holds it.
    fn take_in_kernel(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Option<OperationOutcome> {
        if !ServerKernelLocks::has(&request.target) {
            return Some(self.hold(session, request, Ok(0)));
        }
        if let Some(epoch) = self.kernel.lock_now(request.target, request.kind) {
            return Some(self.hold(session, request, Ok(epoch)));
        }
        let place = (request.owner, request.target);
        session.lock().in_kernel.insert(place, request.generation);
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            let wait = request.deadline.map(|deadline| deadline - Instant::now());
            let go_on = || session.check_current(request.generation);
            let locked = service.kernel.lock(request.target, request.kind, wait, go_on).await;
            let outcome = service.hold(&session, request, locked);
            session.lock().leave_kernel(&request);
            session.push_outcome(request.generation, outcome);
        });
        None
    }

    /// Records a lock that was granted in the table. Frees it instead if the kernel refused it, or the session has
    /// ended.
    fn hold(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        locked: Result<u64>,
    ) -> OperationOutcome {
        let LockRequest { number, owner, target, generation, since, .. } = request;
        self.latencies.record(RequestKind::LockWait, since.elapsed());
        let in_kernel = ServerKernelLocks::has(&target) && locked.is_ok();
        let locked = locked.and_then(|epoch| Ok((epoch, self.site_epoch_of(&target)?)));
        let (epoch, site_epoch) = *locked.as_ref().unwrap_or(&(0, 0));
        let held = HeldBy { in_kernel, epoch, site_epoch, kind: request.kind };
        let result = locked.and_then(|(epoch, _)| {
            let mut state = session.lock();
            if !state.is_current(generation) {
                return Err(session_over());
            }
            state.hold(owner, target, held);
            let fence = self.fence(&target);
            Ok(Granted { epoch, fence, ..Granted::default() })
        });
        if result.is_err() {
            self.free(OwnerId { session: session.number(), number: owner }, target, held);
        }
        OperationOutcome { number, result }
    }

    fn pin(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        number: u64,
        csn: Option<Csn>,
    ) -> Option<OperationOutcome> {
        let refused = |error| Some(OperationOutcome { number, result: Err(error) });
        {
            let mut state = session.lock();
            let is_current = state.is_current(generation).then_some(()).ok_or_else(session_over);
            if let Err(error) = is_current.and_then(|()| state.check_share()) {
                return refused(error);
            }
            if let Some((_, count)) = csn.and_then(|csn| state.pins.get_mut(&csn)) {
                *count += 1;
                let csn = csn.unwrap_or_default();
                return Some(OperationOutcome { number, result: Ok(pinned(csn)) });
            }
        }
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        spawn_blocking(move || {
            let result = service.pin_now(&session, generation, csn, 1).map(pinned);
            session.push_outcome(generation, OperationOutcome { number, result });
        });
        None
    }

    /// Adds `count` pins to a snapshot for the client's stream `generation`. May wait for the disk.
    pub(super) fn pin_now(
        &self,
        session: &CatalogueSession,
        generation: u64,
        csn: Option<Csn>,
        count: u32,
    ) -> Result<Csn> {
        let (csn, guard) = match csn {
            Some(csn) => (csn, self.catalog.pin(csn)?),
            None => self.catalog.pin_head()?,
        };
        let mut state = session.lock();
        if !state.is_current(generation) {
            return Err(session_over());
        }
        let pin = state.pins.entry(csn).or_insert((guard, 0));
        pin.1 = pin.1.saturating_add(count);
        Ok(csn)
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

impl LockRequest {
    /// Whether its deadline has passed.
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

fn pinned(csn: Csn) -> Granted {
    Granted { csn, ..Granted::default() }
}

fn end_wait(session: &CatalogueSession, number: u64) {
    let wait = session.lock().waiting.remove(&number);
    if let Some(timer) = wait.and_then(|wait| wait.timer) {
        timer.abort();
    }
}

fn unpin(session: &CatalogueSession, csn: Csn) {
    let mut state = session.lock();
    if let Some((_, count)) = state.pins.get_mut(&csn) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            state.pins.remove(&csn);
        }
    }
}
