//! The backend of a [`LockOwner`](super::LockOwner) on a host that has the federation's folder: locks of byte ranges,
//! kept by the kernel.
//!
//! 1. An owner holds a slot at most once. The kernel would grant the same range to the same open file description a
//!    second time and free it at the first unlock, so the owner counts, and refuses a second lock.
//! 2. A guard frees its lock when it is dropped, except in a forked child.
//! 3. An exclusive lock has a record of its holder, unless it was taken by `lock_unrecorded`.
//!
//! The files, slots and records are specified in the parent module.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::bells::Bells;
use super::file::{LockFile, LockKind, Span};
use super::monitor;
use super::target::{LockTarget, TargetNames};
use super::wait_queue;
use crate::error::{Error, Result};
use crate::host;
use crate::ids::DatabaseId;

/// Files that an idle owner may keep open.
const IDLE_FILES_MAX: usize = 8;

/// The locks of a federation in the kernel of this host.
#[derive(Clone, Debug)]
pub(super) struct KernelBackend {
    /// The folder of the lock files.
    pub(super) folder: PathBuf,
    /// Names of databases and containers for error texts; without it the texts have their numbers.
    pub(super) names: Option<Arc<dyn TargetNames>>,
    /// Opened at the first lock; none if that was not possible.
    bells: Arc<OnceLock<Option<Arc<Bells>>>>,
}

/// An owner of locks in the kernel.
///
/// It opens one file for each database, however many containers it locks there.
#[derive(Debug)]
pub(super) struct KernelOwner {
    locks: KernelBackend,
    files: Mutex<HashMap<Option<DatabaseId>, Arc<OwnedFile>>>,
}

/// A lock in the kernel, until this is dropped or its process dies.
#[derive(Debug)]
pub(super) struct KernelGuard {
    claim: SlotClaim,
    /// Whether the slot has this process's record.
    is_recorded: bool,
}

impl KernelBackend {
    pub(super) fn new(folder: PathBuf, names: Option<Arc<dyn TargetNames>>) -> Self {
        KernelBackend { folder, names, bells: Arc::default() }
    }

    fn bells(&self) -> Option<Arc<Bells>> {
        self.bells.get_or_init(|| Bells::open(&self.folder).map(Arc::new)).clone()
    }

    fn describe(&self, target: &LockTarget) -> String {
        self.names.as_ref().map_or_else(|| target.to_string(), |names| names.describe(target))
    }
}

impl KernelOwner {
    pub(super) fn new(locks: KernelBackend) -> Self {
        KernelOwner { locks, files: Mutex::default() }
    }

    /// Whether a next transaction may reuse this owner: it holds no lock, waits for none, keeps few files open, and
    /// was not inherited by a fork.
    pub(super) fn is_idle(&self) -> bool {
        let files = self.files.lock();
        let is_free = |owned: &Arc<OwnedFile>| {
            owned.pid == host::process_id() && owned.slots.lock().is_empty()
        };
        files.len() <= IDLE_FILES_MAX && files.values().all(is_free)
    }

    /// Takes an exclusive lock without a time-out, and without a record of the holder.
    pub(super) fn lock_unrecorded(&self, target: LockTarget) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        claim.file().lock(LockKind::Exclusive, Span::hold(claim.slot()))?;
        Ok(KernelGuard { claim, is_recorded: false })
    }

    /// Takes a lock in the order of arrival, and records the holder of an exclusive one.
    ///
    /// # Errors
    /// [`Error::Busy`] with a holder after `wait`; [`Error::Invalid`] if this owner holds the lock already.
    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Duration,
    ) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        let files = (self.locks.folder.as_path(), claim.file.bells.as_deref());
        if let Err(waited) = wait_queue::acquire(claim.file(), kind, &target, files, wait)? {
            let holder = match claim.file().read_holder(claim.slot())? {
                Some(holder) => Some(holder),
                None => monitor::any_writer(claim.file(), &target)?,
            };
            let (what, holder) = (self.locks.describe(&target), holder.map(Box::new));
            return Err(Error::Busy { what, holder, waited });
        }
        let is_recorded = kind == LockKind::Exclusive;
        let guard = KernelGuard { claim, is_recorded };
        if is_recorded {
            guard.claim.file().write_holder(guard.claim.slot())?;
        }
        Ok(guard)
    }

    fn claim(&self, target: LockTarget) -> Result<SlotClaim> {
        let file = self.file(&target)?;
        if !file.slots.lock().insert(target.slot()) {
            return Err(Error::invalid(format!(
                "{} is already locked by this owner",
                self.locks.describe(&target)
            )));
        }
        Ok(SlotClaim { file, target })
    }

    fn file(&self, target: &LockTarget) -> Result<Arc<OwnedFile>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&target.database()) {
            return Ok(Arc::clone(file));
        }
        let folder = &self.locks.folder;
        fs::create_dir_all(folder)
            .map_err(|error| Error::io("cannot create the folder", folder, error))?;
        let file = Arc::new(OwnedFile {
            file: LockFile::open(&folder.join(target.file_name()))?,
            bells: self.locks.bells(),
            slots: Mutex::default(),
            pid: host::process_id(),
        });
        files.insert(target.database(), Arc::clone(&file));
        Ok(file)
    }
}

impl Drop for KernelGuard {
    fn drop(&mut self) {
        let (owned, slot) = (&self.claim.file, self.claim.slot());
        if owned.pid != host::process_id() {
            return;
        }
        if self.is_recorded {
            owned.file.wipe_holder(slot);
        }
        owned.file.unlock(Span::hold(slot));
        wait_queue::ring_for(&self.claim.target, owned.bells.as_deref());
    }
}

/// An open lock file, and the slots of it that its owner holds or waits for.
#[derive(Debug)]
struct OwnedFile {
    file: LockFile,
    bells: Option<Arc<Bells>>,
    slots: Mutex<HashSet<u64>>,
    pid: u32,
}

/// A slot that its owner holds or waits for; a second claim of it is refused until this is dropped.
#[derive(Debug)]
struct SlotClaim {
    file: Arc<OwnedFile>,
    target: LockTarget,
}

impl SlotClaim {
    fn file(&self) -> &LockFile {
        &self.file.file
    }

    fn slot(&self) -> u64 {
        self.target.slot()
    }
}

impl Drop for SlotClaim {
    fn drop(&mut self) {
        self.file.slots.lock().remove(&self.target.slot());
    }
}
