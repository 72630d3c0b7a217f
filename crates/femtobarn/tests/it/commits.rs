//! Transactions: visible as a whole when committed, and gone as a whole otherwise.

use std::time::Duration;

use femtobarn::{ErrorKind, TransactionOptions};

use crate::support::{event_class, events, federation, numbers, reopened, with_ten_events};

#[test]
fn a_commit_is_visible_to_later_snapshots_only() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let before = federation.snapshot(None).unwrap();

    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let first = transaction.extend(key, events(7, 10, 5)).unwrap();
    assert_eq!(first.entry, 10);
    assert_eq!(before.view("run7/events").unwrap().entries(), 10);
    transaction.commit().unwrap();

    assert_eq!(before.view("run7/events").unwrap().entries(), 10);
    assert_eq!(numbers(&federation, "run7/events"), (0..15).collect::<Vec<_>>());
}

#[test]
fn a_commit_survives_reopening() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    assert_eq!(numbers(&reopened(&folder), "run7/events"), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_rolled_back_transaction_leaves_nothing() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let head = federation.head().unwrap();
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run8").unwrap();
    let options = Default::default();
    let key = transaction.create_container(database, "events", &event_class(), options).unwrap();
    transaction.extend(key, events(8, 0, 1000)).unwrap();
    transaction.rollback();
    assert_eq!(federation.head().unwrap(), head);
    assert!(!folder.path().join("test.fed/databases/run8.root").exists());
    assert_eq!(numbers(&federation, "run7/events").len(), 10);
}

#[test]
fn many_small_commits_give_one_container() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    for round in 1..50 {
        let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.extend(key, events(7, 10 * round, 10)).unwrap();
        transaction.commit().unwrap();
    }
    drop(federation);
    assert_eq!(numbers(&reopened(&folder), "run7/events"), (0..500).collect::<Vec<_>>());
}

#[test]
fn a_second_writer_of_a_container_is_told_who_holds_it() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut first = federation.transaction(TransactionOptions::default()).unwrap();
    let database = first.database("run7").unwrap();
    first.container(database, "events").unwrap();

    let options = TransactionOptions { lock_wait: Duration::from_millis(20), ..Default::default() };
    let mut second = federation.transaction(options).unwrap();
    let error = second.container(database, "events").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(first);
    second.container(database, "events").unwrap();
}

#[test]
fn names_that_do_not_exist_suggest_near_misses() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let error = federation.snapshot(None).unwrap().view("run7/event").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("events"), "{error}");
}
