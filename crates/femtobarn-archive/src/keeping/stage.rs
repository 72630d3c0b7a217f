//! Staging: brings a file back from a store to the disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn_catalog::{
    DatabaseId, DatabaseRow, DiskState, ErrorKind, ReplicaRow, ReplicaState, Residence,
};

use super::archive::Archive;
use super::lease::UnusedFile;
use super::migrate::{ATTEMPT_LETTERS, attempt};
use crate::error::{Error, Result};
use crate::stores::{ByteWatch, checksum, remove_if_there};

/// The suffix in the name of a file that is being staged.
const STAGING: &str = ".staging";

impl Archive {
    /// Brings a database's file back to the disk; returns at once if it is there. Waits up to `lock_wait` for another
    /// process that moves it.
    ///
    /// A copy that turns out to be bad or missing is recorded as lost, and the next copy is taken.
    ///
    /// # Errors
    /// `Busy` if another process moves it for longer than `lock_wait`; `NotFound` or `Corrupt` if no copy is left;
    /// `Full` if the disk is full; otherwise the errors of the last store that was asked.
    pub fn stage(
        &self,
        database: DatabaseId,
        lock_wait: Duration,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let row = self.local()?.any_database_by_id(database)?;
        let path = self.path_of(&row);
        if path.is_file() && self.residence(database)?.disk == DiskState::Online {
            return Ok(());
        }
        let (_lock, row) = self.lock(database, lock_wait, watch)?;
        let residence = self.residence(database)?;
        let is_there = path.is_file();
        if is_there && residence.disk == DiskState::Online {
            return Ok(());
        }
        // It was never removed, or renamed into place before a crash, or it is the file that a follower had before.
        if !(is_there && is_known(&path, &residence, watch)?) {
            if residence.replicas.iter().all(|replica| replica.state == ReplicaState::Migrating) {
                return Err(lost(&row));
            }
            self.local()?.record_disk_state(database, DiskState::Staging)?;
            if let Err(error) = self.bring(&row, &residence, &path, watch) {
                let before = match residence.disk {
                    DiskState::Online => DiskState::Online,
                    DiskState::Staging | DiskState::Evicted => DiskState::Evicted,
                };
                // If this cannot be recorded, the row still states that the file is being staged.
                let _ = self.local()?.record_disk_state(database, before);
                return Err(error);
            }
        }
        Ok(self.local()?.record_disk_state(database, DiskState::Online)?)
    }

    /// Takes the first copy that can be fetched; copies recorded as lost are tried last, and are complete again if they
    /// are good.
    fn bring(
        &self,
        row: &DatabaseRow,
        residence: &Residence,
        path: &Path,
        watch: &mut ByteWatch<'_>,
    ) -> Result<()> {
        let mut failed = None;
        let mut replicas: Vec<&ReplicaRow> = residence.replicas.iter().collect();
        replicas.retain(|replica| replica.state != ReplicaState::Migrating);
        replicas.sort_by_key(|replica| !replica.is_complete());
        for replica in replicas {
            match self.fetch(replica, path, watch) {
                Ok(()) if replica.is_complete() => return Ok(()),
                Ok(()) => return self.note_state(replica, ReplicaState::Complete),
                Err(error @ (Error::Stopped { .. } | Error::Full { .. })) => return Err(error),
                Err(error) => {
                    if error.is_about_the_copy() && replica.is_complete() {
                        self.note_state(replica, ReplicaState::Lost)?;
                    }
                    // A failure that may be temporary says more than a bad copy.
                    let is_better = failed.as_ref().is_none_or(Error::is_about_the_copy);
                    failed = if is_better { Some(error) } else { failed };
                }
            }
        }
        Err(failed.unwrap_or_else(|| lost(row)))
    }

    /// Records the state of a copy, except in a follower, where only the leader may record it.
    fn note_state(&self, replica: &ReplicaRow, state: ReplicaState) -> Result<()> {
        match self.record_state(replica, state) {
            Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
            noted => noted,
        }
    }

    /// Fetches a copy beside its place, compares it with the checksum of the migrated file, and renames it into place.
    fn fetch(&self, replica: &ReplicaRow, path: &Path, watch: &mut ByteWatch<'_>) -> Result<()> {
        let store = self.store(&replica.store)?;
        // The remains of an earlier attempt, or a file that its command, still alive, writes to.
        remove_staged(path)?;
        let staging = staging_path(path);
        let mut fetched = || {
            remove_if_there(&staging)?;
            let mut is_too_long = false;
            let got = store.get(&replica.key, &staging, &mut |done| {
                is_too_long |= done > replica.size;
                !is_too_long && watch(done)
            });
            match got {
                Err(Error::Stopped { .. }) if is_too_long => {
                    let (place, size) = (store.place(), replica.size);
                    let what =
                        format!("{place} returned more than the {size} bytes of {}", replica.key);
                    return Err(Error::Corrupt { what });
                }
                got => got?,
            }
            if UnusedFile::of(&staging)?.is_none() {
                let what = format!("{} still has {} open", store.place(), staging.display());
                return Err(Error::Unavailable { what });
            }
            let (size, sum) = checksum(&staging, &mut |_| watch(replica.size))?;
            if (size, &sum) != (replica.size, &replica.checksum) {
                let what = format!(
                    "{} returned {size} bytes with {sum} for {}, but {} bytes with {} were written",
                    store.place(),
                    replica.key,
                    replica.size,
                    replica.checksum
                );
                return Err(Error::Corrupt { what });
            }
            let synced = File::open(&staging).and_then(|file| file.sync_all());
            synced.map_err(|error| Error::io("sync", &staging, error))?;
            fs::rename(&staging, path).map_err(|error| Error::io("rename", &staging, error))?;
            sync_folder_of(path)
        };
        let fetched = fetched();
        if fetched.is_err() {
            // A part that stays is removed by the next attempt.
            let _ = remove_if_there(&staging);
        }
        fetched
    }
}

/// Whether a file is the one that was copied, even to copies that are recorded as lost.
fn is_known(path: &Path, residence: &Residence, watch: &mut ByteWatch<'_>) -> Result<bool> {
    let was_copied = |replica: &&ReplicaRow| replica.state != ReplicaState::Migrating;
    let mut copies = residence.replicas.iter().filter(was_copied);
    let (size, sum) = checksum(path, &mut |_| watch(0))?;
    Ok(copies.any(|replica| (replica.size, &replica.checksum) == (size, &sum)))
}

fn lost(row: &DatabaseRow) -> Error {
    let what = format!(
        "the file of database {:?} is not on the disk, and no store has it; is the disk of its place mounted? \
         otherwise only a backup can have it",
        row.name
    );
    Error::NotFound { what }
}

/// A new name, different each time, for a file while it is being staged.
pub fn staging_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}{STAGING}", attempt()));
    PathBuf::from(name)
}

/// Removes the remains of attempts to stage a file. The caller holds the database's lock.
///
/// # Errors
/// `Io` if the folder cannot be read, or a file cannot be removed.
pub fn remove_staged(path: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| Error::io("list", folder, error))?,
    };
    for entry in entries.flatten() {
        let other = entry.file_name();
        let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let is_of_it = rest.is_some_and(|rest| {
            rest.len() == 1 + ATTEMPT_LETTERS + STAGING.len() && rest.starts_with(b".")
        });
        if is_of_it && is_staging_path(Path::new(&other)) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a path is the name of a file that is being staged.
pub fn is_staging_path(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(STAGING.as_bytes())
}

pub(super) fn sync_folder_of(path: &Path) -> Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io("sync", folder, error))
}
