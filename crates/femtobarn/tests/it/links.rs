//! Links as values and arrays: to objects and to elements of their collections, in any database of the federation.

use std::time::Duration;

use femtobarn::{
    Class, ContainerKey, ContainerOptions, DatabaseId, ErrorKind, Federation, Oid, Snapshot,
    Transaction, TransactionOptions,
};
use rntuple::{Array, Primitive, Type, Value};

use crate::support::{begin, events, federation, number, reopened, with_ten_events};
use crate::values::array_of;

const LINKER: &str = r#"{"name": "Linker", "version": 1, "fields": [
    {"name": "one", "type": {"link": "Event"}},
    {"name": "many", "type": {"list": {"link": "Event"}}},
    {"name": "element", "type": {"element_link": "Hits"}},
    {"name": "maybe", "type": {"optional": {"link": "Event"}}},
    {"name": "best", "type": {"optional": {"record": {"fields": [
        {"name": "score", "type": "float32"},
        {"name": "to", "type": {"list": {"element_link": "Hits"}}}]}}}}]}"#;

pub(crate) fn linker() -> Class {
    Class::from_json(LINKER).unwrap()
}

/// A link as users see it; the null link has container 0.
pub(crate) fn link(to: Option<Oid>) -> Value {
    Value::Record(parts(to))
}

pub(crate) fn element(to: Option<Oid>, element: u64) -> Value {
    let mut parts = parts(to);
    parts.push(("element".to_owned(), Value::UInt(element)));
    Value::Record(parts)
}

fn parts(to: Option<Oid>) -> Vec<(String, Value)> {
    let (database, container, entry) =
        to.map_or((0, 0, 0), |oid| (oid.database.0, oid.container.0, oid.entry));
    let part = |name: &str, value: u64| (name.to_owned(), Value::UInt(value));
    vec![
        part("database", database.into()),
        part("container", container.into()),
        part("entry", entry),
    ]
}

/// The object that a link refers to.
pub(crate) fn target(link: &Value) -> Option<Oid> {
    let part = |name: &str| link.member(name).unwrap().as_integer().unwrap();
    let oid = format!("{}-{}-{}", part("database"), part("container"), part("entry"));
    (part("container") != 0).then(|| oid.parse().unwrap())
}

pub(crate) fn object(
    one: Value,
    many: Vec<Value>,
    element: Value,
    maybe: Value,
    best: Value,
) -> Value {
    let names = ["one", "many", "element", "maybe", "best"].map(str::to_owned);
    let values = [one, Value::List(many), element, maybe, best];
    Value::Record(names.into_iter().zip(values).collect())
}

pub(crate) fn best(score: f64, to: Vec<Value>) -> Value {
    Value::Record(vec![
        ("score".to_owned(), Value::Float(score)),
        ("to".to_owned(), Value::List(to)),
    ])
}

/// The type of a linker as users see it.
fn linker_type() -> Type {
    let number = |name: &str, of| (name.to_owned(), Type::Primitive(of));
    let of_members = |members| Type::Record { class: String::new(), members };
    let link = vec![
        number("database", Primitive::UInt32),
        number("container", Primitive::UInt32),
        number("entry", Primitive::UInt64),
    ];
    let element = [link.clone(), vec![number("element", Primitive::UInt32)]].concat();
    let (link, element) = (of_members(link), of_members(element));
    let best = of_members(vec![
        number("score", Primitive::Float32),
        ("to".to_owned(), Type::List(element.clone().into())),
    ]);
    of_members(vec![
        ("one".to_owned(), link.clone()),
        ("many".to_owned(), Type::List(link.clone().into())),
        ("element".to_owned(), element),
        ("maybe".to_owned(), Type::Optional(link.into())),
        ("best".to_owned(), Type::Optional(best.into())),
    ])
}

/// A database of another name with a container of events.
pub(crate) fn database_of_events(transaction: &mut Transaction, name: &str) -> ContainerKey {
    let database = transaction.create_database(name).unwrap();
    let class = crate::support::event_class();
    let key = transaction.create_container(database, "events", &class, Default::default());
    let key = key.unwrap();
    transaction.extend(key, events(1, 100, 20)).unwrap();
    key
}

pub(crate) fn oid(key: ContainerKey, entry: u64) -> Option<Oid> {
    Some(Oid::new(key.database, key.container, entry))
}

