//! Databases that are in stores alone: their metadata, and bringing them back.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_archive::Error as ArchiveError;
use femtobarn_catalog::{DatabaseId, DatabaseRow, ErrorKind, FilePin, Residence, ResidenceState};
use nix::errno::Errno;

use super::error::catalogue_error;
use super::storage::FederationStorage;
use crate::physical::{
    FileKind, Hints, Metadata, Opaque, StorageError, StoragePath, StorageResult, StoredFile,
    WantedBy,
};

/// A client that waits comes again at least this often, so that it learns soon when the file is there.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAIT_MIN: Duration = Duration::from_secs(1);
/// What the id of a file that is not on the disk has, and no inode number.
const OFFLINE_ID: u64 = 1 << 63;

impl FederationStorage {
    /// Where a database's file is; none if the federation has no stores.
    pub(super) fn residence(&self, row: &DatabaseRow) -> StorageResult<Option<Residence>> {
        let Some(recaller) = &self.recaller else { return Ok(None) };
        let residence = recaller.archive().residence(row.id);
        residence.map(Some).map_err(|error| archive_error("look at", &row.name, error))
    }

    /// Asks for a database; the time until it is on the disk, none if it is there.
    pub(super) fn recall(
        &self,
        row: &DatabaseRow,
        wanted: WantedBy<'_>,
    ) -> StorageResult<Option<Duration>> {
        let Some(recaller) = &self.recaller else { return Ok(None) };
        recaller.recall(row.id, wanted).map_err(|error| archive_error("stage", &row.name, error))
    }

    /// Removes a database's file from the disk, if its copies and pins allow it.
    pub(super) fn evict_database(&self, row: &DatabaseRow) -> StorageResult<()> {
        let Some(recaller) = &self.recaller else { return Ok(()) };
        let evicted = recaller.archive().evict(row.id, &mut |_| true);
        evicted.map(drop).map_err(|error| archive_error("evict", &row.name, error))
    }

    /// Pins the files of databases to the disk until a time, or ends these pins.
    pub(super) fn pin_databases(
        &self,
        databases: &[DatabaseId],
        holder: &str,
        until: Option<SystemTime>,
    ) -> StorageResult<()> {
        let Some(recaller) = &self.recaller else { return Ok(()) };
        let since_1970 = |until: SystemTime| until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until_us =
            until.map(|until| since_1970(until).as_micros().try_into().unwrap_or(i64::MAX));
        let archive = recaller.archive();
        let pinned = if until_us.is_some() {
            archive.pin_all(databases, &FilePin { holder: holder.to_owned(), until_us })
        } else {
            archive.unpin_all(databases, holder)
        };
        pinned.map_err(|error| archive_error("pin", &holder, error))
    }

    /// Opens a file. A client whose database is in a store alone is told to come again, and the database comes back.
    pub(super) fn open_or_recall(
        &self,
        open: impl Fn() -> StorageResult<Arc<dyn StoredFile>>,
        name: &impl Display,
        opaque: Opaque<'_>,
        database: impl Fn() -> StorageResult<Option<DatabaseId>>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let failed = match open() {
            Err(error @ StorageError::Refused(Errno::ENOENT, _)) => error,
            opened => return opened,
        };
        let Some((recaller, database)) = self.recaller.as_ref().zip(database()?) else {
            return Err(failed);
        };
        // Whoever opens files one by one waits for each, so they all count as one user.
        let Hints { priority, deadline, .. } = Hints::of(opaque);
        match recaller.recall(database, WantedBy { user: "", priority, deadline }) {
            // It has come back meanwhile.
            Ok(None) => open(),
            Ok(Some(wait)) => {
                let seconds = wait.as_secs().max(1);
                let what = format!(
                    "{name} is not on the disk; it comes back from its store, in about {seconds} s"
                );
                Err(StorageError::NotBefore(wait.clamp(WAIT_MIN, WAIT_MAX), what))
            }
            Err(error) => Err(archive_error("open", name, error)),
        }
    }

    /// The database that a file is of, by its path below the federation's folder.
    pub(super) fn database_of_file(&self, path: &StoragePath) -> StorageResult<Option<DatabaseId>> {
        let below = String::from_utf8_lossy(&path.as_bytes()[1..]);
        let found = self.catalogue.local().and_then(|local| local.database_of_file(&below));
        found.map_err(|error| catalogue_error("look for", path, error))
    }
}

/// The metadata of a database that is in a store alone.
pub(super) fn offline_metadata(row: &DatabaseRow, residence: &Residence) -> Option<Metadata> {
    if !matches!(residence.state(), ResidenceState::Nearline | ResidenceState::Staging) {
        return None;
    }
    let copy = residence.replicas.iter().find(|replica| replica.is_complete())?;
    let changed = UNIX_EPOCH + Duration::from_micros(copy.changed_us.try_into().unwrap_or(0));
    Some(Metadata {
        kind: FileKind::File,
        id: OFFLINE_ID | u64::from(row.id.0),
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

fn archive_error(what: &str, name: &impl Display, error: ArchiveError) -> StorageError {
    let errno = match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Busy => Errno::EBUSY,
        ErrorKind::Denied => Errno::EPERM,
        ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::Invalid => Errno::EINVAL,
        _ => Errno::EIO,
    };
    match error {
        ArchiveError::Catalogue(error) => catalogue_error(what, name, error),
        ArchiveError::NotBefore { wait, what } => {
            StorageError::NotBefore(wait.clamp(WAIT_MIN, WAIT_MAX), what)
        }
        other => StorageError::refused(errno, format!("cannot {what} {name}: {other}")),
    }
}
