//! Random changes of all kinds, with savepoints and checkpoints, compared with a model. Every snapshot keeps
//! showing the state that was committed when it was taken.

mod model;

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};

use femtobarn::{
    ContainerKey, ContainerOptions, ErrorKind, Federation, Profile, Savepoint, Snapshot,
    Transaction,
};
use rntuple::{Array, Type, Value};

use crate::support::{begin, federation, reopened};
use crate::types::type_of_class;
use crate::values::{array_of, cases};
use model::{Content, Model, NEWEST, assert_holds, assert_is, class, object, upgraded};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Change {
    Append { count: usize },
    Update { picks: Vec<usize> },
    Delete { picks: Vec<usize> },
    Evolve,
    Drop,
    Rename { to: usize },
    DropDatabase,
    RenameDatabase { to: usize },
    Savepoint,
    RollbackTo { back: usize },
    Checkpoint,
    Look,
}

#[derive(Clone, Debug)]
struct Step {
    changes: Vec<(usize, usize, Change)>,
    commits: bool,
    reopens: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let picks = || vec(0..1000_usize, 1..8);
    let count = prop_oneof![3 => 1..30_usize, 1 => 200..500_usize];
    let change = prop_oneof![
        6 => count.prop_map(|count| Change::Append { count }),
        5 => picks().prop_map(|picks| Change::Update { picks }),
        3 => picks().prop_map(|picks| Change::Delete { picks }),
        2 => Just(Change::Evolve),
        1 => Just(Change::Drop),
        1 => (0..3_usize).prop_map(|to| Change::Rename { to }),
        1 => Just(Change::DropDatabase),
        1 => (0..3_usize).prop_map(|to| Change::RenameDatabase { to }),
        2 => Just(Change::Savepoint),
        2 => (0..4_usize).prop_map(|back| Change::RollbackTo { back }),
        1 => Just(Change::Checkpoint),
        3 => Just(Change::Look),
    ];
    let step = (vec((0..2_usize, 0..3_usize, change), 1..12), 0..4_u8, 0..5_u8);
    let step = step.prop_map(|(changes, end, opens)| Step {
        changes,
        commits: end > 0,
        reopens: opens == 0,
    });
    vec(step, 1..10)
}

fn options(database: usize) -> ContainerOptions {
    let compression = [Profile::Plain, Profile::Fast, Profile::Archive][database];
    ContainerOptions { page_size: 4096, cluster_size: 8192, compression, ..Default::default() }
}

/// A transaction with the contents that it should show.
struct Run<'a> {
    transaction: Transaction,
    model: Model,
    committed: Model,
    savepoints: Vec<(Savepoint, Model)>,
    next: &'a mut u64,
}

