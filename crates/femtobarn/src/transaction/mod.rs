//! Transactions: changes that become durable and visible together.
//!
//! Commit:
//! 1. Every container ends its cluster and writes page list and footer. Every database gets a commit record.
//!    Each file is synced once, or the bytes of a small transaction go to the catalogue with step 2.
//! 2. One catalogue transaction checks that each container is still at the version that this transaction
//!    continued, and inserts the new versions. Once that is durable, the commit has happened.
//!
//! Invariants:
//! 1. Until step 2 has succeeded, nothing refers to the bytes that the transaction wrote.
//! 2. The write lock of a container is held from its first use to the end, to save a second writer from a
//!    conflict at its commit. Correctness rests on the version check in step 2, never on the lock. A new
//!    container is locked before the first checkpoint, since other transactions find it from then on.
//!
//! `container`, `numbers`, `receipt` and `writer_pool` import nothing of the other modules: the pool outlives
//! transactions.

mod append;
mod catalogue_rows;
mod classes;
mod commit;
mod container;
mod containers;
mod databases;
mod delete;
mod evolve;
mod fetched_blobs;
mod fork;
mod indexes;
mod names;
mod numbers;
mod open_containers;
mod read;
mod receipt;
mod savepoint;
mod task;
mod update;
mod writer_pool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use femtobarn_catalog::{Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard, LockOwner, clock};
use uuid::Uuid;

use crate::ContainerOptions;
use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::options::TransactionOptions;
use crate::read::snapshot::Snapshot;
use crate::schema::class::Class;
use crate::storage::extent::ExtentWriter;
use names::{DroppedParts, NameChanges};
use open_containers::OpenContainers;
use receipt::Forks;
use writer_pool::WriterPool;

pub use append::Rows;
pub use container::ContainerKey;
pub(crate) use container::range;
pub use receipt::{Fork, Receipt};
pub use savepoint::Savepoint;
pub use task::TaskWriter;

/// An open transaction. If it is dropped without a commit, it leaves nothing behind.
pub struct Transaction {
    federation: Federation,
    id: Uuid,
    options: TransactionOptions,
    owner: LockOwner,
    databases: BTreeMap<DatabaseId, OpenDatabase>,
    containers: OpenContainers,
    new_classes: Vec<Class>,
    names: NameChanges,
    dropped: DroppedParts,
    /// UUIDs of databases that were linked to or written.
    identities: BTreeMap<DatabaseId, Uuid>,
    /// The snapshot that all reads use, taken at the first of them.
    snapshot: Option<Snapshot>,
    /// The newest commit when the catalogue was last asked, if that was after the last lock of a container, and the
    /// time of the question.
    seen: Option<(Csn, Instant)>,
    /// Databases that exist by this process's guess, with the places to create them in if they do not.
    expected: BTreeMap<String, Option<String>>,
    /// The database that was last looked up by name.
    found: Option<DatabaseId>,
    /// Versions that were read and must not change before a serializable transaction commits.
    reads: BTreeMap<ContainerKey, Csn>,
    /// Valid savepoints, oldest first.
    savepoints: Vec<u64>,
    savepoints_made: u64,
    /// The forks whose receipts can be merged.
    forks: Forks,
    /// Views of uncommitted changes hold a weak reference; it dies with the transaction or at a checkpoint.
    life: Arc<()>,
    is_over: bool,
}

/// A database that the transaction writes to.
struct OpenDatabase {
    row: DatabaseRow,
    is_new: bool,
    extents: ExtentWriter,
    /// A shared lock, which excludes sealing, detaching and vacuum's second round.
    _lock: LockGuard,
}

impl OpenDatabase {
    /// Releases the lock, and returns the extents to the process. `keeps_bytes`: versions may refer to the written
    /// bytes.
    fn release(mut self, inner: &Inner, keeps_bytes: bool) {
        self.extents.discard();
        if !keeps_bytes {
            // No version refers to the written bytes. If the server's machine crashes, their place may be given to
            // another writer.
            self.extents.file().forget_recent();
        }
        // A server refuses writes that arrive after the database's lock is released.
        drop(self.extents.file().settle());
        inner.return_extents(self.row.id, self.extents);
    }
}

