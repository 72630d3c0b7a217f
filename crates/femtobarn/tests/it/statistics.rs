//! Statistics of clusters: a cluster that a lookup skips by its bounds has none of the sought objects.

use proptest::{collection::vec, prelude::*};

use femtobarn::{Class, ContainerKey, ContainerOptions, Federation, Profile, Transaction, View};
use rntuple::{Array, Bound, Bounds, Value};

use crate::support::{begin, federation, reopened};
use crate::types::type_of_class;
use crate::values::{array_of, cases};

fn class() -> Class {
    let json = r#"{"name": "Event", "version": 1, "fields": [
        {"name": "run", "type": "uint32"},
        {"name": "header", "type": {"record": {"fields": [
            {"name": "time", "type": "int64"}, {"name": "stream", "type": "string"}]}}},
        {"name": "weight", "type": "float32"},
        {"name": "half", "type": "float16"},
        {"name": "best", "type": {"optional": "float64"}},
        {"name": "tracks", "type": {"list": {"record": {"fields": [
            {"name": "pt", "type": "float32"}]}}}}]}"#;
    Class::from_json(json).unwrap()
}

const COLUMNS: [&str; 7] =
    ["run", "header.time", "header.stream.#", "weight", "half", "best", "tracks.#"];

fn record(members: &[(&str, Value)]) -> Value {
    Value::Record(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn object(n: u64) -> Value {
    let pt = |at: u64| record(&[("pt", Value::Float((n + at) as f64))]);
    let weight = if n % 101 == 7 { f32::NAN } else { n as f32 / 7.0 };
    let time = Value::Int(i64::MAX - (n * n) as i64);
    let stream = Value::String("x".repeat(n as usize % 5));
    record(&[
        ("run", Value::UInt(n / 40)),
        ("header", record(&[("time", time), ("stream", stream)])),
        ("weight", Value::Float(weight.into())),
        ("half", Value::Float(f64::from(half::f16::from_f64(n as f64 / 3.0).to_f32()))),
        ("best", if n.is_multiple_of(3) { Value::Null } else { Value::Float(n as f64) }),
        ("tracks", Value::List((0..n % 6).map(pt).collect())),
    ])
}

/// The value of an object that a column stores.
fn value_of(object: &Value, column: &str) -> Option<Value> {
    let (path, is_size) = match column.strip_suffix(".#") {
        Some(path) => (path, true),
        None => (column, false),
    };
    let value = path.split('.').try_fold(object, |value, name| value.member(name))?;
    match (is_size, value) {
        (true, Value::String(text)) => Some(Value::UInt(text.len() as u64)),
        (true, Value::List(items)) => Some(Value::UInt(items.len() as u64)),
        (false, Value::Null) => None,
        (_, value) => Some(value.clone()),
    }
}

fn holds(bounds: &Bounds, value: &Value) -> bool {
    let exact = |bound: Bound| match bound {
        Bound::Int(bound) => Some(i128::from(bound)),
        Bound::UInt(bound) => Some(i128::from(bound)),
        Bound::Float(_) => None,
    };
    match (value.as_integer(), bounds.range) {
        (Some(value), Some((least, most))) => {
            exact(least).unwrap() <= value && value <= exact(most).unwrap()
        }
        (_, range) => {
            let value = value.as_float().unwrap();
            if value.is_nan() {
                bounds.has_nan
            } else {
                range.is_some_and(|(a, b)| a.as_float() <= value && value <= b.as_float())
            }
        }
    }
}

/// Checks every bound against every object, and that a lookup by them finds what a search of all objects finds.
fn assert_holds(view: &View, objects: &[Option<Value>]) -> usize {
    let mut known = 0;
    for column in COLUMNS {
        let clusters = view.statistics(column).unwrap();
        let mut next = 0;
        for cluster in clusters.iter() {
            assert!(cluster.first_entry >= next && cluster.entries > 0);
            next = cluster.first_entry + cluster.entries;
            let Some(bounds) = cluster.bounds else { continue };
            known += 1;
            for object in objects[cluster.first_entry as usize..next as usize].iter().flatten() {
                let value = value_of(object, column);
                assert!(value.iter().all(|it| holds(&bounds, it)), "{column} {value:?} {bounds:?}");
            }
        }
        assert!(next <= view.entries());
        if column.ends_with('#') {
            continue;
        }
        for object in objects.iter().flatten().step_by(objects.len() / 5 + 1) {
            let Some(value) = value_of(object, column) else { continue };
            let has = |object: &Option<Value>| {
                let found = object.as_ref().and_then(|object| value_of(object, column));
                found.is_some_and(|it| it == value || is_nan(&it) && is_nan(&value))
            };
            let expected: Vec<u64> =
                (0..).zip(objects).filter(|(_, it)| has(it)).map(|(at, _)| at).collect();
            assert_eq!(view.find_all(&[(column, value.clone())]).unwrap(), expected, "{column}");
        }
    }
    assert!(view.statistics("tracks.pt").unwrap().is_empty());
    assert!(view.statistics("nothing").unwrap().is_empty());
    known
}

fn is_nan(value: &Value) -> bool {
    matches!(value, Value::Float(value) if value.is_nan())
}

fn create(federation: &Federation, compression: Profile) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions {
        page_size: 4096,
        cluster_size: 1 << 13,
        compression,
        ..Default::default()
    };
    let key = transaction.create_container(database, "events", &class(), options).unwrap();
    (transaction, key)
}

fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Delete(u64),
    Update(u64),
    RollBack(u64),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        5 => prop_oneof![1..9_u64, 200..700_u64].prop_map(Step::Append),
        1 => (2..9_u64).prop_map(Step::Delete),
        2 => (2..200_u64).prop_map(Step::Update),
        1 => (1..400_u64).prop_map(Step::RollBack),
        1 => Just(Step::Read),
    ];
    vec(vec(step, 1..4), 1..8)
}