impl Run<'_> {
    /// Opens the container that the picks name; creates it if it should not exist yet.
    fn open(&mut self, database: usize, container: usize) -> ((String, String), ContainerKey) {
        let path = (NAMES[database].to_owned(), NAMES[container].to_owned());
        let id = if self.model.databases.insert(path.0.clone()) {
            self.transaction.create_database(&path.0).unwrap()
        } else {
            self.transaction.database(&path.0).unwrap()
        };
        let key = if self.model.containers.contains_key(&path) {
            self.transaction.container(id, &path.1).unwrap()
        } else {
            let created = Content { version: 1, objects: vec![] };
            self.model.containers.insert(path.clone(), created);
            let options = options(database);
            let created = self.transaction.create_container(id, &path.1, &class(1), options);
            let key = created.unwrap();
            self.transaction.create_index(key, "by number", &["n"], false).unwrap();
            key
        };
        (path, key)
    }

    fn content(&mut self, path: &(String, String)) -> &mut Content {
        self.model.containers.get_mut(path).unwrap()
    }

    fn apply(&mut self, database: usize, container: usize, change: &Change) {
        match change {
            Change::Append { count } => self.append(database, container, *count),
            Change::Update { picks } => self.update(database, container, picks),
            Change::Delete { picks } => self.delete(database, container, picks),
            Change::Evolve => self.evolve(database, container),
            Change::Drop | Change::Rename { .. } => self.name(database, container, change),
            Change::DropDatabase | Change::RenameDatabase { .. } => {
                self.name_database(database, change);
            }
            Change::Savepoint => {
                let savepoint = self.transaction.savepoint().unwrap();
                self.savepoints.push((savepoint, self.model.clone()));
            }
            Change::RollbackTo { back } => {
                let Some(at) = self.savepoints.len().checked_sub(1 + back) else { return };
                self.savepoints.truncate(at + 1);
                let (savepoint, model) = self.savepoints.last().unwrap();
                self.transaction.rollback_to(savepoint).unwrap();
                self.model = model.clone();
            }
            Change::Checkpoint => {
                self.transaction.checkpoint().unwrap();
                self.committed = self.model.clone();
                self.savepoints.clear();
            }
            Change::Look => {
                for ((database, name), content) in &self.model.containers {
                    let view = self.transaction.view(&format!("{database}/{name}")).unwrap();
                    assert_holds(&view, content);
                }
            }
        }
    }

    fn append(&mut self, database: usize, container: usize, count: usize) {
        let (path, key) = self.open(database, container);
        let first = *self.next;
        *self.next += count as u64;
        let content = self.content(&path);
        let version = content.version;
        let objects: Vec<Value> =
            (first..first + count as u64).map(|n| object(version, n)).collect();
        content.objects.extend(objects.iter().cloned().map(Some));
        if count.is_multiple_of(2) {
            let array = array_of(&type_of_class(&class(version)), &objects);
            self.transaction.extend(key, array).unwrap();
        } else {
            for object in objects {
                self.transaction.append_value(key, object).unwrap();
            }
        }
    }

    /// The entries that picks name, without duplicates.
    fn entries(content: &Content, picks: &[usize]) -> Vec<u64> {
        let live: Vec<u64> = (0..content.objects.len() as u64)
            .filter(|n| content.objects[*n as usize].is_some())
            .collect();
        if live.is_empty() {
            return vec![];
        }
        let mut seen = BTreeSet::new();
        let picked = picks.iter().map(|pick| live[pick % live.len()]);
        picked.filter(|entry| seen.insert(*entry)).collect()
    }

    fn update(&mut self, database: usize, container: usize, picks: &[usize]) {
        let (path, key) = self.open(database, container);
        let first = *self.next;
        *self.next += picks.len() as u64;
        let content = self.content(&path);
        let entries = Self::entries(content, picks);
        let version = content.version;
        let Type::Record { members, .. } = type_of_class(&class(version)) else { unreachable!() };
        // A random suffix of the fields.
        let skipped = first as usize % members.len();
        let fields: Vec<_> = members.into_iter().skip(skipped).take(2).collect();
        let news: Vec<Value> =
            (0..entries.len() as u64).map(|n| object(version, first + n)).collect();
        let column = |(name, of): &(String, Type)| {
            let values: Vec<Value> =
                news.iter().map(|new| new.member(name).unwrap().clone()).collect();
            (name.clone(), array_of(of, &values))
        };
        let columns = fields.iter().map(column).collect();
        for (entry, new) in entries.iter().zip(&news) {
            let Some(Value::Record(old)) = &mut content.objects[*entry as usize] else { panic!() };
            for (name, value) in old.iter_mut() {
                if fields.iter().any(|(field, _)| field == name) {
                    *value = new.member(name).unwrap().clone();
                }
            }
        }
        let values = Array::Record { length: entries.len(), members: columns };
        self.transaction.update(key, &entries, values).unwrap();
    }

    fn delete(&mut self, database: usize, container: usize, picks: &[usize]) {
        let (path, key) = self.open(database, container);
        let content = self.content(&path);
        let entries = Self::entries(content, picks);
        entries.iter().for_each(|entry| content.objects[*entry as usize] = None);
        let deleted = self.transaction.delete(key, &entries).unwrap();
        assert_eq!(deleted, entries.len() as u64);
        if let Some(entry) = entries.first() {
            let error = self.transaction.delete(key, &[*entry]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }

    fn evolve(&mut self, database: usize, container: usize) {
        let (path, key) = self.open(database, container);
        let content = self.content(&path);
        let version = content.version;
        if version < NEWEST {
            content.version += 1;
            for object in content.objects.iter_mut().flatten() {
                *object = upgraded(object, version);
            }
            self.transaction.evolve(key, &class(version + 1)).unwrap();
        }
    }

    fn name(&mut self, database: usize, container: usize, change: &Change) {
        let path = (NAMES[database].to_owned(), NAMES[container].to_owned());
        if !self.model.containers.contains_key(&path) {
            return;
        }
        let id = self.transaction.database(&path.0).unwrap();
        let Change::Rename { to } = change else {
            self.transaction.drop_container(id, &path.1).unwrap();
            self.model.containers.remove(&path);
            return;
        };
        let renamed = (path.0.clone(), NAMES[*to].to_owned());
        let done = self.transaction.rename_container(id, &path.1, &renamed.1);
        if self.model.containers.contains_key(&renamed) {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Exists)
        } else {
            done.unwrap();
            let content = self.model.containers.remove(&path).unwrap();
            self.model.containers.insert(renamed, content);
        }
    }

    fn name_database(&mut self, database: usize, change: &Change) {
        let name = NAMES[database];
        if !self.model.databases.contains(name) {
            return;
        }
        let inside = |path: &(String, String)| path.0 == name;
        let Change::RenameDatabase { to } = change else {
            self.transaction.drop_database(name).unwrap();
            self.model.databases.remove(name);
            self.model.containers.retain(|path, _| !inside(path));
            return;
        };
        let done = self.transaction.rename_database(name, NAMES[*to]);
        if self.model.databases.contains(NAMES[*to]) {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Exists);
            return;
        }
        done.unwrap();
        self.model.databases.remove(name);
        self.model.databases.insert(NAMES[*to].to_owned());
        let containers = std::mem::take(&mut self.model.containers).into_iter();
        self.model.containers = containers
            .map(|((database, container), content)| {
                if database == name {
                    ((NAMES[*to].to_owned(), container), content)
                } else {
                    ((database, container), content)
                }
            })
            .collect();
    }
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn snapshots_show_committed_state_after_random_changes(steps in steps()) {
        let (folder, mut federation) = federation();
        let mut model = Model::default();
        let mut next = 0;
        let mut past: Vec<(Snapshot, Model)> = vec![];
        for step in &steps {
            if step.reopens {
                federation = reopened(&folder);
            }
            model = run(&federation, step, &model, &mut next);
            let snapshot = federation.snapshot(None).unwrap();
            assert_is(&snapshot, &model);
            past.push((snapshot, model.clone()));
        }
        let federation = reopened(&folder);
        for (snapshot, model) in &past {
            assert_is(snapshot, model);
            assert_is(&federation.snapshot(Some(snapshot.csn())).unwrap(), model);
        }
    }
}

/// Runs a step; returns the expected contents afterwards.
fn run(federation: &Federation, step: &Step, model: &Model, next: &mut u64) -> Model {
    let mut run = Run {
        transaction: begin(federation),
        model: model.clone(),
        committed: model.clone(),
        savepoints: vec![],
        next,
    };
    for (database, container, change) in &step.changes {
        run.apply(*database, *container, change);
    }
    if step.commits {
        run.transaction.commit().unwrap();
        run.model
    } else {
        run.transaction.rollback();
        run.committed
    }
}
