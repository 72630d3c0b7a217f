//! Lookups by indexes over random operations, compared with a plain map of all objects.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use femtobarn::{
    Class, ContainerKey, ContainerOptions, ErrorKind, Federation, Oid, Snapshot, Transaction, View,
};
use rntuple::{Array, Type, Value};

use crate::support::{begin, federation, reopened};
use crate::types::type_of_class;
use crate::values::{array_of, cases};

fn class() -> Class {
    let json = r#"{"name": "Event", "version": 1, "fields": [
        {"name": "run", "type": "uint32"},
        {"name": "weight", "type": "float32"},
        {"name": "header", "type": {"record": {"fields": [
            {"name": "event", "type": "int64"}, {"name": "stream", "type": "string"}]}}},
        {"name": "tracks", "type": {"list": {"record": {"fields": [
            {"name": "id", "type": "int32"}, {"name": "good", "type": "bool"}]}}}},
        {"name": "best", "type": {"optional": "uint16"}},
        {"name": "raw", "type": {"link": "Event"}},
        {"name": "hits", "type": {"list": {"element_link": "Event"}}}]}"#;
    Class::from_json(json).unwrap()
}

fn record(members: &[(&str, Value)]) -> Value {
    Value::Record(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn link(oid: Option<Oid>, element: Option<u64>) -> Value {
    let (database, container, entry) =
        oid.map_or((0, 0, 0), |oid| (oid.database.0, oid.container.0, oid.entry));
    let mut members = vec![
        ("database", Value::UInt(database.into())),
        ("container", Value::UInt(container.into())),
        ("entry", Value::UInt(entry)),
    ];
    members.extend(element.map(|element| ("element", Value::UInt(element))));
    record(&members)
}

/// Object number `n`.
fn object(n: u64, to: Option<Oid>) -> Value {
    let track = |id: u64| {
        record(&[("id", Value::Int(id as i64 - 2)), ("good", Value::Bool(id.is_multiple_of(2)))])
    };
    record(&[
        ("run", Value::UInt(n % 3)),
        ("weight", Value::Float(f64::from(n as f32 / 10.0))),
        (
            "header",
            record(&[
                ("event", Value::Int(50 - (n % 100) as i64)),
                (
                    "stream",
                    Value::String(["", "a", "a\0b", "long"][n as usize % 4].repeat(n as usize % 7)),
                ),
            ]),
        ),
        ("tracks", Value::List((0..n % 4).map(|id| track(id + n % 2)).collect())),
        ("best", if n.is_multiple_of(5) { Value::Null } else { Value::UInt(n % 5) }),
        ("raw", link(to.filter(|_| !n.is_multiple_of(4)), None)),
        ("hits", Value::List((0..n % 3).map(|at| link(to, Some(at))).collect())),
    ])
}

/// A transaction that creates a container of events.
pub(crate) fn create(federation: &Federation, database: &str) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let id = transaction.create_database(database).unwrap();
    let options = ContainerOptions { page_size: 4096, cluster_size: 1 << 16, ..Default::default() };
    let key = transaction.create_container(id, "events", &class(), options).unwrap();
    (transaction, key)
}

/// A transaction that writes to the container of events of `run7`.
pub(crate) fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

/// All values of an object at a path; several if it is in a list.
fn values<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    for name in path.split('.') {
        let members = found.into_iter().flat_map(|value| match value {
            Value::List(items) => items.iter().collect(),
            other => vec![other],
        });
        found = members.filter_map(|value| value.member(name)).collect();
    }
    let items = found.into_iter().flat_map(|value| match value {
        Value::List(items) => items.iter().collect(),
        other => vec![other],
    });
    items.filter(|value| **value != Value::Null).collect()
}

fn is_like(found: &Value, sought: &Value) -> bool {
    match (found.as_integer(), found.as_float()) {
        (Some(integer), _) => sought.as_integer() == Some(integer),
        (_, Some(float)) => sought.as_float() == Some(float),
        _ => found == sought,
    }
}

type Objects = BTreeMap<u64, Value>;

