//! The session's ledger: what it holds, what it waits for, and what goes into the next turn.
//!
//! Invariants:
//! 1. What is in `held` was granted and not freed; it is what the session claims when it is opened again.
//! 2. What is in `pending` has not been answered; it is asked for again after the session was opened again.
//! 3. The server pins a snapshot once for the session, however often it is pinned here.

use std::collections::{BTreeMap, HashMap};

use femtobarn_catalog::{Csn, DatabaseId, Error, LockKind, LockTarget, Result};
use tokio::sync::oneshot;

use crate::TURN_OPERATIONS_MAX;
use crate::v1::operation::Kind;
use crate::v1::{Held, Operation, Outcome, Pinned, Welcome};

/// What comes with a lock or a pin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub csn: Csn,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    held: HashMap<(u64, LockTarget), HeldLock>,
    /// How often each snapshot is pinned here.
    pins: HashMap<Csn, u32>,
    pending: BTreeMap<u64, Pending>,
    queue: Vec<Operation>,
    numbers: u64,
    owners: u64,
}

#[derive(Debug)]
struct HeldLock {
    kind: LockKind,
    epoch: u64,
    /// Somebody else may have had it.
    is_lost: bool,
}

#[derive(Debug)]
struct Pending {
    operation: Operation,
    answer: oneshot::Sender<Result<Granted>>,
}

impl Ledger {
    pub fn new_owner(&mut self) -> u64 {
        self.owners += 1;
        self.owners
    }

    /// Asks for a lock or a pin; the answer comes by the channel.
    pub fn ask(&mut self, mut operation: Operation) -> oneshot::Receiver<Result<Granted>> {
        self.numbers += 1;
        operation.number = self.numbers;
        let (answer, answered) = oneshot::channel();
        self.queue.push(operation);
        self.pending.insert(self.numbers, Pending { operation, answer });
        answered
    }

    /// Frees a lock. Whether anything is to be said.
    pub fn unlock(&mut self, owner: u64, target: LockTarget) -> bool {
        let held = self.held.remove(&(owner, target));
        let is_held = held.is_some_and(|held| !held.is_lost);
        if is_held {
            self.queue.push(Operation {
                kind: Kind::Unlock.into(),
                owner,
                target: Some(target.into()),
                ..Operation::default()
            });
        }
        is_held
    }

