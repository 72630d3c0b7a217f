//! The requests of small transactions to a server: as few as possible, and together.

use std::sync::mpsc;
use std::thread;

use femtobarn::{Federation, TransactionOptions};
use femtobarn_catalog::{
    Catalogue, ContainerId, Csn, LockKind, LockOwner, LockTarget, NewestRows, Result,
};
use femtobarn_server::Server;
use rntuple::{Array, Primitive};

use super::counted::Counted;
use super::engine::{append, config, create, events, numbers, open};
use super::proxy::Proxy;
use super::{LONG, Stage, connect, until};
use crate::metrics::get;

/// A federation with the container `run7/events`, a server, and the engine at it.
fn served() -> (tempfile::TempDir, Federation, Server) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    create(&local, "run7", ["events".to_owned()].into_iter());
    let server = Server::start(config(&place, 0)).unwrap();
    (folder, local, server)
}

/// Messages of all clients so far: to the catalogue, and requests of `root://`.
fn messages(server: &Server) -> [u64; 2] {
    let text = get(server.address(), "/metrics");
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|line| line.rsplit(' ').next()?.parse().ok()).unwrap()
    };
    [of("femtobarn_federation_messages_total{"), of("femtobarn_requests_total{protocol=\"root\"}")]
}

/// Appends numbers to `run7/events` as a process does that wrote there before.
fn append_again(federation: &Federation, numbers: std::ops::Range<u64>) -> femtobarn::Result<Csn> {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let key = transaction.last_container_at("run7", "events")?.unwrap();
    transaction.extend(key, events(numbers))?;
    transaction.commit()
}

#[test]
fn a_small_append_sends_only_locks_and_the_commit() {
    const COUNT: u64 = 20;
    let (_folder, _local, server) = served();
    let url = format!("root://127.0.0.1:{}//test.fed", server.address().port());
    let (catalogue, federation) = Counted::at(&url);
    append(&federation, "run7", "events", 0..10).unwrap();
    catalogue.take();
    let before = messages(&server);
    for number in 1..=COUNT {
        append_again(&federation, number * 10..number * 10 + 10).unwrap();
        assert_eq!(catalogue.take(), ["commit"]);
    }
    let [to_catalogue, of_root] = [0, 1].map(|kind| messages(&server)[kind] - before[kind]);
    // A turn with the locks, the commit, and a turn or two in which the locks are freed, which are not waited for.
    assert!((2 * COUNT..=4 * COUNT).contains(&to_catalogue), "{to_catalogue} messages");
    // The data are sent with the commit, and data that are read again are in memory.
    assert_eq!(of_root, 0);
    assert!(numbers(&federation, "run7/events").into_iter().eq(0..10 * COUNT + 10));
}

#[test]
fn a_transaction_that_reads_its_containers_gets_their_rows_with_the_pin() {
    let (_folder, _local, server) = served();
    let url = format!("root://127.0.0.1:{}//test.fed", server.address().port());
    let (catalogue, federation) = Counted::at(&url);
    append(&federation, "run7", "events", 0..10).unwrap();
    for number in 0..3_u64 {
        let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
        let key = transaction.last_container_at("run7", "events").unwrap().unwrap();
        catalogue.take();
        let view = transaction.view_by_key(key).unwrap();
        let found = view.value(number).unwrap();
        assert_eq!(
            found.member("number").and_then(rntuple::Value::as_integer),
            Some(number.into())
        );
        // The look-ups are answered by the rows that arrived with the pin.
        let before = messages(&server)[0];
        transaction.view_by_key(key).unwrap();
        assert_eq!(messages(&server)[0], before);
        let values = Array::primitive(Primitive::UInt64, vec![number]);
        let values = Array::Record { length: 1, members: vec![("number".to_owned(), values)] };
        transaction.update(key, &[number], values).unwrap();
        transaction.commit().unwrap();
        let asked = catalogue.take();
        let sent = |name: &&&str| !["container_by_id", "version", "class"].contains(*name);
        let sent: Vec<_> = asked.iter().filter(sent).collect();
        assert_eq!(sent, [&"pin_head_to_read", &"commit"], "{asked:?}");
    }
    assert!(numbers(&federation, "run7/events").into_iter().eq(0..10));
}

