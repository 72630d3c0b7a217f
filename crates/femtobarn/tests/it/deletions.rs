//! Deleted objects are absent from later snapshots and present in every one before.

use femtobarn::{ContainerKey, ErrorKind, Federation, Oid, Transaction};
use rntuple::Value;

use crate::support::{begin, events, federation, number, numbers, reopened, with_ten_events};

fn open_events(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

fn delete(federation: &Federation, entries: &[u64]) {
    let (mut transaction, key) = open_events(federation);
    assert_eq!(transaction.delete(key, entries).unwrap(), entries.len() as u64);
    transaction.commit().unwrap();
}

#[test]
fn deleted_objects_are_left_out_and_keep_their_entries() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let before = federation.snapshot(None).unwrap();
    delete(&federation, &[9, 0, 4, 5]);
    for federation in [&federation, &reopened(&folder)] {
        let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!((view.entries(), view.live()), (10, 6));
        assert_eq!(view.live_runs(0..10).unwrap(), [1..4, 6..9]);
        assert_eq!(view.live_entries(3..8).unwrap(), [3, 6, 7]);
        assert_eq!(view.live_entries(4..6).unwrap(), [0; 0]);
        let array = view.read(&view.select_all(), 0..10).unwrap();
        let read: Vec<u64> = (0..6).map(|at| number(&array.value(at).unwrap())).collect();
        assert_eq!((array.len(), read), (6, vec![1, 2, 3, 6, 7, 8]));
        assert_eq!(view.read(&view.select_all(), 4..6).unwrap().len(), 0);
        assert_eq!(view.read(&view.select_all(), 6..8).unwrap().len(), 2);
        assert_eq!(number(&view.value(3).unwrap()), 3);
        assert_eq!(view.fetch(&view.select_all(), &[8, 1]).unwrap().len(), 2);
        for error in [
            view.value(4).unwrap_err(),
            view.fetch(&view.select_all(), &[3, 4]).unwrap_err(),
            view.snapshot()
                .object(Oid::new(view.oid(0).database, view.oid(0).container, 9))
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("was deleted"), "{error}");
        }
        assert_eq!(view.live_runs(5..11).unwrap_err().kind(), ErrorKind::NotFound);
    }
    let view = before.view("run7/events").unwrap();
    assert_eq!((view.entries(), view.live()), (10, 10));
    assert_eq!(view.read(&view.select_all(), 0..10).unwrap().len(), 10);
    assert_eq!(number(&view.value(4).unwrap()), 4);
}

#[test]
fn appends_follow_deleted_objects() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key) = open_events(&federation);
    let first = transaction.extend(key, events(7, 10, 200_000)).unwrap();
    let deleted: Vec<u64> = (0..200_010).step_by(3).collect();
    transaction.delete(key, &deleted).unwrap();
    assert_eq!((first.entry, transaction.entries(key).unwrap()), (10, 200_010));
    transaction.commit().unwrap();
    delete(&federation, &[100_000, 65_536]);
    let (mut transaction, key) = open_events(&federation);
    assert_eq!(transaction.extend(key, events(7, 200_010, 1)).unwrap().entry, 200_010);
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let expected: Vec<u64> = (0..200_011)
        .filter(|n| (n % 3 != 0 || *n == 200_010) && ![100_000, 65_536].contains(n))
        .collect();
    assert!(view.live_entries(0..200_011).unwrap() == expected);
    let array = view.read(&view.select(&["event"]).unwrap(), 0..200_011).unwrap();
    let Some(rntuple::Array::Primitive { values, .. }) = array.member("event") else { panic!() };
    assert!(rntuple::values_of::<u64>(values).unwrap() == expected);
    assert_eq!(view.live(), expected.len() as u64);
}

#[test]
fn an_invalid_deletion_deletes_nothing() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    delete(&federation, &[3]);
    let (mut transaction, key) = open_events(&federation);
    for (entries, kind, said) in [
        (&[1, 3][..], ErrorKind::NotFound, "-3 of run7/events was deleted"),
        (&[1, 10], ErrorKind::NotFound, "no entry 10"),
        (&[1, 2, 1], ErrorKind::Invalid, "duplicate entry 1 of run7/events"),
    ] {
        let error = transaction.delete(key, entries).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(said), "{error}");
    }
    transaction.extend(key, events(7, 10, 2)).unwrap();
    assert_eq!(transaction.delete(key, &[11]).unwrap(), 1);
    assert_eq!(transaction.delete(key, &[11]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(transaction.delete(key, &[]).unwrap(), 0);
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    assert_eq!(view.live_entries(0..12).unwrap(), [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_rolled_back_deletion_makes_no_version() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key) = open_events(&federation);
    transaction.delete(key, &[1]).unwrap();
    transaction.rollback();
    assert_eq!(numbers(&federation, "run7/events").len(), 10);
    let version = |federation: &Federation| {
        *federation.snapshot(None).unwrap().view("run7/events").unwrap().version()
    };
    let before = version(&federation);
    let (mut transaction, key) = open_events(&federation);
    transaction.delete(key, &[]).unwrap();
    transaction.extend(key, events(7, 10, 0)).unwrap();
    transaction.append_value(key, Value::Null).unwrap_err();
    transaction.commit().unwrap();
    assert_eq!(version(&federation), before);
}
