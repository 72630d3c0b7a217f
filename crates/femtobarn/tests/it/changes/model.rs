//! The model that random changes are compared with: a class in three versions, and the expected objects.

use std::collections::{BTreeMap, BTreeSet};

use femtobarn::{Class, ClusterBounds, Snapshot, View};
use rntuple::Value;

/// The newest version of the class.
pub(super) const NEWEST: u32 = 3;

/// The expected contents of a federation.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) databases: BTreeSet<String>,
    pub(super) containers: BTreeMap<(String, String), Content>,
}

#[derive(Clone, PartialEq)]
pub(super) struct Content {
    pub(super) version: u32,
    pub(super) objects: Vec<Option<Value>>,
}

pub(super) fn class(version: u32) -> Class {
    let note = r#"{"record": {"fields": [{"name": "text", "type": "string"}]}}"#;
    let bytes = r#"{"name": "bytes", "type": {"list": "uint8"}}"#;
    let flag = r#"{"name": "flag", "type": "bool", "default": true}"#;
    let fields = match version {
        1 => format!(
            r#"{{"name": "n", "type": "uint32"}}, {bytes},
            {{"name": "note", "type": {{"optional": {note}}}}}"#
        ),
        2 => format!(
            r#"{{"name": "number", "type": "uint64", "was": "n"}}, {bytes},
            {{"name": "note", "type": {{"optional": {note}}}}}, {flag}"#
        ),
        _ => format!(
            r#"{flag}, {{"name": "notes", "type": {{"list": {note}}}, "was": "note"}},
            {{"name": "number", "type": "uint64"}}"#
        ),
    };
    Class::from_json(&format!(
        r#"{{"name": "Numbered", "version": {version}, "fields": [{fields}]}}"#
    ))
    .unwrap()
}

fn record(members: &[(&str, &Value)]) -> Value {
    Value::Record(members.iter().map(|(name, of)| ((*name).to_owned(), (*of).clone())).collect())
}

/// An object of the first version.
fn first(n: u64) -> Value {
    let text = record(&[("text", &Value::String(format!("n{n}")))]);
    record(&[
        ("n", &Value::UInt(n)),
        ("bytes", &Value::Bytes(vec![n as u8; n as usize % 50].into())),
        ("note", &if n.is_multiple_of(3) { text } else { Value::Null }),
    ])
}

/// An object as one of the next version.
pub(super) fn upgraded(object: &Value, version: u32) -> Value {
    let member = |name: &str| object.member(name).unwrap();
    match version {
        1 => record(&[
            ("number", member("n")),
            ("bytes", member("bytes")),
            ("note", member("note")),
            ("flag", &Value::Bool(true)),
        ]),
        _ => {
            let notes = match member("note") {
                Value::Null => vec![],
                some => vec![some.clone()],
            };
            record(&[
                ("flag", member("flag")),
                ("notes", &Value::List(notes)),
                ("number", member("number")),
            ])
        }
    }
}

pub(super) fn object(version: u32, n: u64) -> Value {
    (1..version).fold(first(n), |object, version| upgraded(&object, version))
}

pub(super) fn assert_holds(view: &View, content: &Content) {
    assert_eq!(view.class().version, content.version);
    assert_eq!(view.entries(), content.objects.len() as u64);
    let live: Vec<&Value> = content.objects.iter().flatten().collect();
    assert_eq!(view.live(), live.len() as u64);
    let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
    assert_eq!(array.len(), live.len());
    for (at, object) in live.iter().enumerate() {
        assert_eq!(array.value(at).unwrap(), **object);
    }
    let number = if content.version == 1 { "n" } else { "number" };
    let known = view.statistics(number).unwrap();
    for (entry, object) in content.objects.iter().enumerate().step_by(17) {
        let Some(object) = object else {
            assert!(view.value(entry as u64).is_err());
            continue;
        };
        assert_eq!(view.value(entry as u64).unwrap(), *object);
        let key = object.member(number).unwrap().clone();
        let found = view.find_all(&[(number, key.clone())]).unwrap();
        assert_eq!(found, [entry as u64]);
        let covers = |it: &&ClusterBounds| {
            (it.first_entry..it.first_entry + it.entries).contains(&(entry as u64))
        };
        if let Some(bounds) = known.iter().find(covers).and_then(|cluster| cluster.bounds) {
            let key = key.as_float().unwrap();
            let (least, greatest) = bounds.range.unwrap();
            assert!((least.as_float()..=greatest.as_float()).contains(&key));
        }
    }
    let clusters: u64 = known.iter().map(|cluster| cluster.entries).sum();
    assert_eq!(clusters, view.entries(), "every cluster has statistics");
}

pub(super) fn assert_is(snapshot: &Snapshot, model: &Model) {
    let mut paths = vec![];
    let databases = snapshot.databases().unwrap();
    assert!(
        databases
            .iter()
            .map(|row| &row.name)
            .collect::<BTreeSet<_>>()
            .iter()
            .copied()
            .eq(&model.databases)
    );
    for database in databases {
        for container in snapshot.containers(database.id).unwrap() {
            paths.push((database.name.clone(), container.name));
        }
    }
    paths.sort();
    assert!(paths.iter().eq(model.containers.keys()), "{paths:?}");
    for ((database, name), content) in &model.containers {
        assert_holds(&snapshot.view(&format!("{database}/{name}")).unwrap(), content);
    }
}
