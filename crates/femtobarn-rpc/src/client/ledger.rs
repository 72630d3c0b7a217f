//! The session's ledger: its locks and pins, its pending operations, and those of the next turn.
//!
//! Invariants:
//! 1. Locks in `held` were granted and not freed; the session claims them when it is opened again.
//! 2. Operations in `pending` were not answered; they are sent again after the session was opened again.
//! 3. The server pins a snapshot once for the session, however many pins the client has on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use femtobarn_catalog::{Csn, DatabaseId, Error, Fence, LockKind, LockTarget, Result};
use tokio::sync::oneshot;

use crate::v1::failure::Of;
use crate::v1::operation::Kind;
use crate::v1::{self, Answer, Held, Operation, Outcome, Pinned, Welcome};
use crate::{SESSION_OVER, TURN_OPERATIONS_MAX};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    held: HashMap<(u64, LockTarget), GrantedLock>,
    /// The number of pins of each snapshot.
    pins: HashMap<Csn, u32>,
    pending: BTreeMap<u64, PendingOperation>,
    queue: Vec<Operation>,
    last_number: u64,
    last_owner: u64,
}

#[derive(Debug)]
struct GrantedLock {
    kind: LockKind,
    epoch: u64,
    /// The fence of a database's lock, if the federation has several servers.
    fence: Option<Fence>,
    /// Whether another session may have held it since.
    is_lost: bool,
    /// Whether a commit that relies on it may still be under way at another server.
    is_in_doubt: bool,
}

#[derive(Debug)]
struct PendingOperation {
    operation: Operation,
    answer: oneshot::Sender<Result<GrantedOperation>>,
}

/// A lock or a pin that was granted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GrantedOperation {
    /// The snapshot of a pin.
    pub csn: Csn,
    /// The answers to the operation's questions; empty from an older server.
    pub answers: Vec<Answer>,
}

/// The session has ended at the server, and must be opened again.
#[derive(Debug)]
pub(super) struct SessionEnded;

/// Whether a server reports the end of the session as the outcome of an operation; newer servers end the stream instead.
fn is_end_of_session(outcome: &Outcome) -> bool {
    let of = outcome.failure.as_ref().and_then(|failure| failure.of.as_ref());
    matches!(of, Some(Of::Closed(what)) if what == SESSION_OVER)
}

impl Ledger {
    pub(super) fn new_owner(&mut self) -> u64 {
        self.last_owner += 1;
        self.last_owner
    }

    /// Queues the request of a lock or a pin. The channel receives the answer.
    pub(super) fn request(
        &mut self,
        mut operation: Operation,
    ) -> oneshot::Receiver<Result<GrantedOperation>> {
        self.last_number += 1;
        operation.number = self.last_number;
        let (answer, answered) = oneshot::channel();
        self.queue.push(operation.clone());
        self.pending.insert(self.last_number, PendingOperation { operation, answer });
        answered
    }

    /// Frees a lock; returns whether the server must be informed.
    pub(super) fn unlock(&mut self, owner: u64, target: LockTarget) -> bool {
        let held = self.held.remove(&(owner, target));
        let in_doubt = held.as_ref().is_some_and(|held| held.is_in_doubt);
        let is_held = held.is_some_and(|held| !held.is_lost);
        if is_held {
            self.queue.push(Operation {
                kind: Kind::Unlock.into(),
                owner,
                target: Some(target.into()),
                in_doubt,
                ..Operation::default()
            });
        }
        is_held
    }

