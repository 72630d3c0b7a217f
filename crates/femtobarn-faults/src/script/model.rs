//! The contents that a federation must have after the steps of a script.

use std::collections::BTreeMap;

use rntuple::Value;

use super::items::{evolve, large_object, object, object_of_version, update};
use super::step::{ScriptChange, ScriptStep, split};

/// The logical contents of a federation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedContents {
    /// Containers by database.
    pub databases: BTreeMap<String, ExpectedDatabase>,
}

/// The logical contents of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedDatabase {
    /// Whether the database is sealed.
    pub is_sealed: bool,
    /// Objects by container.
    pub containers: BTreeMap<String, ExpectedContainer>,
}

/// The logical contents of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedContainer {
    /// Each entry's object; none if it was deleted.
    pub objects: Vec<Option<Value>>,
    /// Whether objects have the second version of their class.
    pub is_evolved: bool,
}

impl ExpectedContents {
    /// Applies a step to the model.
    pub fn apply(&mut self, step: &ScriptStep) {
        match step {
            ScriptStep::Commit(changes) => changes.iter().for_each(|change| self.change(change)),
            ScriptStep::Seal(name) => {
                self.databases.entry(name.to_string()).or_default().is_sealed = true
            }
            ScriptStep::Migrate(_) | ScriptStep::Evict(_) | ScriptStep::Stage(_) => {}
            ScriptStep::Reopen | ScriptStep::Vacuum | ScriptStep::Compact(_) => {}
        }
    }

    fn change(&mut self, change: &ScriptChange) {
        match change {
            ScriptChange::Database(name) | ScriptChange::DatabaseIn { name, .. } => {
                self.databases.insert(name.to_string(), ExpectedDatabase::default());
            }
            ScriptChange::Container(path, _) => drop(self.container(path)),
            ScriptChange::Append { path, first, count } => {
                let container = self.container(path);
                let is_evolved = container.is_evolved;
                let new = (*first..first + count)
                    .map(|number| Some(object_of_version(number, is_evolved)));
                container.objects.extend(new);
            }
            ScriptChange::AppendByTasks { path, first, tasks, count } => {
                let new = (*first..first + tasks * count).map(|number| Some(object(number, 0)));
                self.container(path).objects.extend(new);
            }
            ScriptChange::AppendLarge { path, number } => {
                self.container(path).objects.push(Some(large_object(*number)));
            }
            ScriptChange::Delete { path, entries } => {
                let objects = &mut self.container(path).objects;
                entries.iter().for_each(|entry| objects[*entry as usize] = None);
            }
            ScriptChange::Update { path, entries } => {
                let objects = &mut self.container(path).objects;
                for entry in entries {
                    let object = objects[*entry as usize].as_mut();
                    update(object.expect("scripts update existing objects only"));
                }
            }
            ScriptChange::Rename { path, name } => {
                let (database, old) = split(path);
                let database = self.databases.entry(database.to_owned()).or_default();
                if let Some(container) = database.containers.remove(old) {
                    database.containers.insert(name.clone(), container);
                }
            }
            ScriptChange::Drop(path) => {
                let (database, name) = split(path);
                let database = self.databases.entry(database.to_owned()).or_default();
                database.containers.remove(name);
            }
            ScriptChange::DropDatabase(name) => drop(self.databases.remove(name)),
            ScriptChange::RenameDatabase { name, new } => {
                if let Some(database) = self.databases.remove(name) {
                    self.databases.insert(new.clone(), database);
                }
            }
            ScriptChange::Evolve(path) => {
                let container = self.container(path);
                container.is_evolved = true;
                container.objects.iter_mut().flatten().for_each(|object| evolve(object, 0));
            }
            ScriptChange::Index(_) => {}
        }
    }

    fn container(&mut self, path: &str) -> &mut ExpectedContainer {
        let (database, name) = split(path);
        let database = self.databases.entry(database.to_owned()).or_default();
        database.containers.entry(name.to_owned()).or_default()
    }
}
