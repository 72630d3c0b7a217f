//! [`SessionLockTable`] alone: order of grants, deadlocks, and exclusion between threads. No sockets, no clocks.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::{ContainerId, DatabaseId, LockKind, LockTarget};

use super::{LockAnswer, OwnerId, SessionLockTable, TableEntry, WaitEdge, deadlocks};

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
fn found_cycle_is_the_shortest() {
    let table = SessionLockTable::default();
    let lock = |session, of| table.lock(owner(session), target(of), EXCLUSIVE, session);
    assert_eq!(lock(1, 1), LockAnswer::Granted);
    assert_eq!(lock(2, 2), LockAnswer::Granted);
    for innocent in 3..100 {
        assert_eq!(lock(innocent, 1), LockAnswer::Waits);
    }
    assert_eq!(lock(2, 1), LockAnswer::Waits);
    assert_eq!(lock(100, 1), LockAnswer::Waits);
    let cycle =
        [(1, 2), (2, 1)].map(|(waiter, of)| WaitEdge { waiter: owner(waiter), target: target(of) });
    assert_eq!(lock(1, 2), LockAnswer::Deadlock(cycle.to_vec()));
    // The refused request left nothing behind.
    let queue: Vec<_> = table.waiting().iter().map(|it| (it.request.owner, it.target)).collect();
    let expected = (3..100).chain([2, 100]).map(|session| (owner(session), target(1)));
    assert_eq!(queue, expected.collect::<Vec<_>>());
}

#[test]
fn each_waiting_request_knows_the_owners_that_it_waits_for() {
    let table = SessionLockTable::default();
    for (session, kind) in [(1, SHARED), (2, SHARED), (3, EXCLUSIVE), (4, SHARED), (5, EXCLUSIVE)] {
        table.lock(owner(session), target(1), kind, session);
    }
    let waiting = table.waiting();
    let blockers: Vec<_> =
        waiting.iter().map(|it| (it.request.ticket, it.blockers.as_slice())).collect();
    let [one, two, three, four] = [1, 2, 3, 4].map(owner);
    assert_eq!(blockers, [(3, &[one, two][..]), (4, &[three]), (5, &[one, two, four])]);
}

#[test]
fn deadlocks_are_told_from_waits_that_will_end() {
    // 5 waits for 4, which waits for nothing, and 6 for 5. 1 and 2 wait for each other, 7 for one of them.
    let waits: [(u64, &[u64]); 6] =
        [(5, &[4]), (6, &[5]), (1, &[2]), (2, &[1]), (7, &[6, 1]), (8, &[])];
    assert_eq!(deadlocks(&waits), [[3, 2]], "the wait of 2 is to end");
    assert_eq!(deadlocks(&waits[..3]), [[0; 2]; 0]);
}

#[test]
fn deadlock_ends_no_wait_of_a_bystander() {
    // 1 holds a lock, for which 9 and then 2 wait; 1 waits for 2. If the wait of 9 ended, 1 and 2 would still wait.
    let waits: [(u64, &[u64]); 3] = [(9, &[1]), (2, &[1, 9]), (1, &[2])];
    assert_eq!(deadlocks(&waits), [[1, 2]]);
    // The same without the holder's part: 9 is a part of the only cycle.
    let waits: [(u64, &[u64]); 3] = [(9, &[1]), (2, &[9]), (1, &[2])];
    assert_eq!(deadlocks(&waits), [[0, 2, 1]]);
}

#[test]
fn some_wait_of_each_deadlock_ends() {
    let mut below = random();
    for _ in 0..2_000 {
        let of = |below: &mut dyn FnMut(u64) -> u64| (0..below(4)).map(|_| below(9)).collect();
        let mut waits: Vec<(u64, Vec<u64>)> = (0..9).map(|owner| (owner, of(&mut below))).collect();
        for _ in 0..=waits.len() {
            let slices: Vec<_> = waits.iter().map(|it| (it.0, it.1.as_slice())).collect();
            let ended: HashSet<usize> = deadlocks(&slices).iter().map(|cycle| cycle[0]).collect();
            if ended.is_empty() {
                break;
            }
            let mut place = 0..;
            waits.retain(|_| !place.next().is_some_and(|place| ended.contains(&place)));
        }
        // What is left ends in some order: again and again a wait for nobody who waits.
        while !waits.is_empty() {
            let waiting: HashSet<u64> = waits.iter().map(|it| it.0).collect();
            let count = waits.len();
            waits.retain(|(_, blockers)| blockers.iter().any(|it| waiting.contains(it)));
            assert!(waits.len() < count, "a deadlock is left: {waits:?}");
        }
    }
}

/// Numbers below the argument.
fn random() -> impl FnMut(u64) -> u64 {
    let mut random = 1_u64;
    move |end| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    }
}

/// Whether an owner waits in front of an edge's waiter, whose request may have been refused.
fn is_in_front(table: &SessionLockTable<u64>, owner: OwnerId, edge: &WaitEdge) -> bool {
    let waiting = table.waiting();
    let place =
        |of| waiting.iter().position(|it| (it.request.owner, it.target) == (of, edge.target));
    let behind = place(edge.waiter).unwrap_or(usize::MAX);
    place(owner).is_some_and(|place| place < behind)
}

/// Random requests: a wait is refused exactly if it closes a cycle, and its error has one.
#[test]
fn waits_are_refused_exactly_if_they_close_a_cycle() {
    const OWNERS: u64 = 7;
    let mut below = random();
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..400 {
        let table = SessionLockTable::default();
        for _ in 0..30 {
            let (session, of) = (below(OWNERS), target(below(4) as u32));
            let kind = if below(3) == 0 { SHARED } else { EXCLUSIVE };
            match table.lock(owner(session), of, kind, session) {
                LockAnswer::Deadlock(cycle) => {
                    refused += 1;
                    assert_eq!(cycle[0], WaitEdge { waiter: owner(session), target: of });
                    let owners: HashSet<_> = cycle.iter().map(|edge| edge.waiter).collect();
                    assert_eq!(owners.len(), cycle.len(), "{cycle:?}");
                    for (edge, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                        let is_held =
                            |it: &TableEntry| (it.owner, it.target) == (next.waiter, edge.target);
                        assert!(
                            table.held().iter().any(is_held)
                                || is_in_front(&table, next.waiter, edge),
                            "{cycle:?}"
                        );
                    }
                }
                LockAnswer::Waits => accepted += 1,
                _ => {}
            }
            let waiting = table.waiting();
            let waits = waiting.iter().map(|it| (it.request.owner, it.blockers.as_slice()));
            assert_eq!(deadlocks(&waits.collect::<Vec<_>>()), [[0; 2]; 0]);
        }
    }
    assert!(refused > 100 && accepted > 100, "{refused} {accepted}");
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
