//! A transaction is visible as a whole once committed, and leaves nothing otherwise.

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
fn many_small_commits_make_one_readable_container() {
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
fn a_second_writer_gets_busy_with_the_holder() {
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
fn unknown_names_suggest_similar_ones() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let error = federation.snapshot(None).unwrap().view("run7/event").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("events"), "{error}");
}

/// A process continues from the version that it committed last, unless another process has committed since.
#[test]
fn processes_that_write_in_turn_see_each_others_commits() {
    let (folder, one) = federation();
    with_ten_events(&one);
    let other = reopened(&folder);
    for (at, federation) in [&one, &one, &other, &one, &other, &other].into_iter().enumerate() {
        let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        let first = 10 + 5 * at as u64;
        assert_eq!(transaction.extend(key, events(7, first, 5)).unwrap().entry, first);
        if at % 2 == 1 {
            transaction.delete(key, &[at as u64]).unwrap();
        }
        transaction.commit().unwrap();
    }
    let left: Vec<u64> = (0..40).filter(|number| ![1, 3, 5].contains(number)).collect();
    assert_eq!(numbers(&one, "run7/events"), left);
    assert_eq!(numbers(&other, "run7/events"), left);
}

/// A process retains its knowledge of a container under the container's number, never under its name.
#[test]
fn a_retained_container_follows_renames_and_drops_of_others() {
    let (folder, one) = federation();
    with_ten_events(&one);
    let append = |first: u64, name: &str| {
        let mut transaction = one.transaction(TransactionOptions::default()).unwrap();
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, name)?;
        let savepoint = transaction.savepoint().unwrap();
        transaction.extend(key, events(7, 100, 5)).unwrap();
        transaction.rollback_to(&savepoint).unwrap();
        transaction.extend(key, events(7, first, 5)).unwrap();
        transaction.commit()
    };
    append(10, "events").unwrap();
    let other = reopened(&folder);
    let mut transaction = other.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    transaction.rename_container(database, "events", "hits").unwrap();
    transaction.commit().unwrap();
    assert_eq!(append(15, "events").unwrap_err().kind(), ErrorKind::NotFound);
    append(15, "hits").unwrap();
    assert_eq!(numbers(&other, "run7/hits"), (0..20).collect::<Vec<_>>());
    let mut transaction = other.transaction(TransactionOptions::default()).unwrap();
    transaction.drop_container(database, "hits").unwrap();
    transaction.commit().unwrap();
    assert_eq!(append(20, "hits").unwrap_err().kind(), ErrorKind::NotFound);
}

/// A transaction that is refused must not leave its changes to the next one.
#[test]
fn a_rolled_back_container_is_not_retained() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    for is_committed in [true, false, true, false] {
        let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        let first = transaction.entries(key).unwrap();
        transaction.extend(key, events(7, first, 5)).unwrap();
        if is_committed {
            transaction.commit().unwrap();
        } else {
            transaction.rollback();
        }
    }
    assert_eq!(numbers(&federation, "run7/events"), (0..20).collect::<Vec<_>>());
}
