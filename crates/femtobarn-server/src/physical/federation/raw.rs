//! Access of Femtobarn's clients to databases' files as they are on disk (`fb.raw=1`).

use std::sync::Arc;

use femtobarn_catalog::{Csn, DatabaseId, ErrorKind};
use nix::errno::Errno;

use super::error::{catalogue_error, read_only_error};
use super::guarded::{GuardedFile, Writers};
use super::request::{
    csn_of, database_of, is_below_databases, is_file_of, is_for_this_server, session_of,
};
use super::storage::FederationStorage;
use crate::physical::{
    Creation, Opaque, OpenMode, StorageError, StoragePath, StorageResult, StoredFile,
};

impl FederationStorage {
    /// Opens a database's file as it is on disk.
    pub(super) fn open_raw(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if how.write {
            return self.open_to_write(path, how, opaque);
        }
        if is_below_databases(path) {
            if !is_for_this_server(opaque) {
                self.redirect_raw(path, opaque)?;
            }
            let database = || self.database_of_file(path);
            return self.open_or_recall(path, path, opaque, database);
        }
        let at = match csn_of(&opaque) {
            Some(csn) => csn,
            None => self.catalogue.head().map_err(|error| catalogue_error("open", path, error))?,
        };
        self.file_of(&self.database(path, at)?, opaque)
    }

    /// Redirects a client that wants the file of a database at another server, committed or not.
    pub(super) fn redirect_raw(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        if !self.writers.as_ref().is_some_and(|writers| writers.has_others()) {
            return Ok(());
        }
        let database = match database_of(&opaque) {
            None => self.database_of_file(path)?,
            named => named,
        };
        // Without a database, only the client's `fb.home` names the server of a file.
        self.redirect(database.unwrap_or_default(), opaque)
    }

    /// Opens a database's file for writing, or creates one for a new database. A path that belongs to any database,
    /// even a dropped or renamed one, is refused with `EEXIST`, whether its file exists or not.
    fn open_to_write(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let is_one = matches!(how.creation, Creation::Existing | Creation::New);
        let Some(writers) = self.writers.as_ref().filter(|_| is_one && is_below_databases(path))
        else {
            return Err(read_only_error("write", path));
        };
        self.redirect_raw(path, opaque)?;
        if how.creation == Creation::New && self.is_taken(path, opaque)? {
            return Err(StorageError::cannot("create", path, Errno::EEXIST));
        }
        let database = self.database_to_write(path, opaque)?;
        let permit = writers.admit(session_of(&opaque), database)?;
        if how.creation == Creation::Existing {
            let file = self.files.open(path, how, opaque)?;
            return Ok(Arc::new(GuardedFile { file, permit }));
        }
        let mut new = None;
        permit.during(&mut || {
            new = Some(self.files.open(path, how, opaque)?);
            writers.file_created(path, database);
            Ok(())
        })?;
        let file = new.ok_or_else(|| StorageError::cannot("create", path, Errno::EIO))?;
        Ok(Arc::new(GuardedFile { file, permit }))
    }

    /// Removes a file that belongs to no database. If it belongs to an uncommitted one, only the writer of that
    /// database may.
    pub(super) fn remove_raw(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        self.redirect_raw(path, opaque)?;
        let remove = || {
            if self.is_file_of_a_database(path)? {
                Err(read_only_error("remove a database's file:", path))
            } else {
                self.files.remove_file(path, Opaque::default())
            }
        };
        let uncommitted = |writers: &Arc<dyn Writers>| {
            Some((writers.clone(), writers.uncommitted_database(path)?))
        };
        let Some((writers, database)) = self.writers.as_ref().and_then(uncommitted) else {
            return remove();
        };
        if database_of(&opaque) != Some(database) {
            return Err(read_only_error("remove the file of an uncommitted database:", path));
        }
        let permit = writers.admit(session_of(&opaque), database)?;
        permit.during(&mut || {
            remove()?;
            writers.file_removed(path);
            Ok(())
        })
    }

    /// The database that the writer names, if the file belongs to it or to no other one.
    fn database_to_write(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<DatabaseId> {
        let Some(database) = database_of(&opaque) else {
            let what = format!("cannot write {path}: fb.database is missing or not a number");
            return Err(StorageError::refused(Errno::EINVAL, what));
        };
        let refused = |error| catalogue_error("write", path, error);
        let is_its_own = match self.catalogue.database_by_id(database, Csn::MAX) {
            Ok(row) => is_file_of(&row, path),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let uncommitted =
                    self.writers.as_ref().and_then(|writers| writers.uncommitted_database(path));
                uncommitted.is_none_or(|of| of == database) && !self.is_file_of_a_database(path)?
            }
            Err(error) => return Err(refused(error)),
        };
        if is_its_own {
            Ok(database)
        } else {
            let what = format!("cannot write {path}: it is not the file of database {database}");
            Err(StorageError::refused(Errno::EINVAL, what))
        }
    }

    /// Whether a path belongs to another database, committed or not.
    fn is_taken(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<bool> {
        let uncommitted =
            self.writers.as_ref().and_then(|writers| writers.uncommitted_database(path));
        Ok(uncommitted.is_some_and(|of| database_of(&opaque) != Some(of))
            || self.is_file_of_a_database(path)?)
    }

    /// Whether a file belongs to a database, or to a dropped one that a snapshot still needs.
    fn is_file_of_a_database(&self, path: &StoragePath) -> StorageResult<bool> {
        let below = String::from_utf8_lossy(&path.as_bytes()[1..]);
        let catalog = self.catalogue.local();
        let known = catalog.and_then(|catalog| catalog.is_file_of_a_database(&below));
        known.map_err(|error| catalogue_error("look for", path, error))
    }
}
