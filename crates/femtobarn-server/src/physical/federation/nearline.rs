//! The files of databases that may be nearline: bringing them back to the disk, and their metadata meanwhile.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use femtobarn_archive::Recaller;
use femtobarn_catalog::{DatabaseId, Residence, ResidenceState};

use super::error::{WAIT_MAX, WAIT_MIN, archive_error};
use crate::physical::{
    FileKind, Hints, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile, WantedBy,
};

/// The bit in the id of a file that is not on the disk, which no inode number has.
const OFFLINE_ID: u64 = 1 << 63;

/// The file of an evicted database that a client requests.
pub(super) struct NearlineFile {
    /// The federation's folder.
    pub files: Arc<dyn Storage>,
    pub recaller: Arc<Recaller>,
    pub path: StoragePath,
    /// The database, for people.
    pub name: String,
    pub database: DatabaseId,
    /// The client's hints, which have its urgency.
    pub hints: Hints,
}

impl NearlineFile {
    /// Opens the file on the disk.
    ///
    /// # Errors
    /// `ENOENT` if it is not on the disk.
    pub(super) fn on_disk(&self) -> StorageResult<Arc<dyn StoredFile>> {
        self.files.open(&self.path, OpenMode::default(), Opaque::default())
    }

    /// Asks for the file to be brought back, and opens it if it is on the disk.
    ///
    /// # Errors
    /// [`StorageError::NotBefore`] while it is brought back; `EIO` with the reason if that failed recently.
    pub(super) fn recalled(&self) -> StorageResult<Arc<dyn StoredFile>> {
        // A client that opens files one by one waits for each, so all such clients count as one user.
        let Hints { priority, deadline, .. } = self.hints;
        match self.recaller.recall(self.database, WantedBy { user: "", priority, deadline }) {
            // The file has arrived meanwhile.
            Ok(None) => self.on_disk(),
            Ok(Some(wait)) => {
                let (name, seconds) = (&self.name, wait.as_secs().max(1));
                let what = format!(
                    "{name} is not on the disk; it is being recalled from its store, which takes about {seconds} s"
                );
                Err(StorageError::NotBefore(wait.clamp(WAIT_MIN, WAIT_MAX), what))
            }
            Err(error) => Err(archive_error("open", &self.name, error)),
        }
    }

    /// Whether a copy is in a store in which readers may read.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub(super) fn may_be_read_in_place(&self) -> StorageResult<bool> {
        let copies = self.recaller.archive().in_place(self.database);
        let copies = copies.map_err(|error| archive_error("look at", &self.name, error))?;
        Ok(!copies.is_empty())
    }

    /// The metadata while the file is not on the disk; `None` if it has no copy.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub(super) fn metadata(&self) -> StorageResult<Option<Metadata>> {
        let residence = self.recaller.archive().residence(self.database);
        let residence = residence.map_err(|error| archive_error("look at", &self.name, error))?;
        Ok(copy_metadata(self.database, &residence))
    }
}

/// The metadata of a nearline database; `None` if the database is not nearline.
pub(super) fn offline_metadata(database: DatabaseId, residence: &Residence) -> Option<Metadata> {
    if !matches!(residence.state(), ResidenceState::Nearline | ResidenceState::Staging) {
        return None;
    }
    copy_metadata(database, residence)
}

/// The metadata of a database, from its copies.
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
