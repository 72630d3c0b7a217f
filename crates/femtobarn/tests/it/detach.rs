//! Identifying files, and moving databases between federations by detaching and attaching.

use std::fs;
use std::time::Duration;

use femtobarn::{CheckLevel, Class, ErrorKind, Federation, Oid, RootFileKind, identify};
use rntuple::Value;
use tempfile::TempDir;

use crate::links::{link, target};
use crate::support::{begin, event_class, events, federation, number, numbers, with_ten_events};

#[test]
fn identify_reports_the_kind_of_a_file() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed/databases/run7.root");
    let facts = identify(&path).unwrap();
    assert_eq!((facts.kind, facts.problem.as_deref()), (RootFileKind::OpenDatabase, None));
    assert_eq!(facts.federation, Some(federation.uuid()));
    assert_eq!(facts.database, Some(("run7".to_owned(), 1)));
    assert_eq!(facts.commits, 1);
    let [events] = &facts.containers[..] else { panic!("{:?}", facts.containers) };
    assert_eq!((events.name.as_str(), events.entries, events.deleted), ("events", 10, Some(0)));
    assert_eq!(events.class, Some(("Event".to_owned(), 1)));
    assert_eq!(events.clusters, Some(1));

    federation.seal("run7", Duration::ZERO).unwrap();
    let sealed = identify(&path).unwrap();
    assert_eq!((sealed.kind, sealed.uuid), (RootFileKind::SealedDatabase, facts.uuid));
    assert_eq!((sealed.containers[0].entries, sealed.federation), (10, facts.federation));

    let text = folder.path().join("text");
    fs::write(&text, "no ROOT file").unwrap();
    assert_eq!(identify(&text).unwrap().kind, RootFileKind::Other);
    let cut = folder.path().join("cut.root");
    fs::write(&cut, &fs::read(&path).unwrap()[..900]).unwrap();
    let facts = identify(&cut).unwrap();
    assert!(facts.problem.is_some(), "{facts:?}");
    assert!(identify(&folder.path().join("none")).is_err());
}

/// A federation whose database `tags` links to events of `run7`, one of which is deleted.
fn with_tags() -> (TempDir, Federation) {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let class = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "event", "type": {"link": "Event"}}]}"#;
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let events = transaction.container(run7, "events").unwrap();
    transaction.delete(events, &[4]).unwrap();
    let tags = transaction.create_database("tags").unwrap();
    let class = Class::from_json(class).unwrap();
    let key = transaction.create_container(tags, "tags", &class, Default::default()).unwrap();
    for entry in [3, 5] {
        let to = Some(Oid::new(events.database, events.container, entry));
        let tag = Value::Record(vec![("event".to_owned(), link(to))]);
        transaction.append_value(key, tag).unwrap();
    }
    transaction.commit().unwrap();
    (folder, federation)
}