/// It took three round trips for each receipt.
#[test]
fn a_merge_asks_a_server_as_much_for_many_receipts_as_for_one() {
    let (_folder, local, server) = served();
    let remote = open(server.address().port());
    let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    let fork = transaction.fork(&[key], &[]).unwrap();
    let receipts: Vec<_> = (0..9_u64)
        .map(|task| {
            let mut writer = local.begin_task(&fork, &task.to_string()).unwrap();
            writer.extend(0, events(10 * task..10 * task + 10)).unwrap();
            writer.finish().unwrap()
        })
        .collect();
    let asked = [&receipts[..1], &receipts[1..]].map(|receipts| {
        let before = messages(&server)[1];
        assert_eq!(transaction.merge(receipts).unwrap(), receipts.len() as u64);
        messages(&server)[1] - before
    });
    assert_eq!(asked, [asked[0]; 2]);
    assert!(asked[0] <= 2, "{asked:?}: the size of the file, and what the receipts name");
    transaction.commit().unwrap();
    assert!(numbers(&local, "run7/events").into_iter().eq(0..90));
}

/// Locks a stage's database and container in one turn.
fn lock_both(stage: &Stage, owner: &LockOwner) -> Result<Option<NewestRows>> {
    let locks = [
        (LockTarget::Database(stage.database), LockKind::Shared),
        (LockTarget::Container(stage.database, stage.container), LockKind::Exclusive),
    ];
    let (guards, rows) = owner.lock_together(&locks, LONG)?;
    assert_eq!(guards.len(), 2);
    Ok(rows)
}

#[test]
fn rows_that_come_with_a_lock_are_those_after_the_wait_for_it() {
    let stage = Stage::new();
    let (one, other) = (stage.remote(), stage.remote());
    let first = stage.publish(&one, None).unwrap();
    let (database, container) = (stage.database, stage.container);
    let rows = lock_both(&stage, &one.locks().owner()).unwrap().unwrap();
    assert_eq!((rows.version.unwrap().csn, rows.head), (first, first));
    assert_eq!((rows.database.name.as_str(), rows.container.unwrap().id), ("run7", container));
    // Another holder of the container, and one of the database: the rows wait for both.
    let held = one.locks().lock_container(database, container, LONG).unwrap();
    let here = stage.local();
    let owner = here.locks().owner();
    let alone = owner.lock_database_exclusive(database, LONG).unwrap();
    thread::scope(|scope| {
        let (sender, waited) = mpsc::channel();
        let (stage, other) = (&stage, &other);
        scope.spawn(move || sender.send(lock_both(stage, &other.locks().owner())).unwrap());
        until("waiting", || !stage.served().waiting().unwrap().is_empty());
        drop(held);
        until("locking", || other.locks().holder(database, container).unwrap().is_some());
        assert!(waited.try_recv().is_err(), "the database is not free");
        let second = here.commit(stage.version(Some(first))).unwrap();
        drop(alone);
        let rows = waited.recv_timeout(LONG).unwrap().unwrap().unwrap();
        assert_eq!((rows.version.unwrap().csn, rows.head), (second, second));
    });
}

#[test]
fn locks_that_are_requested_together_are_all_free_after_one_is_refused() {
    let stage = Stage::new();
    let (one, other) = (stage.remote(), stage.remote());
    let held = one.locks().lock_container(stage.database, stage.container, LONG).unwrap();
    let locks = [
        (LockTarget::Database(stage.database), LockKind::Shared),
        (LockTarget::Container(stage.database, stage.container), LockKind::Exclusive),
    ];
    let owner = other.locks().owner();
    let refused = owner.lock_together(&locks, std::time::Duration::ZERO).map(drop).unwrap_err();
    assert_eq!(refused.kind(), femtobarn_catalog::ErrorKind::Busy);
    drop(held);
    until("freeing", || stage.served().held().unwrap().is_empty());
    assert!(lock_both(&stage, &owner).unwrap().is_some());
}

#[test]
fn questions_of_a_lock_are_asked_again_after_the_connection_broke() {
    let stage = Stage::new();
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let other = stage.remote();
    let held = other.locks().lock_container(stage.database, stage.container, LONG).unwrap();
    let first = stage.publish(&other, None).unwrap();
    thread::scope(|scope| {
        let (stage, there) = (&stage, &there);
        let waiting = scope.spawn(move || lock_both(stage, &there.locks().owner()));
        until("waiting", || !stage.served().waiting().unwrap().is_empty());
        proxy.break_all();
        until("reconnecting", || there.openings() > 1);
        until("waiting", || !stage.served().waiting().unwrap().is_empty());
        drop(held);
        let rows = waiting.join().unwrap().unwrap().unwrap();
        assert_eq!(rows.version.unwrap().csn, first);
    });
}

