//! Updated fields have new values in the next snapshot and old ones in every one before.

use femtobarn::{
    Class, ContainerKey, ContainerOptions, ErrorKind, Federation, Profile, Transaction,
};
use rntuple::{Array, Primitive, Type, Value};

use crate::links::{link, target};
use crate::support::{begin, federation, reopened};
use crate::types::type_of_class;
use crate::values::array_of;

fn class() -> Class {
    let json = r#"{"name": "Particle", "version": 1, "fields": [
        {"name": "n", "type": "uint64"},
        {"name": "vertex", "type": {"record": {"fields": [
            {"name": "x", "type": "float32"}, {"name": "y", "type": "float64"}]}}},
        {"name": "hits", "type": {"list": "uint16"}},
        {"name": "note", "type": {"optional": {"record": {"fields": [
            {"name": "text", "type": "string"}]}}}},
        {"name": "mother", "type": {"link": "Particle"}}]}"#;
    Class::from_json(json).unwrap()
}

fn record(members: &[(&str, Value)]) -> Value {
    Value::Record(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn vertex(n: u64) -> Value {
    record(&[("x", Value::Float(n as f64)), ("y", Value::Float(-(n as f64)))])
}

fn hits(n: u64) -> Value {
    Value::List((0..n % 7).map(|hit| Value::UInt(n % 1000 + hit)).collect())
}

fn note(n: u64) -> Value {
    match n % 3 {
        0 => Value::Null,
        _ => record(&[("text", Value::String(format!("note {n}")))]),
    }
}

fn particle(n: u64) -> Value {
    record(&[
        ("n", Value::UInt(n)),
        ("vertex", vertex(n)),
        ("hits", hits(n)),
        ("note", note(n)),
        ("mother", link(None)),
    ])
}

/// An array of some fields of the class.
fn values_of(fields: &[&str], items: &[Vec<Value>]) -> Array {
    let mut plain = class();
    plain.fields.pop();
    let Type::Record { mut members, .. } = type_of_class(&plain) else { unreachable!() };
    let part = |name: &str, of| (name.to_owned(), Type::Primitive(of));
    let parts = vec![
        part("database", Primitive::UInt32),
        part("container", Primitive::UInt32),
        part("entry", Primitive::UInt64),
    ];
    members.push(("mother".to_owned(), Type::Record { class: String::new(), members: parts }));
    let member = |(at, name): (usize, &&str)| {
        let of = &members.iter().find(|(member, _)| member == name).unwrap().1;
        let column: Vec<Value> = items.iter().map(|item| item[at].clone()).collect();
        ((*name).to_owned(), array_of(of, &column))
    };
    let members = fields.iter().enumerate().map(member).collect();
    Array::Record { length: items.len(), members }
}

/// Creates `run7/particles` with `count` particles, in small pages and clusters.
fn particles(federation: &Federation, count: u64, compression: Profile) {
    let mut transaction = begin(federation);
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions {
        page_size: 4096,
        cluster_size: 40_000,
        compression,
        ..Default::default()
    };
    let key = transaction.create_container(database, "particles", &class(), options).unwrap();
    for n in 0..count {
        transaction.append_value(key, particle(n)).unwrap();
    }
    transaction.commit().unwrap();
}

fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "particles").unwrap();
    (transaction, key)
}

fn set(object: &mut Value, name: &str, value: Value) {
    let Value::Record(members) = object else { panic!() };
    members.iter_mut().find(|(member, _)| member == name).unwrap().1 = value;
}

fn assert_are(federation: &Federation, csn: Option<femtobarn::Csn>, expected: &[Value]) {
    let view = federation.snapshot(csn).unwrap().view("run7/particles").unwrap();
    assert_eq!(view.entries(), expected.len() as u64);
    let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
    for (entry, object) in expected.iter().enumerate() {
        assert_eq!(array.value(entry).unwrap(), *object, "entry {entry}");
    }
    let last = expected.len() as u64 / 2;
    assert_eq!(view.value(last).unwrap(), expected[last as usize]);
}

