//! Locks of remote sessions, among themselves and against local processes.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, ContainerId, Error, ErrorKind};
use femtobarn_server::auth::Authenticator;

use super::proxy::Proxy;
use super::{LONG, Stage, connect, until};

const NOW: Duration = Duration::ZERO;

#[test]
fn holder_of_a_container_excludes_others_and_is_named_in_errors() {
    let stage = Stage::new();
    let (one, other) = (stage.remote(), stage.remote());
    let (database, container) = (stage.database, stage.container);
    let guard = one.locks().lock_container(database, container, LONG).unwrap();
    for wait in [NOW, Duration::from_millis(30)] {
        let error = other.locks().lock_container(database, container, wait).unwrap_err();
        let Error::Busy { what, holder: Some(holder), .. } = &error else { panic!("{error:?}") };
        // The request has ids; the server looks up the names.
        assert_eq!(what, "container run7/events");
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.application.is_empty(), "{holder}");
    }
    let held = other.locks().held().unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].target.container(), Some(container));
    let locks = one.locks();
    assert!(other.locks().holder(database, container).unwrap().is_some());
    drop(guard);
    drop(other.locks().lock_container(database, container, LONG).unwrap());
    until("freeing", || locks.held().unwrap().is_empty());
}

#[test]
fn owners_of_one_session_exclude_each_other() {
    let stage = Stage::new();
    let remote = stage.remote();
    let (one, other) = (remote.locks().owner(), remote.locks().owner());
    let (database, container) = (stage.database, stage.container);
    let guard = one.lock_container(database, container, NOW).unwrap();
    let twice = one.lock_container(database, container, LONG).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Invalid);
    let busy = other.lock_container(database, container, NOW).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    drop(guard);
    drop(one.lock_container(database, container, LONG).unwrap());
    drop(other.lock_container(database, container, LONG).unwrap());
}

#[test]
fn waiters_are_served_in_the_order_of_arrival() {
    let stage = Stage::new();
    let first = stage.remote();
    let (database, container) = (stage.database, stage.container);
    let guard = first.locks().lock_container(database, container, LONG).unwrap();
    let (sender, order) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..4 {
            let (sender, remote) = (sender.clone(), stage.remote());
            let waits = first.locks().waiting().unwrap().len();
            scope.spawn(move || {
                let _guard = remote.locks().lock_container(database, container, LONG).unwrap();
                sender.send(number).unwrap();
            });
            until("waiting", || first.locks().waiting().unwrap().len() > waits);
        }
        drop(guard);
        let order: Vec<i32> = order.iter().take(4).collect();
        assert_eq!(order, [0, 1, 2, 3]);
    });
}

#[test]
fn deadlock_error_has_the_cycle_and_the_other_transactions_continue() {
    let stage = Stage::new();
    let (one, other) = (stage.remote(), stage.remote());
    let database = stage.database;
    let (one_owner, other_owner) = (one.locks().owner(), other.locks().owner());
    let lock = |owner: &femtobarn_catalog::LockOwner, container| {
        owner.lock_container(database, ContainerId(container), LONG)
    };
    let _first = lock(&one_owner, 101).unwrap();
    let second = lock(&other_owner, 102).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&one_owner, 102));
        until("waiting", || !one.locks().waiting().unwrap().is_empty());
        let error = lock(&other_owner, 101).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let Error::Deadlock { cycle } = &error else { panic!("{error:?}") };
        assert_eq!(cycle.len(), 2);
        assert!(cycle[0].ends_with(&format!("waits for container 101 of database {database}")));
        assert!(cycle[1].ends_with(&format!("waits for container 102 of database {database}")));
        assert!(cycle[0].contains(&format!("process {}", std::process::id())));
        drop(second);
        drop(waiting.join().unwrap().unwrap());
    });
    assert_eq!(stage.served().deadlocks(), 1);
}

#[test]
fn local_processes_and_remote_sessions_exclude_each_other() {
    let stage = Stage::new();
    let (here, there, too) = (stage.local(), stage.remote(), stage.remote());
    let database = stage.database;
    let busy = |result: femtobarn_catalog::Result<femtobarn_catalog::LockGuard>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Busy);
    };
    let shared = there.locks().owner().share_database(database, LONG).unwrap();
    let local = here.locks().owner().share_database(database, LONG).unwrap();
    let second = too.locks().owner().share_database(database, LONG).unwrap();
    drop(local);
    busy(here.locks().owner().lock_database_exclusive(database, NOW));
    drop(shared);
    busy(here.locks().owner().lock_database_exclusive(database, NOW));
    drop(second);
    let alone = here.locks().owner().lock_database_exclusive(database, LONG).unwrap();
    busy(there.locks().owner().share_database(database, Duration::from_millis(30)));
    drop(alone);
    let alone = there.locks().owner().lock_database_exclusive(database, LONG).unwrap();
    busy(here.locks().owner().share_database(database, NOW));
    busy(too.locks().owner().share_database(database, NOW));
    drop(alone);
    let vacuum = here.locks().owner().lock_maintenance(LONG).unwrap();
    busy(there.locks().owner().share_maintenance(NOW));
    drop(vacuum);
    drop(there.locks().owner().share_maintenance(LONG).unwrap());
    drop(there.locks().lock_allocation(database).unwrap());
    drop(here.locks().lock_allocation(database).unwrap());
}

