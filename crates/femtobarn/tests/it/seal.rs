//! Sealing a database as a ROOT file, and attaching a ROOT file as a database.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use femtobarn::{Class, ContainerOptions, ErrorKind, Federation, TransactionOptions};
use rntuple::tfile::KeyChain;
use rntuple::{Reader, Value};

use crate::support::{begin, events, federation, number, numbers, with_ten_events};
use crate::types::type_of_class;
use crate::values::array_of;

const NO_WAIT: Duration = Duration::ZERO;

#[test]
fn a_sealed_database_is_a_root_file_and_takes_no_changes() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    federation.seal("run7", NO_WAIT).unwrap();
    assert_eq!(numbers(&federation, "run7/events"), (0..10).collect::<Vec<_>>());

    let file = std::fs::File::open(folder.path().join("test.fed/databases/run7.root")).unwrap();
    let chain = KeyChain::of_file(&file).unwrap();
    assert!(chain.map(Result::unwrap).all(|(_, key)| !key.gap));
    let reader = Reader::open(Arc::new(file), "events").unwrap();
    assert_eq!(reader.entries(), 10);

    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    let error = transaction.container(database, "events").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(federation.seal("run7", NO_WAIT).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn sealing_is_busy_while_a_transaction_is_open() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    transaction.container(database, "events").unwrap();
    assert_eq!(federation.seal("run7", NO_WAIT).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn sealing_marks_gaps_of_killed_writers() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    let size = std::fs::metadata(&path).unwrap().len();
    // A writer that was killed after it had lengthened the file, before it wrote the key.
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[0; 5000], size).unwrap();

    let federation = crate::support::reopened(&folder);
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, 10, 10)).unwrap();
    transaction.commit().unwrap();
    federation.seal("run7", NO_WAIT).unwrap();

    let file = std::fs::File::open(&path).unwrap();
    let gaps = KeyChain::of_file(&file).unwrap().map(Result::unwrap).filter(|(_, key)| key.gap);
    assert_eq!(gaps.map(|(at, key)| (at, key.size)).collect::<Vec<_>>(), [(size, 5000)]);
    assert_eq!(numbers(&federation, "run7/events").len(), 20);
}

#[test]
fn a_sealed_file_keeps_its_links_in_another_federation() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let class = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "event", "type": {"link": "Event"}}]}"#;
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let events = transaction.database("run7").unwrap();
    let events = transaction.container(events, "events").unwrap();
    let tags = transaction.create_database("tags").unwrap();
    let class = Class::from_json(class).unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(tags, "tags", &class, options).unwrap();
    for entry in [3, 5] {
        let number = |name: &str, value: u64| (name.to_owned(), Value::UInt(value));
        let link = Value::Record(vec![
            number("database", events.database.0.into()),
            number("container", events.container.0.into()),
            number("entry", entry),
        ]);
        let tag = Value::Record(vec![("event".to_owned(), link)]);
        transaction.append_value(key, tag).unwrap();
    }
    transaction.commit().unwrap();
    federation.seal("run7", NO_WAIT).unwrap();
    federation.seal("tags", NO_WAIT).unwrap();

    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let databases = folder.path().join("test.fed/databases");
    other.attach(&databases.join("tags.root"), None).unwrap();
    let dangling = other.snapshot(None).unwrap().view("tags/tags").unwrap();
    assert_eq!(dangling.unknown_databases().len(), 1);
    other.attach(&databases.join("run7.root"), Some("renamed")).unwrap();

    let other = Federation::open(&folder.path().join("other.fed")).unwrap();
    let snapshot = other.snapshot(None).unwrap();
    let link = snapshot.view("tags/tags").unwrap().value(1).unwrap();
    let link = link.member("event").unwrap();
    let part = |name: &str| link.member(name).unwrap().as_integer().unwrap();
    let oid = format!("{}-{}-{}", part("database"), part("container"), part("entry"));
    assert_eq!(number(&snapshot.object(oid.parse().unwrap()).unwrap()), 5);

    let error = other.attach(&databases.join("run7.root"), Some("again")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
}

#[test]
fn an_incomplete_or_foreign_file_is_not_attached() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let error = other.attach(&path, None).unwrap_err();
    assert!(error.to_string().contains("seal"), "{error}");

    federation.seal("run7", NO_WAIT).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.root");
    std::fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    let error = other.attach(&cut, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("truncated"), "{error}");

    let text = folder.path().join("text.root");
    std::fs::write(&text, "not a ROOT file").unwrap();
    assert_eq!(other.attach(&text, None).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        other.attach(&folder.path().join("no.root"), None).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(other.snapshot(None).unwrap().databases().unwrap().is_empty());
}

#[test]
fn a_file_whose_class_differs_from_its_data_is_not_attached() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let catalogue = folder.path().join("test.fed/catalogue.sqlite");
    let sql = rusqlite::Connection::open(catalogue).unwrap();
    let lie = "UPDATE classes SET definition = replace(definition, 'uint64', 'float64')";
    assert_eq!(sql.execute(lie, []).unwrap(), 1);
    federation.seal("run7", NO_WAIT).unwrap();
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let path = folder.path().join("test.fed/databases/run7.root");
    let error = other.attach(&path, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("Event"), "{error}");
    assert!(other.snapshot(None).unwrap().databases().unwrap().is_empty());
}

