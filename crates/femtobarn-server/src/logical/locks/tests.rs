//! The table, without sockets and clocks.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::{ContainerId, DatabaseId, LockKind, LockTarget};

use super::{Answer, Owner, Table};

const ALONE: LockKind = LockKind::Exclusive;
const SHARED: LockKind = LockKind::Shared;

fn owner(session: u64) -> Owner {
    Owner { session, number: 1 }
}

fn target(container: u32) -> LockTarget {
    LockTarget::Container(DatabaseId(1), ContainerId(container))
}

fn names(granted: Vec<super::Waiting<u64>>) -> Vec<u64> {
    granted.into_iter().map(|waiting| waiting.ticket).collect()
}

#[test]
fn those_who_wait_are_served_in_turn_and_nobody_overtakes() {
    let table = Table::default();
    let lock = |session, kind| table.lock(owner(session), target(1), kind, session);
    assert_eq!(lock(1, SHARED), Answer::Granted);
    assert_eq!(lock(2, SHARED), Answer::Granted);
    assert_eq!(lock(3, ALONE), Answer::Waits);
    assert_eq!(lock(4, SHARED), Answer::Waits, "it would overtake who waits to be alone");
    assert_eq!(lock(5, SHARED), Answer::Waits);
    assert_eq!(lock(6, ALONE), Answer::Waits);
    assert_eq!(table.try_lock(owner(7), target(1), SHARED), Answer::Busy);
    let unlock = |session| names(table.unlock(owner(session), target(1)));
    assert_eq!(unlock(1), [0_u64; 0]);
    assert_eq!(unlock(2), [3]);
    assert_eq!(unlock(3), [4, 5]);
    assert_eq!(unlock(5), [0_u64; 0]);
    assert_eq!(unlock(4), [6]);
    assert_eq!(unlock(6), [0_u64; 0]);
    assert!(table.held().is_empty() && table.waiting().is_empty());
}

#[test]
fn who_gives_up_lets_those_behind_pass() {
    let table = Table::default();
    let lock = |session, kind| table.lock(owner(session), target(1), kind, session);
    assert_eq!(lock(1, SHARED), Answer::Granted);
    assert_eq!(lock(2, ALONE), Answer::Waits);
    assert_eq!(lock(3, SHARED), Answer::Waits);
    let (gone, granted) = table.give_up(owner(2), target(1));
    assert_eq!((gone.map(|gone| gone.ticket), names(granted)), (Some(2), vec![3]));
    let (gone, _) = table.give_up(owner(3), target(1));
    assert!(gone.is_none(), "it does not wait any more");
}

#[test]
fn an_owner_does_not_wait_for_itself() {
    let table = Table::default();
    assert_eq!(table.lock(owner(1), target(1), SHARED, 0), Answer::Granted);
    assert_eq!(table.lock(owner(1), target(1), ALONE, 0), Answer::Twice);
}

#[test]
fn a_cycle_of_any_length_is_found_by_the_one_who_closes_it() {
    for length in 2..6_u64 {
        let table = Table::default();
        for session in 0..length {
            let own = target(session as u32);
            assert_eq!(table.lock(owner(session), own, ALONE, session), Answer::Granted);
        }
        for session in 0..length - 1 {
            let next = target(session as u32 + 1);
            assert_eq!(table.lock(owner(session), next, ALONE, session), Answer::Waits);
        }
        let last = length - 1;
        let Answer::Deadlock(cycle) = table.lock(owner(last), target(0), ALONE, last) else {
            panic!("no cycle of {length} was found");
        };
        let waiters: Vec<u64> = cycle.iter().map(|link| link.waiter.session).collect();
        let expected: Vec<u64> = std::iter::once(last).chain(0..last).collect();
        assert_eq!(waiters, expected);
        assert_eq!(cycle[0].target, target(0));
        // The others go on once the victim frees what it has.
        assert_eq!(names(table.unlock(owner(last), target(last as u32))), [last - 1]);
    }
}

#[test]
fn a_cycle_through_those_who_wait_in_front_is_found() {
    let table = Table::default();
    assert_eq!(table.lock(owner(1), target(1), SHARED, 1), Answer::Granted);
    assert_eq!(table.lock(owner(2), target(2), ALONE, 2), Answer::Granted);
    assert_eq!(table.lock(owner(3), target(1), ALONE, 3), Answer::Waits);
    // It could share with the holder, but waits behind the one in front.
    assert_eq!(table.lock(owner(2), target(1), SHARED, 2), Answer::Waits);
    let answer = table.lock(owner(1), target(2), ALONE, 1);
    let Answer::Deadlock(cycle) = answer else { panic!("{answer:?}") };
    let waiters: Vec<u64> = cycle.iter().map(|link| link.waiter.session).collect();
    assert_eq!(waiters, [1, 2, 3]);
}

#[test]
fn a_chain_of_waits_that_ends_is_no_cycle() {
    let table = Table::default();
    for session in 0..50_u64 {
        let own = target(session as u32);
        assert_eq!(table.lock(owner(session), own, ALONE, session), Answer::Granted);
    }
    for session in (1..50_u64).rev() {
        let before = target(session as u32 - 1);
        assert_eq!(table.lock(owner(session), before, ALONE, session), Answer::Waits);
    }
}

/// Each thread counts up what its locks protect; without exclusion counts would be lost, and without
/// service a thread would wait for ever.
#[test]
fn threads_exclude_each_other() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let table = Table::<std::sync::mpsc::Sender<()>>::default();
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
                    match table.lock(owner(session), target(place as u32), ALONE, ticket) {
                        Answer::Granted => {}
                        Answer::Waits => granted.recv().expect("the lock is granted"),
                        other => panic!("{other:?}"),
                    }
                    let count = counts[place].load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counts[place].store(count + 1, Ordering::Relaxed);
                    for waiting in table.unlock(owner(session), target(place as u32)) {
                        waiting.ticket.send(()).expect("it waits");
                    }
                }
            });
        }
    });
    let total: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(total, THREADS * ROUNDS);
}
