//! Runs scripts on a federation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{
    CompactOptions, ContainerKey, ContainerOptions, Csn, Error, Federation, Profile, Result,
    Transaction, VacuumOptions,
};

use super::items::{class, evolved_class, large_object, object_of_version, update, updated_fields};
use super::step::{ScriptChange, ScriptStep, split};
use super::tasks;

/// A federation on which a script runs.
pub struct Runner {
    folder: PathBuf,
    federation: Option<Federation>,
}

impl Runner {
    /// Creates a federation.
    ///
    /// # Errors
    /// The errors of the engine.
    pub fn create(folder: &Path) -> Result<Self> {
        let federation = Federation::create(folder, "test")?;
        stage_for_readers(&federation);
        Ok(Runner { folder: folder.to_owned(), federation: Some(federation) })
    }

    /// Opens a federation.
    ///
    /// # Errors
    /// The errors of the engine.
    pub fn open(folder: &Path) -> Result<Self> {
        let runner = Runner { folder: folder.to_owned(), federation: Some(reopened(folder)?) };
        if runner.store().is_dir() {
            // The federation may be a copy in another folder. A store without a name cannot be read.
            let _ = runner.name_store();
        }
        Ok(runner)
    }

    fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Makes the store, which an operator would have had long before.
    fn make_store(&self) -> std::io::Result<()> {
        if !self.store().is_dir() {
            std::fs::create_dir(self.store())?;
        }
        self.name_store()?;
        std::fs::File::open(&self.folder)?.sync_all()
    }

    /// Makes the folder `store` the store `disk2` of the federation.
    fn name_store(&self) -> std::io::Result<()> {
        let folder = std::path::absolute(self.store())?;
        let settings = format!("[stores.disk2]\nkind = 'folder'\npath = '{}'\n", folder.display());
        std::fs::write(self.folder.join("storage.toml"), settings)
    }

    /// The federation; none if reopening it failed.
    pub fn opened(&self) -> Option<&Federation> {
        self.federation.as_ref()
    }

    /// The federation.
    ///
    /// # Panics
    /// If reopening it failed.
    pub fn federation(&self) -> &Federation {
        self.opened().expect("only a failed reopening leaves none")
    }

    /// Runs a step. Returns its commit, if it makes one.
    ///
    /// # Errors
    /// The errors of the engine.
    pub fn run(&mut self, step: &ScriptStep) -> Result<Option<Csn>> {
        match step {
            ScriptStep::Commit(changes) => {
                let mut transaction = self.federation().transaction(Default::default())?;
                let make = |change| make(&mut transaction, change, &self.folder);
                changes.iter().try_for_each(make)?;
                transaction.commit().map(Some)
            }
            ScriptStep::Seal(name) => self.federation().seal(name, Duration::ZERO).map(Some),
            ScriptStep::Migrate(name) => {
                let made = self.make_store();
                made.map_err(|source| Error::Io {
                    what: format!(
                        "cannot make store and storage.toml in {}",
                        self.folder.display()
                    ),
                    source,
                })?;
                self.federation().migrate(name, "disk2", &mut |_| true).map(|_| None)
            }
            ScriptStep::Evict(name) => self.federation().evict(name, &mut |_| true).map(|_| None),
            ScriptStep::Stage(name) => {
                self.federation().stage(name, Duration::ZERO, &mut |_| true).map(|()| None)
            }
            ScriptStep::Vacuum => {
                let federation = self.federation();
                let keep_from = Some(federation.head()?);
                let options = VacuumOptions { keep_from, ..VacuumOptions::default() };
                federation.vacuum(&options, &mut |_| true).map(|_| None)
            }
            ScriptStep::Compact(path) => {
                let options = CompactOptions { all: true, ..CompactOptions::default() };
                let done = self.federation().compact(path, &options, &mut |_| true)?;
                Ok(done.first().and_then(|compacted| compacted.csn))
            }
            ScriptStep::Reopen => {
                // The old handle is closed first, as if one program ended and another started.
                self.federation = None;
                self.federation = Some(reopened(&self.folder)?);
                Ok(None)
            }
        }
    }
}

/// Options that give small containers several clusters of several pages.
pub fn small_pages(compression: Profile) -> ContainerOptions {
    ContainerOptions { page_size: 4096, cluster_size: 8192, compression, ..Default::default() }
}

/// Opens a federation whose readers stage nearline databases.
fn reopened(folder: &Path) -> Result<Federation> {
    let federation = Federation::open(folder)?;
    stage_for_readers(&federation);
    Ok(federation)
}

fn stage_for_readers(federation: &Federation) {
    federation.stage_for_readers(|stage| stage(&mut |_| true));
}

fn make(transaction: &mut Transaction, change: &ScriptChange, folder: &Path) -> Result<()> {
    match change {
        ScriptChange::Database(name) => transaction.create_database(name).map(drop),
        ScriptChange::DatabaseIn { name, place } => {
            transaction.create_database_in(name, Some(place)).map(drop)
        }
        ScriptChange::Container(path, compression) => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            let options = small_pages(*compression);
            transaction.create_container(database, name, &class(), options).map(drop)
        }
        ScriptChange::Append { path, first, count } => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            let key = transaction.container(database, name)?;
            let is_evolved = transaction.class(key)?.version > 1;
            for number in *first..first + count {
                transaction.append_value(key, object_of_version(number, is_evolved))?;
            }
            Ok(())
        }
        ScriptChange::AppendByTasks { path, first, tasks, count } => {
            let key = open(transaction, path)?;
            tasks::append(transaction, key, folder, *first, *tasks, *count)
        }
        ScriptChange::AppendLarge { path, number } => {
            let key = open(transaction, path)?;
            transaction.append_value(key, large_object(*number)).map(drop)
        }
        ScriptChange::Delete { path, entries } => {
            let key = open(transaction, path)?;
            transaction.delete(key, entries).map(drop)
        }
        ScriptChange::Update { path, entries } => {
            let key = open(transaction, path)?;
            let view = transaction.view(path)?;
            let update = |entry: &u64| {
                let mut object = view.value(*entry)?;
                update(&mut object);
                Ok(object)
            };
            let objects = entries.iter().map(update).collect::<Result<Vec<_>>>()?;
            transaction.update(key, entries, updated_fields(&objects))
        }
        ScriptChange::Rename { path, name } => {
            let (database, old) = split(path);
            let database = transaction.database(database)?;
            transaction.rename_container(database, old, name).map(drop)
        }
        ScriptChange::Drop(path) => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            transaction.drop_container(database, name)
        }
        ScriptChange::DropDatabase(name) => transaction.drop_database(name),
        ScriptChange::RenameDatabase { name, new } => transaction.rename_database(name, new),
        ScriptChange::Evolve(path) => {
            let key = open(transaction, path)?;
            transaction.evolve(key, &evolved_class())
        }
        ScriptChange::Index(path) => {
            let key = open(transaction, path)?;
            transaction.create_index(key, "numbers", &["number"], false)
        }
    }
}

fn open(transaction: &mut Transaction, path: &str) -> Result<ContainerKey> {
    let (database, name) = split(path);
    let database = transaction.database(database)?;
    transaction.container(database, name)
}
