//! New versions of classes: objects stay, and are seen as of the version that they have.

use femtobarn::{Class, ContainerKey, ErrorKind, Federation, Snapshot, Transaction};
use rntuple::Value;

use crate::links::link;
use crate::support::{begin, federation, reopened};

const FIRST: &str = r#"{"name": "Track", "version": 1, "fields": [
    {"name": "n", "type": "int32"},
    {"name": "pt", "type": "float32"},
    {"name": "hits", "type": {"list": {"record": {"fields": [
        {"name": "id", "type": "uint16"}, {"name": "time", "type": "float32"}]}}}},
    {"name": "vertex", "type": {"link": "Vertex"}},
    {"name": "junk", "type": "string"}]}"#;

/// Widened, renamed, made a collection, added with and without a default, removed.
const SECOND: &str = r#"{"name": "Track", "version": 2, "fields": [
    {"name": "momentum", "type": "float64", "was": "pt"},
    {"name": "n", "type": "int64"},
    {"name": "hits", "type": {"list": {"record": {"fields": [
        {"name": "t", "type": "float64", "was": "time"}, {"name": "id", "type": "uint32"},
        {"name": "charge", "type": "float32", "default": -1.5}]}}}},
    {"name": "vertices", "type": {"list": {"link": "Vertex"}}, "was": "vertex"},
    {"name": "quality", "type": "uint8", "default": 7},
    {"name": "note", "type": {"optional": {"record": {"fields": [
        {"name": "text", "type": "string"}]}}}}]}"#;

const THIRD: &str = r#"{"name": "Track", "version": 3, "fields": [
    {"name": "p", "type": "float64", "was": "momentum"},
    {"name": "n", "type": "int64"},
    {"name": "tags", "type": {"list": "string"}, "default": ["a", "b"]}]}"#;

fn class(json: &str) -> Class {
    Class::from_json(json).unwrap()
}

fn record(members: &[(&str, Value)]) -> Value {
    Value::Record(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn vertex(n: u64) -> Value {
    let oid = femtobarn::Oid::new(femtobarn::DatabaseId(1), femtobarn::ContainerId(9), n);
    link(n.is_multiple_of(2).then_some(oid))
}

fn first(n: u64) -> Value {
    let hit = |k: u64| record(&[("id", Value::UInt(k)), ("time", Value::Float(k as f64 / 2.0))]);
    record(&[
        ("n", Value::Int(-(n as i64))),
        ("pt", Value::Float(n as f64 / 4.0)),
        ("hits", Value::List((0..n % 4).map(hit).collect())),
        ("vertex", vertex(n)),
        ("junk", Value::String("junk".repeat(n as usize % 5))),
    ])
}

/// The object [`first`] as seen through the second version; `charge` is that of all its hits.
fn second(n: u64, charge: f64, quality: u64, note: Value) -> Value {
    let hit = |k: u64| {
        let t = Value::Float(k as f64 / 2.0);
        record(&[("t", t), ("id", Value::UInt(k)), ("charge", Value::Float(charge))])
    };
    record(&[
        ("momentum", Value::Float(n as f64 / 4.0)),
        ("n", Value::Int(-(n as i64))),
        ("hits", Value::List((0..n % 4).map(hit).collect())),
        ("vertices", Value::List(vec![vertex(n)])),
        ("quality", Value::UInt(quality)),
        ("note", note),
    ])
}

fn third(n: u64) -> Value {
    let tags = Value::List(["a", "b"].map(|tag| Value::String(tag.to_owned())).to_vec());
    let p = Value::Float(n as f64 / 4.0);
    record(&[("p", p), ("n", Value::Int(-(n as i64))), ("tags", tags)])
}

fn tracks(federation: &Federation, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.create_database("run7").unwrap();
    let options =
        femtobarn::ContainerOptions { page_size: 4096, cluster_size: 8192, ..Default::default() };
    let key = transaction.create_container(database, "tracks", &class(FIRST), options).unwrap();
    for n in 0..count {
        transaction.append_value(key, first(n)).unwrap();
    }
    transaction.commit().unwrap();
}

fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "tracks").unwrap();
    (transaction, key)
}

fn assert_are(snapshot: &Snapshot, version: u32, expected: &[Value]) {
    let view = snapshot.view("run7/tracks").unwrap();
    assert_eq!(view.class().version, version);
    assert_eq!(view.container().class_version, version);
    let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
    assert_eq!(array.len(), expected.len());
    for (entry, object) in expected.iter().enumerate() {
        assert_eq!(array.value(entry).unwrap(), *object, "entry {entry}");
        assert_eq!(view.value(entry as u64).unwrap(), *object, "entry {entry}");
    }
}

