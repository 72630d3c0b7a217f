//! Leases: locks and pins end with their session, and survive lost connections and servers.

use std::thread;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Catalogue, ContainerId, Csn, DatabaseId, ErrorKind};
use femtobarn_server::auth::{Authenticator, Rights};

use super::proxy::Proxy;
use super::{LONG, Stage, connect, until};
use crate::killable::{self, Killable};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn goodbye_frees_locks_and_pins_at_once() {
    let stage = Stage::new();
    let there = stage.remote();
    let guard = there.locks().lock_container(stage.database, stage.container, LONG).unwrap();
    let pin = there.pin_head().unwrap();
    assert_eq!(stage.served().sessions().len(), 1);
    drop(there);
    until("leaving", || stage.served().sessions().is_empty());
    assert!(stage.served().held().unwrap().is_empty());
    drop((guard, pin));
}

#[test]
fn locks_survive_a_broken_connection() {
    let stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let other = stage.remote();
    let (database, container) = (stage.database, stage.container);
    let guard = there.locks().lock_container(database, container, LONG).unwrap();
    let (_, pin) = there.pin_head().unwrap();
    for _ in 0..3 {
        proxy.break_all();
        // This call waits until the session has reconnected.
        drop(there.locks().owner().share_database(database, LONG).unwrap());
        let busy = other.locks().lock_container(database, container, Duration::ZERO);
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
    }
    assert_eq!(stage.served().sessions().len(), 2, "both sessions were kept");
    drop((guard, pin));
    drop(other.locks().lock_container(database, container, LONG).unwrap());
}

/// Closing a federation once took a minute if its server had ended and the session had not noticed that yet: the
/// client waited for the lock that it needs to give back unused space as long as for any other.
#[test]
fn a_closing_client_does_not_wait_for_a_lost_server() {
    let mut stage = Stage::new();
    let there = stage.remote();
    let owner = there.locks().owner();
    stage.stop();
    there.begin_close();
    let begun = Instant::now();
    let locked = owner.share_database(stage.database, Duration::ZERO);
    assert_eq!(locked.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < LONG / 2, "a client with a patience of {LONG:?} waits for 2 s");
}

#[test]
fn queued_lock_is_granted_after_a_server_restart() {
    let mut stage = Stage::new();
    let (one, other) = (stage.remote(), stage.remote());
    let (database, container) = (stage.database, stage.container);
    let guard = one.locks().lock_container(database, container, LONG).unwrap();
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| other.locks().lock_container(database, container, LONG).map(drop));
        until("waiting", || !one.locks().waiting().unwrap().is_empty());
        stage.stop();
        stage.start();
        // The container is free only once the new server receives the unlock.
        drop(guard);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn session_of_a_silent_client_ends_after_its_lease() {
    let stage = Stage::with(SHORT, Authenticator::open());
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let (database, container) = (stage.database, stage.container);
    let guard = there.locks().lock_container(database, container, LONG).unwrap();
    // From now on no message of the client arrives.
    proxy.shut();
    let other = stage.remote();
    drop(other.locks().lock_container(database, container, LONG).unwrap());
    std::mem::forget((there, guard));
}

/// Not a test: a client's process runs it.
#[test]
#[ignore = "run by other tests as another process"]
fn holds_a_container() {
    let Some(argument) = killable::argument() else { return };
    let words: Vec<&str> = argument.split(' ').collect();
    let there = connect(words[0]).unwrap();
    let (database, container) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let (database, container) = (DatabaseId(database), ContainerId(container));
    let _guard = there.locks().lock_container(database, container, LONG).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn locks_of_a_killed_client_are_free_after_the_grace_period() {
    let lease = Duration::from_secs(24 * 3600);
    let stage = Stage::with_grace(lease, SHORT, Authenticator::open());
    let (database, container) = (stage.database, stage.container);
    let argument = format!("{} {database} {container}", stage.url());
    let client = Killable::start("catalogue::sessions::holds_a_container", argument);
    let other = stage.remote();
    until("locking", || !stage.served().held().unwrap().is_empty());
    drop(client);
    drop(other.locks().lock_container(database, container, LONG).unwrap());
}

#[test]
fn client_without_network_keeps_its_locks_for_its_lease() {
    let stage = Stage::with_grace(LONG, Duration::ZERO, Authenticator::open());
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let (database, container) = (stage.database, stage.container);
    let guard = there.locks().lock_container(database, container, LONG).unwrap();
    proxy.freeze();
    let other = stage.remote();
    let busy = other.locks().lock_container(database, container, 4 * SHORT);
    assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
    std::mem::forget((there, guard));
}

#[test]
fn transaction_fails_when_its_database_was_vacuumed_while_disconnected() {
    let mut stage = Stage::new();
    let there = stage.remote();
    let owner = there.locks().owner();
    let shared = owner.share_database(stage.database, LONG).unwrap();
    stage.stop();
    // While no server held its lock, another process locked the database exclusively.
    let here = stage.local();
    {
        let local = here.locks().owner();
        let _alone = local.lock_database_exclusive(stage.database, Duration::ZERO).unwrap();
        here.raise_epoch(stage.database).unwrap();
    }
    stage.start();
    let error = there.commit(stage.version(None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("was lost"), "{error}");
    assert_eq!(stage.newest(&here), None);
    drop(shared);
    stage.publish(&there, None).unwrap();
}

#[test]
fn transaction_continues_when_its_database_stayed_unlocked_while_disconnected() {
    let mut stage = Stage::new();
    let there = stage.remote();
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG).unwrap();
    let (_, _pin) = there.pin_head().unwrap();
    stage.stop();
    stage.start();
    let csn = there.commit(stage.version(None)).unwrap();
    assert_eq!(stage.newest(&stage.local()), Some(csn));
    let here = stage.local();
    let kept = here.raise_horizon(csn).unwrap();
    assert_eq!(kept.csns, [Csn(csn.0 - 1)], "the new server holds the pin of the old one");
}

#[test]
fn read_only_session_can_neither_lock_nor_publish() {
    let authenticator =
        Authenticator { anonymous: Some(Rights::reading()), ..Authenticator::default() };
    let stage = Stage::with(LONG, authenticator);
    let there = stage.remote();
    assert!(there.is_read_only());
    assert_eq!(there.databases(Csn::MAX).unwrap().len(), 1);
    drop(there.pin_head().unwrap());
    let locked = there.locks().owner().share_database(stage.database, LONG);
    assert_eq!(locked.unwrap_err().kind(), ErrorKind::Denied);
    let refused = there.commit(stage.version(None)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(there.drop_tag("x").unwrap_err().kind(), ErrorKind::Denied);
    let nobody = Stage::with(LONG, Authenticator::default());
    let refused = connect(&nobody.url()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
}
