//! Databases shared by transactions or taken by one alone, who waits, and who holds what.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::{ContainerId, DatabaseId, Error, ErrorKind, LockTable, LockTarget};

use crate::child::{Player, listen, say};

const DATABASE: DatabaseId = DatabaseId(3);
const CONTAINER: ContainerId = ContainerId(7);
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn transactions_share_a_database_that_one_can_take_alone() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let (one, two, alone) = (table.owner(), table.owner(), table.owner());
    let shared = one.share_database(DATABASE, Duration::ZERO).unwrap();
    let also = two.share_database(DATABASE, Duration::ZERO).unwrap();
    let writes = two.lock_container(DATABASE, CONTAINER, SHORT).unwrap();
    assert_eq!(one.share_database(DATABASE, SHORT).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(alone.try_exclusive_database(DATABASE).unwrap().is_none());
    assert!(alone.try_exclusive_database(DatabaseId(4)).unwrap().is_some());
    let error = alone.lock_database_exclusive(DATABASE, SHORT).unwrap_err();
    let Error::Busy { what, holder, waited } = error else { panic!("not busy") };
    assert_eq!((what.as_str(), waited >= SHORT), ("database 3", true));
    assert_eq!(holder.unwrap().pid, std::process::id(), "who writes to it is known");
    drop((shared, also, writes));
    let taken = alone.lock_database_exclusive(DATABASE, Duration::ZERO).unwrap();
    let error = one.share_database(DATABASE, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(taken);
    drop(one.share_database(DATABASE, Duration::ZERO).unwrap());
}

/// Transactions that come all the time leave no moment in which nobody has the database.
#[test]
fn who_wants_a_database_alone_gets_it_though_others_keep_coming() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let come = |offset: u64| {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(offset));
                while stop.load(Ordering::Relaxed) == 0 {
                    let held = table.owner().share_database(DATABASE, LONG).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    drop(held);
                }
            })
        };
        let coming = [0, 7, 14].map(come);
        std::thread::sleep(SHORT);
        let taken = table.owner().lock_database_exclusive(DATABASE, LONG);
        stop.store(1, Ordering::Relaxed);
        drop(taken.unwrap());
        coming.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn vacuum_and_backups_keep_out_of_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let backups = [table.owner(), table.owner()]
        .map(|owner| owner.share_maintenance(Duration::ZERO).unwrap());
    let error = table.owner().lock_maintenance(SHORT).unwrap_err();
    assert!(
        error.to_string().starts_with("the maintenance of the federation is locked"),
        "{error}"
    );
    drop(backups);
    let vacuum = table.owner().lock_maintenance(SHORT).unwrap();
    assert!(table.owner().share_maintenance(SHORT).is_err());
    drop(vacuum);
}

/// Each waits for its turn. Threads need not be run in turn, so some get there a little more often.
#[test]
fn waiting_is_fair_and_short() {
    const WAITERS: usize = 8;
    const ROUNDS: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let counts: Vec<_> = (0..WAITERS).map(|_| AtomicUsize::new(0)).collect();
    let stop = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for count in &counts {
            let (table, counts, stop) = (&table, &counts, &stop);
            scope.spawn(move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    let held = table.lock_container(DATABASE, CONTAINER, LONG).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    let done = count.fetch_add(1, Ordering::Relaxed) + 1;
                    let all: usize = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
                    if done >= ROUNDS * 2 || all >= WAITERS * ROUNDS {
                        stop.store(1, Ordering::Relaxed);
                    }
                    drop(held);
                }
            });
        }
    });
    let counts: Vec<_> = counts.into_iter().map(AtomicUsize::into_inner).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*most <= 2 * least, "{counts:?}");
    assert!(started.elapsed() < LONG / 2, "took {:?}", started.elapsed());
}

#[test]
fn the_monitor_shows_who_holds_and_who_waits() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    assert!(table.held().unwrap().is_empty() && table.waiting().unwrap().is_empty());
    let owner = table.owner();
    let containers = [7, 8, u32::MAX].map(ContainerId);
    let guards = containers.map(|id| owner.lock_container(DATABASE, id, SHORT).unwrap());
    let shared = owner.share_database(DATABASE, SHORT).unwrap();
    let elsewhere = owner.lock_database_exclusive(DatabaseId(12), SHORT).unwrap();
    let held = table.held().unwrap();
    let targets: Vec<_> = held.iter().map(|lock| lock.target).collect();
    let mut expected: Vec<_> =
        containers.iter().map(|id| LockTarget::Container(DATABASE, *id)).collect();
    expected.extend([DATABASE, DatabaseId(12)].map(LockTarget::Database));
    assert_eq!(targets, expected);
    assert!(held.iter().all(|lock| lock.holder.is_some()));
    assert_eq!(held.iter().filter(|lock| lock.is_shared).count(), 1);
    let holder = held[0].holder.as_ref().unwrap();
    assert!(holder.pid == std::process::id() && !holder.user.is_empty());

    let mut player = Player::start("wait for the lock", folder.path());
    assert_eq!(player.hear().unwrap(), "waiting");
    let waiter = loop {
        if let Some(waiter) = table.waiting().unwrap().pop() {
            break waiter;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(waiter.target, LockTarget::Container(DATABASE, CONTAINER));
    assert_eq!(waiter.by.pid, player.id());
    assert_eq!(waiter.holder.unwrap().pid, std::process::id());
    player.kill();
    assert!(table.waiting().unwrap().is_empty());
    let left = fs::read_dir(folder.path().join("locks/waits")).unwrap().count();
    assert_eq!(left, 0, "what a killed process left is removed");
    drop((guards, shared, elsewhere));
    assert!(table.held().unwrap().is_empty());
}

#[test]
fn who_got_the_lock_waits_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let held = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock_container(DATABASE, CONTAINER, LONG).unwrap());
        while table.waiting().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(held);
        let got = waiter.join().unwrap();
        assert!(table.waiting().unwrap().is_empty());
        drop(got);
    });
}

/// Role: waits for a lock that is held.
pub fn wait_for_the_lock(folder: &Path) {
    say("waiting");
    drop(LockTable::new(folder).lock_container(DATABASE, CONTAINER, LONG));
    listen();
}