fn expected(objects: &Objects, sought: &[(&str, Value)]) -> Vec<u64> {
    let has = |object: &Value, (path, value): &(&str, Value)| {
        values(object, path).iter().any(|found| is_like(found, value))
    };
    let all = objects.iter().filter(|(_, object)| sought.iter().all(|one| has(object, one)));
    all.map(|(entry, _)| *entry).collect()
}

/// The fields of lookups, whose values are taken from an object.
const QUESTIONS: &[&[&str]] = &[
    &["run"],
    &["run", "header.event"],
    &["header.event", "run"],
    &["header.stream"],
    &["weight"],
    &["header.event", "header.stream", "weight"],
    &["tracks.id"],
    &["run", "tracks.id"],
    &["best"],
    &["raw"],
    &["hits"],
];

const INDEXES: &[(&str, &[&str])] = &[
    ("by event", &["run", "header.event"]),
    ("by stream", &["header.stream", "run"]),
    ("by weight", &["weight"]),
    ("by track", &["tracks.id", "tracks.good"]),
    ("by best", &["best", "run"]),
    ("by raw", &["raw"]),
    ("by hit", &["hits"]),
];

fn assert_finds(view: &View, objects: &Objects) {
    for question in QUESTIONS {
        for n in [0, 1, 2, 3, 7, 14, 1_000_003] {
            let model = object(n, objects.values().find_map(target));
            let sought: Vec<(&str, Value)> = question
                .iter()
                .filter_map(|path| Some((*path, (*values(&model, path).first()?).clone())))
                .collect();
            let is_null =
                |value: &Value| value.member("container").is_some_and(|it| *it == Value::UInt(0));
            if sought.len() < question.len() || sought.iter().any(|(_, value)| is_null(value)) {
                continue;
            }
            let expected = expected(objects, &sought);
            assert_eq!(view.find_all(&sought).unwrap(), expected, "{sought:?}");
            assert_eq!(view.find(&sought).unwrap(), expected.first().copied(), "{sought:?}");
        }
    }
}

fn target(object: &Value) -> Option<Oid> {
    let raw = object.member("raw")?;
    let number = |name| raw.member(name).and_then(Value::as_integer);
    let (database, container, entry) =
        (number("database")?, number("container")?, number("entry")?);
    let oid = Oid::new(
        femtobarn::DatabaseId(database as u32),
        femtobarn::ContainerId(container as u32),
        entry as u64,
    );
    (container > 0).then_some(oid)
}

#[derive(Clone, Debug)]
enum Step {
    Append { count: usize },
    Delete { every: u64 },
    Update { every: u64, part: bool },
    Create { index: usize },
    Drop { index: usize },
    ReadWithin,
    RollBack { count: usize },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![3 => 0..30_usize, 1 => 300..900_usize]
            .prop_map(|count| Step::Append { count }),
        2 => (2..9_u64).prop_map(|every| Step::Delete { every }),
        3 => (2..90_u64, any::<bool>()).prop_map(|(every, part)| Step::Update { every, part }),
        4 => (0..INDEXES.len()).prop_map(|index| Step::Create { index }),
        1 => (0..INDEXES.len()).prop_map(|index| Step::Drop { index }),
        1 => Just(Step::ReadWithin),
        1 => (1..50_usize).prop_map(|count| Step::RollBack { count }),
        1 => Just(Step::Reopen),
    ];
    vec(vec(step, 1..4), 1..9).prop_map(|commits| {
        commits.into_iter().flat_map(|steps| steps.into_iter().chain([Step::ReadWithin])).collect()
    })
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn lookups_find_the_objects_that_a_map_has(steps in steps()) {
        let (folder, mut federation) = federation();
        create(&federation, "other").0.commit().unwrap();
        let (transaction, key) = create(&federation, "run7");
        let other = Oid::new(femtobarn::DatabaseId(1), femtobarn::ContainerId(1), 5);
        transaction.commit().unwrap();
        let mut objects = Objects::new();
        let mut next = 0;
        let mut past: Vec<(Snapshot, Objects)> = vec![];
        for steps in steps.chunks(3) {
            if steps.iter().any(|step| matches!(step, Step::Reopen)) {
                federation = reopened(&folder);
            }
            let (mut transaction, _) = open(&federation);
            for step in steps {
                act(&mut transaction, key, step, (&mut objects, &mut next), other);
            }
            transaction.commit().unwrap();
            let snapshot = federation.snapshot(None).unwrap();
            assert_finds(&snapshot.view("run7/events").unwrap(), &objects);
            past.push((snapshot, objects.clone()));
        }
        let federation = reopened(&folder);
        for (snapshot, objects) in &past {
            let snapshot = federation.snapshot(Some(snapshot.csn())).unwrap();
            assert_finds(&snapshot.view("run7/events").unwrap(), objects);
        }
    }
}

