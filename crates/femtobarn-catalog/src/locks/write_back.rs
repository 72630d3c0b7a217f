//! The turn to write back: one process at a time puts bytes that the catalogue's log has into the database files.

use std::path::Path;

use super::commit_turn::{COMMIT_FILE, open_commit_file};
use super::file::{LockFile, LockKind, Span};
use crate::error::Result;

const SLOT: u64 = 4;

/// The turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct WriteBackTurn {
    file: LockFile,
}

impl WriteBackTurn {
    /// Waits for the turn, without a time-out.
    pub(crate) fn wait(locks: &Path) -> Result<Self> {
        let file = open_commit_file(locks)?;
        file.lock(LockKind::Exclusive, Span::hold(SLOT))?;
        Ok(WriteBackTurn { file })
    }

    /// Takes the turn if nobody has it. Makes no folder: that of a federation that was moved or removed is not to
    /// come back.
    pub(crate) fn take_if_free(locks: &Path) -> Result<Option<Self>> {
        let file = LockFile::open(&locks.join(COMMIT_FILE))?;
        let is_free = file.try_lock(LockKind::Exclusive, Span::hold(SLOT))?;
        Ok(is_free.then_some(WriteBackTurn { file }))
    }
}

impl Drop for WriteBackTurn {
    fn drop(&mut self) {
        // Closing the file is not enough if a forked child has it, too.
        self.file.unlock(Span::hold(SLOT));
    }
}
