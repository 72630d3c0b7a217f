//! [`SessionLockTable`] alone: order of grants, deadlocks, and exclusion between threads. No sockets, no clocks.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::{ContainerId, DatabaseId, LockKind, LockTarget};

use super::{LockAnswer, OwnerId, SessionLockTable};

const EXCLUSIVE: LockKind = LockKind::Exclusive;
const SHARED: LockKind = LockKind::Shared;

fn owner(session: u64) -> OwnerId {
    OwnerId { session, number: 1 }
}

fn target(container: u32) -> LockTarget {
    LockTarget::Container(DatabaseId(1), ContainerId(container))
}

fn tickets(granted: Vec<super::QueuedRequest<u64>>) -> Vec<u64> {
    granted.into_iter().map(|waiting| waiting.ticket).collect()
}

#[test]
fn requests_are_granted_in_the_order_of_arrival() {
    let table = SessionLockTable::default();
    let lock = |session, kind| table.lock(owner(session), target(1), kind, session);
    assert_eq!(lock(1, SHARED), LockAnswer::Granted);
    assert_eq!(lock(2, SHARED), LockAnswer::Granted);
    assert_eq!(lock(3, EXCLUSIVE), LockAnswer::Waits);
    assert_eq!(
        lock(4, SHARED),
        LockAnswer::Waits,
        "a shared request does not overtake an exclusive one"
    );
    assert_eq!(lock(5, SHARED), LockAnswer::Waits);
    assert_eq!(lock(6, EXCLUSIVE), LockAnswer::Waits);
    assert_eq!(table.try_lock(owner(7), target(1), SHARED), LockAnswer::Busy);
    let unlock = |session| tickets(table.unlock(owner(session), target(1)));
    assert_eq!(unlock(1), [0_u64; 0]);
    assert_eq!(unlock(2), [3]);
    assert_eq!(unlock(3), [4, 5]);
    assert_eq!(unlock(5), [0_u64; 0]);
    assert_eq!(unlock(4), [6]);
    assert_eq!(unlock(6), [0_u64; 0]);
    assert!(table.held().is_empty() && table.waiting().is_empty());
}

#[test]
fn withdrawn_request_lets_those_behind_it_pass() {
    let table = SessionLockTable::default();
    let lock = |session, kind| table.lock(owner(session), target(1), kind, session);
    assert_eq!(lock(1, SHARED), LockAnswer::Granted);
    assert_eq!(lock(2, EXCLUSIVE), LockAnswer::Waits);
    assert_eq!(lock(3, SHARED), LockAnswer::Waits);
    let (gone, granted) = table.give_up(owner(2), target(1));
    assert_eq!((gone.map(|gone| gone.ticket), tickets(granted)), (Some(2), vec![3]));
    let (gone, _) = table.give_up(owner(3), target(1));
    assert!(gone.is_none(), "the request was withdrawn");
}

#[test]
fn second_request_of_an_owner_is_refused() {
    let table = SessionLockTable::default();
    assert_eq!(table.lock(owner(1), target(1), SHARED, 0), LockAnswer::Granted);
    assert_eq!(table.lock(owner(1), target(1), EXCLUSIVE, 0), LockAnswer::Duplicate);
}

#[test]
fn cycle_of_any_length_is_found_by_its_last_wait() {
    for length in 2..6_u64 {
        let table = SessionLockTable::default();
        for session in 0..length {
            let own = target(session as u32);
            assert_eq!(table.lock(owner(session), own, EXCLUSIVE, session), LockAnswer::Granted);
        }
        for session in 0..length - 1 {
            let next = target(session as u32 + 1);
            assert_eq!(table.lock(owner(session), next, EXCLUSIVE, session), LockAnswer::Waits);
        }
        let last = length - 1;
        let LockAnswer::Deadlock(cycle) = table.lock(owner(last), target(0), EXCLUSIVE, last)
        else {
            panic!("no cycle of {length} was found");
        };
        let waiters: Vec<u64> = cycle.iter().map(|link| link.waiter.session).collect();
        let expected: Vec<u64> = std::iter::once(last).chain(0..last).collect();
        assert_eq!(waiters, expected);
        assert_eq!(cycle[0].target, target(0));
        // When the refused owner frees its lock, the owner that waits for it continues.
        assert_eq!(tickets(table.unlock(owner(last), target(last as u32))), [last - 1]);
    }
}

#[test]
fn cycle_through_queued_requests_is_found() {
    let table = SessionLockTable::default();
    assert_eq!(table.lock(owner(1), target(1), SHARED, 1), LockAnswer::Granted);
    assert_eq!(table.lock(owner(2), target(2), EXCLUSIVE, 2), LockAnswer::Granted);
    assert_eq!(table.lock(owner(3), target(1), EXCLUSIVE, 3), LockAnswer::Waits);
    // The request could share the lock with its holder, but queues behind an exclusive request.
    assert_eq!(table.lock(owner(2), target(1), SHARED, 2), LockAnswer::Waits);
    let answer = table.lock(owner(1), target(2), EXCLUSIVE, 1);
    let LockAnswer::Deadlock(cycle) = answer else { panic!("{answer:?}") };
    let waiters: Vec<u64> = cycle.iter().map(|link| link.waiter.session).collect();
    assert_eq!(waiters, [1, 2, 3]);
}

#[test]
fn chain_of_waits_without_a_cycle_is_accepted() {
    let table = SessionLockTable::default();
    for session in 0..50_u64 {
        let own = target(session as u32);
        assert_eq!(table.lock(owner(session), own, EXCLUSIVE, session), LockAnswer::Granted);
    }
    for session in (1..50_u64).rev() {
        let before = target(session as u32 - 1);
        assert_eq!(table.lock(owner(session), before, EXCLUSIVE, session), LockAnswer::Waits);
    }
}

/// Each thread adds to counters that the locks protect. If two threads held a lock at once, the sum would be too small;
/// if a grant was lost, a thread would wait for ever.
#[test]
fn threads_exclude_each_other() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let table = SessionLockTable::<std::sync::mpsc::Sender<()>>::default();
    let counts: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for session in 0..THREADS {
            let (table, counts, start) = (&table, &counts, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let place = ((session + round) % 3) as usize;
                    let (ticket, granted) = std::sync::mpsc::channel();
                    match table.lock(owner(session), target(place as u32), EXCLUSIVE, ticket) {
                        LockAnswer::Granted => {}
                        LockAnswer::Waits => granted.recv().expect("the lock is granted"),
                        other => panic!("{other:?}"),
                    }
                    let count = counts[place].load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counts[place].store(count + 1, Ordering::Relaxed);
                    for waiting in table.unlock(owner(session), target(place as u32)) {
                        waiting.ticket.send(()).expect("the owner waits for its ticket");
                    }
                }
            });
        }
    });
    let total: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(total, THREADS * ROUNDS);
}
