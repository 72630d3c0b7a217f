//! Checkpoints: changes of an open file that are undone unless they are committed.
//!
//! 1. Bytes are written durably to a journal before they are overwritten or cut off. A change that would make the
//!    journal exceed [`CHECKPOINT_BYTES_MAX`] is refused.
//! 2. A checkpoint is undone when its client rolls it back or disconnects. Those of a killed server are undone when a
//!    server starts on the same storage.

use nix::errno::Errno;

use super::files::SharedFile;
pub use super::journal::CHECKPOINT_BYTES_MAX;
use super::journal::{CHANGES_MAX, Journal, JournaledFile};
use crate::physical::{StorageError, StorageResult};

/// The changes since a checkpoint began.
pub struct Checkpoint {
    size: u64,
    bytes: u64,
    changes: u32,
    journal: Journal,
}

impl Checkpoint {
    /// Begins a checkpoint. May block.
    ///
    /// # Errors
    /// The errors of creating a file in the storage; `EROFS` if the storage is read-only.
    pub fn begin(file: &SharedFile) -> StorageResult<Self> {
        let metadata = file.metadata()?;
        let (storage, path) = file.locate()?;
        let target = JournaledFile { path, id: metadata.id, size: metadata.size };
        let journal = Journal::begin(storage, &target)?;
        Ok(Checkpoint { size: metadata.size, bytes: 0, changes: 0, journal })
    }

    /// Bytes in the journal.
    pub fn used(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }

    /// Journals the bytes of a range that will be overwritten. May block.
    ///
    /// # Errors
    /// `EDQUOT` if the journal would get too large; those of reading the file and writing the journal.
    pub fn before_write(
        &mut self,
        file: &SharedFile,
        offset: u64,
        length: u64,
    ) -> StorageResult<()> {
        // Bytes past the original size are removed by the truncation at the end of an undo.
        let overwritten = self.size.saturating_sub(offset).min(length);
        if overwritten == 0 {
            return Ok(());
        }
        let bytes = self.bytes + overwritten;
        if bytes > u64::from(CHECKPOINT_BYTES_MAX) || self.changes == CHANGES_MAX {
            let what = format!(
                "a checkpoint may change {CHECKPOINT_BYTES_MAX} bytes in {CHANGES_MAX} writes; \
                 commit it first"
            );
            return Err(StorageError::refused(Errno::EDQUOT, what));
        }
        let mut old = vec![0; overwritten as usize];
        let count = file.interface()?.read_at(offset, &mut old)?;
        self.journal.record(offset, &old[..count])?;
        (self.bytes, self.changes) = (bytes, self.changes + 1);
        Ok(())
    }

    /// Journals the bytes that will be cut off. May block.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::before_write`].
    pub fn before_truncate(&mut self, file: &SharedFile, size: u64) -> StorageResult<()> {
        self.before_write(file, size, self.size.saturating_sub(size))
    }

    /// Makes the changes permanent. May block.
    ///
    /// # Errors
    /// The errors of removing the journal; then the changes are undone at the next start of the server.
    pub fn commit(self) -> StorageResult<()> {
        self.journal.end()
    }

    /// Restores the file. May block.
    ///
    /// # Errors
    /// The errors of writing the file; then it may be partly restored until the next start of the server.
    pub fn undo(self, file: &SharedFile) -> StorageResult<()> {
        let content = self.journal.read()?;
        for (offset, bytes) in content.changes.iter().rev() {
            file.write_at(*offset, bytes)?;
        }
        file.truncate(self.size)?;
        file.sync()?;
        self.journal.end()
    }
}
