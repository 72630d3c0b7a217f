//! Indexes: finding objects by key, against a plain map, and what is refused.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use femtobarn::{
    Class, ContainerKey, ContainerOptions, ErrorKind, Federation, Oid, Snapshot, Transaction, View,
};
use rntuple::{Array, Type, Value};

use crate::support::{begin, event_class, events, federation, reopened};
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

/// An object that is made of a number.
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

fn create(federation: &Federation, database: &str) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let id = transaction.create_database(database).unwrap();
    let options = ContainerOptions { page_size: 4096, cluster_size: 1 << 16, ..Default::default() };
    let key = transaction.create_container(id, "events", &class(), options).unwrap();
    (transaction, key)
}

fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

/// Every value that an object has for a path; several if it is in a list.
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

/// What is asked for: fields of an object, taken from that of a number.
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
    fn what_is_found_is_what_a_map_has(steps in steps()) {
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

/// Puts the value that `new` has for a path into an object.
fn replace(object: &mut Value, new: &Value, path: &str) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    let Value::Record(members) = object else { panic!("{path} leads nowhere") };
    let (_, member) = members.iter_mut().find(|(member, _)| member == name).unwrap();
    let new = new.member(name).unwrap();
    match rest {
        Some(rest) => replace(member, new, rest),
        None => *member = new.clone(),
    }
}

/// How objects of the class are stored, but for links, which are left out.
fn type_of(class: &Class) -> Type {
    let mut class = class.clone();
    class.fields.retain(|field| !["raw", "hits"].contains(&&field.name[..]));
    type_of_class(&class)
}

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
fn a_key_that_must_be_unique_is_refused_twice_but_free_again_when_its_object_is_deleted() {
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
fn an_update_moves_a_key_and_cannot_take_that_of_another_object() {
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
fn a_thousand_commits_leave_few_runs() {
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
fn what_makes_no_index_is_refused_with_the_reason() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = create(&federation, "run7");
    let mut refused = |name: &str, fields: &[&str], kind: ErrorKind, reason: &str| {
        let error = transaction.create_index(key, name, fields, false).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused("a", &["nothing"], ErrorKind::NotFound, "no field nothing");
    refused("a", &["run.x"], ErrorKind::NotFound, "no field run.x");
    refused("a", &[], ErrorKind::Invalid, "needs a field");
    refused("a", &["header"], ErrorKind::Invalid, "is not a number, text or link");
    refused("a", &["run", "run"], ErrorKind::Invalid, "named twice");
    refused("a", &["tracks.id", "hits"], ErrorKind::Invalid, "not each other's");
    refused("", &["run"], ErrorKind::Invalid, "is not a name");
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
fn the_index_is_chosen_that_narrows_most() {
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
