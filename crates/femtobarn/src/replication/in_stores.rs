//! Files of databases that the leader's stores have, and that are not on the disk here.
//!
//! 1. Such a file is copied beside its place, synced, and renamed into its place: readers find all of it or nothing.
//! 2. The database's lock is held meanwhile, so no other process stages the file from a store at the same time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn_archive::{remove_staged, staging_path};
use femtobarn_catalog::{DatabaseId, DiskState, LocalCatalogue, LockGuard, LockOwner};

use crate::error::{Error, Result};
use crate::storage::{file, places};

/// How long a step waits for a local process that moves the same file.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The lock of a database whose file is not on the disk here.
struct AbsentFile {
    _owner: LockOwner,
    _lock: LockGuard,
}

impl AbsentFile {
    /// `None` if the file is on the disk.
    fn lock(here: &LocalCatalogue, database: DatabaseId) -> Result<Option<Self>> {
        let owner = here.locks().owner();
        let lock = owner.lock_database_exclusive(database, LOCK_WAIT)?;
        let is_absent = here.residence(database)?.disk != DiskState::Online;
        Ok(is_absent.then_some(AbsentFile { _owner: owner, _lock: lock }))
    }
}

/// Removes a database's old file, from before it was in stores alone, that an interrupted step has left.
///
/// # Errors
/// `Busy` if a local process moves the file; `Io` if it cannot be removed.
pub(super) fn remove_remnant(
    here: &LocalCatalogue,
    database: DatabaseId,
    path: &Path,
) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    match AbsentFile::lock(here, database)? {
        Some(_locked) => file::remove_if_there(path),
        None => Ok(()),
    }
}

/// A file on its way to its place.
pub(super) struct ReturningFile {
    place: PathBuf,
    part: PathBuf,
    _lock: AbsentFile,
}

impl ReturningFile {
    /// Begins; `None` if a local process has staged the file meanwhile.
    ///
    /// # Errors
    /// `Busy` if a local process moves the file; `Io` if the remains of earlier attempts cannot be removed.
    pub(super) fn begin(
        here: &LocalCatalogue,
        database: DatabaseId,
        place: &Path,
    ) -> Result<Option<Self>> {
        let Some(lock) = AbsentFile::lock(here, database)? else { return Ok(None) };
        places::make_folder_of(place)?;
        remove_staged(place)?;
        let (place, part) = (place.to_owned(), staging_path(place));
        Ok(Some(ReturningFile { place, part, _lock: lock }))
    }

    /// Where it is copied to.
    pub(super) fn part(&self) -> &Path {
        &self.part
    }

    /// Puts the file, which was synced, into its place.
    pub(super) fn end(self) -> Result<()> {
        std::fs::rename(&self.part, &self.place)
            .map_err(|error| Error::io("rename", &self.part, error))
    }
}

impl Drop for ReturningFile {
    fn drop(&mut self) {
        // A remainder has a name that no process takes for the database's file; the next attempt removes it.
        let _ = file::remove_if_there(&self.part);
    }
}