    /// Pins a snapshot that is pinned here already.
    pub fn pin_again(&mut self, csn: Csn) -> bool {
        match self.pins.get_mut(&csn) {
            Some(count) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    /// Takes a pin away. Whether anything is to be said.
    pub fn unpin(&mut self, csn: Csn) -> bool {
        let Some(count) = self.pins.get_mut(&csn) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.pins.remove(&csn);
            self.say_unpin(csn);
        }
        is_last
    }

    fn say_unpin(&mut self, csn: Csn) {
        self.queue.push(Operation {
            kind: Kind::Unpin.into(),
            csn: Some(csn.0),
            ..Operation::default()
        });
    }

    /// What is to be said next, as much as fits into a turn.
    pub fn next_operations(&mut self) -> Vec<Operation> {
        let rest = self.queue.split_off(self.queue.len().min(TURN_OPERATIONS_MAX));
        std::mem::replace(&mut self.queue, rest)
    }

    /// What the session claims when it is opened again. What was to be said of it is forgotten.
    pub fn claims(&mut self) -> (Vec<Held>, Vec<Pinned>) {
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

    /// The session is open again: what was not answered is asked for again.
    pub fn welcome(&mut self, welcome: &Welcome) {
        for lost in &welcome.lost_locks {
            let target = lost.target.map(LockTarget::try_from);
            let Some(Ok(target)) = target else { continue };
            if let Some(held) = self.held.get_mut(&(lost.owner, target)) {
                held.is_lost = true;
            }
        }
        for csn in &welcome.lost_pins {
            self.pins.remove(&Csn(*csn));
        }
        // What was asked for since the claims is among those.
        self.queue.retain(|operation| operation.number == 0);
        self.queue.extend(self.pending.values().map(|pending| pending.operation));
    }

    /// Notes what became of an operation, and tells who waits for it.
    pub fn settle(&mut self, outcome: Outcome) {
        let Some(Pending { operation, answer }) = self.pending.remove(&outcome.number) else {
            return;
        };
        let result = match outcome.failure {
            Some(failure) => Err(failure.into()),
            None => self.grant(&operation, outcome.epoch, Csn(outcome.csn)),
        };
        // Who asked may be gone; what it was given is freed with the session.
        drop(answer.send(result));
    }

    fn grant(&mut self, operation: &Operation, epoch: u64, csn: Csn) -> Result<Granted> {
        let kind = match operation.kind() {
            Kind::LockShared => LockKind::Shared,
            Kind::LockExclusive => LockKind::Exclusive,
            _ => {
                if self.pin_again(csn) {
                    self.say_unpin(csn);
                } else {
                    self.pins.insert(csn, 1);
                }
                return Ok(Granted { csn });
            }
        };
        let target = LockTarget::try_from(operation.target.unwrap_or_default())?;
        self.held.insert((operation.owner, target), HeldLock { kind, epoch, is_lost: false });
        Ok(Granted { csn })
    }

    /// Nobody answers any more.
    pub fn fail(&mut self, error: &Error) {
        self.queue.clear();
        for (_, pending) in std::mem::take(&mut self.pending) {
            drop(pending.answer.send(Err(error.clone())));
        }
    }

    /// A database whose lock was lost by somebody who has not noticed yet.
    pub fn lost_database(&self, databases: impl Iterator<Item = DatabaseId>) -> Option<DatabaseId> {
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
        let mut answer = ledger.ask(operation);
        let asked = *ledger.next_operations().last().unwrap();
        ledger.settle(Outcome { number: asked.number, epoch: 3, ..Outcome::default() });
        answer.try_recv().unwrap().unwrap();
        asked
    }

    #[test]
    fn what_is_held_is_claimed_and_what_was_lost_is_remembered() {
        let mut ledger = Ledger::default();
        let (one, other) = (DatabaseId(1), DatabaseId(2));
        lock(&mut ledger, 1, LockTarget::Database(one));
        lock(&mut ledger, 1, LockTarget::Database(other));
        lock(&mut ledger, 1, LockTarget::Container(one, ContainerId(5)));
        ledger.unlock(1, LockTarget::Container(one, ContainerId(5)));
        let (claimed, _) = ledger.claims();
        assert_eq!(claimed.len(), 2);
        assert!(claimed.iter().all(|held| held.epoch == 3 && !held.exclusive));
        assert!(ledger.next_operations().is_empty(), "what is not claimed is freed by that");
        let lost = claimed.into_iter().find(|held| held.target.unwrap().database == 2);
        let lost_locks = lost.into_iter().collect();
        ledger.welcome(&Welcome { lost_locks, ..Welcome::default() });
        assert_eq!(ledger.lost_database([one].into_iter()), None);
        assert_eq!(ledger.lost_database([one, other].into_iter()), Some(other));
        assert!(!ledger.unlock(1, LockTarget::Database(other)), "it is not ours to free");
        assert_eq!(ledger.lost_database([other].into_iter()), None);
    }

    #[test]
    fn what_was_not_answered_is_asked_for_again() {
        let mut ledger = Ledger::default();
        let mut answer = ledger.ask(Operation { kind: Kind::Pin.into(), ..Operation::default() });
        let asked = ledger.next_operations();
        ledger.claims();
        drop(ledger.ask(Operation { kind: Kind::Pin.into(), ..Operation::default() }));
        ledger.welcome(&Welcome::default());
        let again = ledger.next_operations();
        assert_eq!((again.len(), again[0]), (2, asked[0]), "each is asked for once");
        ledger.settle(Outcome { number: asked[0].number, csn: 7, ..Outcome::default() });
        assert_eq!(answer.try_recv().unwrap().unwrap().csn, Csn(7));
        assert_eq!(ledger.claims().1, [Pinned { csn: 7, count: 1 }]);
    }

    #[test]
    fn a_snapshot_is_pinned_once_for_all() {
        let mut ledger = Ledger::default();
        for _ in 0..2 {
            drop(ledger.ask(Operation { kind: Kind::Pin.into(), ..Operation::default() }));
            let number = ledger.next_operations()[0].number;
            ledger.settle(Outcome { number, csn: 7, ..Outcome::default() });
        }
        let said = ledger.next_operations();
        assert_eq!((said.len(), said[0].kind()), (1, Kind::Unpin), "the second is not needed");
        assert!(!ledger.unpin(Csn(7)));
        assert!(ledger.unpin(Csn(7)));
        assert_eq!(ledger.next_operations()[0].kind(), Kind::Unpin);
    }
}
