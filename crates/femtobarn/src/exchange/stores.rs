//! Databases in stores: copied there, brought back, and removed from the disk.
//!
//! [`femtobarn_archive`] moves the files; this module resolves names, reports progress, and closes this process's open
//! files.

use std::time::Duration;

use femtobarn_archive::{Applied, Archive};
use femtobarn_catalog::{Csn, DatabaseRow, FilePin, ReplicaRow, Residence};

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::federation::Federation;
use crate::progress::Watch;
use crate::storage::nearline::{self, moving};

impl Federation {
    /// Copies a sealed database to a store that the federation's `storage.toml` names, and returns the copy. Returns at
    /// once if a complete copy exists.
    ///
    /// # Errors
    /// `NotFound` for an unknown database or store; `Invalid` if the database is not sealed or not on the disk, or the
    /// settings are wrong; `Busy` while another process moves it; `Corrupt` if the bytes in the store differ after the
    /// copy; `Unavailable`, `Denied` or `Full` if the store reports so; `Closed` if `progress` stops it. After an error
    /// there is no copy.
    pub fn migrate(&self, name: &str, store: &str, progress: &mut Watch<'_>) -> Result<ReplicaRow> {
        let (archive, row) = self.archived(name)?;
        let size = self.inner.path_of(&row).metadata().map_or(0, |metadata| metadata.len());
        let mut report = moving("migrating", name, size, progress);
        Ok(archive.migrate(row.id, store, &mut report)?)
    }

    /// Brings a database's file back to the disk; returns at once if it is on the disk. Waits up to `lock_wait` while
    /// another process moves it.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, or if no copy is left; `Busy` after `lock_wait`; `Corrupt` if all copies are
    /// damaged; `Unavailable`, `Denied` or `Full` if the store or the disk reports so; `Closed` if `progress` stops it.
    pub fn stage(&self, name: &str, lock_wait: Duration, progress: &mut Watch<'_>) -> Result<()> {
        let row = self.inner.local()?.database(name, Csn::MAX)?;
        nearline::stage(&self.inner.catalog, &row, lock_wait, progress)?;
        // Readers that read the copy in a store continue with the file on the disk.
        self.inner.files.close(row.id);
        Ok(())
    }

    /// Makes readers of this federation stage databases that are in stores alone; otherwise they get
    /// [`Error::Nearline`]. `staging` receives the operation, calls it with a watch, and returns its result. Only the
    /// first call of this function has an effect.
    pub fn stage_for_readers(
        &self,
        staging: impl Fn(&mut dyn FnMut(&mut Watch<'_>) -> Result<()>) -> Result<()>
        + Send
        + Sync
        + 'static,
    ) {
        self.inner.files.stage_for_readers(Box::new(staging));
    }

    /// Removes a database's file from the disk, and returns the number of bytes freed. Readers stage it again.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Denied` if it is pinned, or has fewer complete copies than its rule demands (at
    /// least one); `Busy` if a process has it open or moves it; `Invalid` if it is not sealed; `Closed` if `progress`
    /// stops it.
    pub fn evict(&self, name: &str, progress: &mut Watch<'_>) -> Result<u64> {
        let (archive, row) = self.archived(name)?;
        self.inner.files.close(row.id);
        Ok(archive.evict(row.id, &mut moving("evicting", name, 0, progress))?)
    }

    /// Discards the copy of a database in a store.
    ///
    /// # Errors
    /// `NotFound` for an unknown database or store, or if there is no copy; `Denied` if the file is not on the disk and
    /// this is the only copy; `Closed` if `progress` stops it.
    pub fn discard_copy(&self, name: &str, store: &str, progress: &mut Watch<'_>) -> Result<()> {
        let (archive, row) = self.archived(name)?;
        self.inner.files.close(row.id);
        Ok(archive.discard(row.id, store, &mut moving("discarding", name, 0, progress))?)
    }

    /// Pins a database's file to the disk; it need not be on the disk yet.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Denied` if the federation is read-only.
    pub fn pin_file(&self, name: &str, pin: &FilePin) -> Result<()> {
        let local = self.inner.local()?;
        Ok(local.pin_file(local.database(name, Csn::MAX)?.id, pin)?)
    }

    /// Ends a holder's pin of a database's file; returns whether there was one.
    ///
    /// # Errors
    /// The errors of [`pin_file`](Self::pin_file).
    pub fn unpin_file(&self, name: &str, holder: &str) -> Result<bool> {
        let local = self.inner.local()?;
        Ok(local.unpin_file(local.database(name, Csn::MAX)?.id, holder)?)
    }

    /// All databases, ordered by id, and where their files are.
    ///
    /// # Errors
    /// `Unsupported` if the federation is on a server.
    pub fn residences(&self) -> Result<Vec<(DatabaseRow, Residence)>> {
        let local = self.inner.local()?;
        let mut known = local.residences()?;
        let rows = local.databases(Csn::MAX)?.into_iter();
        let with_residence = |row: DatabaseRow| {
            let residence = known.remove(&row.id).unwrap_or_default();
            (row, residence)
        };
        Ok(rows.map(with_residence).collect())
    }

    /// Applies the rules of `storage.toml` once: makes the copies that are due, removes unreferenced objects from
    /// stores, and evicts the least recently used files while the disk is too full. Failures of single steps are in the
    /// result.
    ///
    /// # Errors
    /// `Invalid` if the settings are wrong; `Closed` if `progress` stops it.
    pub fn apply_storage_rules(&self, progress: &mut Watch<'_>) -> Result<Applied> {
        let archive = Archive::open(self.inner.catalog.clone())?;
        self.inner.files.close_all();
        let mut report = moving("applying the rules of", self.name(), 0, progress);
        Ok(archive.apply_rules(&mut report)?)
    }

    /// The archive, and the newest row of a database.
    fn archived(&self, name: &str) -> Result<(Archive, DatabaseRow)> {
        let row = self.inner.local()?.database(name, Csn::MAX)?;
        Ok((Archive::open(self.inner.catalog.clone())?, row))
    }
}