impl Inner {
    /// Opens a database to write to; its lock is held, and `row` was read since.
    fn open_database(&self, row: DatabaseRow, lock: LockGuard) -> Result<OpenDatabase> {
        if row.state != DatabaseState::Open {
            return Err(Error::Closed {
                what: format!("database {:?} is {} and read-only", row.name, row.state),
            });
        }
        let extents = self.take_extents(&row)?;
        Ok(OpenDatabase { row, is_new: false, extents, _lock: lock })
    }

    /// The state that this process retains between transactions.
    fn writers(&self) -> &WriterPool {
        self.writer_pool.get_or_create(WriterPool::default)
    }
}

impl Federation {
    /// Starts a transaction.
    ///
    /// # Errors
    /// `Denied` if the federation is read-only; `Closed` if a sync of its catalogue failed in this process.
    pub fn transaction(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(self.clone(), options)
    }
}

impl Transaction {
    fn begin(federation: Federation, options: TransactionOptions) -> Result<Self> {
        federation.inner.check_writable()?;
        federation.catalog().check_not_failed()?;
        let owner = federation.inner.writers().take_owner();
        let owner = owner.unwrap_or_else(|| federation.inner.locks().owner());
        Ok(Transaction {
            federation,
            id: Uuid::new_v4(),
            options,
            owner,
            databases: BTreeMap::new(),
            containers: OpenContainers::default(),
            new_classes: vec![],
            names: NameChanges::default(),
            dropped: DroppedParts::default(),
            identities: BTreeMap::new(),
            snapshot: None,
            seen: None,
            expected: BTreeMap::new(),
            found: None,
            reads: BTreeMap::new(),
            savepoints: vec![],
            savepoints_made: 0,
            forks: Forks::default(),
            life: Arc::new(()),
            is_over: false,
        })
    }

    /// The class of a container's objects.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn class(&self, key: ContainerKey) -> Result<&Class> {
        self.containers.get(&key).map(|open| &*open.class).ok_or_else(unopened)
    }

    /// Like [`class`](Self::class), to keep: it does not change when the container gets another one.
    ///
    /// # Errors
    /// The errors of [`class`](Self::class).
    pub fn shared_class(&self, key: ContainerKey) -> Result<Arc<Class>> {
        self.containers.get(&key).map(|open| open.class.clone()).ok_or_else(unopened)
    }

    /// The options of a container.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn options(&self, key: ContainerKey) -> Result<ContainerOptions> {
        self.containers.get(&key).map(|open| open.options).ok_or_else(unopened)
    }

    /// Number of entries of a container, including those that this transaction appended or deleted.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn entries(&self, key: ContainerKey) -> Result<u64> {
        self.containers.get(&key).map(|open| open.appender.entries()).ok_or_else(unopened)
    }

    /// The containers that the transaction has open.
    pub fn open_containers(&self) -> Vec<ContainerKey> {
        self.containers.keys().copied().collect()
    }

    /// Releases locks and extents, and removes the files of new databases unless `keeps_files`.
    fn close(&mut self, keeps_files: bool) {
        self.is_over = true;
        self.owner.end();
        self.life = Arc::new(());
        self.containers = OpenContainers::default();
        self.release_dropped(keeps_files);
        for (_, open) in std::mem::take(&mut self.databases) {
            self.release_database(open, keeps_files);
        }
        let inner = &self.federation.inner;
        inner.writers().keep_owner(std::mem::replace(&mut self.owner, inner.locks().owner()));
    }

    /// Releases dropped databases and containers. A database whose drop may be committed is never written
    /// again.
    fn release_dropped(&mut self, is_committed: bool) {
        let DroppedParts { databases, .. } = std::mem::take(&mut self.dropped);
        for (_, open) in databases {
            if is_committed && !open.is_new {
                drop(open.extents.file().settle())
            } else {
                self.release_database(open, false)
            }
        }
        self.names = NameChanges::default();
    }

    fn release_database(&self, open: OpenDatabase, keeps_files: bool) {
        if open.is_new && !keeps_files {
            // A file that cannot be removed is an orphan, which repair removes.
            drop(open.extents.file().remove());
        } else {
            open.release(&self.federation.inner, keeps_files);
        }
    }

    /// Remembers the newest commit, unless `seen` is zero.
    fn note_head(&mut self, seen: Csn) {
        if seen > Csn::ZERO {
            self.seen = Some((seen, clock::now()));
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.is_over {
            Err(Error::Closed { what: "the transaction has ended; start a new one".into() })
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
    Error::NotFound { what: "container not opened by this transaction".to_owned() }
}
