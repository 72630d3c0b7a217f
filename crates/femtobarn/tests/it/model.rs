//! Random transactions over several containers and databases, compared with a model.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample};

use femtobarn::{Class, ContainerOptions, Csn, ErrorKind, Federation, Profile, Snapshot};
use rntuple::Value;

use crate::support::{begin, federation, reopened};
use crate::types::type_of_class;
use crate::values::{array_of, cases};

/// The expected content of a federation: objects by the paths of containers.
type Model = BTreeMap<String, Vec<Value>>;

const DATABASES: [&str; 3] = ["a", "b", "c"];
const CONTAINERS: [&str; 2] = ["x", "y"];

#[derive(Clone, Debug)]
struct Step {
    writes: Vec<Write>,
    end: End,
    /// Whether the federation is reopened before the step, or another open instance of it is used, or neither.
    opens: u8,
}

#[derive(Clone, Debug)]
struct Write {
    database: usize,
    container: usize,
    count: usize,
    as_array: bool,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Rollback,
    Drop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let counts = prop_oneof![4 => 0..20_usize, 1 => 300..700_usize];
    let write = (0..3_usize, 0..2_usize, counts, any::<bool>()).prop_map(
        |(database, container, count, as_array)| Write { database, container, count, as_array },
    );
    let end = sample::select(vec![End::Commit, End::Commit, End::Commit, End::Rollback, End::Drop]);
    let step = (vec(write, 0..5), end, 0..6_u8);
    vec(step.prop_map(|(writes, end, opens)| Step { writes, end, opens }), 1..20)
}

fn class() -> Class {
    let json = r#"{"name": "Numbered", "version": 1, "fields": [
        {"name": "n", "type": "uint64"},
        {"name": "bytes", "type": {"list": "uint8"}},
        {"name": "note", "type": {"optional": {"record": {"fields": [
            {"name": "text", "type": "string"}]}}}}]}"#;
    Class::from_json(json).unwrap()
}

fn object(n: u64) -> Value {
    let text = || Value::Record(vec![("text".to_owned(), Value::String(format!("n{n}")))]);
    Value::Record(vec![
        ("n".to_owned(), Value::UInt(n)),
        ("bytes".to_owned(), Value::Bytes(vec![n as u8; n as usize % 50].into())),
        ("note".to_owned(), if n.is_multiple_of(3) { text() } else { Value::Null }),
    ])
}

/// Does the writes of a step; returns the expected content afterwards.
fn run(federation: &Federation, step: &Step, model: &Model, next: &mut u64) -> Model {
    let mut changed = model.clone();
    let mut transaction = begin(federation);
    for Write { database, container, count, as_array } in step.writes.iter().cloned() {
        let (database_name, name) = (DATABASES[database], CONTAINERS[container]);
        let path = format!("{database_name}/{name}");
        let known = changed.keys().any(|path| path.starts_with(database_name));
        let id = if known {
            transaction.database(database_name).unwrap()
        } else {
            transaction.create_database(database_name).unwrap()
        };
        let compression = [Profile::Plain, Profile::Fast, Profile::Archive][database];
        let options = ContainerOptions {
            page_size: 4096,
            cluster_size: 8192,
            compression,
            ..Default::default()
        };
        let key = if changed.contains_key(&path) {
            transaction.container(id, name).unwrap()
        } else {
            transaction.create_container(id, name, &class(), options).unwrap()
        };
        let objects: Vec<Value> = (*next..*next + count as u64).map(object).collect();
        *next += count as u64;
        let before = changed.entry(path).or_default();
        if as_array {
            let array = array_of(&type_of_class(&class()), &objects);
            let oid = transaction.extend(key, array).unwrap();
            assert_eq!(oid.entry, before.len() as u64);
        } else {
            objects.iter().for_each(|object| {
                transaction.append_value(key, object.clone()).unwrap();
            })
        }
        before.extend(objects);
        assert_eq!(transaction.entries(key).unwrap(), before.len() as u64);
    }
    match step.end {
        End::Commit => {
            let head = federation.head().unwrap();
            assert_eq!(transaction.commit().unwrap(), Csn(head.0 + 1));
            return changed;
        }
        End::Rollback => transaction.rollback(),
        End::Drop => drop(transaction),
    }
    model.clone()
}

fn assert_is(snapshot: &Snapshot, model: &Model) {
    let mut paths = vec![];
    for database in snapshot.databases().unwrap() {
        for container in snapshot.containers(database.id).unwrap() {
            paths.push(format!("{}/{}", database.name, container.name));
        }
    }
    paths.sort();
    assert!(paths.iter().eq(model.keys()), "{paths:?} is not {:?}", model.keys());
    for (path, objects) in model {
        let view = snapshot.view(path).unwrap();
        assert_eq!(view.entries(), objects.len() as u64);
        let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
        for (entry, object) in objects.iter().enumerate() {
            assert_eq!(array.value(entry).unwrap(), *object, "{path} entry {entry}");
        }
        let last = objects.len().checked_sub(1);
        for entry in [last.map(|last| last / 2), last].into_iter().flatten() {
            assert_eq!(view.value(entry as u64).unwrap(), objects[entry]);
        }
    }
}

proptest! {
    #![proptest_config(cases(25))]

    #[test]
    fn random_transactions_match_a_model(steps in steps()) {
        let (folder, mut federation) = federation();
        let mut twin = reopened(&folder);
        let mut model = Model::new();
        let mut next = 0;
        let mut past: Vec<(Snapshot, Model)> = vec![];
        for step in &steps {
            match step.opens {
                0 => federation = reopened(&folder),
                1 => std::mem::swap(&mut federation, &mut twin),
                _ => {}
            }
            model = run(&federation, step, &model, &mut next);
            let snapshot = federation.snapshot(None).unwrap();
            assert_is(&snapshot, &model);
            past.push((snapshot, model.clone()));
        }
        drop(federation);
        let federation = reopened(&folder);
        for (snapshot, model) in &past {
            assert_is(snapshot, model);
            assert_is(&federation.snapshot(Some(snapshot.csn())).unwrap(), model);
        }
        let beyond = Csn(federation.head().unwrap().0 + 1);
        prop_assert_eq!(federation.snapshot(Some(beyond)).err().unwrap().kind(), ErrorKind::NotFound);
    }
}
