//! Checkpoints: what undoes changes of an open file until they are committed.
//!
//! 1. Before bytes are written over or cut off, they are kept in a journal beside the files, durably; at
//!    most [`CHECKPOINT_BYTES_MAX`] of them. What would take more is refused and changes nothing.
//! 2. What a client regrets or leaves behind is undone at once, what a killed server left when the next one
//!    starts.

use nix::errno::Errno;

use super::files::SharedFile;
use super::journal::{CHANGES_MAX, Journal, Target};
use crate::physical::{StorageError, StorageResult};

/// Bytes that one checkpoint keeps.
pub const CHECKPOINT_BYTES_MAX: u32 = 1024 * 1024;

/// The changes since a checkpoint began, to be undone from the last to the first.
pub struct Checkpoint {
    size: u64,
    bytes: u64,
    changes: u32,
    journal: Journal,
}

impl Checkpoint {
    /// Begins one. May block.
    ///
    /// # Errors
    /// The storage's; `EROFS` if it keeps no journals.
    pub fn begin(file: &SharedFile) -> StorageResult<Self> {
        let metadata = file.metadata()?;
        let (storage, path) = file.home()?;
        let target = Target { path, id: metadata.id, size: metadata.size };
        let journal = Journal::begin(storage, &target)?;
        Ok(Checkpoint { size: metadata.size, bytes: 0, changes: 0, journal })
    }

    /// Bytes that it keeps.
    pub fn used(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }

    /// Keeps what is in a range that is going to be written. May block.
    ///
    /// # Errors
    /// `EDQUOT` if it would keep too much; the storage's.
    pub fn before_write(
        &mut self,
        file: &SharedFile,
        offset: u64,
        length: u64,
    ) -> StorageResult<()> {
        // What lies behind the size of the beginning goes when the file is cut.
        let there = self.size.saturating_sub(offset).min(length);
        if there == 0 {
            return Ok(());
        }
        let bytes = self.bytes + there;
        if bytes > u64::from(CHECKPOINT_BYTES_MAX) || self.changes == CHANGES_MAX {
            let what = format!(
                "a checkpoint keeps {CHECKPOINT_BYTES_MAX} bytes of {CHANGES_MAX} changes, and this \
                 is one too many; commit more often"
            );
            return Err(StorageError::refused(Errno::EDQUOT, what));
        }
        let mut old = vec![0; there as usize];
        let count = file.interface()?.read_at(offset, &mut old)?;
        self.journal.keep(offset, &old[..count])?;
        (self.bytes, self.changes) = (bytes, self.changes + 1);
        Ok(())
    }

    /// Keeps what is going to be cut off. May block.
    ///
    /// # Errors
    /// As [`Checkpoint::before_write`].
    pub fn before_truncate(&mut self, file: &SharedFile, size: u64) -> StorageResult<()> {
        self.before_write(file, size, self.size.saturating_sub(size))
    }

    /// Lets the changes be. May block.
    ///
    /// # Errors
    /// The storage's; then they are undone when the server starts again.
    pub fn commit(self) -> StorageResult<()> {
        self.journal.end()
    }

    /// Makes the file what it was. May block.
    ///
    /// # Errors
    /// The storage's; then the file is neither what it was nor what it became, until the server starts
    /// again.
    pub fn undo(self, file: &SharedFile) -> StorageResult<()> {
        let kept = self.journal.kept()?;
        for (offset, bytes) in kept.changes.iter().rev() {
            file.write_at(*offset, bytes)?;
        }
        file.truncate(self.size)?;
        file.sync()?;
        self.journal.end()
    }
}