#[test]
fn objects_become_those_of_a_newer_version_and_old_snapshots_keep_theirs() {
    let (folder, federation) = federation();
    tracks(&federation, 700);
    let before: Vec<Value> = (0..700).map(first).collect();
    let (mut transaction, key) = open(&federation);
    transaction.append_value(key, first(700)).unwrap();
    transaction.evolve(key, &class(SECOND)).unwrap();
    assert_eq!(transaction.class(key).unwrap().version, 2);
    let mut after: Vec<Value> = (0..701).map(|n| second(n, -1.5, 7, Value::Null)).collect();
    let note = record(&[("text", Value::String("new".into()))]);
    after.push(second(701, 2.5, 1, note));
    transaction.append_value(key, after[701].clone()).unwrap();
    assert_eq!(transaction.view("run7/tracks").unwrap().value(701).unwrap(), after[701]);
    let csn = transaction.commit().unwrap();
    for federation in [&federation, &reopened(&folder)] {
        assert_are(&federation.snapshot(None).unwrap(), 2, &after);
        assert_are(&federation.snapshot(Some(femtobarn::Csn(csn.0 - 1))).unwrap(), 1, &before);
    }
    // Appending goes on with the new class, and refuses the old one.
    let (mut transaction, key) = open(&federation);
    transaction.append_value(key, first(1)).unwrap_err();
    after.push(second(702, 0.0, 2, Value::Null));
    transaction.append_value(key, after[702].clone()).unwrap();
    transaction.delete(key, &[3]).unwrap();
    transaction.commit().unwrap();
    after.remove(3);
    let view = federation.snapshot(None).unwrap().view("run7/tracks").unwrap();
    let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
    assert!((0..after.len()).all(|at| array.value(at).unwrap() == after[at]));
}

#[test]
fn a_field_that_was_renamed_twice_is_the_same_field() {
    for declares in [false, true] {
        let (folder, federation) = federation();
        tracks(&federation, 50);
        let (mut transaction, key) = open(&federation);
        if declares {
            transaction.declare_class(&class(SECOND)).unwrap();
        } else {
            transaction.evolve(key, &class(SECOND)).unwrap();
        }
        transaction.checkpoint().unwrap();
        transaction.evolve(key, &class(THIRD)).unwrap();
        transaction.commit().unwrap();
        let expected: Vec<Value> = (0..50).map(third).collect();
        assert_are(&reopened(&folder).snapshot(None).unwrap(), 3, &expected);
    }
}