#[test]
fn updates_replace_fields_and_old_snapshots_keep_theirs() {
    for compression in [Profile::Plain, Profile::Fast] {
        let (folder, federation) = federation();
        particles(&federation, 3000, compression);
        let mut objects: Vec<Value> = (0..3000).map(particle).collect();
        let mut past = vec![(federation.head().unwrap(), objects.clone())];
        for round in 1..5_u64 {
            let (mut transaction, key) = open(&federation);
            // Entries in random order, some of them appended by this transaction.
            let added: Vec<Value> = (0..50).map(|n| particle(objects.len() as u64 + n)).collect();
            added.iter().for_each(|object| {
                transaction.append_value(key, object.clone()).unwrap();
            });
            objects.extend(added);
            let count = objects.len() as u64;
            let entries: Vec<u64> =
                (0..40).map(|n| (n * 7919 * round) % count).chain([count - 1]).collect();
            let mut unique = entries.clone();
            unique.sort_unstable();
            unique.dedup();
            unique.reverse();
            let items: Vec<Vec<Value>> =
                unique.iter().map(|n| vec![hits(n + round), note(n + round)]).collect();
            transaction.update(key, &unique, values_of(&["hits", "note"], &items)).unwrap();
            let links: Vec<Vec<Value>> =
                unique.iter().map(|n| vec![link(Some(oid(key, n / 2)))]).collect();
            transaction.update(key, &unique, values_of(&["mother"], &links)).unwrap();
            let xs = unique.iter().map(|n| (n + round) as f32).collect();
            let xs = Array::primitive(Primitive::Float32, xs);
            let xs = Array::Record { length: unique.len(), members: vec![("vertex.x".into(), xs)] };
            transaction.update(key, &unique, xs).unwrap();
            for &n in &unique {
                let object = &mut objects[n as usize];
                set(object, "hits", hits(n + round));
                set(object, "note", note(n + round));
                set(object, "mother", link(Some(oid(key, n / 2))));
                let y = object.member("vertex").unwrap().member("y").unwrap().clone();
                let x = Value::Float((n + round) as f64);
                set(object, "vertex", record(&[("x", x), ("y", y)]));
            }
            let view = transaction.view("run7/particles").unwrap();
            assert_eq!(view.value(unique[3]).unwrap(), objects[unique[3] as usize]);
            let mother = view.value(unique[0]).unwrap().member("mother").cloned().unwrap();
            assert_eq!(target(&mother), Some(oid(key, unique[0] / 2)));
            let csn = transaction.commit().unwrap();
            past.push((csn, objects.clone()));
        }
        for federation in [&federation, &reopened(&folder)] {
            past.iter().for_each(|(csn, objects)| assert_are(federation, Some(*csn), objects));
        }
    }
}

fn oid(key: ContainerKey, entry: u64) -> femtobarn::Oid {
    femtobarn::Oid::new(key.database, key.container, entry)
}

