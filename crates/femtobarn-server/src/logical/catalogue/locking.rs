//! Locks and pins of sessions.
//!
//! A lock is taken in the table first, and then in the kernel if it is one of those. A session holds it
//! only after that, so what comes too late for a session that has ended is freed at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{Csn, Error, LockKind, LockTarget, Result};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::session::{Asked, Granted, HeldBy, Outcome, Session, Ticket, Wait};
use super::{FederationService, over};
use crate::logical::latency::RequestKind;
use crate::logical::locks::{Answer, KernelLocks, Owner, Waiting};

/// What a client wants to be done with a lock or a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Lock something.
    Lock {
        /// Names the operation in its outcome.
        number: u64,
        /// For which transaction.
        owner: u64,
        /// What.
        target: LockTarget,
        /// How.
        kind: LockKind,
        /// How long to wait; none: as long as it takes.
        wait: Option<Duration>,
    },
    /// Free a lock.
    Unlock {
        /// Of which transaction.
        owner: u64,
        /// What.
        target: LockTarget,
    },
    /// Pin a snapshot.
    Pin {
        /// Names the operation in its outcome.
        number: u64,
        /// Of which commit; of the newest if none.
        csn: Option<Csn>,
    },
    /// Take one pin away.
    Unpin {
        /// Of which commit.
        csn: Csn,
    },
}

impl FederationService {
    /// Begins an operation of a session. Its outcome is returned if it is known at once; otherwise the
    /// session is told later. Freeing has none.
    ///
    /// # Errors
    /// [`Error::Closed`] if the session has ended, or its client has come again since `generation`.
    pub fn operate(
        self: &Arc<Self>,
        session: &Arc<Session>,
        generation: u64,
        operation: Operation,
    ) -> Result<Option<Outcome>> {
        {
            let state = session.lock();
            if state.is_over || state.generation != generation {
                return Err(over());
            }
        }
        Ok(match operation {
            Operation::Lock { number, owner, target, kind, wait } => {
                let since = Instant::now();
                let deadline = wait.and_then(|wait| since.checked_add(wait));
                let asked = Asked { number, owner, target, kind, generation, since, deadline };
                self.lock(session, asked)
            }
            Operation::Unlock { owner, target } => {
                let held = session.lock().release(owner, target);
                if let Some(held) = held {
                    self.free(Owner { session: session.number(), number: owner }, target, held);
                }
                None
            }
            Operation::Pin { number, csn } => self.pin(session, number, csn),
            Operation::Unpin { csn } => {
                unpin(session, csn);
                None
            }
        })
    }

    pub(super) fn lock(self: &Arc<Self>, session: &Arc<Session>, asked: Asked) -> Option<Outcome> {
        let refused = |error| Some(Outcome { number: asked.number, result: Err(error) });
        if let Err(error) = self.check_lock(session) {
            return refused(error);
        }
        if session.lock().postpone(asked) {
            return None;
        }
        let owner = Owner { session: session.number(), number: asked.owner };
        let mut answer = self.table.try_lock(owner, asked.target, asked.kind);
        if answer == Answer::Busy && !asked.is_late() {
            // Before it waits: whoever grants it looks for this.
            self.begin_wait(session, asked);
            let ticket = Ticket { session: Arc::clone(session), asked, since_ms: now_ms() };
            answer = self.table.lock(owner, asked.target, asked.kind, ticket);
            if answer != Answer::Waits {
                end_wait(session, asked.number);
            }
        }
        match answer {
            Answer::Granted => self.take_in_kernel(session, asked),
            Answer::Waits => None,
            Answer::Busy => {
                let busy = move |served: &Self| served.busy(&asked.target, Duration::ZERO);
                self.refuse(session, asked.number, busy)
            }
            Answer::Twice => self.refuse(session, asked.number, move |served| Error::Invalid {
                what: format!("{} is already locked by this owner", served.describe(&asked.target)),
            }),
            Answer::Deadlock(cycle) => {
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                self.refuse(session, asked.number, move |served| {
                    let cycle = cycle.iter().map(|link| served.told_of(link.waiter, &link.target));
                    Error::Deadlock { cycle: cycle.collect() }
                })
            }
        }
    }

