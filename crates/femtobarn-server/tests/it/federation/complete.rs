//! The presented file is a complete ROOT file, the same that sealing makes.

use std::sync::Arc;
use std::time::Duration;

use femtobarn::{Class, ContainerOptions, Federation, Profile};
use rntuple::tfile::{self, KeyChain};
use rntuple::{Reader, Value};

use super::{Stage, all_of, class, entries, event, events};

/// The names and entries of all RNTuples of a file, without their locations.
fn contents(bytes: &Arc<Vec<u8>>) -> Vec<(String, Vec<Value>)> {
    let anchors = tfile::anchors(&**bytes).unwrap();
    let named = anchors.into_iter().map(|(name, _)| {
        let reader = Reader::open(bytes.clone(), &name).unwrap();
        (name, entries(&reader))
    });
    named.collect()
}

/// Fails unless the bytes are a ROOT file whose keys follow each other from its front to its end.
fn assert_is_whole(bytes: &Vec<u8>) {
    let header = tfile::FileHeader::decode(bytes).unwrap();
    assert_eq!(header.end, bytes.len() as u64);
    let keys: Vec<_> = KeyChain::of_file(bytes).unwrap().map(Result::unwrap).collect();
    assert!(keys.iter().all(|(position, key)| !key.gap && *position == key.position));
    let (position, last) = keys.last().unwrap();
    assert_eq!(position + last.size, bytes.len() as u64);
}

/// Events that were appended, updated, deleted and given a newer class, under another name, in a
/// database with two more containers.
fn changed(stage: &Stage) {
    let mut transaction = stage.begin();
    let database = transaction.create_database("run8").unwrap();
    for (name, compression) in [("raw", Profile::Plain), ("packed", Profile::Archive)] {
        let small = ContainerOptions {
            page_size: 4096,
            cluster_size: 8192,
            compression,
            ..Default::default()
        };
        let key = transaction.create_container(database, name, &class(), small).unwrap();
        for n in 0..2000 {
            transaction.append_value(key, event(n)).unwrap();
        }
        transaction.checkpoint().unwrap();
        let entries: Vec<u64> = (0..2000).step_by(7).collect();
        let updated: Vec<u64> = entries.iter().map(|n| n + 1_000_003).collect();
        transaction.update(key, &entries, events(&updated)).unwrap();
        transaction.checkpoint().unwrap();
        let newer = r#"{"name": "Event", "version": 2, "fields": [
            {"name": "n", "type": "uint64"}, {"name": "fresh", "type": "float32", "default": 2.5},
            {"name": "all_hits", "type": {"list": "uint32"}, "was": "hits"}]}"#;
        if name == "raw" {
            transaction.evolve(key, &Class::from_json(newer).unwrap()).unwrap();
        }
        let deleted: Vec<u64> = (0..2000).filter(|n| n % 11 == 3 || *n < 40).collect();
        transaction.delete(key, &deleted).unwrap();
        transaction.checkpoint().unwrap();
    }
    let empty = ContainerOptions::default();
    transaction.create_container(database, "empty", &class(), empty).unwrap();
    transaction.rename_container(database, "raw", "events").unwrap();
    transaction.commit().unwrap();
}

#[test]
fn an_open_database_is_presented_as_a_complete_file() {
    let stage = Stage::new().with_ten_events();
    let bytes = stage.bytes("/run7.root", "");
    assert_is_whole(&bytes);
    let reader = Reader::open(Arc::new(bytes), "events").unwrap();
    assert_eq!(entries(&reader), (0..10).map(event).collect::<Vec<_>>());
    stage.append(10..3000);
    let bytes = stage.bytes("/run7.root", "");
    assert_is_whole(&bytes);
    let reader = Reader::open(Arc::new(bytes), "events").unwrap();
    assert_eq!(entries(&reader), (0..3000).map(event).collect::<Vec<_>>());
}