/// Objects with every form of link, among several databases, and the databases' keys.
fn linked(federation: &Federation) -> Vec<Value> {
    let mut transaction = begin(federation);
    let old = transaction.database("run7").unwrap();
    let old = transaction.container(old, "events").unwrap();
    let new = database_of_events(&mut transaction, "new");
    let third = database_of_events(&mut transaction, "third");
    let own = transaction.database("new").unwrap();
    let options = ContainerOptions { page_size: 4096, cluster_size: 4096, ..Default::default() };
    let key = transaction.create_container(own, "links", &linker(), options).unwrap();
    let null = || element(None, 0);
    let objects = vec![
        object(link(oid(old, 3)), vec![], element(oid(third, 1), 7), Value::Null, Value::Null),
        object(
            link(None),
            vec![link(oid(new, 0)), link(None), link(oid(third, 19)), link(oid(old, 9))],
            null(),
            link(oid(new, 5)),
            best(1.5, vec![element(oid(old, 1), 2), null(), element(oid(key, 0), u32::MAX.into())]),
        ),
        object(link(oid(key, 0)), vec![link(oid(key, 1))], null(), link(None), best(0.0, vec![])),
    ];
    transaction.append_value(key, objects[0].clone()).unwrap();
    transaction.extend(key, array_of(&linker_type(), &objects[1..])).unwrap();
    // A missing link is a null link, too.
    let nothing = object(Value::Null, vec![Value::Null], Value::Null, Value::Null, Value::Null);
    transaction.append_value(key, nothing).unwrap();
    transaction.commit().unwrap();
    let nothing = object(link(None), vec![link(None)], null(), Value::Null, Value::Null);
    [objects, vec![nothing]].concat()
}

#[test]
fn links_refer_to_objects_of_any_database() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let objects = linked(&federation);
    for federation in [federation, reopened(&folder)] {
        let snapshot = federation.snapshot(None).unwrap();
        let view = snapshot.view("new/links").unwrap();
        for (entry, object) in objects.iter().enumerate() {
            assert_eq!(view.value(entry as u64).unwrap(), *object);
        }
        let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
        assert_eq!(array.value(1).unwrap(), objects[1]);
        let one = view.value(0).unwrap().member("one").and_then(target).unwrap();
        assert_eq!(number(&snapshot.object(one).unwrap()), 3);
        let many = objects[1].member("many").unwrap().clone();
        assert_eq!(followed(&snapshot, &many), [Some(100), None, Some(119), Some(9)]);
        assert_eq!(view.link_class("one"), Some("Event"));
        assert!(view.unknown_databases().is_empty());
    }
}

fn followed(snapshot: &Snapshot, links: &Value) -> Vec<Option<u64>> {
    let Value::List(links) = links else { panic!("{links:?} are no links") };
    let follow = |link: &Value| target(link).map(|oid| number(&snapshot.object(oid).unwrap()));
    links.iter().map(follow).collect()
}

#[test]
fn parts_of_links_are_read_alone() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let objects = linked(&federation);
    let view = federation.snapshot(None).unwrap().view("new/links").unwrap();
    let selection = view.select(&["one.entry", "best.to.database", "many"]).unwrap();
    let part = view.values(&selection, 1).unwrap();
    assert_eq!(part.member("one").unwrap().member("entry"), Some(&Value::UInt(0)));
    assert_eq!(part.member("many"), objects[1].member("many"));
    assert_eq!(part.member("one").unwrap().member("container"), None);
    // The databases are those of the federation, not the positions that are stored.
    let databases = view.select(&["one.database", "element.database"]).unwrap();
    for entry in 0..view.entries() {
        let (part, whole) = (view.values(&databases, entry).unwrap(), view.value(entry).unwrap());
        for field in ["one", "element"] {
            let database = |value: &Value| value.member(field).unwrap().member("database").cloned();
            assert_eq!(database(&part), database(&whole));
        }
    }
    let error = view.select(&["one.nothing"]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn later_transactions_link_to_more_databases() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut objects = linked(&federation);
    let before = federation.snapshot(None).unwrap();
    let mut transaction = begin(&federation);
    let fourth = database_of_events(&mut transaction, "fourth");
    let database = transaction.database("new").unwrap();
    let key = transaction.container(database, "links").unwrap();
    let object = object(link(oid(fourth, 4)), vec![], element(None, 0), Value::Null, Value::Null);
    assert_eq!(transaction.append_value(key, object.clone()).unwrap().entry, 4);
    objects.push(object);
    transaction.commit().unwrap();

    let after = reopened(&folder).snapshot(None).unwrap();
    for (snapshot, entries) in [(before, 4), (after, 5)] {
        let view = snapshot.view("new/links").unwrap();
        let read: Vec<Value> =
            (0..view.entries()).map(|entry| view.value(entry).unwrap()).collect();
        assert_eq!(read, objects[..entries]);
    }
}

