//! Safety rests on the version check, not on locks: one of two commits to the same version wins whatever
//! happens to their locks, and no committed byte is overwritten.

use std::fs;

use femtobarn::{ContainerKey, ErrorKind, Federation, Transaction};
use tempfile::TempDir;

use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

/// Loses all locks, as a network file system may.
fn lose_locks(folder: &TempDir) {
    fs::remove_dir_all(folder.path().join("test.fed/locks")).unwrap();
}

fn open_events(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

#[test]
fn one_of_two_writers_without_locks_wins() {
    for (first, second) in [(5, 7), (20_000, 30_000), (30_000, 3)] {
        let (folder, one) = federation();
        with_ten_events(&one);
        let other = reopened(&folder);
        let (mut winner, key) = open_events(&one);
        winner.extend(key, events(7, 10, first)).unwrap();
        lose_locks(&folder);
        let (mut loser, key) = open_events(&other);
        loser.extend(key, events(99, 1000, second)).unwrap();
        let extra = loser.database("run7").unwrap();
        let extra = loser.create_container(extra, "extra", &event_class(), Default::default());
        loser.extend(extra.unwrap(), events(99, 0, 10)).unwrap();
        loser.create_database("more").unwrap();
        winner.commit().unwrap();
        let head = one.head().unwrap();

        let error = loser.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("run7/events"), "{error}");
        let expected: Vec<u64> = (0..10 + first).collect();
        for federation in [&one, &other, &reopened(&folder)] {
            assert_eq!(federation.head().unwrap(), head);
            assert!(numbers_at_once(federation) == expected);
            let snapshot = federation.snapshot(None).unwrap();
            assert_eq!(snapshot.view("run7/extra").err().unwrap().kind(), ErrorKind::NotFound);
            assert_eq!(snapshot.databases().unwrap().len(), 1);
        }
        assert!(!folder.path().join("test.fed/databases/more.root").exists());
        drop((one, other));
        let federation = reopened(&folder);
        assert!(numbers_at_once(&federation) == expected);
        let (mut next, key) = open_events(&federation);
        next.extend(key, events(7, 10 + first, 5)).unwrap();
        next.commit().unwrap();
        assert_eq!(numbers_at_once(&federation).len() as u64, 15 + first);
    }
}

/// The event numbers of `run7/events`, read as one array.
pub(crate) fn numbers_at_once(federation: &Federation) -> Vec<u64> {
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let array = view.read(&view.select(&["event"]).unwrap(), 0..view.entries()).unwrap();
    let Some(rntuple::Array::Primitive { values, .. }) = array.member("event") else {
        panic!("numbers are a column")
    };
    rntuple::values_of(values).unwrap().to_vec()
}

/// Many rounds in which both lose their locks, with small and large transactions in turn, so that
/// extents of both are begun, lengthened, filled and given back.
#[test]
fn no_committed_byte_is_overwritten() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut federations = [federation, reopened(&folder)];
    let mut count = 10;
    for round in 0..30_u64 {
        if round % 7 == 6 {
            federations[round as usize % 2] = reopened(&folder);
        }
        let (size, other_size) = (1 + round * 397 % 9000, 1 + round * 1013 % 9000);
        let (mut winner, key) = open_events(&federations[0]);
        winner.extend(key, events(7, count, size)).unwrap();
        lose_locks(&folder);
        let (mut loser, other_key) = open_events(&federations[1]);
        loser.extend(other_key, events(99, 0, other_size)).unwrap();
        match round % 3 {
            // The loser notices before, in the middle, or at the very end.
            0 => {
                winner.commit().unwrap();
                assert_eq!(loser.commit().unwrap_err().kind(), ErrorKind::Conflict);
            }
            1 => {
                winner.commit().unwrap();
                loser.extend(other_key, events(99, 0, 20_000)).unwrap();
                assert_eq!(loser.commit().unwrap_err().kind(), ErrorKind::Conflict);
            }
            _ => {
                drop(loser);
                winner.extend(key, events(7, count + size, 3000)).unwrap();
                winner.commit().unwrap();
                count += 3000;
            }
        }
        count += size;
        federations.swap(0, 1);
        let expected: Vec<u64> = (0..count).collect();
        assert!(numbers_at_once(&reopened(&folder)) == expected, "round {round}");
    }
    drop(federations);
    let federation = reopened(&folder);
    assert!(numbers_at_once(&federation) == (0..count).collect::<Vec<_>>());
    federation.seal("run7", std::time::Duration::ZERO).unwrap();
    assert!(numbers_at_once(&federation) == (0..count).collect::<Vec<_>>());
}

