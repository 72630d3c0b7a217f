//! Scenarios of the table of locks of a server's sessions.

#[path = "../../../femtobarn-server/src/logical/locks/deadlock.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "no scenario has several servers; it is public in the server"
)]
mod deadlock;
mod shards;
#[path = "../../../femtobarn-server/src/logical/locks/table.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "no scenario lists locks; it is public in the server"
)]
mod table;

use std::sync::Arc;

use deadlock::OwnerId;
use femtobarn_catalog::{ContainerId, DatabaseId, LockKind, LockTarget};
use loom::thread;
use table::{LockAnswer, SessionLockTable};

use crate::sync::{Condvar, Mutex};

/// What a request waits for.
#[derive(Clone, Debug, Default)]
struct WaitTicket(Arc<(Mutex<bool>, Condvar)>);

impl WaitTicket {
    fn wait(&self) {
        let mut is_granted = self.0.0.lock();
        while !*is_granted {
            self.0.1.wait(&mut is_granted);
        }
    }

    fn grant(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

type Table = Arc<SessionLockTable<WaitTicket>>;

const EXCLUSIVE: LockKind = LockKind::Exclusive;

fn owner(session: u64) -> OwnerId {
    OwnerId { session, number: 1 }
}

fn target(container: u32) -> LockTarget {
    LockTarget::Container(DatabaseId(1), ContainerId(container))
}

/// Locks a target, and returns whether that did not end in a deadlock.
fn lock(table: &Table, session: u64, container: u32, kind: LockKind) -> bool {
    let ticket = WaitTicket::default();
    match table.lock(owner(session), target(container), kind, ticket.clone()) {
        LockAnswer::Granted => {}
        LockAnswer::Waits => ticket.wait(),
        LockAnswer::Deadlock(_) => return false,
        other => panic!("{other:?}"),
    }
    true
}

fn unlock(table: &Table, session: u64, container: u32) {
    let granted = table.unlock(owner(session), target(container));
    granted.into_iter().for_each(|waiting| waiting.ticket.grant());
}

fn run(threads: impl IntoIterator<Item = Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|it| it.join().expect("it has had its locks"));
}

/// Owners lock one target, the last of them shared: nobody has it beside an exclusive holder, and all have it in the end.
pub fn owners_exclude_each_other(owners: u64, preemptions: usize) {
    crate::explore("owners exclude each other", preemptions, move || {
        let (table, holders) = (Table::default(), Arc::new(Mutex::new((0, 0))));
        run((1..=owners).map(|session| {
            let (table, holders) = (Arc::clone(&table), Arc::clone(&holders));
            let is_shared = session == owners;
            Box::new(move || {
                let kind = if is_shared { LockKind::Shared } else { EXCLUSIVE };
                assert!(lock(&table, session, 1, kind), "there is one target");
                let count = |change: i32| {
                    let mut holders = holders.lock();
                    let of_kind = if is_shared { &mut holders.1 } else { &mut holders.0 };
                    *of_kind += change;
                    assert!(
                        holders.0 == 0 || *holders == (1, 0),
                        "{holders:?} hold it",
                        holders = *holders
                    );
                };
                count(1);
                count(-1);
                unlock(&table, session, 1);
            }) as Box<dyn FnOnce() + Send>
        }));
    });
}

/// Two owners lock two targets in different orders: if both wait, one of the waits is refused.
pub fn a_cycle_of_waits_is_refused(preemptions: usize) {
    crate::explore("a cycle of waits is refused", preemptions, || {
        let table = Table::default();
        run([(1, 1, 2), (2, 2, 1)].map(|(session, first, second)| {
            let table = Arc::clone(&table);
            Box::new(move || {
                assert!(lock(&table, session, first, EXCLUSIVE), "it holds nothing yet");
                if lock(&table, session, second, EXCLUSIVE) {
                    unlock(&table, session, second);
                }
                unlock(&table, session, first);
            }) as Box<dyn FnOnce() + Send>
        }));
    });
}

/// As before, but the first owner has given up a wait before, or was granted it at that moment.
pub fn a_cycle_of_waits_is_refused_after_one_was_given_up(preemptions: usize) {
    crate::explore("a cycle of waits is refused after one was given up", preemptions, || {
        let table = Table::default();
        assert!(lock(&table, 2, 2, EXCLUSIVE), "nobody else is there");
        // The first owner holds the first target, and waits for the second.
        assert!(lock(&table, 1, 1, EXCLUSIVE), "nobody else is there");
        let waits = table.lock(owner(1), target(2), EXCLUSIVE, WaitTicket::default());
        assert_eq!(waits, LockAnswer::Waits);
        let first = {
            let table = Arc::clone(&table);
            Box::new(move || {
                let (gone, granted) = table.give_up(owner(1), target(2));
                granted.into_iter().for_each(|waiting| waiting.ticket.grant());
                if gone.is_none() {
                    unlock(&table, 1, 2);
                }
                if lock(&table, 1, 2, EXCLUSIVE) {
                    unlock(&table, 1, 2);
                }
                unlock(&table, 1, 1);
            }) as Box<dyn FnOnce() + Send>
        };
        // A third one takes the second target as soon as it is free, and then wants the first.
        let second = {
            let table = Arc::clone(&table);
            Box::new(move || unlock(&table, 2, 2)) as Box<dyn FnOnce() + Send>
        };
        let third = {
            let table = Arc::clone(&table);
            Box::new(move || {
                if lock(&table, 3, 2, EXCLUSIVE) {
                    if lock(&table, 3, 1, EXCLUSIVE) {
                        unlock(&table, 3, 1);
                    }
                    unlock(&table, 3, 2);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        run([first, second, third]);
    });
}
