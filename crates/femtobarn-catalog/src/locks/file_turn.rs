//! Turns that one process at a time can have: to write back bytes that the catalogue's log has, and to move the
//! catalogue to another place.

use std::path::Path;

use super::commit_turn::{COMMIT_FILE, open_commit_file};
use super::file::{LockFile, LockKind, Span};
use crate::error::Result;

/// The purpose of a turn; its number is that of its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TurnKind {
    /// Putting bytes that the catalogue's log has into the database files.
    WriteBack = 4,
    /// Moving the catalogue.
    Move = 5,
}

/// The turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct FileTurn {
    file: LockFile,
    kind: TurnKind,
}

impl FileTurn {
    /// Waits for the turn, without a time-out.
    pub(crate) fn wait(locks: &Path, kind: TurnKind) -> Result<Self> {
        let file = open_commit_file(locks)?;
        file.lock(LockKind::Exclusive, Span::hold(kind as u64))?;
        Ok(FileTurn { file, kind })
    }

    /// Takes the turn if it is free. Does not make the folder: that of a federation that was moved or removed must not
    /// reappear.
    pub(crate) fn take_if_free(locks: &Path, kind: TurnKind) -> Result<Option<Self>> {
        let file = LockFile::open(&locks.join(COMMIT_FILE))?;
        let is_free = file.try_lock(LockKind::Exclusive, Span::hold(kind as u64))?;
        Ok(is_free.then_some(FileTurn { file, kind }))
    }
}

impl Drop for FileTurn {
    fn drop(&mut self) {
        // Closing the file is not enough if a forked child has it open, too.
        self.file.unlock(Span::hold(self.kind as u64));
    }
}
