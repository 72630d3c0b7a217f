//! Unique indexes, merging of runs, the choice of an index, and index definitions that are refused.

use femtobarn::{ContainerKey, ContainerOptions, ErrorKind, Federation, Transaction};
use rntuple::{Array, Value};

use crate::index_model::{create, open};
use crate::support::{begin, event_class, events, federation};

fn event_index(federation: &Federation, unique: bool) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &event_class(), options).unwrap();
    transaction.create_index(key, "event", &["run", "event"], unique).unwrap();
    (transaction, key)
}

fn sought(run: u64, event: u64) -> [(&'static str, Value); 2] {
    [("event", Value::UInt(event)), ("run", Value::UInt(run))]
}

#[test]
fn a_unique_key_is_refused_until_its_object_is_deleted() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = event_index(&federation, true);
    transaction.extend(key, events(7, 0, 1000)).unwrap();
    transaction.commit().unwrap();

    let (mut transaction, key) = open(&federation);
    transaction.extend(key, events(7, 2000, 10)).unwrap();
    transaction.extend(key, events(7, 500, 1)).unwrap();
    let error = transaction.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let text = error.to_string();
    assert!(text.contains("entries 500 and 1010") && text.contains("run 7, event 500"), "{text}");

    let (mut transaction, key) = open(&federation);
    transaction.extend(key, events(8, 0, 5)).unwrap();
    transaction.extend(key, events(8, 4, 1)).unwrap();
    let error = transaction.commit().unwrap_err();
    assert!(error.to_string().contains("entries 1004 and 1005"), "{error}");

    let (mut transaction, key) = open(&federation);
    transaction.delete(key, &[500]).unwrap();
    transaction.extend(key, events(7, 500, 1)).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    assert_eq!(view.find(&sought(7, 500)).unwrap(), Some(1000));
    assert_eq!(view.find(&sought(7, 501)).unwrap(), Some(501));
    assert_eq!(view.find(&sought(8, 0)).unwrap(), None);
}

#[test]
fn an_update_moves_a_unique_key_but_cannot_take_another_objects() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = event_index(&federation, true);
    transaction.extend(key, events(7, 0, 100)).unwrap();
    transaction.commit().unwrap();
    let renumber = |entry: u64, event: u64| {
        let (mut transaction, key) = open(&federation);
        let Array::Record { length, mut members } = events(7, event, 1) else { unreachable!() };
        members.retain(|(name, _)| name == "event");
        transaction.update(key, &[entry], Array::Record { length, members }).unwrap();
        transaction.commit()
    };
    let error = renumber(5, 6).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("entries 6 and 5"), "{error}");
    let before = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    renumber(5, 1000).unwrap();
    renumber(6, 5).unwrap();
    let now = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    for (event, then, since) in
        [(5, Some(5), Some(6)), (6, Some(6), None), (1000, None, Some(5)), (7, Some(7), Some(7))]
    {
        assert_eq!(before.find(&sought(7, event)).unwrap(), then);
        assert_eq!(now.find(&sought(7, event)).unwrap(), since);
    }
}

#[test]
fn an_index_over_objects_that_share_a_key_cannot_be_made_unique() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = event_index(&federation, false);
    transaction.extend(key, events(7, 0, 10)).unwrap();
    transaction.extend(key, events(7, 9, 1)).unwrap();
    transaction.commit().unwrap();
    let (mut transaction, key) = open(&federation);
    transaction.create_index(key, "unique", &["event"], true).unwrap();
    let error = transaction.commit().unwrap_err();
    assert!(error.to_string().contains("entries 9 and 10"), "{error}");
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    assert_eq!(view.indexes().unwrap().len(), 1);
}

#[test]
fn hundreds_of_commits_leave_few_runs() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = event_index(&federation, true);
    for n in 0..300 {
        if n > 0 {
            transaction = open(&federation).0;
        }
        transaction.extend(key, events(7, 3 * n, 3)).unwrap();
        transaction.commit().unwrap();
        transaction = begin(&federation);
    }
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let index = &view.indexes().unwrap()[0];
    assert!(index.runs <= 9, "{index:?}");
    assert_eq!(index.keys, 900);
    for event in 0..900 {
        assert_eq!(view.find(&sought(7, event)).unwrap(), Some(event));
    }
    assert_eq!(view.find_all(&[("run", Value::UInt(7))]).unwrap().len(), 900);
}

#[test]
fn an_invalid_index_is_refused_with_the_reason() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = create(&federation, "run7");
    let mut refused = |name: &str, fields: &[&str], kind: ErrorKind, reason: &str| {
        let error = transaction.create_index(key, name, fields, false).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused("a", &["nothing"], ErrorKind::NotFound, "no field nothing");
    refused("a", &["run.x"], ErrorKind::NotFound, "no field run.x");
    refused("a", &[], ErrorKind::Invalid, "has no fields");
    refused("a", &["header"], ErrorKind::Invalid, "is not a number, string or link");
    refused("a", &["run", "run"], ErrorKind::Invalid, "named twice");
    refused("a", &["tracks.id", "hits"], ErrorKind::Invalid, "cannot have fields of both");
    refused("", &["run"], ErrorKind::Invalid, "must be 1 to 255 bytes");
    transaction.create_index(key, "a", &["run"], false).unwrap();
    let error = transaction.create_index(key, "a", &["weight"], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let error = transaction.drop_index(key, "b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let kind = |values: &[(&str, Value)]| view.find(values).unwrap_err().kind();
    assert_eq!(kind(&[("run", Value::String("7".into()))]), ErrorKind::Invalid);
    assert_eq!(kind(&[("nothing", Value::UInt(7))]), ErrorKind::NotFound);
    assert_eq!(kind(&[]), ErrorKind::Invalid);
    assert_eq!(view.find(&[("run", Value::Float(0.5))]).unwrap(), None);
}

#[test]
fn a_lookup_uses_the_index_with_the_most_first_fields() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = create(&federation, "run7");
    transaction.create_index(key, "run", &["run"], false).unwrap();
    transaction.create_index(key, "event", &["header.event", "run"], false).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let name =
        |fields: &[&str]| view.index_for(fields).unwrap().map(|(index, count)| (index.name, count));
    assert_eq!(name(&["run"]), Some(("run".into(), 1)));
    assert_eq!(name(&["run", "header.event"]), Some(("event".into(), 2)));
    assert_eq!(name(&["weight", "header.event"]), Some(("event".into(), 1)));
    assert_eq!(name(&["weight"]), None);
}
