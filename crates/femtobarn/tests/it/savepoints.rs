//! Partial rollback within a transaction, and checkpoints.

use femtobarn::{Csn, ErrorKind, Transaction, TransactionOptions};
use std::time::Duration;

use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

#[test]
fn a_rollback_undoes_all_changes_since_the_savepoint() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    transaction.extend(key, events(7, 10, 5)).unwrap();
    transaction.delete(key, &[0]).unwrap();
    let class = event_class();
    let new = transaction.create_container(run7, "new", &class, Default::default()).unwrap();
    transaction.extend(new, events(7, 0, 2)).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    for round in 0..3 {
        transaction.extend(key, events(7, 15, 1000)).unwrap();
        transaction.delete(key, &[1, 14, 15 + round]).unwrap();
        transaction.extend(new, events(7, 2, 2)).unwrap();
        let run8 = transaction.create_database("run8").unwrap();
        let other = transaction.create_container(run8, "x", &class, Default::default()).unwrap();
        transaction.extend(other, events(8, 0, 1)).unwrap();
        assert_eq!(transaction.view("run7/new").unwrap().entries(), 4);
        transaction.rollback_to(&savepoint).unwrap();
        assert_eq!(transaction.database("run8").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!folder.path().join("test.fed/databases/run8.root").exists());
        assert_eq!(transaction.entries(other).unwrap_err().kind(), ErrorKind::NotFound);
        let view = transaction.view("run7/events").unwrap();
        assert_eq!(view.live_entries(0..3).unwrap(), [1, 2]);
        assert_eq!(view.live(), 14);
    }
    transaction.extend(key, events(7, 15, 1)).unwrap();
    transaction.commit().unwrap();
    for federation in [&federation, &reopened(&folder)] {
        let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!((view.entries(), view.live()), (16, 15));
        assert_eq!(numbers(federation, "run7/new"), [0, 1]);
    }
}

#[test]
fn a_rollback_gives_containers_their_names_back() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let old = transaction.container(run7, "events").unwrap();
    let class = event_class();
    let new = transaction.create_container(run7, "new", &class, Default::default()).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    let find = |transaction: &Transaction, names: [&str; 4]| {
        names.map(|name| transaction.find_container(run7, name).unwrap())
    };
    let names = ["events", "new", "spare", "later"];
    for _ in 0..2 {
        transaction.rename_container(run7, "events", "spare").unwrap();
        transaction.rename_container(run7, "new", "events").unwrap();
        assert_eq!(find(&transaction, names), [Some(new), None, Some(old), None]);
        transaction.drop_container(run7, "events").unwrap();
        let later =
            transaction.create_container(run7, "later", &class, Default::default()).unwrap();
        assert_eq!(find(&transaction, names), [None, None, Some(old), Some(later)]);
        transaction.rollback_to(&savepoint).unwrap();
        assert_eq!(find(&transaction, names), [Some(old), Some(new), None, None]);
    }
    let taken = transaction.create_container(run7, "new", &class, Default::default());
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Exists);
    transaction.drop_database("run7").unwrap();
    transaction.rollback_to(&savepoint).unwrap();
    assert_eq!(find(&transaction, names), [Some(old), Some(new), None, None]);
    transaction.extend(new, events(7, 0, 1)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(numbers(&reopened(&folder), "run7/new"), [0]);
}

#[test]
fn a_rollback_to_before_a_change_makes_no_version() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let savepoint = transaction.savepoint().unwrap();
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    transaction.extend(key, events(7, 10, 5)).unwrap();
    transaction.delete(key, &[0]).unwrap();
    transaction.rollback_to(&savepoint).unwrap();
    assert_eq!(transaction.entries(key).unwrap(), 10);
    transaction.commit().unwrap();
    let version = *federation.snapshot(None).unwrap().view("run7/events").unwrap().version();
    assert_eq!((version.csn, version.entries, version.deleted), (Csn(1), 10, 0));
}

#[test]
fn a_rollback_ends_later_savepoints() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    let first = transaction.savepoint().unwrap();
    transaction.extend(key, events(7, 10, 1)).unwrap();
    let second = transaction.savepoint().unwrap();
    transaction.extend(key, events(7, 11, 1)).unwrap();
    transaction.rollback_to(&second).unwrap();
    assert_eq!(transaction.entries(key).unwrap(), 11);
    transaction.rollback_to(&first).unwrap();
    assert_eq!(transaction.entries(key).unwrap(), 10);
    assert_eq!(transaction.rollback_to(&second).unwrap_err().kind(), ErrorKind::Invalid);
    transaction.checkpoint().unwrap();
    assert_eq!(transaction.rollback_to(&first).unwrap_err().kind(), ErrorKind::Invalid);
    let other = transaction.savepoint().unwrap();
    transaction.rollback();
    assert_eq!(begin(&federation).rollback_to(&other).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_checkpoint_commits_and_keeps_locks() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let other = reopened(&folder);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    let mut last = federation.head().unwrap();
    for round in 0..4_u64 {
        transaction.extend(key, events(7, 10 + round, 1)).unwrap();
        transaction.delete(key, &[round]).unwrap();
        if round == 1 {
            let run8 = transaction.create_database("run8").unwrap();
            let class = event_class();
            let new = transaction.create_container(run8, "x", &class, Default::default()).unwrap();
            transaction.extend(new, events(8, 0, 3)).unwrap();
        }
        let csn = transaction.checkpoint().unwrap();
        assert_eq!(csn, Csn(last.0 + 1));
        last = csn;
        let view = other.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!((view.entries(), view.live()), (11 + round, 10));
        let options = TransactionOptions { lock_wait: Duration::ZERO, ..Default::default() };
        let busy = other.transaction(options).unwrap().container(run7, "events").unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        if round >= 1 {
            let options = TransactionOptions { lock_wait: Duration::ZERO, ..Default::default() };
            let mut writer = other.transaction(options).unwrap();
            let run8 = writer.database("run8").unwrap();
            let busy = writer.container(run8, "x").unwrap_err();
            assert_eq!(busy.kind(), ErrorKind::Busy, "the new container is locked, too");
        }
        assert_eq!(transaction.view("run7/events").unwrap().live(), 10);
    }
    transaction.extend(key, events(7, 100, 1)).unwrap();
    transaction.rollback();
    let federation = reopened(&folder);
    assert_eq!(numbers(&federation, "run8/x"), [0, 1, 2]);
    assert_eq!(federation.snapshot(None).unwrap().view("run7/events").unwrap().entries(), 14);
    let history = federation.history(10).unwrap();
    let mut transactions: Vec<_> = history.iter().map(|row| row.transaction).collect();
    transactions.sort();
    transactions.dedup();
    assert_eq!(transactions.len(), history.len(), "every commit is a transaction of its own");
}
