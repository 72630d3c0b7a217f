//! Locks between writers, of one process and of several.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use femtobarn_catalog::{
    ContainerId, DatabaseId, Error, ErrorKind, LockGuard, LockKind, LockOwner, LockStep, LockTable,
    LockTarget,
};

use crate::child::{Player, listen, say};

const DATABASE: DatabaseId = DatabaseId(3);
const CONTAINER: ContainerId = ContainerId(7);
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);
/// How often each owner locks in the race with a vacuum.
const ROUNDS: usize = 100;

#[test]
fn owners_of_one_process_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let held = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap();
    let error = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let Error::Busy { holder: Some(holder), waited, .. } = error else { panic!("no holder") };
    assert_eq!(holder.pid, std::process::id());
    assert!(waited >= SHORT);
    let other = table.lock_container(DATABASE, ContainerId(8), SHORT).unwrap();
    let elsewhere = table.lock_container(DatabaseId(4), CONTAINER, SHORT).unwrap();
    drop((held, other, elsewhere));
    drop(table.lock_container(DATABASE, CONTAINER, Duration::ZERO).unwrap());
    assert_eq!(table.holder(DATABASE, CONTAINER).unwrap(), None);
}

#[test]
fn owner_holds_each_lock_at_most_once() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let owner = table.owner();
    let lock = |container| owner.lock_container(DATABASE, ContainerId(container), SHORT);
    let guards: Vec<_> = (1..=200).map(|container| lock(container).unwrap()).collect();
    assert_eq!(lock(1).unwrap_err().kind(), ErrorKind::Invalid);
    let error = table.lock_container(DATABASE, ContainerId(200), Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(owner);
    assert!(table.holder(DATABASE, ContainerId(100)).unwrap().is_some(), "guards keep locks");
    drop(guards);
    assert!(table.holder(DATABASE, ContainerId(100)).unwrap().is_none());
}

#[test]
fn a_lock_file_that_was_removed_excludes_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let remove = || assert!(table.remove_unused_files(&HashSet::new()).unwrap().is_empty());
    let has_file = || folder.path().join("locks").join(DATABASE.to_string()).exists();
    let (one, two) = (table.owner(), table.owner());
    let lock = |owner: &LockOwner| owner.lock_container(DATABASE, CONTAINER, Duration::ZERO);
    drop(lock(&one).unwrap());
    // This one has opened the file, and locks nothing in it yet.
    let target = LockTarget::Container(DATABASE, CONTAINER);
    let waits = two.queue(target, LockKind::Exclusive).unwrap();
    remove();
    assert!(!has_file());
    let held = table.lock_container(DATABASE, CONTAINER, Duration::ZERO).unwrap();
    assert_eq!(lock(&one).unwrap_err().kind(), ErrorKind::Busy, "it has the removed file open");
    let LockStep::Waits(waits) = waits.step().unwrap() else { panic!("two hold the lock") };
    remove();
    assert!(has_file(), "a lock in it is held");
    drop(held);
    remove();
    assert!(has_file(), "a lock in it is waited for");
    let LockStep::Locked(held) = waits.step().unwrap() else { panic!("the lock is free") };
    assert_eq!(lock(&one).unwrap_err().kind(), ErrorKind::Busy);
    drop(held);
    drop(table.lock_allocation(DATABASE).unwrap());
    let allocates = table.owner();
    drop(allocates.lock_allocation(DATABASE).unwrap());
    remove();
    drop(allocates.lock_allocation(DATABASE).unwrap());
    assert!(has_file(), "the lock was taken in a new file");
    assert!(table.remove_unused_files(&[DATABASE].into()).unwrap().is_empty());
    assert!(has_file(), "its database is known");
}

#[test]
fn two_owners_never_hold_a_lock_while_their_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let (holders, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let hold = |guard| {
        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two owners hold the lock");
        std::thread::yield_now();
        holders.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        std::thread::yield_now();
    };
    let work = |lock: &dyn Fn(&LockOwner) -> LockGuard| {
        // Half of the locks are taken by an owner that has the file open, perhaps a removed one.
        let old = table.owner();
        for _ in 0..ROUNDS {
            hold(lock(&old));
            hold(lock(&table.owner()));
        }
    };
    let run = |lock: &(dyn Fn(&LockOwner) -> LockGuard + Sync)| {
        is_over.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(table.remove_unused_files(&HashSet::new()).unwrap().is_empty());
                }
            });
            let owners = [(); 2].map(|()| scope.spawn(|| work(lock)));
            let ended = owners.map(|owner| owner.join());
            is_over.store(true, Ordering::Relaxed);
            remover.join().unwrap();
            ended.into_iter().for_each(|it| it.unwrap());
        });
    };
    run(&|owner| owner.lock_container(DATABASE, CONTAINER, LONG).unwrap());
    run(&|owner| owner.lock_allocation(DATABASE).unwrap());
}