#[test]
fn a_lock_on_a_missing_container_comes_without_rows() {
    let stage = Stage::new();
    let there = stage.remote();
    let lock = (LockTarget::Container(stage.database, ContainerId(999)), LockKind::Exclusive);
    let (_guards, rows) = there.locks().owner().lock_together(&[lock], LONG).unwrap();
    assert_eq!(rows, None);
}

#[test]
fn a_path_that_belongs_to_another_container_by_now_is_found_anew() {
    let (_folder, local, server) = served();
    let remote = open(server.address().port());
    append(&remote, "run7", "events", 0..10).unwrap();
    let begin =
        |federation: &Federation| federation.transaction(TransactionOptions::default()).unwrap();
    // The database, then the container has another name, and another one has its name.
    let mut renaming = begin(&local);
    renaming.rename_database("run7", "old").unwrap();
    renaming.commit().unwrap();
    create(&local, "run7", ["events".to_owned()].into_iter());
    assert_eq!(begin(&remote).last_container_at("run7", "events").unwrap(), None);
    append(&remote, "run7", "events", 0..20).unwrap();
    append_again(&remote, 20..30).unwrap();
    let mut renaming = begin(&local);
    let database = renaming.database("run7").unwrap();
    renaming.rename_container(database, "events", "past").unwrap();
    renaming.commit().unwrap();
    assert_eq!(begin(&remote).last_container_at("run7", "events").unwrap(), None);
    let missing = append(&remote, "run7", "events", 0..1).unwrap_err();
    assert_eq!(missing.kind(), femtobarn::ErrorKind::NotFound);
    for (path, count) in [("old/events", 10), ("run7/past", 30)] {
        assert!(numbers(&local, path).into_iter().eq(0..count), "{path}");
    }
}

#[test]
fn a_database_that_was_dropped_meanwhile_is_created_anew_if_it_is_to_be() {
    for (creates, asks) in [(false, true), (true, true), (true, false)] {
        let (_folder, local, server) = served();
        let remote = open(server.address().port());
        append(&remote, "run7", "events", 0..10).unwrap();
        let mut dropping = local.transaction(TransactionOptions::default()).unwrap();
        dropping.drop_database("run7").unwrap();
        dropping.commit().unwrap();
        let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
        transaction.expect_database("run7", creates, None).unwrap();
        if asks {
            assert_eq!(transaction.last_container_at("run7", "events").unwrap(), None);
            let found = transaction.database("run7");
            assert_eq!(found.is_ok(), creates, "{found:?}");
        }
        transaction.commit().unwrap();
        let databases = local.snapshot(None).unwrap().databases().unwrap();
        assert_eq!(databases.iter().any(|it| it.name == "run7"), creates);
    }
}

#[test]
fn an_expected_database_that_is_renamed_or_dropped_is_not_created_again() {
    for renames in [false, true] {
        let (_folder, local, server) = served();
        let remote = open(server.address().port());
        append(&remote, "run7", "events", 0..10).unwrap();
        let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
        transaction.expect_database("run7", true, None).unwrap();
        if renames {
            transaction.rename_database("run7", "run8").unwrap();
        } else {
            transaction.drop_database("run7").unwrap();
        }
        transaction.commit().unwrap();
        let databases = local.snapshot(None).unwrap().databases().unwrap();
        let names: Vec<_> = databases.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.contains(&"run8"), renames, "{names:?}");
        assert!(!names.contains(&"run7"), "{names:?}");
    }
}

#[test]
fn a_change_after_the_lock_is_a_conflict_and_the_next_transaction_sees_it() {
    let (_folder, local, server) = served();
    let remote = open(server.address().port());
    append(&remote, "run7", "events", 0..10).unwrap();
    let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
    let key = transaction.last_container_at("run7", "events").unwrap().unwrap();
    transaction.extend(key, events(10..11)).unwrap();
    // Local processes do not see the locks of sessions.
    append(&local, "run7", "events", 10..20).unwrap();
    let refused = transaction.commit().unwrap_err();
    assert_eq!(refused.kind(), femtobarn::ErrorKind::Conflict);
    append_again(&remote, 20..30).unwrap();
    assert!(numbers(&local, "run7/events").into_iter().eq(0..30));
}
