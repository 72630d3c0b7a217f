//! Sealing and attaching: a database is a ROOT file, and a ROOT file is a database.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use femtobarn::{Class, ContainerOptions, ErrorKind, Federation, TransactionOptions};
use rntuple::tfile::KeyChain;
use rntuple::{Reader, Value};

use crate::support::{events, federation, number, numbers, with_ten_events};

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
fn a_database_that_is_written_cannot_be_sealed() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.database("run7").unwrap();
    transaction.container(database, "events").unwrap();
    assert_eq!(federation.seal("run7", NO_WAIT).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn holes_that_killed_writers_left_are_marked_when_sealing() {
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
fn a_sealed_file_moves_to_another_federation_with_its_links() {
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
fn what_is_not_a_whole_root_file_is_not_attached() {
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
fn a_class_that_does_not_match_its_data_is_not_attached() {
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
