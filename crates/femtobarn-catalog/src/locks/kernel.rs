//! Owners of locks in the kernel, and the guards that hold them.

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
use crate::ids::DatabaseId;
use crate::local::Labels;

/// Files that an owner may have open while nobody uses it.
const IDLE_FILES_MAX: usize = 8;

/// An owner whose locks are those of open files.
///
/// It opens one file for each database, however many containers it locks.
#[derive(Debug)]
pub(super) struct KernelOwner {
    folder: PathBuf,
    labels: Option<Labels>,
    files: Mutex<HashMap<Option<DatabaseId>, Arc<HeldFile>>>,
}

/// A lock of the kernel, until this is dropped or its process dies.
#[derive(Debug)]
pub(super) struct KernelGuard {
    claim: Claim,
    is_signed: bool,
}

impl KernelOwner {
    pub(super) fn new(folder: PathBuf, labels: Option<Labels>) -> Self {
        KernelOwner { folder, labels, files: Mutex::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        let files = lock(&self.files);
        let is_free =
            |held: &Arc<HeldFile>| held.pid == host::process_id() && lock(&held.slots).is_empty();
        files.len() <= IDLE_FILES_MAX && files.values().all(is_free)
    }

    /// Waits in the kernel's queue, as long as it takes, and does not sign.
    pub(super) fn lock_unsigned(&self, target: LockTarget) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        claim.file().lock(Kind::Exclusive, Span::hold(claim.slot()))?;
        Ok(KernelGuard { claim, is_signed: false })
    }

    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: Kind,
        wait: Duration,
    ) -> Result<KernelGuard> {
        let claim = self.claim(target)?;
        if let Err(waited) = wait::acquire(claim.file(), kind, &target, &self.folder, wait)? {
            let holder = match claim.file().read_holder(claim.slot())? {
                Some(holder) => Some(holder),
                None => monitor::any_writer(claim.file(), &target)?,
            };
            let (what, holder) = (self.label(&target), holder.map(Box::new));
            return Err(Error::Busy { what, holder, waited });
        }
        let is_signed = kind == Kind::Exclusive;
        let guard = KernelGuard { claim, is_signed };
        if is_signed {
            guard.claim.file().write_holder(guard.claim.slot())?;
        }
        Ok(guard)
    }

    fn label(&self, target: &LockTarget) -> String {
        self.labels.as_ref().map_or_else(|| target.to_string(), |labels| labels.label(target))
    }

    fn claim(&self, target: LockTarget) -> Result<Claim> {
        let held = self.file(&target)?;
        if !lock(&held.slots).insert(target.slot()) {
            return Err(Error::invalid(format!(
                "{} is already locked by this owner",
                self.label(&target)
            )));
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

impl Drop for KernelGuard {
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