#[test]
fn the_presented_file_is_the_one_that_sealing_makes() {
    let stage = Stage::new();
    changed(&stage);
    let shown = Arc::new(stage.bytes("/run8.root", ""));
    assert_is_whole(&shown);
    stage.federation.seal("run8", Duration::ZERO).unwrap();
    let sealed = Arc::new(std::fs::read(stage.file("run8.root")).unwrap());
    let (shown, sealed) = (contents(&shown), contents(&sealed));
    let names = |of: &[(String, Vec<Value>)]| -> Vec<String> {
        of.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&shown), ["events", "packed", "empty", "_femtobarn"]);
    assert_eq!(names(&sealed), names(&shown));
    for ((name, shown), (_, sealed)) in shown.iter().zip(&sealed) {
        assert!(shown == sealed, "{name}");
    }
    let (_, events) = &shown[0];
    let deleted = |event: &&Value| event.member("_deleted") == Some(&Value::Bool(true));
    assert_eq!(events.iter().filter(deleted).count(), 218);
    assert_eq!(events[7].member("n"), Some(&Value::UInt(1_000_010)));
    assert_eq!(events[8].member("fresh"), Some(&Value::Float(2.5)));
}

#[test]
fn a_copy_is_attached_elsewhere_with_its_classes_and_deletions() {
    let stage = Stage::new();
    changed(&stage);
    let copy = stage.folder.path().join("copy.root");
    std::fs::write(&copy, stage.bytes("/run8.root", "")).unwrap();
    let other = Federation::create(&stage.folder.path().join("other.fed"), "other").unwrap();
    other.attach(&copy, Some("copied")).unwrap();
    let of = |federation: &Federation, path: &str| {
        let view = federation.snapshot(None).unwrap().view(path).unwrap();
        let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
        (0..array.len()).map(|at| array.value(at).unwrap()).collect::<Vec<_>>()
    };
    for name in ["events", "packed", "empty"] {
        let ours = of(&stage.federation, &format!("run8/{name}"));
        assert!(of(&other, &format!("copied/{name}")) == ours, "{name}");
    }
}

#[test]
fn a_sealed_database_is_served_from_its_own_file() {
    let stage = Stage::new().with_ten_events();
    let before = stage.federation.head().unwrap();
    let open = stage.bytes("/run7.root", "");
    stage.federation.seal("run7", Duration::ZERO).unwrap();
    let file = stage.open("/run7.root", "").unwrap();
    assert!(file.descriptor().is_some());
    assert_eq!(all_of(&*file), std::fs::read(stage.file("run7.root")).unwrap());
    // Earlier snapshots are unchanged.
    assert!(stage.bytes("/run7.root", &format!("fb.csn={before}")) == open);
}

#[test]
fn an_attached_file_is_served_from_its_own_path() {
    let stage = Stage::new().with_ten_events();
    stage.federation.seal("run7", Duration::ZERO).unwrap();
    let other = Stage::new();
    other.federation.attach(&stage.file("run7.root"), Some("taken")).unwrap();
    let file = other.open("/taken.root", "").unwrap();
    assert!(file.descriptor().is_some());
    assert_eq!(all_of(&*file), std::fs::read(stage.file("run7.root")).unwrap());
    std::fs::remove_file(stage.file("run7.root")).unwrap();
    let gone = other.open("/taken.root", "").err().unwrap();
    let femtobarn_server::physical::StorageError::Refused(_, text) = gone else {
        panic!("{gone:?}")
    };
    assert_eq!(text, "cannot open /taken.root: no such file or directory");
}

#[test]
fn links_and_a_database_without_containers_are_presented() {
    let stage = Stage::new().with_ten_events();
    let mut transaction = stage.begin();
    transaction.create_database("bare").unwrap();
    let database = transaction.create_database("tags").unwrap();
    let json = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "event", "type": {"link": "Event"}}]}"#;
    let class = Class::from_json(json).unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "tags", &class, options).unwrap();
    let number = |name: &str, value: u64| (name.to_owned(), Value::UInt(value));
    let link = |entry| {
        let link = vec![number("database", 1), number("container", 1), number("entry", entry)];
        Value::Record(vec![("event".to_owned(), Value::Record(link))])
    };
    for entry in [3, 5] {
        transaction.append_value(key, link(entry)).unwrap();
    }
    transaction.commit().unwrap();
    assert_is_whole(&stage.bytes("/bare.root", ""));
    let bytes = stage.bytes("/tags.root", "");
    assert_is_whole(&bytes);
    let tags = entries(&Reader::open(Arc::new(bytes), "tags").unwrap());
    let entry = |tag: &Value| tag.member("event").unwrap().member("entry").cloned();
    assert_eq!(tags.iter().map(entry).collect::<Vec<_>>(), [3, 5].map(|n| Some(Value::UInt(n))));
}
