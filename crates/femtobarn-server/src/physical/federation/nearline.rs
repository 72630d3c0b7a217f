//! The files of databases that may be in stores alone: on the disk, brought back to it, and their metadata meanwhile.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use femtobarn_archive::Recaller;
use femtobarn_catalog::{DatabaseId, Residence, ResidenceState};

use super::error::{WAIT_MAX, WAIT_MIN, archive_error};
use crate::physical::{
    FileKind, Hints, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile, WantedBy,
};

/// What the id of a file that is not on the disk has, and no inode number.
const OFFLINE_ID: u64 = 1 << 63;

/// The file of a database that left the disk, as somebody wants it.
pub(super) struct NearlineFile {
    /// The federation's folder.
    pub files: Arc<dyn Storage>,
    pub recaller: Arc<Recaller>,
    pub path: StoragePath,
    /// The database, for people.
    pub name: String,
    pub database: DatabaseId,
    /// How urgently it is wanted.
    pub hints: Hints,
}

impl NearlineFile {
    /// Opens it on the disk.
    ///
    /// # Errors
    /// `ENOENT` if it is not there.
    pub(super) fn on_disk(&self) -> StorageResult<Arc<dyn StoredFile>> {
        self.files.open(&self.path, OpenMode::default(), Opaque::default())
    }

    /// Asks for it to be brought back, and opens it if it is there.
    ///
    /// # Errors
    /// [`StorageError::NotBefore`] while it comes; `EIO` with the reason if it could not be brought back lately.
    pub(super) fn recalled(&self) -> StorageResult<Arc<dyn StoredFile>> {
        // Whoever opens files one by one waits for each, so they all count as one user.
        let Hints { priority, deadline, .. } = self.hints;
        match self.recaller.recall(self.database, WantedBy { user: "", priority, deadline }) {
            // It has come back meanwhile.
            Ok(None) => self.on_disk(),
            Ok(Some(wait)) => {
                let (name, seconds) = (&self.name, wait.as_secs().max(1));
                let what = format!(
                    "{name} is not on the disk; it comes back from its store, in about {seconds} s"
                );
                Err(StorageError::NotBefore(wait.clamp(WAIT_MIN, WAIT_MAX), what))
            }
            Err(error) => Err(archive_error("open", &self.name, error)),
        }
    }

    /// Whether a copy is in a store where readers may read it.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub(super) fn may_be_read_in_place(&self) -> StorageResult<bool> {
        let copies = self.recaller.archive().in_place(self.database);
        let copies = copies.map_err(|error| archive_error("look at", &self.name, error))?;
        Ok(!copies.is_empty())
    }

    /// Its metadata while it is not on the disk; none if it has no copy.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub(super) fn metadata(&self) -> StorageResult<Option<Metadata>> {
        let residence = self.recaller.archive().residence(self.database);
        let residence = residence.map_err(|error| archive_error("look at", &self.name, error))?;
        Ok(copy_metadata(self.database, &residence))
    }
}

/// The metadata of a database that is in a store alone; none if it is not.
pub(super) fn offline_metadata(database: DatabaseId, residence: &Residence) -> Option<Metadata> {
    if !matches!(residence.state(), ResidenceState::Nearline | ResidenceState::Staging) {
        return None;
    }
    copy_metadata(database, residence)
}

/// The metadata of a database as its copies tell them.
fn copy_metadata(database: DatabaseId, residence: &Residence) -> Option<Metadata> {
    let copy = residence.replicas.iter().find(|replica| replica.is_complete())?;
    let changed = UNIX_EPOCH + Duration::from_micros(copy.changed_us.try_into().unwrap_or(0));
    Some(Metadata {
        kind: FileKind::File,
        id: OFFLINE_ID | u64::from(database.0),
        size: copy.size,
        modified: changed,
        changed,
        accessed: changed,
        mode: 0o444,
        owner: "".into(),
        group: "".into(),
        is_readable: true,
        is_writable: false,
        is_online: false,
        is_backed_up: true,
    })
}