fn act(
    transaction: &mut Transaction,
    key: ContainerKey,
    step: &Step,
    objects: &mut Vec<Option<Value>>,
) {
    let first = objects.len() as u64;
    match step {
        Step::Append(count) => {
            let new = (first..first + count).map(|n| object(n * 31 % 1000));
            objects.extend(new.map(|object| {
                transaction.append_value(key, object.clone()).unwrap();
                Some(object)
            }));
        }
        Step::Delete(every) => {
            let chosen: Vec<u64> = (0..first)
                .filter(|at| at % every == 1 && objects[*at as usize].is_some())
                .collect();
            transaction.delete(key, &chosen).unwrap();
            chosen.iter().for_each(|at| objects[*at as usize] = None);
        }
        Step::Update(every) => {
            let chosen: Vec<u64> = (0..first)
                .filter(|at| at % every == 1 && objects[*at as usize].is_some())
                .collect();
            let new: Vec<Value> = chosen.iter().map(|at| object(at * 7 % 2000 + 500)).collect();
            let array = array_of(&type_of_class(&class()), &new);
            let Array::Record { length, mut members } = array else { unreachable!() };
            members.retain(|(name, _)| every % 2 == 0 || name != "run");
            let values = Array::Record { length, members };
            transaction.update(key, &chosen, values).unwrap();
            for (at, new) in chosen.iter().zip(new) {
                let object = objects[*at as usize].as_mut().unwrap();
                let run = object.member("run").unwrap().clone();
                *object = new;
                if every % 2 == 1
                    && let Value::Record(members) = object
                {
                    members[0].1 = run;
                }
            }
        }
        Step::RollBack(count) => {
            let savepoint = transaction.savepoint().unwrap();
            for n in 0..*count {
                transaction.append_value(key, object(n)).unwrap();
            }
            transaction.view("run7/events").unwrap();
            transaction.rollback_to(&savepoint).unwrap();
        }
        Step::Read => {
            assert_holds(&transaction.view("run7/events").unwrap(), objects);
        }
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn bounds_hold_for_all_objects_after_random_changes(steps in steps(), is_packed in any::<bool>()) {
        let (folder, federation) = federation();
        let compression = if is_packed { Profile::Archive } else { Profile::Plain };
        create(&federation, compression).0.commit().unwrap();
        let mut objects = vec![];
        let mut past = vec![];
        for steps in &steps {
            let (mut transaction, key) = open(&federation);
            steps.iter().for_each(|step| act(&mut transaction, key, step, &mut objects));
            let csn = transaction.commit().unwrap();
            past.push((csn, objects.clone()));
        }
        let federation = reopened(&folder);
        for (csn, objects) in &past {
            let view = federation.snapshot(Some(*csn)).unwrap().view("run7/events").unwrap();
            let known = assert_holds(&view, objects);
            prop_assert_eq!(known as u64, COLUMNS.len() as u64 * view.reader().clusters());
        }
    }
}

#[test]
fn clusters_without_a_value_are_not_read() {
    let (_folder, federation) = federation();
    let (mut transaction, key) = create(&federation, Profile::Plain);
    for n in 0..4000 {
        transaction.append_value(key, object(n)).unwrap();
    }
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let clusters = view.statistics("run").unwrap();
    let with = |run: u64| {
        let holds = |bounds: Option<Bounds>| holds(&bounds.unwrap(), &Value::UInt(run));
        clusters.iter().filter(|cluster| holds(cluster.bounds)).count()
    };
    assert!(clusters.len() > 10 && with(50) < 3, "{} {}", clusters.len(), with(50));
    assert_eq!(
        view.find_all(&[("run", Value::UInt(50))]).unwrap(),
        (2000..2040).collect::<Vec<_>>()
    );
    assert_eq!(view.find(&[("run", Value::UInt(1 << 40))]).unwrap(), None);
}