#[test]
fn detached_databases_join_another_federation_with_their_links() {
    let (folder, federation) = with_tags();
    let before = federation.head().unwrap();
    let away = folder.path().join("away");
    fs::create_dir(&away).unwrap();
    let run7 = federation.detach("run7", Some(&away), Duration::ZERO).unwrap();
    let tags = federation.detach("tags", Some(&away.join("t.root")), Duration::ZERO).unwrap();
    assert_eq!((run7, tags), (away.join("run7.root"), away.join("t.root")));
    assert!(federation.snapshot(None).unwrap().databases().unwrap().is_empty());
    let error = federation.detach("run7", None, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // An older snapshot finds the files at their new paths.
    let snapshot = federation.snapshot(Some(before)).unwrap();
    assert_eq!(snapshot.view("run7/events").unwrap().live(), 9);

    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    with_database(&other, "first");
    let attached = other.attach(&away.join("run7.root"), Some("readable")).unwrap();
    assert_eq!(attached.containers, ["events"]);
    let error = begin(&other).container(attached.database, "events").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    other.detach("readable", None, Duration::ZERO).unwrap();

    other.adopt(&away.join("run7.root"), Some("adopted")).unwrap();
    other.adopt(&away.join("t.root"), None).unwrap();
    assert!(fs::read_dir(&away).unwrap().next().is_none());
    let snapshot = other.snapshot(None).unwrap();
    assert_eq!(numbers(&other, "adopted/events"), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let tag = snapshot.view("t/tags").unwrap().value(1).unwrap();
    let oid = target(tag.member("event").unwrap()).unwrap();
    assert_eq!(number(&snapshot.object(oid).unwrap()), 5);

    // The adopted databases take commits, and new containers get numbers that are free.
    let mut transaction = begin(&other);
    let database = transaction.database("adopted").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, 10, 5)).unwrap();
    let more = transaction.create_container(database, "more", &event_class(), Default::default());
    let more = more.unwrap();
    assert_ne!(more.container, key.container);
    transaction.extend(more, events(8, 0, 3)).unwrap();
    transaction.commit().unwrap();
    let other = Federation::open(&folder.path().join("other.fed")).unwrap();
    assert_eq!(numbers(&other, "adopted/events").len(), 14);
    assert_eq!(numbers(&other, "adopted/more"), [0, 1, 2]);
    let report = other.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.links, 2);
    let facts = identify(&folder.path().join("other.fed/databases/run7.root")).unwrap();
    assert_eq!(facts.federation, Some(other.uuid()));
    assert_eq!(facts.containers.iter().map(|it| it.entries).collect::<Vec<_>>(), [15, 3]);
}

/// Creates a database with a container, whose number a container of another federation has, too.
fn with_database(federation: &Federation, name: &str) {
    let mut transaction = begin(federation);
    let database = transaction.create_database(name).unwrap();
    let class = event_class();
    transaction.create_container(database, "c", &class, Default::default()).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn an_open_database_of_another_federation_is_not_attached() {
    let (folder, federation) = with_tags();
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let path = folder.path().join("test.fed/databases/run7.root");
    for error in [other.attach(&path, None).unwrap_err(), other.adopt(&path, None).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("detach it there first"), "{error}");
    }
    assert!(path.exists());
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    transaction.container(run7, "events").unwrap();
    let error = federation.detach("run7", None, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
}

#[test]
fn a_damaged_database_is_not_adopted_and_stays_in_place() {
    let (folder, federation) = with_tags();
    let path = folder.path().join("away.root");
    federation.detach("run7", Some(&path), Duration::ZERO).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let facts = identify(&path).unwrap();
    // Damages every footer, so that no version can be read.
    let footers = b"\x02\x00".as_slice();
    let whole = bytes.clone();
    for at in (0..bytes.len() - 8).step_by(8) {
        if whole[at..].starts_with(footers) {
            bytes[at + 20] ^= 0x55;
        }
    }
    fs::write(&path, &bytes).unwrap();
    assert_eq!(facts.containers.len(), 1);
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let error = other.adopt(&path, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(path.exists() && other.snapshot(None).unwrap().databases().unwrap().is_empty());
}

#[test]
fn a_sealed_database_with_deletions_passes_checks_in_any_federation() {
    let (folder, federation) = with_tags();
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    transaction.create_index(key, "event", &["event"], true).unwrap();
    transaction.commit().unwrap();
    federation.seal("run7", Duration::ZERO).unwrap();
    federation.seal("tags", Duration::ZERO).unwrap();
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let databases = folder.path().join("test.fed/databases");
    other.attach(&databases.join("run7.root"), None).unwrap();
    other.attach(&databases.join("tags.root"), None).unwrap();
    for federation in [&federation, &other] {
        assert_eq!(numbers(federation, "run7/events"), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
        let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
        assert_eq!(report.problems, []);
        assert_eq!((report.links, report.objects), (2, 11));
    }
}
