//! An open database as a complete file, as of a snapshot.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{Catalogue, Csn, DatabaseRow, ErrorKind, PinGuard};
use femtobarn_format::completion;
use nix::errno::Errno;

use super::error::{catalogue_error, synthesis_error};
use super::synthesis::SynthesizedFile;
use crate::physical::{Metadata, StorageError, StorageResult, StoredFile};

/// The catalogue, database and snapshot that a file shows.
pub(super) struct SnapshotOrigin {
    pub catalogue: Arc<dyn Catalogue>,
    pub row: DatabaseRow,
    pub csn: Csn,
}

impl SnapshotOrigin {
    /// Whether the database's name led to the same versions of the same containers at this time. The snapshots are
    /// compared, since dropping and renaming can bring back earlier content with later commit times.
    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let refused = |error| catalogue_error("open", &self.row.name, error);
        let then = self.catalogue.snapshot_at_time(i64::try_from(time).unwrap_or(i64::MAX));
        let then = then.map_err(refused)?;
        let _pin = match self.catalogue.pin(then) {
            Ok(pin) => pin,
            // Vacuum has removed that snapshot, so it cannot be compared.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(refused(error)),
        };
        let row = self.catalogue.find_database(&self.row.name, then).map_err(refused)?;
        if row.as_ref() != Some(&self.row) {
            return Ok(false);
        }
        let versions = |at| {
            let versions = completion::versions(&*self.catalogue, &self.row, at);
            versions.map_err(|error| synthesis_error(&self.row, error))
        };
        Ok(versions(then)? == versions(self.csn)?)
    }
}

/// An open database as of a snapshot, which is pinned for as long as this lives.
pub(super) struct SnapshotFile {
    file: Arc<dyn StoredFile>,
    parts: Arc<SynthesizedFile>,
    origin: SnapshotOrigin,
    _pin: PinGuard,
}

impl SnapshotFile {
    pub(super) fn new(
        file: Arc<dyn StoredFile>,
        parts: Arc<SynthesizedFile>,
        origin: SnapshotOrigin,
        pin: PinGuard,
    ) -> Self {
        SnapshotFile { file, parts, origin, _pin: pin }
    }
}

impl StoredFile for SnapshotFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(self.parts.metadata(read_only(self.file.metadata()?)))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let filled = self.parts.layout.fill(offset, buffer, |at, buffer| {
            check_length(at, buffer.len(), self.file.read_at(at, buffer)?)
        })?;
        Ok(filled.unwrap_or(0))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        self.parts.layout.fill(offset, buffer, |at, buffer| {
            match self.file.try_read_at(at, buffer)? {
                Some(read) => check_length(at, buffer.len(), read),
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

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.origin.csn.0)
    }

    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        self.origin.is_as_of(time)
    }

    /// Closing the file would release its snapshot, and opening its name again would lead to a newer one.
    fn can_be_reopened(&self) -> bool {
        false
    }
}

/// A sealed or attached database, whose file is complete. In an earlier snapshot it may have been an open one.
pub(super) struct CompleteFile {
    pub file: Arc<dyn StoredFile>,
    pub origin: SnapshotOrigin,
    /// The pin of the snapshot, if the file needs it.
    pub _pin: Option<PinGuard>,
}

impl StoredFile for CompleteFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(read_only(self.file.metadata()?))
    }

    fn identity(&self) -> StorageResult<u64> {
        self.file.identity()
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

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.origin.csn.0)
    }

    fn is_as_of(&self, time: SystemTime) -> StorageResult<bool> {
        self.origin.is_as_of(time)
    }

    fn checksum(&self, kind: &str) -> Option<String> {
        self.file.checksum(kind)
    }

    fn can_be_reopened(&self) -> bool {
        self.file.can_be_reopened()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

/// Metadata without the permission to write.
pub(super) fn read_only(metadata: Metadata) -> Metadata {
    Metadata { mode: metadata.mode & 0o555, is_writable: false, ..metadata }
}

fn unchanging() -> StorageError {
    StorageError::refused(Errno::EROFS, "a database as of a snapshot does not change")
}

/// Refuses a read that found fewer bytes than were committed: the file is damaged.
fn check_length(at: u64, wanted: usize, read: usize) -> StorageResult<Option<()>> {
    if read < wanted {
        let what = format!("the database's file ends before the {wanted} bytes at byte {at}");
        return Err(StorageError::refused(Errno::EIO, what));
    }
    Ok(Some(()))
}
