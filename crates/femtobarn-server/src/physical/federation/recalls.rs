//! Nearline databases: reading them in their stores, and bringing them back.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{DatabaseId, DatabaseRow, FilePin, Residence};
use nix::errno::Errno;

use super::error::{archive_error, catalogue_error};
use super::in_place::InPlaceFile;
use super::nearline::NearlineFile;
use super::storage::FederationStorage;
use crate::physical::{
    Hints, Metadata, Opaque, OpenMode, StorageError, StoragePath, StorageResult, StoredFile,
    WantedBy,
};

/// How long a client waits for the outcome of an eviction.
const EVICTION_WAIT: Duration = Duration::from_secs(2);

impl FederationStorage {
    /// The residence of a database's file; `None` if the federation has no stores.
    pub(super) fn residence(&self, row: &DatabaseRow) -> StorageResult<Option<Residence>> {
        let Some(recaller) = &self.recaller else { return Ok(None) };
        let residence = recaller.archive().residence(row.id);
        residence.map(Some).map_err(|error| archive_error("look at", &row.name, error))
    }

    /// Asks for a database; returns the time until it is on the disk, `None` if it is there already.
    pub(super) fn recall(
        &self,
        row: &DatabaseRow,
        wanted: WantedBy<'_>,
    ) -> StorageResult<Option<Duration>> {
        let Some(recaller) = &self.recaller else { return Ok(None) };
        recaller.recall(row.id, wanted).map_err(|error| archive_error("stage", &row.name, error))
    }

    /// Removes a database's file from the disk, if its copies and pins allow it; later if its stores are slow to
    /// confirm the copies.
    pub(super) fn evict_database(&self, row: &DatabaseRow) -> StorageResult<()> {
        let Some(recaller) = &self.recaller else { return Ok(()) };
        let evicted = recaller.evictor().evict(row.id, EVICTION_WAIT);
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

    /// Opens a database's file in the federation's folder. A nearline file is read in its store if one allows that;
    /// otherwise it is brought back, and the client is asked to retry.
    pub(super) fn open_or_recall(
        &self,
        path: &StoragePath,
        name: &impl Display,
        opaque: Opaque<'_>,
        database: impl Fn() -> StorageResult<Option<DatabaseId>>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let failed = match self.files.open(path, OpenMode::default(), opaque) {
            Err(error @ StorageError::Refused(Errno::ENOENT, _)) => error,
            opened => return opened,
        };
        let Some(database) = database()? else { return Err(failed) };
        let Some(file) = self.nearline_file(path, name, Hints::of(opaque), database) else {
            return Err(failed);
        };
        match self.in_place(&file)? {
            Some(opened) => Ok(opened),
            None => file.recalled(),
        }
    }

    /// The file of a database that may be nearline; `None` if the federation has no stores.
    fn nearline_file(
        &self,
        path: &StoragePath,
        name: &impl Display,
        hints: Hints,
        database: DatabaseId,
    ) -> Option<Arc<NearlineFile>> {
        let recaller = Arc::clone(self.recaller.as_ref()?);
        let (files, path, name) = (Arc::clone(&self.files), path.clone(), name.to_string());
        Some(Arc::new(NearlineFile { files, recaller, path, name, database, hints }))
    }

    /// Opens a database's file in a store that has it at hand; `None` if readers have to wait for it.
    fn in_place(&self, file: &Arc<NearlineFile>) -> StorageResult<Option<Arc<dyn StoredFile>>> {
        let Some(stores) = &self.in_place else { return Ok(None) };
        let opened = InPlaceFile::open(stores, Arc::clone(file))?;
        Ok(opened.map(|file| Arc::new(file) as Arc<dyn StoredFile>))
    }

    /// Opens a nearline database as [`open_or_recall`](Self::open_or_recall) does, but only for looking at it, which
    /// does not bring it back.
    pub(super) fn open_in_place(
        &self,
        row: &DatabaseRow,
    ) -> StorageResult<Option<Arc<dyn StoredFile>>> {
        let path = StoragePath::new(format!("/{}", row.path).as_bytes())?;
        let file = self.nearline_file(&path, &row.name, Hints::default(), row.id);
        file.map_or(Ok(None), |file| self.in_place(&file))
    }

    /// The metadata of a database's file in the federation's folder, or of its copies if it is read there.
    pub(super) fn raw_metadata(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<Metadata> {
        self.redirect_raw(path, opaque)?;
        let failed = match self.files.metadata(path, Opaque::default()) {
            Err(error @ StorageError::Refused(Errno::ENOENT, _)) if self.in_place.is_some() => {
                error
            }
            found => return found,
        };
        let Some(database) = self.database_of_file(path)? else { return Err(failed) };
        let Some(file) = self.nearline_file(path, path, Hints::default(), database) else {
            return Err(failed);
        };
        if file.may_be_read_in_place()? { file.metadata()?.ok_or(failed) } else { Err(failed) }
    }

    /// The database of a file, by the file's path below the federation's folder.
    pub(super) fn database_of_file(&self, path: &StoragePath) -> StorageResult<Option<DatabaseId>> {
        let below = String::from_utf8_lossy(&path.as_bytes()[1..]);
        let found = self.catalogue.local().and_then(|local| local.database_of_file(&below));
        found.map_err(|error| catalogue_error("look for", path, error))
    }
}