    /// Adds a pin to a snapshot; returns whether it was pinned already.
    pub(super) fn pin_again(&mut self, csn: Csn) -> bool {
        match self.pins.get_mut(&csn) {
            Some(count) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    /// Whether a snapshot is pinned, and was not lost when the session was opened again.
    pub(super) fn is_pinned(&self, csn: Csn) -> bool {
        self.pins.contains_key(&csn)
    }

    /// Whether any snapshot is pinned.
    pub(super) fn has_pins(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Removes a pin; returns whether the server must be informed.
    pub(super) fn unpin(&mut self, csn: Csn) -> bool {
        let Some(count) = self.pins.get_mut(&csn) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.pins.remove(&csn);
            self.queue_unpin(csn);
        }
        is_last
    }

    fn queue_unpin(&mut self, csn: Csn) {
        self.queue.push(Operation {
            kind: Kind::Unpin.into(),
            csn: Some(csn.0),
            ..Operation::default()
        });
    }

    /// Takes the operations of the next turn from the queue. A lock with questions is sent in the same turn as the lock
    /// before it.
    pub(super) fn next_operations(&mut self) -> Vec<Operation> {
        let mut count = self.queue.len().min(TURN_OPERATIONS_MAX);
        if let [last, next, ..] = &self.queue[count.saturating_sub(1)..]
            && last.questions.is_empty()
            && !next.questions.is_empty()
        {
            count -= 1;
        }
        let rest = self.queue.split_off(count);
        std::mem::replace(&mut self.queue, rest)
    }

    /// The locks and pins that the session claims when it is opened again. Clears the queue: the server frees all locks
    /// and pins that are not claimed.
    pub(super) fn claims(&mut self) -> (Vec<Held>, Vec<Pinned>) {
        self.queue.clear();
        let held = self.held.iter().filter(|(_, held)| !held.is_lost);
        let locks = held.map(|((owner, target), held)| Held {
            owner: *owner,
            target: Some((*target).into()),
            exclusive: held.kind == LockKind::Exclusive,
            epoch: held.epoch,
        });
        let pins = self.pins.keys().map(|csn| Pinned { csn: csn.0, count: 1 });
        (locks.collect(), pins.collect())
    }

    /// Notes that the session is open again: marks the lost locks and pins, and queues the pending operations again.
    pub(super) fn reopened(&mut self, welcome: &Welcome) {
        for lost in &welcome.lost_locks {
            let target = lost.target.map(LockTarget::try_from);
            let Some(Ok(target)) = target else { continue };
            if let Some(held) = self.held.get_mut(&(lost.owner, target)) {
                held.is_lost = true;
            }
        }
        for fence in welcome.fences.iter().cloned().map(Fence::from) {
            let is_of = |target: &LockTarget| *target == LockTarget::Database(fence.database);
            let held = self.held.iter_mut().filter(|((_, target), _)| is_of(target));
            held.for_each(|(_, held)| held.fence = Some(fence.clone()));
        }
        for csn in &welcome.lost_pins {
            self.pins.remove(&Csn(*csn));
        }
        // Operations that were queued since the claims are among the pending ones.
        self.queue.retain(|operation| operation.number == 0);
        self.queue.extend(self.pending.values().map(|pending| pending.operation.clone()));
    }

    /// Records the outcomes of a turn, and answers their callers.
    ///
    /// # Errors
    /// [`SessionEnded`] if the server reports that instead of an outcome. That operation stays pending.
    pub(super) fn settle_all(
        &mut self,
        outcomes: Vec<Outcome>,
    ) -> std::result::Result<(), SessionEnded> {
        for outcome in outcomes {
            if is_end_of_session(&outcome) {
                return Err(SessionEnded);
            }
            self.settle(outcome);
        }
        Ok(())
    }

    /// Records the outcome of an operation, and answers its caller.
    fn settle(&mut self, outcome: Outcome) {
        let Some(PendingOperation { operation, answer }) = self.pending.remove(&outcome.number)
        else {
            return;
        };
        let result = match outcome.failure {
            Some(failure) => Err(failure.into()),
            None => self
                .grant(&operation, (outcome.epoch, outcome.fence), Csn(outcome.csn))
                .map(|csn| GrantedOperation { csn, answers: outcome.answers }),
        };
        if let Err(Ok(granted)) = answer.send(result) {
            self.give_back(&operation, granted.csn);
        }
    }

    /// Frees a lock or pin that was granted to a caller that has stopped waiting.
    fn give_back(&mut self, operation: &Operation, csn: Csn) {
        match operation.target.map(LockTarget::try_from) {
            Some(Ok(target)) => drop(self.unlock(operation.owner, target)),
            _ => drop(self.unpin(csn)),
        }
    }

    fn grant(
        &mut self,
        operation: &Operation,
        (epoch, fence): (u64, Option<v1::Fence>),
        csn: Csn,
    ) -> Result<Csn> {
        let kind = match operation.kind() {
            Kind::LockShared => LockKind::Shared,
            Kind::LockExclusive => LockKind::Exclusive,
            _ => {
                if self.pin_again(csn) {
                    self.queue_unpin(csn);
                } else {
                    self.pins.insert(csn, 1);
                }
                return Ok(csn);
            }
        };
        let target = LockTarget::try_from(operation.target.unwrap_or_default())?;
        let fence = fence.map(Into::into);
        let granted = GrantedLock { kind, epoch, fence, is_lost: false, is_in_doubt: false };
        self.held.insert((operation.owner, target), granted);
        Ok(csn)
    }

    /// Answers all pending operations with an error.
    pub(super) fn fail(&mut self, error: &Error) {
        self.queue.clear();
        for (_, pending) in std::mem::take(&mut self.pending) {
            drop(pending.answer.send(Err(error.clone())));
        }
    }

    /// Notes that a commit to some databases may still be under way at another server.
    pub(super) fn doubt(&mut self, databases: &BTreeSet<DatabaseId>) {
        for ((_, target), held) in &mut self.held {
            held.is_in_doubt |=
                matches!(target, LockTarget::Database(database) if databases.contains(database));
        }
    }

    /// Whether the session has the lock of a database, and has not lost it.
    pub(super) fn holds(&self, database: DatabaseId) -> bool {
        let is_it = |target: &LockTarget| *target == LockTarget::Database(database);
        self.held.iter().any(|((_, target), held)| is_it(target) && !held.is_lost)
    }

    /// The fences of those databases among `databases` that the session has locked.
    pub(super) fn fences(&self, databases: &BTreeSet<DatabaseId>) -> Vec<Fence> {
        let is_due = |target: &LockTarget| matches!(target, LockTarget::Database(database) if databases.contains(database));
        let held = self.held.iter().filter(|((_, target), held)| is_due(target) && !held.is_lost);
        let mut fences: Vec<Fence> = held.filter_map(|(_, held)| held.fence.clone()).collect();
        // Several transactions may share a database.
        fences.sort_by_key(|fence| fence.database);
        fences.dedup_by_key(|fence| fence.database);
        fences
    }

    /// The first of some databases whose lock was lost, and whose owner has not freed it yet.
    pub(super) fn lost_database(
        &self,
        databases: impl Iterator<Item = DatabaseId>,
    ) -> Option<DatabaseId> {
        let mut databases = databases;
        databases.find(|database| {
            let is_it = |target: &LockTarget| *target == LockTarget::Database(*database);
            self.held.iter().any(|((_, target), held)| held.is_lost && is_it(target))
        })
    }
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::ContainerId;

    use super::*;

    fn lock(ledger: &mut Ledger, owner: u64, target: LockTarget) -> Operation {
        let operation = Operation {
            kind: Kind::LockShared.into(),
            owner,
            target: Some(target.into()),
            ..Operation::default()
        };
        let mut answer = ledger.request(operation);
        let asked = ledger.next_operations().pop().unwrap();
        ledger.settle(Outcome { number: asked.number, epoch: 3, ..Outcome::default() });
        answer.try_recv().unwrap().unwrap();
        asked
    }

    #[test]
    fn held_locks_are_claimed_and_lost_ones_are_remembered() {
        let mut ledger = Ledger::default();
        let (one, other) = (DatabaseId(1), DatabaseId(2));
        lock(&mut ledger, 1, LockTarget::Database(one));
        lock(&mut ledger, 1, LockTarget::Database(other));
        lock(&mut ledger, 1, LockTarget::Container(one, ContainerId(5)));
        ledger.unlock(1, LockTarget::Container(one, ContainerId(5)));
        let (claimed, _) = ledger.claims();
        assert_eq!(claimed.len(), 2);
        assert!(claimed.iter().all(|held| held.epoch == 3 && !held.exclusive));
        assert!(
            ledger.next_operations().is_empty(),
            "a lock that is not claimed is freed by the server"
        );
        let lost = claimed.into_iter().find(|held| held.target.unwrap().database == 2);
        let lost_locks = lost.into_iter().collect();
        ledger.reopened(&Welcome { lost_locks, ..Welcome::default() });
        assert_eq!(ledger.lost_database([one].into_iter()), None);
        assert_eq!(ledger.lost_database([one, other].into_iter()), Some(other));
        assert!(!ledger.unlock(1, LockTarget::Database(other)), "a lost lock is not freed again");
        assert_eq!(ledger.lost_database([other].into_iter()), None);
    }

    #[test]
    fn unlocks_mark_the_locks_that_are_in_doubt() {
        let mut ledger = Ledger::default();
        for database in [1, 2].map(DatabaseId) {
            lock(&mut ledger, 1, LockTarget::Database(database));
        }
        ledger.doubt(&[DatabaseId(1)].into());
        for (database, in_doubt) in [(1, true), (2, false)] {
            ledger.unlock(1, LockTarget::Database(DatabaseId(database)));
            assert_eq!(ledger.next_operations().pop().unwrap().in_doubt, in_doubt);
        }
    }

    #[test]
    fn grants_to_a_caller_that_stopped_waiting_are_freed() {
        let mut ledger = Ledger::default();
        let target = LockTarget::Database(DatabaseId(1));
        let lock = Operation {
            kind: Kind::LockExclusive.into(),
            owner: 7,
            target: Some(target.into()),
            ..Operation::default()
        };
        let pin = Operation { kind: Kind::Pin.into(), ..Operation::default() };
        for (operation, freed) in [(lock, Kind::Unlock), (pin, Kind::Unpin)] {
            drop(ledger.request(operation));
            let asked = ledger.next_operations().pop().unwrap();
            ledger.settle(Outcome { number: asked.number, csn: 5, ..Outcome::default() });
            assert_eq!(ledger.next_operations().pop().map(|it| it.kind()), Some(freed));
        }
        assert_eq!(ledger.claims(), (vec![], vec![]));
    }

    /// Earlier servers sent this as the final answer to requests that waited for a lock or a pin.
    #[test]
    fn an_operation_whose_session_has_ended_is_sent_again() {
        let mut ledger = Ledger::default();
        let mut answer =
            ledger.request(Operation { kind: Kind::Pin.into(), ..Operation::default() });
        let asked = ledger.next_operations();
        let number = asked[0].number;
        let failed = |what: &str| {
            let of = Some(Of::Closed(what.to_owned()));
            let failure = Some(v1::Failure { of, denied: false });
            vec![Outcome { number, failure, ..Outcome::default() }]
        };
        assert!(ledger.settle_all(failed(SESSION_OVER)).is_err());
        assert!(answer.try_recv().is_err(), "it is pending");
        ledger.claims();
        ledger.reopened(&Welcome::default());
        assert_eq!(ledger.next_operations(), asked);
        ledger.settle_all(failed("the catalogue was moved")).unwrap();
        assert!(matches!(answer.try_recv().unwrap(), Err(Error::Closed { .. })));
    }

    #[test]
    fn pending_operations_are_sent_again_once() {
        let mut ledger = Ledger::default();
        let mut answer =
            ledger.request(Operation { kind: Kind::Pin.into(), ..Operation::default() });
        let asked = ledger.next_operations();
        ledger.claims();
        drop(ledger.request(Operation { kind: Kind::Pin.into(), ..Operation::default() }));
        ledger.reopened(&Welcome::default());
        let again = ledger.next_operations();
        assert_eq!((again.len(), &again[0]), (2, &asked[0]), "each is sent once");
        ledger.settle(Outcome { number: asked[0].number, csn: 7, ..Outcome::default() });
        assert_eq!(answer.try_recv().unwrap().unwrap().csn, Csn(7));
        assert_eq!(ledger.claims().1, [Pinned { csn: 7, count: 1 }]);
        assert!(ledger.is_pinned(Csn(7)));
        ledger.reopened(&Welcome { lost_pins: vec![7], ..Welcome::default() });
        assert!(!ledger.is_pinned(Csn(7)));
    }

    #[test]
    fn server_pins_a_snapshot_once_for_all_local_pins() {
        let mut ledger = Ledger::default();
        let mut waiting = vec![];
        for _ in 0..2 {
            let pin = Operation { kind: Kind::Pin.into(), ..Operation::default() };
            waiting.push(ledger.request(pin));
            let number = ledger.next_operations()[0].number;
            ledger.settle(Outcome { number, csn: 7, ..Outcome::default() });
        }
        let sent = ledger.next_operations();
        assert_eq!((sent.len(), sent[0].kind()), (1, Kind::Unpin), "the second is not needed");
        assert!(ledger.is_pinned(Csn(7)));
        assert!(!ledger.unpin(Csn(7)));
        assert!(ledger.unpin(Csn(7)));
        assert_eq!(ledger.next_operations()[0].kind(), Kind::Unpin);
    }
}