#[test]
fn one_of_two_creators_of_a_name_wins() {
    let (folder, one) = federation();
    with_ten_events(&one);
    let other = reopened(&folder);
    let create = |federation: &Federation, run: u32| {
        let mut transaction = begin(federation);
        let database = transaction.create_database("new").unwrap();
        let class = event_class();
        let key = transaction.create_container(database, "events", &class, Default::default());
        transaction.extend(key.unwrap(), events(run, 0, 10)).unwrap();
        transaction
    };
    let (first, second) = (create(&one, 1), create(&other, 2));
    second.commit().unwrap();
    let error = first.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    for federation in [&one, &other] {
        assert_eq!(numbers(federation, "new/events").len(), 10);
        let view = federation.snapshot(None).unwrap().view("new/events").unwrap();
        assert_eq!(view.value(0).unwrap().member("run"), Some(&rntuple::Value::UInt(2)));
    }
    let databases = fs::read_dir(folder.path().join("test.fed/databases")).unwrap();
    assert_eq!(databases.count(), 2, "the file of the loser is gone");

    let create = |federation: &Federation| {
        let mut transaction = begin(federation);
        let database = transaction.database("run7").unwrap();
        let class = event_class();
        transaction.create_container(database, "new", &class, Default::default()).unwrap();
        transaction
    };
    let (first, second) = (create(&one), create(&other));
    first.commit().unwrap();
    assert_eq!(second.commit().unwrap_err().kind(), ErrorKind::Exists);
}

#[test]
fn writers_of_different_containers_do_not_wait_for_each_other() {
    let (folder, one) = federation();
    with_ten_events(&one);
    let other = reopened(&folder);
    let (mut first, key) = open_events(&one);
    first.extend(key, events(7, 10, 5000)).unwrap();
    let mut second = begin(&other);
    let database = second.database("run7").unwrap();
    let class = event_class();
    let new = second.create_container(database, "new", &class, Default::default()).unwrap();
    second.extend(new, events(8, 0, 5000)).unwrap();
    second.commit().unwrap();
    first.extend(key, events(7, 5010, 5000)).unwrap();
    first.commit().unwrap();
    let federation = reopened(&folder);
    assert_eq!(numbers(&federation, "run7/events"), (0..10_010).collect::<Vec<_>>());
    assert_eq!(numbers(&federation, "run7/new"), (0..5000).collect::<Vec<_>>());
}

/// A container that was created and committed while its database was being sealed was once
/// neither listed in the sealed file nor refused.
#[test]
fn a_database_is_not_sealed_under_a_transaction() {
    let (folder, one) = federation();
    with_ten_events(&one);
    let other = reopened(&folder);
    let mut transaction = begin(&other);
    let database = transaction.database("run7").unwrap();
    let class = event_class();
    let key = transaction.create_container(database, "new", &class, Default::default()).unwrap();
    transaction.extend(key, events(7, 0, 5)).unwrap();
    let sealed = one.seal("run7", std::time::Duration::ZERO);
    match transaction.commit() {
        Ok(_) => assert!(sealed.is_err(), "both sealed and written"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
    }
    assert_eq!(numbers(&reopened(&folder), "run7/events").len(), 10);
}