    /// Tells a session later that it does not get a lock. The text has names from the catalogue, which may wait
    /// for the disk.
    fn refuse(
        self: &Arc<Self>,
        session: &Arc<Session>,
        number: u64,
        why: impl FnOnce(&Self) -> Error + Send + 'static,
    ) -> Option<Outcome> {
        let (served, session) = (Arc::clone(self), Arc::clone(session));
        spawn_blocking(move || session.tell(Outcome { number, result: Err(why(&served)) }));
        None
    }

    fn check_lock(&self, session: &Session) -> Result<()> {
        if self.is_read_only || !session.may_write {
            return Err(Error::Denied {
                what: format!("federation {} can only be read by this session", self.name),
            });
        }
        session.lock().check_share()
    }

    fn begin_wait(self: &Arc<Self>, session: &Arc<Session>, asked: Asked) {
        let timer = asked.deadline.map(|deadline| {
            let (served, session, since) = (Arc::clone(self), Arc::clone(session), Instant::now());
            let give_up = async move {
                tokio::time::sleep_until(deadline).await;
                served.give_up(&session, asked.number, since.elapsed());
            };
            tokio::spawn(give_up).abort_handle()
        });
        let wait = Wait { owner: asked.owner, target: asked.target, timer };
        session.lock().waiting.insert(asked.number, wait);
    }

    /// The end of a wait that took too long.
    fn give_up(self: &Arc<Self>, session: &Arc<Session>, number: u64, waited: Duration) {
        let Some(wait) = session.lock().waiting.remove(&number) else { return };
        let owner = Owner { session: session.number(), number: wait.owner };
        let (gone, granted) = self.table.give_up(owner, wait.target);
        if gone.is_some() {
            self.latencies.record(RequestKind::LockWait, waited);
            self.refuse(session, number, move |served| served.busy(&wait.target, waited));
        }
        self.grant(granted);
    }

    /// Frees what a session held.
    pub(super) fn free(self: &Arc<Self>, owner: Owner, target: LockTarget, held: HeldBy) {
        self.grant(self.release(owner, target, held));
        self.sweep(target);
    }

    /// Frees what a session held, which is to be granted to those who wait for it.
    pub(super) fn release(
        &self,
        owner: Owner,
        target: LockTarget,
        held: HeldBy,
    ) -> Vec<Waiting<Ticket>> {
        if held.in_kernel {
            self.kernel.unlock(target);
        }
        self.table.unlock(owner, target)
    }

    /// Ends waits of a session that nobody waits for the end of any more.
    pub(super) fn give_up_all(self: &Arc<Self>, session: &Session, waits: Vec<Wait>) {
        for wait in waits {
            if let Some(timer) = wait.timer {
                timer.abort();
            }
            let owner = Owner { session: session.number(), number: wait.owner };
            let (_, granted) = self.table.give_up(owner, wait.target);
            self.grant(granted);
        }
    }

    /// Goes on with those who got their lock in the table.
    pub(super) fn grant(self: &Arc<Self>, granted: Vec<Waiting<Ticket>>) {
        for Waiting { ticket: Ticket { session, asked, .. }, .. } in granted {
            end_wait(&session, asked.number);
            if let Some(outcome) = self.take_in_kernel(&session, asked) {
                session.tell(outcome);
            }
        }
    }