#[test]
fn an_evolution_that_cannot_convert_values_is_refused_with_the_reason() {
    let (_folder, federation) = federation();
    tracks(&federation, 10);
    let before = *federation.snapshot(None).unwrap().view("run7/tracks").unwrap().version();
    let (mut transaction, key) = open(&federation);
    let with = |fields: &str| {
        class(&format!(r#"{{"name": "Track", "version": 2, "fields": [{fields}]}}"#))
    };
    for (newer, said) in [
        (with(r#"{"name": "n", "type": "int16"}"#), "field \"n\""),
        (with(r#"{"name": "pt", "type": "int32"}"#), "field \"pt\""),
        (with(r#"{"name": "junk", "type": "int32"}"#), "field \"junk\""),
        (
            with(
                r#"{"name": "hits", "type": {"optional": {"record": {"fields": [
                {"name": "id", "type": "uint16"}, {"name": "time", "type": "float32"}]}}}}"#,
            ),
            "field \"hits\": a list may have several items",
        ),
        (with(r#"{"name": "k", "type": "uint8", "default": 300}"#), "field \"k\""),
        (with(r#"{"name": "k", "type": "uint8", "default": "x"}"#), "field \"k\""),
        (
            with(
                r#"{"name": "vertex", "type": {"record": {"fields": [
                {"name": "entry", "type": "uint64"}]}}}"#,
            ),
            "field \"vertex\": a link cannot become a record",
        ),
        (class(FIRST), "is not a newer version"),
        (class(&SECOND.replace("Track", "Tracks")), "is not a newer version"),
    ] {
        let error = transaction.evolve(key, &newer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    transaction.commit().unwrap();
    let after = federation.snapshot(None).unwrap().view("run7/tracks").unwrap();
    assert_eq!(*after.version(), before);
}

#[test]
fn a_list_becomes_an_optional_list() {
    let (folder, federation) = federation();
    let with = |version: u32, of: &str| {
        class(&format!(
            r#"{{"name": "Track", "version": {version}, "fields": [{{"name": "l", "type": {of}}}]}}"#
        ))
    };
    let list = |n: i64| record(&[("l", Value::List((0..n % 4).map(Value::Int).collect()))]);
    let mut transaction = begin(&federation);
    let database = transaction.create_database("run7").unwrap();
    let older = with(1, r#"{"list": "int32"}"#);
    let key = transaction.create_container(database, "tracks", &older, Default::default()).unwrap();
    let mut expected: Vec<Value> = (0..20).map(list).collect();
    for row in &expected {
        transaction.append_value(key, row.clone()).unwrap();
    }
    transaction.commit().unwrap();
    let (mut transaction, key) = open(&federation);
    transaction.evolve(key, &with(2, r#"{"optional": {"list": "int64"}}"#)).unwrap();
    expected.extend([record(&[("l", Value::Null)]), list(3)]);
    for row in &expected[20..] {
        transaction.append_value(key, row.clone()).unwrap();
    }
    transaction.commit().unwrap();
    assert_are(&reopened(&folder).snapshot(None).unwrap(), 2, &expected);
}

#[test]
fn a_savepoint_undoes_an_evolution() {
    let (_folder, federation) = federation();
    tracks(&federation, 20);
    let (mut transaction, key) = open(&federation);
    transaction.append_value(key, first(20)).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.evolve(key, &class(SECOND)).unwrap();
    transaction.append_value(key, second(21, 1.0, 1, Value::Null)).unwrap();
    transaction.rollback_to(&savepoint).unwrap();
    transaction.append_value(key, first(21)).unwrap();
    transaction.commit().unwrap();
    let expected: Vec<Value> = (0..22).map(first).collect();
    assert_are(&federation.snapshot(None).unwrap(), 1, &expected);
    let error = federation.catalog().class("Track", Some(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn an_evolution_lists_its_changes() {
    let changes = class(SECOND).evolution(&class(FIRST)).unwrap().changes();
    for said in
        ["pt is now called momentum", "quality is new", "junk is left out", "n has a wider type"]
    {
        assert!(changes.iter().any(|change| change == said), "{said}: {changes:?}");
    }
    assert!(class(FIRST).evolution(&class(FIRST)).unwrap().changes().is_empty());
}

#[test]
fn old_data_are_read_through_the_new_class_and_new_data_through_the_old() {
    let (_folder, federation) = federation();
    tracks(&federation, 300);
    let (mut transaction, key) = open(&federation);
    transaction.delete(key, &[5]).unwrap();
    transaction.declare_class(&class(SECOND)).unwrap();
    transaction.declare_class(&class(THIRD)).unwrap();
    let csn = transaction.checkpoint().unwrap();
    let fourth = THIRD.replace("\"version\": 3", "\"version\": 4").replace(
        r#"{"name": "n", "type": "int64"}"#,
        r#"{"name": "n", "type": "int64"}, {"name": "q", "type": "bool"}"#,
    );
    transaction.evolve(key, &class(&fourth)).unwrap();
    transaction.commit().unwrap();
    let live: Vec<u64> = (0..300).filter(|n| *n != 5).collect();
    let old = federation.snapshot(Some(csn)).unwrap().view("run7/tracks").unwrap();
    for (version, object) in
        [(2, &(|n| second(n, -1.5, 7, Value::Null)) as &dyn Fn(u64) -> Value), (3, &third)]
    {
        let view = old.as_class(version).unwrap();
        assert_eq!((view.class().version, view.live()), (version, 299));
        let array = view.read(&view.select_all(), 0..300).unwrap();
        for (at, n) in live.iter().enumerate() {
            assert_eq!(array.value(at).unwrap(), object(*n));
            assert_eq!(view.value(*n).unwrap(), object(*n));
        }
        assert_eq!(view.value(5).unwrap_err().kind(), ErrorKind::NotFound);
    }
    let view = old.as_class(3).unwrap();
    let p = view.read(&view.select(&["p"]).unwrap(), 0..10).unwrap();
    assert_eq!(p.value(8).unwrap(), record(&[("p", Value::Float(9.0 / 4.0))]));
    // Through an older class, fields that were left out since are empty, and values that do not fit are refused.
    let new = federation.snapshot(None).unwrap().view("run7/tracks").unwrap();
    let view = new.as_class(3).unwrap();
    let array = view.read(&view.select_all(), 0..300).unwrap();
    assert!(live.iter().enumerate().all(|(at, n)| array.value(at).unwrap() == third(*n)));
    let view = new.as_class(2).unwrap();
    let object = view.value(7).unwrap();
    assert_eq!(object.member("momentum"), Some(&Value::Float(7.0 / 4.0)));
    assert_eq!(object.member("quality"), Some(&Value::UInt(7)));
    let view = view.as_class(1).unwrap();
    let object = view.value(7).unwrap();
    assert_eq!(object.member("pt"), Some(&Value::Float(7.0 / 4.0)));
    assert_eq!(object.member("n"), Some(&Value::Int(-7)));
    assert_eq!(object.member("vertex"), Some(&link(None)));
    assert_eq!(view.as_class(4).unwrap().value(7).unwrap(), new.value(7).unwrap());
    assert_eq!(new.as_class(9).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn a_value_that_an_older_class_cannot_hold_is_refused_when_read() {
    let (_folder, federation) = federation();
    tracks(&federation, 100);
    let (mut transaction, key) = open(&federation);
    transaction.evolve(key, &class(SECOND)).unwrap();
    let mut large = second(100, 0.0, 1, Value::Null);
    let Value::Record(members) = &mut large else { panic!() };
    members[1].1 = Value::Int(1 << 40);
    members[3].1 = Value::List(vec![vertex(1), vertex(2)]);
    transaction.append_value(key, large).unwrap();
    transaction.delete(key, &[4]).unwrap();
    transaction.commit().unwrap();
    let new = federation.snapshot(None).unwrap().view("run7/tracks").unwrap();
    let view = new.as_class(1).unwrap();
    let array = view.read(&view.select_all(), 0..100).unwrap();
    let live = (0..100).filter(|n| *n != 4);
    for (at, n) in live.enumerate() {
        let mut expected = first(n);
        let Value::Record(members) = &mut expected else { panic!() };
        members[4].1 = Value::String(String::new());
        assert_eq!(array.value(at).unwrap(), expected);
        assert_eq!(view.value(n).unwrap(), expected);
    }
    let some = view.select(&["hits.time", "vertex.database", "pt"]).unwrap();
    let some = view.read(&some, 0..4).unwrap().value(2).unwrap();
    let hits = (0..2).map(|k| record(&[("time", Value::Float(f64::from(k) / 2.0))])).collect();
    let vertex = vertex(2);
    let part = |name: &str| vertex.member(name).unwrap().clone();
    let vertex = record(&[("database", part("database")), ("container", part("container"))]);
    let pt = Value::Float(0.5);
    assert_eq!(some, record(&[("pt", pt), ("hits", Value::List(hits)), ("vertex", vertex)]));
    let counts = view.read(&view.select(&["hits.#"]).unwrap(), 0..4).unwrap();
    assert_eq!(counts.value(3).unwrap().member("hits"), Some(&Value::List(vec![record(&[]); 3])));
    for (field, said) in [("n", "1099511627776"), ("vertex", "vertex")] {
        let selection = view.select(&[field]).unwrap();
        let error = view.read(&selection, 99..101).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(said), "{error}");
    }
    assert_eq!(view.select(&["quality"]).err().unwrap().kind(), ErrorKind::NotFound);
}

/// The second of two evolutions in one transaction once restored the index that the first had begun to
/// rebuild, but empty.
#[test]
fn an_index_stays_complete_over_two_evolutions_in_one_transaction() {
    let (_folder, federation) = federation();
    tracks(&federation, 30);
    let (mut transaction, key) = open(&federation);
    transaction.create_index(key, "n", &["n"], true).unwrap();
    transaction.checkpoint().unwrap();
    transaction.evolve(key, &class(SECOND)).unwrap();
    transaction.evolve(key, &class(THIRD)).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/tracks").unwrap();
    assert_eq!(view.find(&[("n", Value::Int(-7))]).unwrap(), Some(7));
    let (mut transaction, key) = open(&federation);
    let without = THIRD.replace("\"version\": 3", "\"version\": 4");
    let without = without.replace(r#"{"name": "n", "type": "int64"},"#, "");
    let error = transaction.evolve(key, &class(&without)).unwrap_err();
    assert!(error.to_string().contains("drop the index first"), "{error}");
}
