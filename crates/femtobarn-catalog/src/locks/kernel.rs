//! Locks in the kernel: where their files are, their owners, and the guards that hold them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

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
    /// The names of targets for errors, which otherwise have numbers.
    pub(super) names: Option<Arc<dyn TargetNames>>,
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
    fn describe(&self, target: &LockTarget) -> String {
        self.names.as_ref().map_or_else(|| target.to_string(), |names| names.describe(target))
    }
}

impl KernelOwner {
    pub(super) fn new(locks: KernelBackend) -> Self {
        KernelOwner { locks, files: Mutex::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        let files = self.files.lock();
        let is_free = |owned: &Arc<OwnedFile>| {
            owned.pid == host::process_id() && owned.slots.lock().is_empty()
        };
        files.len() <= IDLE_FILES_MAX && files.values().all(is_free)
    }

    /// Takes an exclusive lock, waiting for as long as it takes in the kernel's queue, and leaves no record.
    pub(super) fn lock_unrecorded(&self, target: LockTarget) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        claim.file().lock(LockKind::Exclusive, Span::hold(claim.slot()))?;
        Ok(KernelGuard { claim, is_recorded: false })
    }

    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Duration,
    ) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        let folder = &self.locks.folder;
        if let Err(waited) = wait_queue::acquire(claim.file(), kind, &target, folder, wait)? {
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
    }
}

/// An open lock file, and the slots of it that its owner holds or waits for.
#[derive(Debug)]
struct OwnedFile {
    file: LockFile,
    slots: Mutex<HashSet<u64>>,
    pid: u32,
}

/// The right of one call to lock a slot for its owner. The kernel lets an owner lock a range twice and frees it
/// at the first unlock, so each owner keeps account of its slots.
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