    fn take_in_kernel(self: &Arc<Self>, session: &Arc<Session>, asked: Asked) -> Option<Outcome> {
        if !KernelLocks::has(&asked.target) {
            return Some(self.hold(session, asked, Ok(0)));
        }
        let (served, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            let wait = asked.deadline.map(|deadline| deadline - Instant::now());
            let locked = served.kernel.lock(asked.target, asked.kind, wait).await;
            let outcome = served.hold(&session, asked, locked);
            session.tell(outcome);
        });
        None
    }

    /// The session holds a lock that it has in the table, unless the kernel refused it, or the session is
    /// over.
    fn hold(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: Asked,
        locked: Result<u64>,
    ) -> Outcome {
        let Asked { number, owner, target, generation, since, .. } = asked;
        self.latencies.record(RequestKind::LockWait, since.elapsed());
        let in_kernel = KernelLocks::has(&target) && locked.is_ok();
        let held = HeldBy { in_kernel, epoch: *locked.as_ref().unwrap_or(&0) };
        let result = locked.and_then(|epoch| {
            let mut state = session.lock();
            if state.is_over || state.generation != generation {
                return Err(over());
            }
            state.hold(owner, target, held);
            Ok(Granted { epoch, csn: Csn::ZERO })
        });
        if result.is_err() {
            self.free(Owner { session: session.number(), number: owner }, target, held);
        }
        Outcome { number, result }
    }

    /// Takes a lock back that a session had; not if somebody else may have had it in between.
    pub(super) async fn retake(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: Asked,
        epoch: u64,
    ) -> bool {
        // The end of the file may be another one by now.
        if matches!(asked.target, LockTarget::Allocation(_)) {
            return false;
        }
        let owner = Owner { session: session.number(), number: asked.owner };
        if self.table.try_lock(owner, asked.target, asked.kind) != Answer::Granted {
            return false;
        }
        let locked = match KernelLocks::has(&asked.target) {
            true => self.kernel.lock(asked.target, asked.kind, Some(Duration::ZERO)).await,
            false => Ok(0),
        };
        let locked = locked.ok();
        let in_kernel = locked.is_some() && KernelLocks::has(&asked.target);
        let held = HeldBy { in_kernel, epoch };
        let is_same = locked == Some(epoch)
            && !self.is_being_vacuumed(&asked.target)
            && self.is_there(&asked.target);
        let is_held = is_same && {
            let mut state = session.lock();
            let is_current = !state.is_over && state.generation == asked.generation;
            if is_current {
                state.hold(asked.owner, asked.target, held);
            }
            is_current
        };
        if !is_held {
            self.free(owner, asked.target, held);
        }
        is_held
    }

    /// Whether a vacuum that was killed has freed space of a database and not begun a new epoch yet.
    fn is_being_vacuumed(&self, target: &LockTarget) -> bool {
        let LockTarget::Database(database) = target else { return false };
        let free = self.catalog.free_extents(*database);
        !free.is_ok_and(|free| free.iter().all(|extent| extent.is_released))
    }

    fn pin(
        self: &Arc<Self>,
        session: &Arc<Session>,
        number: u64,
        csn: Option<Csn>,
    ) -> Option<Outcome> {
        let refused = |error| Some(Outcome { number, result: Err(error) });
        {
            let mut state = session.lock();
            if let Err(error) = state.check_share() {
                return refused(error);
            }
            if let Some((_, count)) = csn.and_then(|csn| state.pins.get_mut(&csn)) {
                *count += 1;
                let csn = csn.unwrap_or_default();
                return Some(Outcome { number, result: Ok(Granted { epoch: 0, csn }) });
            }
        }
        let (served, session) = (Arc::clone(self), Arc::clone(session));
        spawn_blocking(move || {
            let result = served.pin_now(&session, csn, 1);
            let result = result.map(|csn| Granted { epoch: 0, csn });
            session.tell(Outcome { number, result });
        });
        None
    }

    /// Pins a snapshot so many times. It may wait for the disk.
    pub(super) fn pin_now(&self, session: &Session, csn: Option<Csn>, count: u32) -> Result<Csn> {
        let (csn, guard) = match csn {
            Some(csn) => (csn, self.catalog.pin(csn)?),
            None => self.catalog.pin_head()?,
        };
        let mut state = session.lock();
        if state.is_over {
            return Err(over());
        }
        let pin = state.pins.entry(csn).or_insert((guard, 0));
        pin.1 = pin.1.saturating_add(count);
        Ok(csn)
    }

    fn busy(&self, target: &LockTarget, waited: Duration) -> Error {
        let holder = self.table.holder(target).and_then(|owner| self.holder(owner));
        Error::Busy { what: self.describe(target), holder: holder.map(Box::new), waited }
    }

    fn told_of(&self, waiter: Owner, target: &LockTarget) -> String {
        let name = match self.holder(waiter) {
            Some(holder) => holder.name(),
            None => "a session that ended".to_owned(),
        };
        format!("transaction {} of {name} waits for {}", waiter.number, self.describe(target))
    }
}

impl Asked {
    /// Whether there is to be no wait.
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

fn end_wait(session: &Session, number: u64) {
    let wait = session.lock().waiting.remove(&number);
    if let Some(timer) = wait.and_then(|wait| wait.timer) {
        timer.abort();
    }
}

fn unpin(session: &Session, csn: Csn) {
    let mut state = session.lock();
    if let Some((_, count)) = state.pins.get_mut(&csn) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            state.pins.remove(&csn);
        }
    }
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
