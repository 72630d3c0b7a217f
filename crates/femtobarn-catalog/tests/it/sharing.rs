//! Shared and exclusive locks, the order of waiters, and the lists of holders and waiters.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use femtobarn_catalog::{ContainerId, DatabaseId, Error, ErrorKind, LockTable, LockTarget};

use crate::child::{Player, listen, say};

const DATABASE: DatabaseId = DatabaseId(3);
const CONTAINER: ContainerId = ContainerId(7);
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn database_is_shared_by_transactions_or_locked_exclusively() {
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
    assert_eq!(holder.unwrap().pid, std::process::id(), "the error names the holder");
    drop((shared, also, writes));
    let taken = alone.lock_database_exclusive(DATABASE, Duration::ZERO).unwrap();
    let error = one.share_database(DATABASE, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(taken);
    let _shared = one.share_database(DATABASE, Duration::ZERO).unwrap();
    let error = alone.lock_database_exclusive(DATABASE, SHORT).unwrap_err();
    let Error::Busy { holder, .. } = error else { panic!("not busy") };
    assert_eq!(holder, None, "the record of the exclusive holder before means nothing");
}

/// Overlapping transactions leave no moment in which the database is free.
#[test]
fn exclusive_lock_is_granted_while_shared_locks_keep_overlapping() {
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
fn maintenance_lock_is_shared_by_backups_and_exclusive_for_vacuum() {
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

/// Otherwise overlapping shared locks could keep a waiter for the exclusive lock out for ever.
#[test]
fn shared_locks_queue_behind_a_waiter_for_the_exclusive_one() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let order = Mutex::new(Vec::new());
    let shared = table.owner().share_database(DATABASE, SHORT).unwrap();
    std::thread::scope(|scope| {
        let (table, order) = (&table, &order);
        scope.spawn(move || {
            let taken = table.owner().lock_database_exclusive(DATABASE, LONG).unwrap();
            order.lock().unwrap().push("exclusive");
            drop(taken);
        });
        until_waiting(table, 1);
        for waiting in 2..4 {
            scope.spawn(move || {
                let shared = table.owner().share_database(DATABASE, LONG).unwrap();
                order.lock().unwrap().push("shared");
                drop(shared);
            });
            until_waiting(table, waiting);
        }
        assert!(order.lock().unwrap().is_empty(), "a shared lock overtook the exclusive one");
        drop(shared);
    });
    assert_eq!(order.into_inner().unwrap(), ["exclusive", "shared", "shared"]);
}

/// Blocks until `count` waiters are registered.
fn until_waiting(table: &LockTable, count: usize) {
    while table.waiting().unwrap().len() < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn monitor_lists_holders_and_waiters() {
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
    assert_eq!(left, 0, "the file of a killed process is removed");
    drop((guards, shared, elsewhere));
    assert!(table.held().unwrap().is_empty());
}

#[test]
fn waiter_is_not_listed_once_it_has_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let held = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock_container(DATABASE, CONTAINER, LONG).unwrap());
        until_waiting(&table, 1);
        drop(held);
        let got = waiter.join().unwrap();
        assert!(table.waiting().unwrap().is_empty());
        drop(got);
    });
}

/// Role: waits for a lock that is held.
pub(crate) fn wait_for_the_lock(folder: &Path) {
    say("waiting");
    drop(LockTable::new(folder).lock_container(DATABASE, CONTAINER, LONG));
    listen();
}
