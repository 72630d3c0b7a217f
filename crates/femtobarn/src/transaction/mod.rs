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
mod catalogue_rows;
mod classes;
mod commit;
mod container;
mod containers;
mod databases;
mod delete;
mod evolve;
mod indexes;
mod names;
mod numbers;
mod read;
mod savepoint;
mod update;
mod writer_pool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use femtobarn_catalog::{Csn, DatabaseId, DatabaseRow, LockGuard, LockOwner};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::options::TransactionOptions;
use crate::read::snapshot::Snapshot;
use crate::schema::class::Class;
use crate::storage::extent::ExtentWriter;
use container::OpenContainer;
use names::{DroppedParts, NameChanges};
use writer_pool::WriterPool;

pub use append::Rows;
pub use container::ContainerKey;
pub(crate) use container::range;
pub use savepoint::Savepoint;

/// A transaction that is under way. Dropped without a commit, it leaves nothing behind.
pub struct Transaction {
    federation: Federation,
    id: Uuid,
    options: TransactionOptions,
    owner: LockOwner,
    databases: BTreeMap<DatabaseId, OpenDatabase>,
    containers: BTreeMap<ContainerKey, OpenContainer>,
    new_classes: Vec<Class>,
    names: NameChanges,
    dropped: DroppedParts,
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

impl Inner {
    /// What transactions leave to the next ones of this process.
    fn writers(&self) -> &WriterPool {
        self.writer_pool.get_or_create(WriterPool::default)
    }
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
        let owner = federation.inner.writers().take_owner();
        let owner = owner.unwrap_or_else(|| federation.inner.locks().owner());
        Ok(Transaction {
            federation,
            id: Uuid::new_v4(),
            options,
            owner,
            databases: BTreeMap::new(),
            containers: BTreeMap::new(),
            new_classes: vec![],
            names: NameChanges::default(),
            dropped: DroppedParts::default(),
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
        self.release_dropped(keeps_files);
        for (id, open) in std::mem::take(&mut self.databases) {
            self.release_database(id, open, keeps_files);
        }
        let inner = &self.federation.inner;
        inner.writers().keep_owner(std::mem::replace(&mut self.owner, inner.locks().owner()));
    }

    /// Lets go of what was dropped; nobody goes on with databases whose drop may be committed.
    fn release_dropped(&mut self, is_committed: bool) {
        let DroppedParts { databases, .. } = std::mem::take(&mut self.dropped);
        for (id, open) in databases {
            if is_committed && !open.is_new {
                drop(open.extents.file().settle())
            } else {
                self.release_database(id, open, false)
            }
        }
        self.names = NameChanges::default();
    }

    fn release_database(&self, id: DatabaseId, mut open: OpenDatabase, keeps_files: bool) {
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
    fn note_head(&mut self, seen: Csn) {
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
