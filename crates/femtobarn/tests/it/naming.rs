//! Classes of one name with different fields, which meet when databases move.
//!
//! Two federations imported NanoAOD, each with a class `Events`. A third could attach the databases of only
//! one of them: 'class Events version 1 exists with other fields'.

use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{
    CheckLevel, Class, ErrorKind, Federation, Oid, Referrer, identify, rebuild_catalogue,
};
use rntuple::{Array, Primitive, Value};
use tempfile::TempDir;

use crate::links::link;
use crate::support::begin;

const ENTRIES: u64 = 5;

/// A class of numbers.
fn events_class(version: u32, fields: &[&str]) -> Class {
    let field = |name: &&str| format!(r#"{{"name": "{name}", "type": "uint64"}}"#);
    let fields: Vec<String> = fields.iter().map(field).collect();
    let fields = fields.join(", ");
    let json = format!(r#"{{"name": "Events", "version": {version}, "fields": [{fields}]}}"#);
    Class::from_json(&json).unwrap()
}

fn numbers(fields: &[&str]) -> Array {
    let column = || Array::primitive(Primitive::UInt64, (0..ENTRIES).collect::<Vec<u64>>());
    let members = fields.iter().map(|name| ((*name).to_owned(), column())).collect();
    Array::Record { length: ENTRIES as usize, members }
}

/// Makes a database of tags that link to events in a federation of its own, detaches it, and returns the path
/// of its file.
fn detached(folder: &TempDir, name: &str, fields: &[&str], sealed: bool) -> PathBuf {
    detached_version(folder, name, 1, fields, sealed)
}

/// As [`detached`], with another version of the class of events.
fn detached_version(
    folder: &TempDir,
    name: &str,
    version: u32,
    fields: &[&str],
    sealed: bool,
) -> PathBuf {
    let place = folder.path().join(format!("of-{name}.fed"));
    let federation = Federation::create(&place, name).unwrap();
    let mut transaction = begin(&federation);
    let database = transaction.create_database(name).unwrap();
    let class = events_class(version, fields);
    let options = Default::default();
    let events = transaction.create_container(database, "events", &class, options).unwrap();
    transaction.extend(events, numbers(fields)).unwrap();
    let class = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "event", "type": {"link": "Events"}}]}"#;
    let class = Class::from_json(class).unwrap();
    let tags = transaction.create_container(database, "tags", &class, options).unwrap();
    let to = Some(Oid::new(events.database, events.container, 3));
    let tag = Value::Record(vec![("event".to_owned(), link(to))]);
    transaction.append_value(tags, tag).unwrap();
    transaction.commit().unwrap();
    if sealed {
        federation.seal(name, Duration::ZERO).unwrap();
    }
    let to = folder.path().join(format!("{name}.root"));
    federation.detach(name, Some(&to), Duration::ZERO).unwrap()
}

fn class_of(federation: &Federation, path: &str) -> (String, u32) {
    let view = federation.snapshot(None).unwrap().view(path).unwrap();
    assert_eq!(view.class().name, view.container().class);
    (view.class().name.clone(), view.class().version)
}

fn assert_sound(federation: &Federation) {
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!(report.problems, []);
}

fn create(folder: &TempDir, name: &str) -> Federation {
    Federation::create(&folder.path().join(name), name).unwrap()
}

/// The names of classes that the records of a file have.
fn recorded(path: &Path) -> Vec<String> {
    let facts = identify(path).unwrap();
    facts.containers.into_iter().map(|it| it.class.unwrap().0).collect()
}

#[test]
fn databases_with_different_classes_of_one_name_join_one_federation() {
    for sealed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let dy = detached(&folder, "dy", &["run", "event"], sealed);
        let dimuon = detached(&folder, "dimuon", &["run", "mass"], sealed);
        let merged = create(&folder, "merged.fed");
        assert_eq!(merged.attach(&dy, None).unwrap().renamed, []);
        let renamed = merged.attach(&dimuon, None).unwrap().renamed;
        assert_eq!(renamed, [("Events".to_owned(), "Events@dimuon".to_owned())]);
        assert_eq!(class_of(&merged, "dy/events"), ("Events".to_owned(), 1));
        assert_eq!(class_of(&merged, "dimuon/events"), ("Events@dimuon".to_owned(), 1));
        let names = merged.catalog().classes().unwrap().into_iter().map(|row| row.name);
        assert_eq!(names.collect::<Vec<_>>(), ["Events", "Events@dimuon", "Tag"]);
        let value = merged.snapshot(None).unwrap().view("dimuon/events").unwrap().value(4);
        assert_eq!(value.unwrap().member("mass"), Some(&Value::UInt(4)));
        assert_sound(&merged);
        // The file is unchanged.
        assert_eq!(recorded(&dimuon), ["Events", "Tag"]);
    }
}

/// A link has the name that its class had in the federation where the link was declared.
#[test]
fn links_to_a_class_with_an_origin_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let merged = create(&folder, "merged.fed");
    for (name, fields) in [("dy", ["run", "event"]), ("dimuon", ["run", "mass"])] {
        merged.attach(&detached(&folder, name, &fields, false), None).unwrap();
    }
    let snapshot = merged.snapshot(None).unwrap();
    for name in ["dy", "dimuon"] {
        let target = snapshot.view(&format!("{name}/events")).unwrap().oid(3);
        let tag = snapshot.view(&format!("{name}/tags")).unwrap().oid(0);
        let found = snapshot.referrers(target, true).unwrap().found;
        assert_eq!(found, [Referrer { object: tag, field: "event".to_owned() }]);
    }
}