#[test]
fn lock_file_that_cannot_be_removed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    drop(table.lock_container(DATABASE, CONTAINER, SHORT).unwrap());
    std::fs::create_dir(folder.path().join("locks/12")).unwrap();
    let failed = table.remove_unused_files(&HashSet::new()).unwrap();
    let failed: Vec<_> = failed.iter().map(|(name, error)| (&name[..], error.kind())).collect();
    assert_eq!(failed, [("12", ErrorKind::Io)]);
    assert!(!folder.path().join("locks/3").exists(), "the others are removed");
}

#[test]
fn waiter_gets_the_lock_when_it_is_freed() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let held = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| table.lock_container(DATABASE, CONTAINER, LONG).is_ok());
        std::thread::sleep(SHORT);
        drop(held);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn busy_error_names_the_process_that_holds_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let mut player = Player::start("hold the lock", folder.path());
    assert_eq!(player.hear().unwrap(), "held");
    let table = LockTable::new(folder.path());
    let text = table.lock_container(DATABASE, CONTAINER, SHORT).unwrap_err().to_string();
    assert!(text.starts_with("container 7 of database 3 is locked by "), "{text}");
    assert!(text.contains(&format!(", process {} on ", player.id())), "{text}");
    assert!(text.contains("gave up after"), "{text}");
    let holder = table.holder(DATABASE, CONTAINER).unwrap().unwrap();
    assert_eq!(holder.pid, player.id());
    player.tell("free it");
    assert_eq!(player.hear().unwrap(), "freed");
    drop(table.lock_container(DATABASE, CONTAINER, Duration::ZERO).unwrap());
}

#[test]
fn lock_is_free_after_its_process_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut player = Player::start("hold the lock", folder.path());
    assert_eq!(player.hear().unwrap(), "held");
    let table = LockTable::new(folder.path());
    assert!(table.lock_container(DATABASE, CONTAINER, Duration::ZERO).is_err());
    player.kill();
    drop(table.lock_container(DATABASE, CONTAINER, Duration::ZERO).unwrap());
}

#[test]
fn allocation_lock_is_exclusive_and_independent_of_containers() {
    let folder = tempfile::tempdir().unwrap();
    let table = LockTable::new(folder.path());
    let owner = table.owner();
    let container = owner.lock_container(DATABASE, ContainerId(u32::MAX), SHORT).unwrap();
    let held = owner.lock_allocation(DATABASE).unwrap();
    let is_freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            drop(table.lock_allocation(DATABASE).unwrap());
            is_freed.load(Ordering::Relaxed)
        });
        // A lock that did not wait would be granted within this time.
        std::thread::sleep(SHORT);
        is_freed.store(true, Ordering::Relaxed);
        drop(held);
        assert!(waiter.join().unwrap(), "the second owner did not wait for the first");
    });
    drop(container);
}

/// Role: holds the lock until the test makes it free the lock.
pub(crate) fn hold_the_lock(folder: &Path) {
    let guard = LockTable::new(folder).lock_container(DATABASE, CONTAINER, LONG).unwrap();
    say("held");
    listen();
    drop(guard);
    say("freed");
    listen();
}

#[test]
fn lock_files_stay_short() {
    let folder = tempfile::tempdir().unwrap();
    let owner = LockTable::new(folder.path()).owner();
    let wait = Duration::from_secs(1);
    drop(owner.lock_database_exclusive(DatabaseId(1), wait).unwrap());
    drop(owner.lock_allocation(DatabaseId(1)).unwrap());
    drop(owner.lock_container(DatabaseId(1), ContainerId(7), wait).unwrap());
    for entry in std::fs::read_dir(folder.path().join("locks")).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.metadata().unwrap().len() < 8192, "{:?}", entry.file_name());
    }
}
