//! A transaction reads one snapshot and its own changes.

use femtobarn::{ErrorKind, Federation, Isolation, Transaction, TransactionOptions};

use crate::support::{begin, event_class, events, federation, number, reopened, with_ten_events};

fn append(federation: &Federation, container: &str, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, container).unwrap();
    let first = transaction.entries(key).unwrap();
    transaction.extend(key, events(7, first, count)).unwrap();
    transaction.commit().unwrap();
}

/// `run7/events` with ten events and `run7/other` with five.
fn two_containers(federation: &Federation) {
    with_ten_events(federation);
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let class = event_class();
    let key = transaction.create_container(database, "other", &class, Default::default()).unwrap();
    transaction.extend(key, events(7, 0, 5)).unwrap();
    transaction.commit().unwrap();
}

fn live(transaction: &mut Transaction, path: &str) -> u64 {
    transaction.view(path).unwrap().live()
}

#[test]
fn a_transaction_sees_only_its_own_changes() {
    let (folder, federation) = federation();
    two_containers(&federation);
    let other = reopened(&folder);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    assert_eq!(live(&mut transaction, "run7/other"), 5);
    let key = transaction.container(database, "events").unwrap();
    for round in 0..3 {
        transaction.extend(key, events(7, 10 + round, 1)).unwrap();
        transaction.delete(key, &[round]).unwrap();
        let view = transaction.view("run7/events").unwrap();
        assert_eq!((view.entries(), view.live()), (11 + round, 10));
        assert_eq!(number(&view.value(10 + round).unwrap()), 10 + round);
        assert_eq!(view.value(round).unwrap_err().kind(), ErrorKind::NotFound);
        append(&other, "other", 1);
        assert_eq!(live(&mut transaction, "run7/other"), 5);
    }
    let view = transaction.view("run7/events").unwrap();
    transaction.extend(key, events(7, 13, 1)).unwrap();
    assert_eq!(view.entries(), 13, "a view stays what it was");
    let class = event_class();
    let new = transaction.create_container(database, "new", &class, Default::default()).unwrap();
    assert_eq!(live(&mut transaction, "run7/new"), 0);
    transaction.extend(new, events(8, 0, 3)).unwrap();
    let own = transaction.view("run7/new").unwrap();
    assert_eq!(own.read(&own.select_all(), 0..3).unwrap().len(), 3);
    let created = transaction.create_database("run8").unwrap();
    let key = transaction.create_container(created, "events", &class, Default::default()).unwrap();
    transaction.extend(key, events(8, 0, 4)).unwrap();
    assert_eq!(live(&mut transaction, "run8/events"), 4);
    assert!(federation.snapshot(None).unwrap().view("run8/events").is_err());
    transaction.commit().unwrap();
    // From now on the uncommitted bytes may be overwritten.
    for error in [own.value(0).unwrap_err(), own.live_runs(0..1).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
    let snapshot = federation.snapshot(None).unwrap();
    for (path, live) in [("run7/events", 11), ("run7/new", 3), ("run8/events", 4)] {
        let view = snapshot.view(path).unwrap();
        assert_eq!(view.live(), live, "{path}");
        let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
        assert_eq!(array.len() as u64, live);
    }
}

#[test]
fn a_change_conflicts_with_a_commit_since_the_first_read() {
    let (folder, federation) = federation();
    two_containers(&federation);
    let other = reopened(&folder);
    let mut transaction = begin(&federation);
    assert_eq!(live(&mut transaction, "run7/other"), 5);
    append(&other, "events", 1);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let error = transaction.delete(key, &[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("run7/events was changed by commit 3"), "{error}");
    // An append changes nothing that the transaction has read.
    transaction.extend(key, events(7, 11, 1)).unwrap();
    assert_eq!(transaction.view("run7/events").err().unwrap().kind(), ErrorKind::Conflict);
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    assert_eq!(view.entries(), 12);
}

#[test]
fn write_skew_fails_only_under_serializable_isolation() {
    for (isolation, conflicts) in [(Isolation::Snapshot, false), (Isolation::Serializable, true)] {
        let (folder, federation) = federation();
        two_containers(&federation);
        let other = reopened(&folder);
        let begin = |federation: &Federation| {
            let options = TransactionOptions { isolation, ..Default::default() };
            federation.transaction(options).unwrap()
        };
        // Each appends to one container as many as the other has: write skew.
        let (mut first, mut second) = (begin(&federation), begin(&other));
        let write = |transaction: &mut Transaction, read: &str, write: &str| {
            let count = live(transaction, &format!("run7/{read}"));
            let database = transaction.database("run7").unwrap();
            let key = transaction.container(database, write).unwrap();
            transaction.extend(key, events(9, 0, count)).unwrap();
        };
        write(&mut first, "events", "other");
        write(&mut second, "other", "events");
        first.commit().unwrap();
        let committed = second.commit();
        if conflicts {
            assert_eq!(committed.unwrap_err().kind(), ErrorKind::Conflict)
        } else {
            assert!(committed.is_ok())
        }
    }
}

#[test]
fn a_serializable_append_conflicts_with_a_commit_since_its_read() {
    let (folder, federation) = federation();
    two_containers(&federation);
    let other = reopened(&folder);
    let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
    let mut transaction = federation.transaction(options).unwrap();
    assert_eq!(live(&mut transaction, "run7/events"), 10);
    append(&other, "events", 1);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, 0, 1)).unwrap();
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Conflict);
}
