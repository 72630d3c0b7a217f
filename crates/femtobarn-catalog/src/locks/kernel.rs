//! The backend of a [`LockOwner`](super::LockOwner) on a host that has the federation's folder: locks of byte ranges,
//! kept by the kernel.
//!
//! 1. An owner holds a slot at most once ([`super::claim`]).
//! 2. A guard frees its lock when it is dropped, except in a forked child.
//! 3. An exclusive lock has a record of its holder, unless it was taken by `lock_unrecorded`.
//! 4. A lock counts only if its file is still the one of that name: [`remove_unused`] may have removed it since it was
//!    opened, and the next owner locks a new one.
//!
//! The files, slots and records are specified in the parent module.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::bells::Bells;
use super::claim::{OwnedFile, SlotClaim};
use super::file::{LockFile, LockKind, Span, names_in};
use super::monitor;
use super::target::{LockCatalogue, LockTarget, database_of_file};
use super::wait_queue::{self, Descent};
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::interrupts;

/// Files that an idle owner may keep open.
const IDLE_FILES_MAX: usize = 8;

/// The locks of a federation in the kernel of this host.
#[derive(Clone, Debug)]
pub(super) struct KernelBackend {
    /// The folder of the lock files.
    pub(super) folder: PathBuf,
    /// Without a catalogue, error texts show the numbers of databases and containers.
    pub(super) catalogue: Option<Arc<dyn LockCatalogue>>,
    /// The bells, opened at the first lock; `None` if that failed.
    bells: Arc<OnceLock<Option<Arc<Bells>>>>,
}

/// An owner of locks in the kernel.
///
/// It opens one lock file for each database, however many containers it locks there.
#[derive(Debug)]
pub(super) struct KernelOwner {
    files: Arc<OwnedFiles>,
}

/// The lock files that an owner has open.
#[derive(Debug)]
struct OwnedFiles {
    locks: KernelBackend,
    by_database: Mutex<HashMap<Option<DatabaseId>, Arc<OwnedFile>>>,
}

/// A lock in the kernel, until this is dropped or its process dies.
#[derive(Debug)]
pub(super) struct KernelGuard {
    claim: SlotClaim,
}

/// A wait for a lock in the kernel; dropping it ends the wait.
#[derive(Debug)]
pub(super) struct KernelWait {
    // Dropped first: its stairs belong to the claimed slot.
    descent: Descent,
    claim: SlotClaim,
    kind: LockKind,
    files: Arc<OwnedFiles>,
}

impl KernelBackend {
    pub(super) fn new(folder: PathBuf, catalogue: Option<Arc<dyn LockCatalogue>>) -> Self {
        KernelBackend { folder, catalogue, bells: Arc::default() }
    }

    fn bells(&self) -> Option<Arc<Bells>> {
        self.bells.get_or_init(|| Bells::open(&self.folder).map(Arc::new)).clone()
    }

    fn describe(&self, target: &LockTarget) -> String {
        let named = self.catalogue.as_ref().map(|catalogue| catalogue.describe(target));
        named.unwrap_or_else(|| target.to_string())
    }
}

impl KernelOwner {
    pub(super) fn new(locks: KernelBackend) -> Self {
        KernelOwner { files: Arc::new(OwnedFiles { locks, by_database: Mutex::default() }) }
    }

    /// Whether a next transaction may reuse this owner: it holds no lock, waits for none, keeps few files open, and
    /// was not inherited by a fork.
    pub(super) fn is_idle(&self) -> bool {
        let files = self.files.by_database.lock();
        let is_free = |owned: &Arc<OwnedFile>| owned.is_own() && owned.is_free();
        files.len() <= IDLE_FILES_MAX && files.values().all(is_free)
    }

    /// Takes an exclusive lock without a time-out, and without a record of the holder.
    pub(super) fn lock_unrecorded(&self, target: LockTarget) -> Result<KernelGuard> {
        loop {
            let claim = self.files.claim(target)?;
            claim.file().lock(LockKind::Exclusive, Span::hold(claim.slot()))?;
            let guard = KernelGuard { claim };
            if self.files.is_in_place(&guard)? {
                return Ok(guard);
            }
        }
    }

    /// Takes a lock in the order of arrival, and records the holder of an exclusive one. A lock on a database also
    /// excludes the clients of a server that has ended.
    ///
    /// # Errors
    /// [`Error::Busy`] with a holder after `wait`; [`Error::Closed`] if the caller ends the wait; [`Error::Invalid`] if
    /// this owner holds the lock already; for a database, those of the catalogue.
    pub(super) fn lock(
        &self,
        target: LockTarget,
        kind: LockKind,
        wait: Duration,
    ) -> Result<KernelGuard> {
        let locked: Result<_> = self.queue(target, kind)?.wait_while(wait, &mut interrupts::check);
        let guard = locked?;
        let catalogue = &self.files.locks.catalogue;
        if let (LockTarget::Database(database), Some(catalogue)) = (target, catalogue) {
            catalogue.fence_off_ended(database)?;
        }
        Ok(guard)
    }

    /// Begins to wait for a lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this owner holds the lock, or waits for it, already.
    pub(super) fn queue(&self, target: LockTarget, kind: LockKind) -> Result<KernelWait> {
        KernelWait::begin(&self.files, target, kind)
    }
}

