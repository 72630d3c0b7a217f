//! Transactions: what is written together becomes visible together.
//!
//! Commit:
//! 1. every container ends its cluster and writes page list and footer; every database gets a commit
//!    record; the files are synced, each once;
//! 2. one catalogue transaction checks that every container is still at the version that this
//!    transaction continued, and records the new ones. When that is durable, it has happened.
//!
//! Invariants:
//! 1. Until 2 has succeeded, nothing that this transaction wrote is referred to from anywhere.
//! 2. The write lock of a container is held from its first use to the end, so that two writers do
//!    not work in vain; that nobody else committed is checked in 2, not believed. A new one is locked
//!    before the first checkpoint, from which on others can find it.

mod append;
mod classes;
mod commit;
pub(crate) mod container;
mod delete;
mod entry;
mod evolve;
mod indexes;
mod names;
mod numbers;
mod open;
mod read;
mod savepoint;
mod shared;
mod update;
pub(crate) mod writer_pool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use femtobarn_catalog::{
    Csn, DATABASES_FOLDER, DatabaseId, DatabaseRow, DatabaseState, LockGuard, LockOwner,
};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::options::TransactionOptions;
use crate::read::snapshot::Snapshot;
use crate::schema::class::Class;
use crate::storage::extent::ExtentWriter;
use crate::storage::file::DatabaseFile;
use container::OpenContainer;
use names::{Graves, Names, renamed_or_dropped};

pub use append::Rows;
pub use container::ContainerKey;
pub(crate) use container::range;
pub use savepoint::Savepoint;

/// Bytes that are set aside at once: a key cannot say much more.
const RESERVED_BYTES_MAX: u64 = 1_000_000_000;

/// A transaction that is under way. Dropped without a commit, it leaves nothing behind.
pub struct Transaction {
    federation: Federation,
    id: Uuid,
    options: TransactionOptions,
    owner: LockOwner,
    databases: BTreeMap<DatabaseId, OpenDatabase>,
    containers: BTreeMap<ContainerKey, OpenContainer>,
    new_classes: Vec<Class>,
    names: Names,
    graves: Graves,
    /// Identities of databases that were linked to or written.
    identities: BTreeMap<DatabaseId, Uuid>,
    /// What it reads, fixed at its first read.
    snapshot: Option<Snapshot>,
    /// The newest commit when it last looked, and when that was.
    seen: Option<(Csn, Instant)>,
    /// The database that was looked up by its name last.
    found: Option<DatabaseId>,
    /// Which versions it read, if they must not change before it commits.
    reads: BTreeMap<ContainerKey, Csn>,
    /// Savepoints that can be gone back to, in the order of their making.
    savepoints: Vec<u64>,
    savepoints_made: u64,
    /// What views of its changes look at to see whether it is over.
    life: Arc<()>,
    is_over: bool,
}

/// A database that the transaction writes to.
struct OpenDatabase {
    row: DatabaseRow,
    is_new: bool,
    extents: ExtentWriter,
    /// Held together with other transactions, against those who want the file for themselves.
    _lock: LockGuard,
}

impl Federation {
    /// Starts a transaction.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn transaction(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(self.clone(), options)
    }
}

impl Transaction {
    fn begin(federation: Federation, options: TransactionOptions) -> Result<Self> {
        if federation.catalog().is_read_only() {
            let what = format!("federation {} can only be read", federation.folder().display());
            return Err(femtobarn_catalog::Error::Denied { what }.into());
        }
        federation.catalog().check_not_failed()?;
        let owner = federation.inner.writers.take_owner();
        let owner = owner.unwrap_or_else(|| federation.inner.locks().owner());
        Ok(Transaction {
            federation,
            id: Uuid::new_v4(),
            options,
            owner,
            databases: BTreeMap::new(),
            containers: BTreeMap::new(),
            new_classes: vec![],
            names: Names::default(),
            graves: Graves::default(),
            identities: BTreeMap::new(),
            snapshot: None,
            seen: None,
            found: None,
            reads: BTreeMap::new(),
            savepoints: vec![],
            savepoints_made: 0,
            life: Arc::new(()),
            is_over: false,
        })
    }

    /// Creates a database.
    ///
    /// # Errors
    /// `Exists` if the name is taken.
    pub fn create_database(&mut self, name: &str) -> Result<DatabaseId> {
        self.create_database_in(name, None)
    }

    /// Creates a database whose file lies in a place: a folder of the federation's folder of databases,
    /// which may be a disk of its own and is made if it is not there.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `Invalid` if the place's name is no plain one.
    pub fn create_database_in(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        if self.look_for_database(name)?.is_some() {
            return Err(Error::Exists { what: format!("database {name:?} exists already") });
        }
        self.new_database(name, place)
    }

    /// A database by its name; if there is none, it is created in a place.
    ///
    /// # Errors
    /// As [`create_database_in`](Self::create_database_in), but that the name is taken.
    pub fn database_or_new(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        match self.look_for_database(name)? {
            Some(id) => Ok(id),
            None => self.new_database(name, place),
        }
    }