#[test]
fn links_to_a_database_outside_the_federation_are_refused() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut other = begin(&federation);
    let hidden = database_of_events(&mut other, "hidden");
    let mut transaction = begin(&federation);
    let database = transaction.create_database("new").unwrap();
    let key =
        transaction.create_container(database, "links", &linker(), Default::default()).unwrap();
    // The first does not exist; the second belongs to a transaction that is not committed.
    for database in [DatabaseId(999), hidden.database] {
        let to = Some(Oid::new(database, hidden.container, 0));
        let object = object(link(to), vec![], element(None, 0), Value::Null, Value::Null);
        let error = transaction.append_value(key, object.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let array = array_of(&linker_type(), &[object]);
        assert_eq!(transaction.extend(key, array).unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(transaction.entries(key).unwrap(), 0);
    drop(other);
    transaction.commit().unwrap();
    assert_eq!(federation.snapshot(None).unwrap().view("new/links").unwrap().entries(), 0);
}

#[test]
fn values_that_are_not_links_are_refused() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let key =
        transaction.create_container(database, "links", &linker(), Default::default()).unwrap();
    let part = |name: &str, value: Value| (name.to_owned(), value);
    let good = parts(Some(Oid::new(database, key.container, 0)));
    let bad = [
        Value::UInt(3),
        Value::List(vec![]),
        Value::Record(vec![]),
        Value::Record(good[..2].to_vec()),
        Value::Record([good.clone(), vec![part("element", Value::UInt(0))]].concat()),
        Value::Record([&good[..2], &[part("entry", Value::Int(-1))]].concat()),
        Value::Record([&good[..2], &[part("entry", Value::Float(1.0))]].concat()),
        Value::Record(
            [&good[..1], &[part("container", Value::UInt(1 << 32))], &good[2..]].concat(),
        ),
        Value::Record([&[part("database", Value::Int(-1))], &good[1..]].concat()),
    ];
    for bad in bad {
        let object = object(bad.clone(), vec![], element(None, 0), Value::Null, Value::Null);
        let error = transaction.append_value(key, object).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}: {error}");
    }
    assert_eq!(transaction.entries(key).unwrap(), 0);
}

/// An optional record is stored as a list, and a list of two items was once accepted as it was.
#[test]
fn an_optional_record_of_two_is_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("new").unwrap();
    let key =
        transaction.create_container(database, "links", &linker(), Default::default()).unwrap();
    let none = object(link(None), vec![], element(None, 0), Value::Null, Value::Null);
    let Array::Record { length, mut members } = array_of(&linker_type(), &[none]) else {
        panic!("objects are records")
    };
    let two = vec![link(None), link(None)];
    let Type::Record { members: types, .. } = linker_type() else { panic!("a record") };
    let Type::Optional(item) = &types[3].1 else { panic!("an optional link") };
    members[3].1 = array_of(&Type::List(item.clone()), &[Value::List(two)]);
    let error = transaction.extend(key, Array::Record { length, members }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// The databases of links were once looked up when a version was opened, and never again.
#[test]
fn links_to_a_database_work_as_soon_as_it_is_attached() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    linked(&federation);
    for name in ["run7", "new", "third"] {
        federation.seal(name, Duration::ZERO).unwrap();
    }
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let databases = folder.path().join("test.fed/databases");
    other.attach(&databases.join("new.root"), None).unwrap();
    let one = |federation: &Federation| {
        let snapshot = federation.snapshot(None).unwrap();
        let object = snapshot.view("new/links").unwrap().value(0).unwrap();
        snapshot.object(object.member("one").and_then(target)?).ok()
    };
    assert_eq!(one(&other), None);
    other.attach(&databases.join("run7.root"), None).unwrap();
    assert_eq!(number(&one(&other).unwrap()), 3);
}

#[test]
fn a_million_links_in_a_row_go_to_two_databases() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let old = transaction.database("run7").unwrap();
    let old = transaction.container(old, "events").unwrap();
    let new = database_of_events(&mut transaction, "new");
    let json = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "to", "type": {"list": {"link": "Event"}}}]}"#;
    let class = Class::from_json(json).unwrap();
    let key = transaction.create_container(new.database, "tags", &class, Default::default());
    let key = key.unwrap();
    let count = 1_000_000_usize;
    let pick = |at: usize| if at.is_multiple_of(3) { old } else { new };
    let column = |name: &str, of, values| (name.to_owned(), Array::primitive::<u32>(of, values));
    let links = Array::Record {
        length: count,
        members: vec![
            column(
                "database",
                Primitive::UInt32,
                (0..count).map(|at| pick(at).database.0).collect(),
            ),
            column(
                "container",
                Primitive::UInt32,
                (0..count).map(|at| pick(at).container.0).collect(),
            ),
            ("entry".to_owned(), Array::primitive(Primitive::UInt64, (0..count as u64).collect())),
        ],
    };
    let lists = Array::List {
        offsets: rntuple::bytes_of((0..=1000).map(|at| at * 1000_i64).collect()),
        content: links.into(),
        optional: false,
    };
    let objects = Array::Record { length: 1000, members: vec![("to".to_owned(), lists)] };
    transaction.extend(key, objects).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("new/tags").unwrap();
    let Some(Value::List(links)) = view.value(777).unwrap().member("to").cloned() else {
        panic!("links are a list")
    };
    for (at, link) in (777_000..).zip(&links) {
        assert_eq!(target(link), oid(pick(at), at as u64));
    }
}