#[test]
fn a_program_uses_its_class_by_the_plain_name() {
    let folder = tempfile::tempdir().unwrap();
    let merged = create(&folder, "merged.fed");
    let fields = ["run", "mass"];
    merged.adopt(&detached(&folder, "dy", &["run", "event"], false), None).unwrap();
    merged.adopt(&detached(&folder, "dimuon", &fields, false), None).unwrap();
    let mut transaction = begin(&merged);
    let dimuon = transaction.database("dimuon").unwrap();
    let class = events_class(1, &fields);
    let more = transaction.create_container(dimuon, "more", &class, Default::default()).unwrap();
    assert_eq!(transaction.class(more).unwrap().name, "Events@dimuon");
    let other = events_class(1, &["other"]);
    let error = transaction.create_container(dimuon, "c", &other, Default::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let events = transaction.container(dimuon, "events").unwrap();
    transaction.evolve(events, &events_class(2, &["run", "mass", "charge"])).unwrap();
    transaction.commit().unwrap();
    assert_eq!(class_of(&merged, "dimuon/events"), ("Events@dimuon".to_owned(), 2));
    assert_eq!(class_of(&merged, "dy/events"), ("Events".to_owned(), 1));
    let view = merged.snapshot(None).unwrap().view("dimuon/events").unwrap();
    assert_eq!(view.value(2).unwrap().member("mass"), Some(&Value::UInt(2)));
    assert_eq!(view.as_class(1).unwrap().class().fields.len(), 2);
    assert_sound(&merged);
}

#[test]
fn an_origin_survives_a_rebuild_and_is_dropped_when_a_file_is_attached_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let merged = create(&folder, "merged.fed");
    merged.adopt(&detached(&folder, "dy", &["run", "event"], false), None).unwrap();
    merged.adopt(&detached(&folder, "dimuon", &["run", "mass"], false), None).unwrap();
    let place = folder.path().join("merged.fed");
    drop(merged);
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        drop(std::fs::remove_file(place.join(file)));
    }
    rebuild_catalogue(&place, None, &mut |_| true).unwrap();
    let merged = Federation::open(&place).unwrap();
    assert_eq!(class_of(&merged, "dimuon/events"), ("Events@dimuon".to_owned(), 1));
    assert_sound(&merged);

    let away = folder.path().join("away.root");
    let away = merged.detach("dimuon", Some(&away), Duration::ZERO).unwrap();
    assert_eq!(recorded(&away), ["Events@dimuon", "Tag"]);
    // Where the plain name is free, the class gets it; where the class is known, it keeps the name that it has there.
    let other = create(&folder, "other.fed");
    assert_eq!(other.attach(&away, None).unwrap().renamed.len(), 1);
    assert_eq!(class_of(&other, "away/events"), ("Events".to_owned(), 1));
    assert_sound(&other);
    merged.adopt(&away, Some("back")).unwrap();
    assert_eq!(class_of(&merged, "back/events"), ("Events@dimuon".to_owned(), 1));
    assert_sound(&merged);
    merged.seal("back", Duration::ZERO).unwrap();
    let sealed = merged.detach("back", None, Duration::ZERO).unwrap();
    let first = Federation::open(&folder.path().join("of-dimuon.fed")).unwrap();
    first.attach(&sealed, Some("home")).unwrap();
    assert_eq!(class_of(&first, "home/events"), ("Events".to_owned(), 1));
}

/// An attached class once became the next version of the federation's own class, and a field that it lacked was
/// zero in all objects of the version after.
#[test]
fn a_different_class_of_the_same_name_does_not_come_between_versions() {
    let folder = tempfile::tempdir().unwrap();
    for sealed in [false, true] {
        let (dy, dimuon, tau) = if sealed {
            ("sealed-dy", "sealed-dimuon", "sealed-tau")
        } else {
            ("dy", "dimuon", "tau")
        };
        let own = create(&folder, &format!("own-{sealed}.fed"));
        own.adopt(&detached(&folder, dy, &["run", "event"], false), None).unwrap();
        let other = detached_version(&folder, dimuon, 2, &["run", "mass"], sealed);
        let attached = own.attach(&other, None).unwrap();
        let name = format!("Events@{dimuon}");
        assert_eq!(attached.renamed, [("Events".to_owned(), name.clone())]);
        assert_eq!(class_of(&own, &format!("{dimuon}/events")), (name, 2));
        // The next version of the same class has all its fields.
        let next = detached_version(&folder, tau, 2, &["run", "event", "weight"], sealed);
        assert_eq!(own.attach(&next, None).unwrap().renamed, []);
        assert_eq!(class_of(&own, &format!("{tau}/events")), ("Events".to_owned(), 2));
        let mut transaction = begin(&own);
        let database = transaction.database(dy).unwrap();
        let events = transaction.container(database, "events").unwrap();
        let newest = events_class(3, &["run", "event", "weight", "charge"]);
        transaction.evolve(events, &newest).unwrap();
        transaction.commit().unwrap();
        let view = own.snapshot(None).unwrap().view(&format!("{dy}/events")).unwrap();
        assert_eq!(view.value(3).unwrap().member("event"), Some(&Value::UInt(3)));
        assert_sound(&own);
    }
}

#[test]
fn a_sealed_database_is_attached_again_with_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let fields = ["run", "event", "weight"];
    let file = detached_version(&folder, "dy", 2, &fields, true);
    let home = Federation::open(&folder.path().join("of-dy.fed")).unwrap();
    assert_eq!(home.attach(&file, None).unwrap().renamed, []);
    let copy = create(&folder, "copy.fed");
    copy.attach(&detached(&folder, "old", &["run", "event"], false), None).unwrap();
    copy.attach(&file, None).unwrap();
    for federation in [home, copy] {
        assert_eq!(class_of(&federation, "dy/events"), ("Events".to_owned(), 2));
        assert_sound(&federation);
    }
}
