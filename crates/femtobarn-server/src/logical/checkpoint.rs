//! Checkpoints: what undoes changes of an open file until they are committed.
//!
//! 1. Before bytes are written over or cut off, they are kept here, at most
//!    [`CHECKPOINT_BYTES_MAX`] of them. What would take more is refused and changes nothing.
//! 2. It is in memory: it undoes what a client regrets or leaves behind, not what a killed server did.

use nix::errno::Errno;

use super::files::SharedFile;
use crate::physical::{Answer, Trouble};

/// Bytes that one checkpoint keeps.
pub const CHECKPOINT_BYTES_MAX: u32 = 1024 * 1024;

/// The changes since a checkpoint began, to be undone from the last to the first.
#[derive(Debug)]
pub struct Checkpoint {
    size: u64,
    kept: Vec<(u64, Vec<u8>)>,
    bytes: u64,
}

impl Checkpoint {
    /// Begins one. May block.
    ///
    /// # Errors
    /// The storage's.
    pub fn begin(file: &SharedFile) -> Answer<Self> {
        Ok(Checkpoint { size: file.facts()?.size, kept: Vec::new(), bytes: 0 })
    }

    /// Bytes that it keeps.
    pub fn used(&self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX)
    }

    /// Keeps what is in a range that is going to be written. May block.
    ///
    /// # Errors
    /// `EDQUOT` if it would keep too much; the storage's.
    pub fn before_write(&mut self, file: &SharedFile, offset: u64, length: u64) -> Answer<()> {
        // What lies behind the size of the beginning goes when the file is cut.
        let there = self.size.saturating_sub(offset).min(length);
        if there == 0 {
            return Ok(());
        }
        let bytes = self.bytes + there;
        if bytes > u64::from(CHECKPOINT_BYTES_MAX) {
            let what = format!(
                "a checkpoint keeps {CHECKPOINT_BYTES_MAX} bytes, but {bytes} would change; commit \
                 more often"
            );
            return Err(Trouble::refused(Errno::EDQUOT, what));
        }
        let mut old = vec![0; there as usize];
        let count = file.interface()?.read_at(offset, &mut old)?;
        old.truncate(count);
        self.bytes = bytes;
        self.kept.push((offset, old));
        Ok(())
    }

    /// Keeps what is going to be cut off. May block.
    ///
    /// # Errors
    /// As [`Checkpoint::before_write`].
    pub fn before_truncate(&mut self, file: &SharedFile, size: u64) -> Answer<()> {
        self.before_write(file, size, self.size.saturating_sub(size))
    }

    /// Makes the file what it was. May block.
    ///
    /// # Errors
    /// The storage's; then the file is neither what it was nor what it became.
    pub fn undo(self, file: &SharedFile) -> Answer<()> {
        for (offset, bytes) in self.kept.iter().rev() {
            file.write_at(*offset, bytes)?;
        }
        file.truncate(self.size)
    }
}