/// Events that were appended, updated, deleted and given a newer class, under another name.
fn changed(federation: &Federation) -> Vec<Option<Value>> {
    let class = |version: u32, of: &str, was: &str| {
        let json = format!(
            r#"{{"name": "Hits", "version": {version}, "fields": [
            {{"name": "n", "type": "{of}"}},
            {{"name": "hits{version}", "type": {{"list": "{of}"}}{was}}}]}}"#
        );
        Class::from_json(&json).unwrap()
    };
    let object = |version: u32, n: u64, count: u64| {
        let hits = Value::List((0..count).map(|hit| Value::UInt(n + hit)).collect());
        Value::Record(vec![("n".into(), Value::UInt(n)), (format!("hits{version}"), hits)])
    };
    let first = class(1, "uint16", "");
    let mut transaction = begin(federation);
    let database = transaction.create_database("run8").unwrap();
    let options = ContainerOptions { page_size: 4096, cluster_size: 8192, ..Default::default() };
    let key = transaction.create_container(database, "raw", &first, options).unwrap();
    for n in 0..2000 {
        transaction.append_value(key, object(1, n, n % 5)).unwrap();
    }
    transaction.checkpoint().unwrap();
    let entries: Vec<u64> = (0..2000).step_by(7).collect();
    let of = type_of_class(&first);
    let updated: Vec<Value> = entries.iter().map(|n| object(1, *n, 9)).collect();
    transaction.update(key, &entries, array_of(&of, &updated)).unwrap();
    transaction.checkpoint().unwrap();
    transaction.evolve(key, &class(2, "uint64", r#", "was": "hits1""#)).unwrap();
    for n in 2000..2100 {
        transaction.append_value(key, object(2, n, n % 5)).unwrap();
    }
    let deleted: Vec<u64> = (0..2100).filter(|n| n % 11 == 3 || *n < 40).collect();
    transaction.delete(key, &deleted).unwrap();
    transaction.rename_container(database, "raw", "hits").unwrap();
    transaction.commit().unwrap();
    let expected = |n: u64| {
        let count = if n < 2000 && n.is_multiple_of(7) { 9 } else { n % 5 };
        (!deleted.contains(&n)).then(|| object(2, n, count))
    };
    (0..2100).map(expected).collect()
}

fn assert_holds(federation: &Federation, path: &str, expected: &[Option<Value>]) {
    let view = federation.snapshot(None).unwrap().view(path).unwrap();
    let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
    let live: Vec<&Value> = expected.iter().flatten().collect();
    assert_eq!((view.entries(), view.live()), (expected.len() as u64, live.len() as u64));
    assert!((0..array.len()).all(|at| array.value(at).unwrap() == *live[at]));
    for (entry, object) in expected.iter().enumerate().step_by(13) {
        match object {
            Some(object) => assert_eq!(view.value(entry as u64).unwrap(), *object),
            None => {
                let error = view.value(entry as u64).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound);
            }
        }
    }
}

#[test]
fn a_sealed_database_with_changes_is_read_by_plain_readers_and_keeps_deletions() {
    let (folder, federation) = federation();
    let expected = changed(&federation);
    federation.seal("run8", NO_WAIT).unwrap();
    assert_holds(&federation, "run8/hits", &expected);
    assert_holds(&crate::support::reopened(&folder), "run8/hits", &expected);

    let path = folder.path().join("test.fed/databases/run8.root");
    let file = Arc::new(std::fs::File::open(&path).unwrap());
    let reader = Reader::open(file, "hits").unwrap();
    let marks = reader.read(&reader.select(&["_deleted"]).unwrap(), 0..2100).unwrap();
    for (entry, object) in expected.iter().enumerate() {
        let mark = marks.value(entry).unwrap();
        assert_eq!(mark.member("_deleted"), Some(&Value::Bool(object.is_none())), "entry {entry}");
    }
    // Element offsets are right, no field has two representations, and there is one cluster group: there is
    // nothing left to do.
    let nowhere = rntuple::EnvelopeLink::default();
    let current = rntuple::Anchor::new(nowhere, nowhere);
    let again = rntuple::complete(&reader, &mut Nowhere, &current, &[], Default::default());
    assert_eq!(again.unwrap().bytes, 0);

    drop(reader);
    let (_other_folder, other) = crate::support::federation();
    other.attach(&path, Some("moved")).unwrap();
    assert_holds(&other, "moved/hits", &expected);
}

/// A sink that fails if anything is written to it.
struct Nowhere;

impl rntuple::BlobSink for Nowhere {
    fn write_blob(&mut self, _: &[&[u8]]) -> rntuple::Result<u64> {
        panic!("there was something left to do")
    }
}
