//! Owners of locks, and the guards that hold them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::file::{Kind, LockFile, Span};
use super::monitor;
use super::target::LockTarget;
use super::wait;
use crate::error::{Error, Result};
use crate::host;
use crate::ids::{ContainerId, DatabaseId};

/// Files that an owner may have open while nobody uses it.
const IDLE_FILES_MAX: usize = 8;

/// One transaction's share of the locks: it never excludes itself.
///
/// It opens one file for each database, however many containers it locks.
#[derive(Debug)]
pub struct LockOwner {
    folder: PathBuf,
    files: Mutex<HashMap<Option<DatabaseId>, Arc<HeldFile>>>,
}

/// A lock that is held, until this is dropped or its process dies.
#[derive(Debug)]
#[must_use = "the lock is freed when the guard is dropped"]
pub struct LockGuard {
    claim: Claim,
    is_signed: bool,
}

impl LockOwner {
    pub(super) fn new(folder: PathBuf) -> Self {
        LockOwner { folder, files: Mutex::default() }
    }

    /// Whether it holds nothing, so that another transaction of this process may have it, with the
    /// files that it has open.
    pub fn is_idle(&self) -> bool {
        let files = lock(&self.files);
        let is_free =
            |held: &Arc<HeldFile>| held.pid == host::process_id() && lock(&held.slots).is_empty();
        files.len() <= IDLE_FILES_MAX && files.values().all(is_free)
    }

    /// Locks a container for writing, waiting for at most `wait`.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it; [`Error::Invalid`] if this owner holds it already.
    pub fn lock_container(
        &self,
        database: DatabaseId,
        container: ContainerId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Container(database, container), Kind::Exclusive, wait)
    }

    /// Locks the allocation of space in a database's file, waiting as long as it takes.
    pub fn lock_allocation(&self, database: DatabaseId) -> Result<LockGuard> {
        let claim = self.claim(LockTarget::Allocation(database))?;
        claim.file().lock(Kind::Exclusive, Span::hold(claim.slot()))?;
        Ok(LockGuard { claim, is_signed: false })
    }

    /// Locks a database together with the other transactions that write to it. It waits, for at
    /// most `wait`, only while somebody has the database exclusively or is the next to have it.
    ///
    /// # Errors
    /// [`Error::Busy`], with who has it; [`Error::Invalid`] if this owner holds it already.
    pub fn share_database(&self, database: DatabaseId, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), Kind::Shared, wait)
    }

    /// Locks a database against all transactions, waiting for at most `wait` for those that are
    /// under way. Meanwhile no others begin.
    ///
    /// # Errors
    /// [`Error::Busy`], with one of those that have it, if that can be found out;
    /// [`Error::Invalid`] if this owner holds it already.
    pub fn lock_database_exclusive(
        &self,
        database: DatabaseId,
        wait: Duration,
    ) -> Result<LockGuard> {
        self.lock(LockTarget::Database(database), Kind::Exclusive, wait)
    }

    /// As [`LockOwner::lock_database_exclusive`], if nobody has the database; `None` if somebody has.
    pub fn try_exclusive_database(&self, database: DatabaseId) -> Result<Option<LockGuard>> {
        match self.lock_database_exclusive(database, Duration::ZERO) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks the maintenance of the federation, waiting for at most `wait`: for vacuum, against
    /// other vacuums and against backups.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it.
    pub fn lock_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, Kind::Exclusive, wait)
    }

    /// Locks the maintenance of the federation together with other backups, against vacuum.
    ///
    /// # Errors
    /// [`Error::Busy`], with who holds it.
    pub fn share_maintenance(&self, wait: Duration) -> Result<LockGuard> {
        self.lock(LockTarget::Maintenance, Kind::Shared, wait)
    }

    fn lock(&self, target: LockTarget, kind: Kind, wait: Duration) -> Result<LockGuard> {
        let claim = self.claim(target)?;
        if let Err(waited) = wait::acquire(claim.file(), kind, &target, &self.folder, wait)? {
            let holder = match claim.file().read_holder(claim.slot())? {
                Some(holder) => Some(holder),
                None => monitor::any_writer(claim.file(), &target)?,
            };
            return Err(Error::Busy { what: target.to_string(), holder, waited });
        }
        let is_signed = kind == Kind::Exclusive;
        let guard = LockGuard { claim, is_signed };
        if is_signed {
            guard.claim.file().write_holder(guard.claim.slot())?;
        }
        Ok(guard)
    }

    fn claim(&self, target: LockTarget) -> Result<Claim> {
        let held = self.file(&target)?;
        if !lock(&held.slots).insert(target.slot()) {
            return Err(Error::invalid(format!("{target} is already locked by this owner")));
        }
        Ok(Claim { held, target })
    }

    fn file(&self, target: &LockTarget) -> Result<Arc<HeldFile>> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&target.database()) {
            return Ok(Arc::clone(file));
        }
        fs::create_dir_all(&self.folder)
            .map_err(|error| Error::io("cannot create the folder", &self.folder, error))?;
        let file = Arc::new(HeldFile {
            file: LockFile::open(&self.folder.join(target.file_name()))?,
            slots: Mutex::default(),
            pid: host::process_id(),
        });
        files.insert(target.database(), Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let (held, slot) = (&self.claim.held, self.claim.slot());
        if held.pid != host::process_id() {
            return;
        }
        if self.is_signed {
            held.file.wipe_holder(slot);
        }
        held.file.unlock(Span::hold(slot));
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
    target: LockTarget,
}

impl Claim {
    fn file(&self) -> &LockFile {
        &self.held.file
    }

    fn slot(&self) -> u64 {
        self.target.slot()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.held.slots).remove(&self.target.slot());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