#[test]
fn an_invalid_update_changes_nothing() {
    let (_folder, federation) = federation();
    particles(&federation, 10, Profile::Plain);
    let (mut transaction, key) = open(&federation);
    transaction.delete(key, &[9]).unwrap();
    transaction.commit().unwrap();
    let before = *federation.snapshot(None).unwrap().view("run7/particles").unwrap().version();
    let (mut transaction, key) = open(&federation);
    let one = |n: u64| values_of(&["hits"], &[vec![hits(n)]]);
    let numbers = |name: &str, count: usize| Array::Record {
        length: count,
        members: vec![(name.to_owned(), Array::primitive(Primitive::Float64, vec![0.5; count]))],
    };
    let twice = match (numbers("vertex.y", 1), values_of(&["vertex"], &[vec![vertex(1)]])) {
        (Array::Record { mut members, .. }, Array::Record { members: more, .. }) => {
            members.extend(more);
            Array::Record { length: 1, members }
        }
        _ => unreachable!(),
    };
    for (entries, values, kind, said) in [
        (&[9][..], one(1), ErrorKind::NotFound, "was deleted"),
        (&[10], one(1), ErrorKind::NotFound, "no entry 10"),
        (&[1, 1], one(1), ErrorKind::Invalid, "duplicate entry"),
        (&[1, 2], one(1), ErrorKind::Invalid, "1 values given for 2 entries"),
        (&[1], numbers("n", 1), ErrorKind::Invalid, "field \"n\""),
        (&[1], numbers("hat", 1), ErrorKind::NotFound, "no field \"hat\"; it has n, vertex"),
        (&[1], numbers("mother.entry", 1), ErrorKind::NotFound, "no field \"mother.entry\""),
        (&[1], twice, ErrorKind::Invalid, "given twice"),
    ] {
        let error = transaction.update(key, entries, values).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    transaction.rollback();
    let (mut transaction, key) = open(&federation);
    transaction.update(key, &[1], numbers("n", 1)).unwrap_err();
    transaction.update(key, &[], values_of(&["hits"], &[])).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
    assert_eq!(*view.version(), before);
}

#[test]
fn a_rollback_to_a_savepoint_undoes_updates() {
    let (_folder, federation) = federation();
    particles(&federation, 500, Profile::Plain);
    let (mut transaction, key) = open(&federation);
    let update = |transaction: &mut Transaction, n: u64| {
        let values = values_of(&["hits", "n"], &[vec![hits(n), Value::UInt(n)]]);
        transaction.update(key, &[7], values).unwrap();
    };
    update(&mut transaction, 5);
    let savepoint = transaction.savepoint().unwrap();
    update(&mut transaction, 600);
    transaction.rollback_to(&savepoint).unwrap();
    transaction.commit().unwrap();
    let value =
        federation.snapshot(None).unwrap().view("run7/particles").unwrap().value(7).unwrap();
    assert_eq!(value.member("n"), Some(&Value::UInt(5)));
    assert_eq!(value.member("hits"), Some(&hits(5)));
    assert_eq!(value.member("vertex"), Some(&vertex(7)));
}

#[test]
fn only_updated_or_deleted_entries_may_differ_from_an_earlier_version() {
    let (_folder, federation) = federation();
    particles(&federation, 500, Profile::Plain);
    let change = |change: &dyn Fn(&mut Transaction, ContainerKey)| {
        let before = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "particles").unwrap();
        change(&mut transaction, key);
        transaction.commit().unwrap();
        let after = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
        (before, after)
    };
    let first = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
    for _ in 0..2 {
        let (before, after) = change(&|transaction, key| {
            for n in 0..500 {
                transaction.append_value(key, particle(n)).unwrap();
            }
        });
        assert_eq!(after.changed_entries(&before).unwrap(), [0..0; 0]);
    }
    let (before, after) = change(&|transaction, key| {
        transaction.update(key, &[700], values_of(&["n"], &[vec![Value::UInt(1)]])).unwrap();
    });
    let changed = after.changed_entries(&before).unwrap();
    let [range] = &*changed else { panic!("{changed:?}") };
    assert!(range.contains(&700) && range.start >= 500 && range.end <= 1000, "{changed:?}");
    assert_eq!(after.changed_entries(&first).unwrap(), [0..0; 0]);
    let (before, after) = change(&|transaction, key| {
        transaction.delete(key, &[3, 4, 1200]).unwrap();
    });
    assert_eq!(after.changed_entries(&before).unwrap(), [3..5, 1200..1201]);
    assert_eq!(after.changed_entries(&first).unwrap(), [3..5]);
    assert_eq!(after.changed_entries(&after).unwrap(), [0..0; 0]);
    assert_eq!(first.changed_entries(&after).unwrap_err().kind(), ErrorKind::Invalid);
    let other = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
    federation.seal("run7", std::time::Duration::ZERO).unwrap();
    let sealed = federation.snapshot(None).unwrap().view("run7/particles").unwrap();
    assert_eq!(sealed.changed_entries(&other).unwrap(), [0..0; 0]);
    assert!(sealed.changed_entries(&first).unwrap().contains(&(3..5)));
}