#[test]
fn remote_pins_keep_snapshots_from_vacuum() {
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let old = stage.publish(&there, None).unwrap();
    let (pinned, pin) = there.pin_head().unwrap();
    assert_eq!(pinned, old);
    let clone = pin.clone();
    let again = (there.pin(old).unwrap(), there.pin_head().unwrap());
    let new = stage.publish(&there, Some(old)).unwrap();
    drop(pin);
    drop(clone);
    assert_eq!(here.raise_horizon(new).unwrap().csns, [old]);
    drop(again);
    until("unpinning", || here.raise_horizon(new).unwrap().csns.is_empty());
    let gone = there.pin(old).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[test]
fn session_keeps_its_place_among_local_processes_that_wait() {
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let database = stage.database;
    let held = here.locks().owner().lock_database_exclusive(database, LONG).unwrap();
    let turns = Mutex::new(vec![]);
    let turn = |catalogue: &dyn Catalogue, who| {
        let _guard = catalogue.locks().owner().lock_database_exclusive(database, LONG).unwrap();
        turns.lock().unwrap().push(who);
    };
    let until_waiting = |count| {
        until("waiting", || here.locks().waiting().unwrap().len() == count);
    };
    thread::scope(|scope| {
        scope.spawn(|| turn(&there, "the session"));
        until_waiting(1);
        // It hears the bell of the process that frees the lock, and the server does not.
        scope.spawn(|| turn(&stage.local(), "another process"));
        until_waiting(2);
        drop(held);
    });
    assert_eq!(turns.into_inner().unwrap(), ["the session", "another process"]);
}

/// All these sessions share the one lock that the server takes, so they have one place in the queue.
#[test]
fn sessions_that_share_a_lock_wait_for_it_in_one_place() {
    const SESSIONS: usize = 20;
    let stage = Stage::new();
    let here = stage.local();
    let database = stage.database;
    let held = here.locks().owner().lock_database_exclusive(database, LONG).unwrap();
    let [first, other] = [stage.remote(), stage.remote()];
    thread::scope(|scope| {
        let short = scope.spawn(|| {
            let wait = Duration::from_millis(300);
            first.locks().owner().share_database(database, wait).unwrap_err().kind()
        });
        until("waiting", || here.locks().waiting().unwrap().len() == 1);
        let share = || drop(other.locks().owner().share_database(database, LONG).unwrap());
        let shared: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(share)).collect();
        assert_eq!(short.join().unwrap(), ErrorKind::Busy);
        assert_eq!(here.locks().waiting().unwrap().len(), 1, "the place stays, and is one");
        drop(held);
        shared.into_iter().for_each(|each| each.join().unwrap());
    });
    assert!(here.locks().waiting().unwrap().is_empty());
}

#[test]
fn wait_for_a_local_process_survives_broken_connections() {
    let stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let (here, database) = (stage.local(), stage.database);
    let held = here.locks().owner().share_database(database, LONG).unwrap();
    thread::scope(|scope| {
        let lock = || there.locks().owner().lock_database_exclusive(database, LONG).map(drop);
        let locked = scope.spawn(lock);
        until("waiting", || here.locks().waiting().unwrap().len() == 1);
        for _ in 0..3 {
            proxy.break_all();
            // This call waits until the session has reconnected.
            drop(there.pin_head().unwrap());
        }
        drop(held);
        locked.join().unwrap().unwrap();
    });
}

#[test]
fn session_that_ends_gives_up_its_place() {
    let stage = Stage::with(Duration::from_millis(300), Authenticator::open());
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let (here, database) = (stage.local(), stage.database);
    let _held = here.locks().owner().share_database(database, LONG).unwrap();
    // Nobody joins it: its client does not learn that the session is over.
    thread::spawn(move || there.locks().owner().lock_database_exclusive(database, LONG).map(drop));
    until("waiting", || here.locks().waiting().unwrap().len() == 1);
    proxy.shut();
    until("leaving", || here.locks().waiting().unwrap().is_empty());
    drop(here.locks().owner().share_database(database, NOW).unwrap());
}