    fn new_database(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        place.map_or(Ok(()), femtobarn_catalog::check_place)?;
        femtobarn_catalog::check_database_name(name)?;
        let (id, uuid) = (
            self.federation.inner.writers.next_database(self.federation.catalog())?,
            Uuid::new_v4(),
        );
        let lock = self.owner.share_database(id, self.options.lock_wait)?;
        let (path, file) = self.create_file(name, place, id, uuid)?;
        let row = DatabaseRow {
            id,
            uuid,
            name: name.to_owned(),
            path,
            state: DatabaseState::Open,
            created: Csn::ZERO,
            epoch: 0,
        };
        let catalog = self.federation.inner.catalog.clone();
        let extents = ExtentWriter::new(file.into(), id, row.epoch, catalog)?.of_new_file();
        self.identities.insert(id, uuid);
        self.databases.insert(id, OpenDatabase { row, is_new: true, extents, _lock: lock });
        Ok(id)
    }

    /// Creates the file of a new database. A file that a killed process left under the same name is
    /// not touched; the new one gets a name of its own.
    fn create_file(
        &self,
        name: &str,
        place: Option<&str>,
        id: DatabaseId,
        uuid: Uuid,
    ) -> Result<(String, DatabaseFile)> {
        let folder = match place {
            Some(place) => format!("{DATABASES_FOLDER}/{place}"),
            None => DATABASES_FOLDER.to_owned(),
        };
        let plain = format!("{folder}/{name}.root");
        let distinct = format!("{folder}/{name}-{}.root", &uuid.simple().to_string()[..8]);
        let files = &self.federation.inner.files;
        match files.create(&plain, id, uuid) {
            Ok(file) => Ok((plain, file)),
            Err(Error::Exists { .. }) => {
                let file = files.create(&distinct, id, uuid)?;
                Ok((distinct, file))
            }
            Err(error) => Err(error),
        }
    }

    /// Sets space of a database's file aside for what this process writes to it, so that a disk that is
    /// too small for it tells so now. What is left of it when nobody here writes to the database any more
    /// is given back.
    ///
    /// # Errors
    /// `Invalid` for more than 1 GB at once; `Full` if the disk has less; `Closed` for a database that
    /// takes no more changes.
    pub fn reserve(&mut self, database: DatabaseId, bytes: u64) -> Result<()> {
        self.check_open()?;
        if bytes > RESERVED_BYTES_MAX {
            let what = format!("{bytes} bytes are too many to set aside at once; at most 1 GB is");
            return Err(Error::invalid(what));
        }
        self.open_database(database)?.extents.set_aside(bytes)
    }

    /// A database by its name: one that exists or that this transaction created.
    ///
    /// # Errors
    /// `NotFound`, with names that are like it.
    pub fn database(&mut self, name: &str) -> Result<DatabaseId> {
        self.check_open()?;
        if let Some(id) = self.own_database(name) {
            return Ok(id);
        }
        let id = self.federation.catalog().database(name, Csn::MAX)?.id;
        self.found = Some(id);
        if self.has_renamed(id) { Err(renamed_or_dropped(name)) } else { Ok(id) }
    }

    /// The class of a container's objects.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn class(&self, key: ContainerKey) -> Result<&Class> {
        self.containers.get(&key).map(|open| &open.class).ok_or_else(unopened)
    }

    /// Number of entries of a container, with those that this transaction appended or deleted.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn entries(&self, key: ContainerKey) -> Result<u64> {
        self.containers.get(&key).map(|open| open.appender.entries()).ok_or_else(unopened)
    }

    /// Gives locks and extents back, and removes new files unless they are to be kept.
    fn close(&mut self, keeps_files: bool) {
        self.is_over = true;
        self.life = Arc::new(());
        self.containers.clear();
        self.bury(keeps_files);
        for (id, open) in std::mem::take(&mut self.databases) {
            self.leave(id, open, keeps_files);
        }
        let inner = &self.federation.inner;
        inner.writers.keep_owner(std::mem::replace(&mut self.owner, inner.locks().owner()));
    }

    /// Lets go of what was dropped; nobody goes on with databases whose drop may be committed.
    fn bury(&mut self, is_committed: bool) {
        let Graves { databases, .. } = std::mem::take(&mut self.graves);
        for (id, open) in databases {
            if is_committed && !open.is_new {
                drop(open.extents.file().settle())
            } else {
                self.leave(id, open, false)
            }
        }
        self.names = Names::default();
    }

    fn leave(&self, id: DatabaseId, mut open: OpenDatabase, keeps_files: bool) {
        if open.is_new && !keeps_files {
            // A file that cannot be removed is unknown to the catalogue and only takes space.
            drop(open.extents.file().remove());
            return;
        }
        open.extents.discard();
        // A server refuses what comes when the database is not held any more.
        drop(open.extents.file().settle());
        self.federation.inner.return_extents(id, open.extents);
    }

    /// Notes a commit that was the newest just now, if it is one.
    fn note_seen(&mut self, seen: Csn) {
        if seen > Csn::ZERO {
            self.seen = Some((seen, Instant::now()));
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.is_over {
            Err(Error::Closed { what: "the transaction is over; start another".into() })
        } else {
            Ok(())
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_over {
            self.close(false);
        }
    }
}

fn unopened() -> Error {
    Error::NotFound { what: "the transaction has not opened this container".to_owned() }
}
