//! [`SessionLockTable`] alone: order of grants, deadlocks, and exclusion between threads. No sockets, no clocks.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::{ContainerId, DatabaseId, LockKind, LockTarget};

use super::{LockAnswer, OwnerId, SessionLockTable, WaitEdge, deadlocks};

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
    let kinds =
        [SHARED, SHARED, EXCLUSIVE, SHARED, EXCLUSIVE, EXCLUSIVE, SHARED, SHARED, EXCLUSIVE];
    for (session, kind) in (1..).zip(kinds) {
        table.lock(owner(session), target(1), kind, session);
    }
    let waiting = table.waiting();
    let sessions = |of: &[OwnerId]| of.iter().map(|it| it.session).collect::<Vec<_>>();
    let blockers: Vec<_> =
        waiting.iter().map(|it| (it.request.ticket, sessions(&it.blockers))).collect();
    let expected: [(u64, &[u64]); 7] = [
        (3, &[1, 2]),
        (4, &[3]),
        (5, &[1, 2, 4]),
        (6, &[1, 2, 5]),
        (7, &[6]),
        (8, &[6]),
        (9, &[1, 2, 7, 8]),
    ];
    assert_eq!(blockers, expected.map(|(waiter, of)| (waiter, of.to_vec())));
}

/// The second shared request waits with the first, not for it: it was refused because of what else the first waited for.
#[test]
fn shared_request_does_not_wait_for_a_shared_one_in_front_of_it() {
    let table = SessionLockTable::default();
    let lock = |session, of, kind| table.lock(owner(session), target(of), kind, session);
    assert_eq!(lock(1, 1, EXCLUSIVE), LockAnswer::Granted);
    assert_eq!(lock(2, 1, SHARED), LockAnswer::Waits);
    assert_eq!(lock(3, 1, SHARED), LockAnswer::Waits);
    assert_eq!(lock(3, 2, EXCLUSIVE), LockAnswer::Granted);
    assert_eq!(lock(2, 2, EXCLUSIVE), LockAnswer::Waits);
    assert_eq!(tickets(table.unlock(owner(1), target(1))), [2, 3]);
    assert_eq!(tickets(table.unlock(owner(3), target(2))), [2]);
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

/// What comes of all waits: owners that wait for nothing end and free what they hold, until nothing moves any more.
#[derive(Default)]
struct Future {
    holders: Vec<((usize, LockTarget), OwnerId, LockKind)>,
    queues: BTreeMap<(usize, LockTarget), VecDeque<(OwnerId, LockKind)>>,
}

impl Future {
    fn of(tables: &[&SessionLockTable<u64>]) -> Self {
        let mut future = Future::default();
        for (server, table) in tables.iter().enumerate() {
            let held = table.held().into_iter();
            future.holders.extend(held.map(|it| ((server, it.target), it.owner, it.kind)));
            for waiting in table.waiting() {
                let queue = future.queues.entry((server, waiting.target)).or_default();
                queue.push_back((waiting.request.owner, waiting.request.kind));
            }
        }
        future
    }

    fn ends_in_deadlock(mut self) -> bool {
        loop {
            let waiting: HashSet<OwnerId> = self.queues.values().flatten().map(|it| it.0).collect();
            let count = self.holders.len();
            self.holders.retain(|(_, owner, _)| waiting.contains(owner));
            let mut has_moved = self.holders.len() < count;
            for (target, queue) in &mut self.queues {
                while let Some((owner, kind)) = queue.front().copied() {
                    let mut held = self.holders.iter().filter(|it| it.0 == *target);
                    if !held.all(|it| (it.2, kind) == (SHARED, SHARED)) {
                        break;
                    }
                    queue.pop_front();
                    self.holders.push((*target, owner, kind));
                    has_moved = true;
                }
            }
            if !has_moved {
                return self.queues.values().any(|queue| !queue.is_empty());
            }
        }
    }
}

#[test]
fn waits_are_refused_exactly_if_they_close_a_cycle() {
    let mut below = random();
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..1_000 {
        let table = SessionLockTable::default();
        for _ in 0..40 {
            let (of, place) = (owner(below(7)), target(below(4) as u32));
            let kind = if below(2) == 0 { SHARED } else { EXCLUSIVE };
            match below(8) {
                0 => drop(table.unlock(of, place)),
                1 => drop(table.give_up(of, place)),
                _ => match table.lock(of, place, kind, 0) {
                    LockAnswer::Deadlock(cycle) => {
                        refused += 1;
                        assert_eq!(cycle[0], WaitEdge { waiter: of, target: place });
                        let owners: HashSet<_> = cycle.iter().map(|edge| edge.waiter).collect();
                        assert_eq!(owners.len(), cycle.len(), "{cycle:?}");
                        let mut future = Future::of(&[&table]);
                        future.queues.entry((0, place)).or_default().push_back((of, kind));
                        assert!(future.ends_in_deadlock(), "{cycle:?}");
                    }
                    LockAnswer::Waits => accepted += 1,
                    _ => {}
                },
            }
            assert!(!Future::of(&[&table]).ends_in_deadlock());
        }
    }
    assert!(refused > 1_000 && accepted > 1_000, "{refused} {accepted}");
}

/// Owners that lock at two servers, each of which sees only its own waits.
#[test]
fn deadlocks_of_several_servers_are_found_exactly() {
    let mut below = random();
    let mut ended = 0;
    for _ in 0..1_000 {
        let tables = [SessionLockTable::default(), SessionLockTable::default()];
        for _ in 0..30 {
            let (of, place) = (owner(below(7)), target(below(3) as u32));
            let kind = if below(2) == 0 { SHARED } else { EXCLUSIVE };
            tables[below(2) as usize].lock(of, place, kind, 0);
        }
        loop {
            let waiting: Vec<_> = tables.iter().flat_map(SessionLockTable::waiting).collect();
            let waits: Vec<_> =
                waiting.iter().map(|it| (it.request.owner, it.blockers.as_slice())).collect();
            let found = deadlocks(&waits);
            assert_eq!(found.is_empty(), !Future::of(&tables.each_ref()).ends_in_deadlock());
            let Some(cycle) = found.first() else { break };
            ended += 1;
            let victim = waits[cycle[0]].0;
            for table in &tables {
                let waits = waiting.iter().filter(|it| it.request.owner == victim);
                waits.for_each(|it| drop(table.give_up(victim, it.target)));
                let held = table.held().into_iter().filter(|it| it.owner == victim);
                held.for_each(|it| drop(table.unlock(victim, it.target)));
            }
        }
    }
    assert!(ended > 300, "{ended}");
}

/// 1 holds a lock that it shares; 2, which wants it alone, waits for 1, and 9 and 4, which would share it, for 2. 1 waits for 4
/// at another server. The end of the wait of 9 would change nothing.
#[test]
fn deadlock_of_several_servers_ends_no_wait_of_a_shared_bystander() {
    let tables = [SessionLockTable::default(), SessionLockTable::default()];
    let lock =
        |server: usize, session, kind| tables[server].lock(owner(session), target(1), kind, 0);
    assert_eq!(lock(0, 1, SHARED), LockAnswer::Granted);
    assert_eq!(lock(0, 2, EXCLUSIVE), LockAnswer::Waits);
    assert_eq!(lock(0, 9, SHARED), LockAnswer::Waits);
    assert_eq!(lock(0, 4, SHARED), LockAnswer::Waits);
    assert_eq!(lock(1, 4, EXCLUSIVE), LockAnswer::Granted);
    assert_eq!(lock(1, 1, EXCLUSIVE), LockAnswer::Waits);
    let waiting: Vec<_> = tables.iter().flat_map(SessionLockTable::waiting).collect();
    let waits: Vec<_> =
        waiting.iter().map(|it| (it.request.owner, it.blockers.as_slice())).collect();
    let found = deadlocks(&waits);
    let owners = |cycle: &Vec<usize>| cycle.iter().map(|place| waits[*place].0.session).collect();
    assert_eq!(found.iter().map(owners).collect::<Vec<Vec<u64>>>(), [[4, 2, 1]]);
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