impl OwnedFiles {
    fn claim(&self, target: LockTarget) -> Result<SlotClaim> {
        let file = self.file(&target)?;
        SlotClaim::of(&file, target).ok_or_else(|| {
            let what = self.locks.describe(&target);
            Error::invalid(format!("{what} is already locked by this owner"))
        })
    }

    fn file(&self, target: &LockTarget) -> Result<Arc<OwnedFile>> {
        let mut files = self.by_database.lock();
        if let Some(file) = files.get(&target.database()) {
            return Ok(Arc::clone(file));
        }
        let folder = &self.locks.folder;
        fs::create_dir_all(folder)
            .map_err(|error| Error::io("cannot create the folder", folder, error))?;
        let file = LockFile::open(&folder.join(target.file_name()))?;
        let file = Arc::new(OwnedFile::new(file, folder.clone(), self.locks.bells()));
        files.insert(target.database(), Arc::clone(&file));
        Ok(file)
    }

    /// Whether a lock that was just taken is in the file that other owners lock. A removed file is forgotten, so that the
    /// next claim opens the new one.
    fn is_in_place(&self, guard: &KernelGuard) -> Result<bool> {
        let locked = &guard.claim.file;
        let is_in_place = locked.file.is_in_place()?;
        if !is_in_place {
            self.by_database.lock().retain(|_, owned| !Arc::ptr_eq(owned, locked));
        }
        Ok(is_in_place)
    }
}

impl KernelWait {
    fn begin(files: &Arc<OwnedFiles>, target: LockTarget, kind: LockKind) -> Result<Self> {
        let claim = files.claim(target)?;
        let descent = Descent::new(&claim.file, target, kind);
        Ok(KernelWait { descent, claim, kind, files: Arc::clone(files) })
    }

    /// Advances in the queue as far as is possible now, without waiting. Returns the lock, or the wait to continue.
    ///
    /// # Errors
    /// [`Error::Io`] if the lock file cannot be used; then the wait is over.
    pub(super) fn step(mut self) -> Result<std::result::Result<KernelGuard, Self>> {
        if !self.descent.step()? {
            return Ok(Err(self));
        }
        drop(self.descent);
        let guard = KernelGuard { claim: self.claim };
        if !self.files.is_in_place(&guard)? {
            let target = guard.claim.target;
            drop(guard);
            return Self::begin(&self.files, target, self.kind)?.step();
        }
        if self.kind == LockKind::Exclusive {
            guard.claim.file().write_holder(guard.claim.slot())?;
        }
        Ok(Ok(guard))
    }

    /// Waits for at most `wait` in all, and only while `go_on`, which is called repeatedly, returns no error.
    ///
    /// # Errors
    /// [`Error::Busy`] with a holder after `wait`; the error of `go_on`; [`Error::Io`] if the lock file cannot be used.
    pub(super) fn wait_while<E: From<Error>>(
        self,
        wait: Duration,
        go_on: &mut dyn FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<KernelGuard, E> {
        let mut waits = self;
        loop {
            waits = match waits.step()? {
                Ok(guard) => return Ok(guard),
                Err(waits) => waits,
            };
            let left = wait.saturating_sub(waits.descent.waited());
            if left.is_zero() {
                return Err(waits.busy().into());
            }
            go_on()?;
            waits.descent.pause(left);
        }
    }

    /// How long to pause before the next step.
    pub(super) fn pause_length(&self) -> Duration {
        self.descent.pause_length()
    }

    /// The error for a caller that ends the wait now.
    pub(super) fn busy(&self) -> Error {
        let (file, target) = (self.claim.file(), &self.claim.target);
        let holder = match file.read_holder(self.claim.slot()) {
            Ok(None) => monitor::any_writer(file, target),
            known => known,
        };
        match holder {
            Ok(holder) => Error::Busy {
                what: self.files.locks.describe(target),
                holder: holder.map(Box::new),
                waited: self.descent.waited(),
            },
            Err(error) => error,
        }
    }
}

impl Drop for KernelGuard {
    fn drop(&mut self) {
        let (owned, slot) = (&self.claim.file, self.claim.slot());
        if !owned.is_own() {
            return;
        }
        owned.file.unlock(Span::hold(slot));
        wait_queue::ring_for(&self.claim.target, owned.bells.as_ref());
    }
}

/// Removes the files of databases that are not in `known`, except those in which a lock is held or waited for. Returns
/// the files that cannot be used or removed, with the reasons.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be listed.
pub(super) fn remove_unused(
    locks: &Path,
    known: &HashSet<DatabaseId>,
) -> Result<Vec<(String, Error)>> {
    let mut failed = vec![];
    for name in names_in(locks)? {
        let Some(Some(database)) = database_of_file(&name) else { continue };
        if known.contains(&database) {
            continue;
        }
        // With all bytes locked no owner has a lock, and the next one that takes one finds the file removed.
        let removed = LockFile::open(&locks.join(&name)).and_then(|file| file.remove_if_unused());
        failed.extend(removed.err().map(|error| (name, error)));
    }
    Ok(failed)
}
