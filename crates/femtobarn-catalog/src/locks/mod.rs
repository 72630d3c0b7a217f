//! Locks between writers: politeness, so that nobody works in vain.
//!
//! Locks are byte ranges of small files in the federation's `locks` folder, locked in the kernel
//! for an *open file description*. They cost a few microseconds and no server.
//!
//! | file | byte range | locks |
//! |---|---|---|
//! | `locks/<database id>` | 64 bytes at 64 × container id | a container, for the transaction that writes it |
//! | `locks/<database id>` | 64 bytes at 64 × 2^32 | the allocation of space in the database's file |
//! | `locks/snapshots` | the byte at a CSN | shared: somebody reads that snapshot |
//! | `locks/commit` | two slots of 64 bytes at 0 | the turn to commit |
//!
//! Invariants:
//! 1. Safety never rests on a lock of a container: the version check of the commit does that.
//! 2. When a process dies, the kernel frees its locks. There is nothing to clean up.
//! 3. Every [`LockOwner`] has an open file description of its own, so two transactions of the same
//!    process exclude each other as two processes do.
//! 4. The 64 bytes of a container name who holds it, for the others' error messages. They are
//!    written after the lock is taken and wiped before it is freed; they mean nothing while the
//!    range is not locked.
//!
//! A guard must not be used after a fork. The child shares the open file description: its copy of
//! the guard neither frees the lock when dropped, nor keeps it once the parent has freed it, but
//! if the parent is killed the lock stays until the child's copy is closed.
//!
//! Lock order: containers (with a time-out, so any order will do), then allocation, then the turn
//! to commit. Nobody who holds a later one waits for an earlier one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::catalog::LOCKS_FOLDER;
use crate::error::{Error, Result};
use crate::host;
use crate::ids::{ContainerId, DatabaseId};

mod file;
mod holder;
mod order;
mod pins;

pub use holder::Holder;
pub(crate) use order::CommitOrder;
pub use pins::{PinGuard, SnapshotPins};

use file::LockFile;

/// Bytes of the record of who holds a container.
pub(crate) const SLOT_BYTES: u64 = 64;
/// The slot of the allocation lock, after those of all containers there can be.
const ALLOCATION_SLOT: u64 = 1 << 32;
/// First and longest pause between two attempts to take a lock.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The locks of one federation.
#[derive(Clone, Debug)]
pub struct LockTable {
    folder: PathBuf,
}

/// One transaction's share of the locks: it never excludes itself.
///
/// It opens one file for each database, however many containers it locks.
#[derive(Debug)]
pub struct LockOwner {
    folder: PathBuf,
    files: Mutex<HashMap<DatabaseId, Arc<HeldFile>>>,
}

/// A lock that is held, until this is dropped or its process dies.
#[derive(Debug)]
#[must_use = "the lock is freed when the guard is dropped"]
pub struct LockGuard {
    claim: Claim,
}

impl LockTable {
    /// The locks of the federation in `federation`.
    pub fn new(federation: &Path) -> Self {
        LockTable { folder: federation.join(LOCKS_FOLDER) }
    }

    /// A new owner, for one transaction.
    pub fn owner(&self) -> LockOwner {
        LockOwner { folder: self.folder.clone(), files: Mutex::default() }
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// Each call is an owner of its own, so locking one container twice waits in vain.
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.owner().lock_container(database, container, wait)
    }

    /// Locks the allocation of space in a database's file, waiting as long as it takes.
    ///
    /// It is held only while a file is extended.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        self.owner().lock_allocation(database)
    }

    /// Who holds a container at the moment, for tools that list locks.
    pub fn holder(&self, database: DatabaseId, container: ContainerId) -> Result<Option<Holder>> {
        let path = self.folder.join(database.to_string());
        if !path.exists() {
            return Ok(None);
        }
        let (file, slot) = (LockFile::open(&path)?, u64::from(container.0));
        if !file.is_locked(slot)? {
            return Ok(None);
        }
        Ok(Some(file.read_holder(slot)?.unwrap_or_else(Holder::unknown)))
    }
}

impl LockOwner {
    /// Locks a container for writing, waiting for at most `wait`.
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        let what = || format!("container {container} of database {database}");
        let claim = self.claim(database, u64::from(container.0), &what)?;
        let started = host::monotonic();
        let mut pause = PAUSE_MIN;
        while !claim.file().try_lock(claim.slot)? {
            let waited = started.elapsed();
            if waited >= wait {
                let holder = claim.file().read_holder(claim.slot)?;
                return Err(Error::Busy { what: what(), holder, waited });
            }
            host::sleep(pause.min(wait - waited));
            pause = (pause * 2).min(PAUSE_MAX);
        }
        let guard = LockGuard { claim };
        guard.claim.file().write_holder(guard.claim.slot)?;
        Ok(guard)
    }

    /// Locks the allocation of space in a database's file, waiting as long as it takes.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        let what = || format!("the allocation of database {database}");
        let claim = self.claim(database, ALLOCATION_SLOT, &what)?;
        claim.file().lock(claim.slot)?;
        Ok(LockGuard { claim })
    }

    fn claim(&self, database: DatabaseId, slot: u64, what: &dyn Fn() -> String) -> Result<Claim> {
        let held = self.file(database)?;
        if !lock(&held.slots).insert(slot) {
            return Err(Error::invalid(format!("{} is already locked by this owner", what())));
        }
        Ok(Claim { held, slot })
    }

    fn file(&self, database: DatabaseId) -> Result<Arc<HeldFile>> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&database) {
            return Ok(Arc::clone(file));
        }
        fs::create_dir_all(&self.folder)
            .map_err(|error| Error::io("cannot create the folder", &self.folder, error))?;
        let file = Arc::new(HeldFile {
            file: LockFile::open(&self.folder.join(database.to_string()))?,
            slots: Mutex::default(),
            pid: host::process_id(),
        });
        files.insert(database, Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Claim { held, slot } = &self.claim;
        if held.pid != host::process_id() {
            return;
        }
        if *slot != ALLOCATION_SLOT {
            held.file.wipe_holder(*slot);
        }
        held.file.unlock(*slot);
    }
}

/// An open lock file, and the slots of it that its owner holds or waits for.
#[derive(Debug)]
struct HeldFile {
    file: LockFile,
    slots: Mutex<HashSet<u64>>,
    pid: u32,
}

/// The right of one call to lock a slot for its owner. The kernel lets an owner lock a range
/// twice, and frees it at the first unlock, so each owner keeps account.
#[derive(Debug)]
struct Claim {
    held: Arc<HeldFile>,
    slot: u64,
}

impl Claim {
    fn file(&self) -> &LockFile {
        &self.held.file
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.held.slots).remove(&self.slot);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
