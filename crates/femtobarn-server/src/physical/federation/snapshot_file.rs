//! A database that is open as a complete file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{Catalogue, Csn, DatabaseRow, ErrorKind, PinGuard};
use femtobarn_format::completion;
use nix::errno::Errno;

use super::synthesis::{self, MadeUp};
use crate::physical::{Metadata, StorageError, StorageResult, StoredFile};

/// Where a database that is shown comes from.
pub(super) struct Origin {
    pub catalogue: Arc<dyn Catalogue>,
    pub row: DatabaseRow,
    pub csn: Csn,
}

impl Origin {
    /// Whether the database's name meant the same containers in the same versions at a time. Times go back where
    /// containers and databases are dropped or renamed, so the snapshots are compared.
    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let refused = |error| super::trouble("open", &self.row.name, error);
        let then = self.catalogue.snapshot_at_time(i64::try_from(time).unwrap_or(i64::MAX));
        let then = then.map_err(refused)?;
        let _pin = match self.catalogue.pin(then) {
            Ok(pin) => pin,
            // Vacuum has taken it away, so nobody can tell.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(refused(error)),
        };
        let row = self.catalogue.find_database(&self.row.name, then).map_err(refused)?;
        if row.as_ref() != Some(&self.row) {
            return Ok(false);
        }
        let versions = |at| {
            let versions = completion::versions(&*self.catalogue, &self.row, at);
            versions.map_err(|error| synthesis::trouble(&self.row, error))
        };
        Ok(versions(then)? == versions(self.csn)?)
    }
}

/// A database as of a snapshot, pinned for as long as this lives.
pub(super) struct SnapshotFile {
    file: Arc<dyn StoredFile>,
    made: Arc<MadeUp>,
    origin: Origin,
    _pin: PinGuard,
}

impl SnapshotFile {
    pub(super) fn new(
        file: Arc<dyn StoredFile>,
        made: Arc<MadeUp>,
        origin: Origin,
        pin: PinGuard,
    ) -> Self {
        SnapshotFile { file, made, origin, _pin: pin }
    }
}

impl StoredFile for SnapshotFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(self.made.metadata(read_only(self.file.metadata()?)))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let filled = self.made.mosaic.fill(offset, buffer, |at, buffer| {
            whole(at, buffer.len(), self.file.read_at(at, buffer)?)
        })?;
        Ok(filled.unwrap_or(0))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        self.made.mosaic.fill(offset, buffer, |at, buffer| {
            match self.file.try_read_at(at, buffer)? {
                Some(read) => whole(at, buffer.len(), read),
                None => Ok(None),
            }
        })
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> StorageResult<()> {
        Err(unchanging())
    }

    fn sync(&self) -> StorageResult<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> StorageResult<()> {
        Err(unchanging())
    }

    fn will_need(&self, offset: u64, size: u64) {
        self.file.will_need(offset, size);
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.origin.csn.0)
    }

    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        self.origin.is_as_of(time)
    }

    /// Once it is closed, nobody keeps its snapshot, and its name is that of another.
    fn can_be_reopened(&self) -> bool {
        false
    }
}

/// A database whose file is complete, as of a snapshot. It may not have been so in an earlier one.
pub(super) struct Whole {
    pub file: Arc<dyn StoredFile>,
    pub origin: Origin,
}

impl StoredFile for Whole {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(read_only(self.file.metadata()?))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        self.file.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        self.file.try_read_at(offset, buffer)
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> StorageResult<()> {
        Err(unchanging())
    }

    fn sync(&self) -> StorageResult<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> StorageResult<()> {
        Err(unchanging())
    }

    fn will_need(&self, offset: u64, size: u64) {
        self.file.will_need(offset, size);
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.origin.csn.0)
    }

    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        self.origin.is_as_of(time)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

/// Metadata of what is not written to here.
pub(super) fn read_only(metadata: Metadata) -> Metadata {
    Metadata { mode: metadata.mode & 0o555, is_writable: false, ..metadata }
}

fn unchanging() -> StorageError {
    StorageError::refused(Errno::EROFS, "a database as of a snapshot does not change")
}

/// What was committed is there: a file that ends before is damaged.
fn whole(at: u64, wanted: usize, read: usize) -> StorageResult<Option<()>> {
    if read < wanted {
        let what = format!("the database's file ends before the {wanted} bytes at byte {at}");
        return Err(StorageError::refused(Errno::EIO, what));
    }
    Ok(Some(()))
}