fn act(
    transaction: &mut Transaction,
    key: ContainerKey,
    step: &Step,
    (objects, next): (&mut Objects, &mut u64),
    other: Oid,
) {
    match step {
        Step::Append { count } => {
            let own = Oid::new(key.database, key.container, 3);
            let numbers = (0..*count as u64).map(|at| next.wrapping_add(at * 7));
            let new: Vec<Value> =
                numbers.map(|n| object(n, Some(if n % 5 < 3 { own } else { other }))).collect();
            *next += *count as u64;
            let first = transaction.entries(key).unwrap();
            for object in &new {
                transaction.append_value(key, object.clone()).unwrap();
            }
            objects.extend((first..).zip(new));
        }
        Step::Delete { every } => {
            let chosen: Vec<u64> = objects.keys().copied().filter(|n| n % every == 1).collect();
            transaction.delete(key, &chosen).unwrap();
            objects.retain(|entry, _| entry % every != 1);
        }
        Step::Update { every, part } => {
            let chosen: Vec<u64> = objects.keys().copied().filter(|n| n % every == 0).collect();
            let fields =
                if *part { vec!["header.event"] } else { vec!["header", "tracks", "weight"] };
            let new: Vec<Value> =
                chosen.iter().map(|n| object(n * 13 % 500 + every, None)).collect();
            let array = array_of(&type_of(&class()), &new);
            let column = |path: &&str| {
                let member = |array: &Array, name: &str| array.member(name).unwrap().clone();
                (
                    (*path).to_owned(),
                    path.split('.').fold(array.clone(), |a, name| member(&a, name)),
                )
            };
            let members = fields.iter().map(column).collect();
            let values = Array::Record { length: chosen.len(), members };
            transaction.update(key, &chosen, values).unwrap();
            for (entry, new) in chosen.iter().zip(&new) {
                let object = objects.get_mut(entry).unwrap();
                fields.iter().for_each(|path| replace(object, new, path));
            }
        }
        Step::Create { index } => {
            let (name, fields) = INDEXES[*index];
            match transaction.create_index(key, name, fields, false) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
            }
        }
        Step::Drop { index } => {
            if let Err(error) = transaction.drop_index(key, INDEXES[*index].0) {
                assert_eq!(error.kind(), ErrorKind::NotFound);
            }
        }
        Step::ReadWithin => assert_finds(&transaction.view("run7/events").unwrap(), objects),
        Step::RollBack { count } => {
            let savepoint = transaction.savepoint().unwrap();
            let (name, fields) = INDEXES[count % INDEXES.len()];
            drop(transaction.create_index(key, name, fields, false));
            for n in 0..*count as u64 {
                transaction.append_value(key, object(n, None)).unwrap();
            }
            transaction.rollback_to(&savepoint).unwrap();
        }
        Step::Reopen => {}
    }
}

/// Replaces the value at a path of an object by that of `new`.
fn replace(object: &mut Value, new: &Value, path: &str) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    let Value::Record(members) = object else { panic!("{path} does not exist") };
    let (_, member) = members.iter_mut().find(|(member, _)| member == name).unwrap();
    let new = new.member(name).unwrap();
    match rest {
        Some(rest) => replace(member, new, rest),
        None => *member = new.clone(),
    }
}

/// The stored type of the class without links.
fn type_of(class: &Class) -> Type {
    let mut class = class.clone();
    class.fields.retain(|field| !["raw", "hits"].contains(&&field.name[..]));
    type_of_class(&class)
}
