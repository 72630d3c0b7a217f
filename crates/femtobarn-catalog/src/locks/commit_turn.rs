//! The turn to commit. Committers of all processes queue in front of SQLite in the order of arrival, because
//! SQLite's own waiting starves some of them.
//!
//! One lock would not be fair: a committer that frees it and asks again finds it free, before the kernel has woken
//! the next committer. So there are two locks. A committer takes the *queue*, then the *turn*, and then frees the
//! queue. While the next committer waits for the turn it holds the queue, so one that asks again comes after it.

use std::path::Path;

use super::file::{LockFile, LockKind, Span};
use crate::error::{Error, Result};

pub(super) const COMMIT_FILE: &str = "commit";
const QUEUE: u64 = 0;
const TURN: u64 = 1;

/// The queue and the turn of a federation. Threads that share a value do not exclude each other, because they share
/// its open file description: the caller lets one of them wait at a time.
#[derive(Debug)]
pub(crate) struct CommitTurns {
    file: LockFile,
}

/// The turn to commit, until this is dropped.
#[derive(Debug)]
pub(crate) struct CommitTurn<'a> {
    turns: &'a CommitTurns,
    /// Whether another process had it when it was asked for.
    pub(crate) has_waited: bool,
}

impl CommitTurns {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        Ok(CommitTurns { file: open_commit_file(locks)? })
    }

    /// Waits for the turn, without a time-out.
    pub(crate) fn wait(&self) -> Result<CommitTurn<'_>> {
        let has_waited = self.lock(QUEUE)?;
        let turn = self.lock(TURN);
        self.file.unlock(Span::hold(QUEUE));
        turn.map(|waited| CommitTurn { turns: self, has_waited: has_waited || waited })
    }

    /// Locks a slot; returns whether that had to wait.
    fn lock(&self, slot: u64) -> Result<bool> {
        let is_free = self.file.try_lock(LockKind::Exclusive, Span::hold(slot))?;
        if !is_free {
            self.file.lock(LockKind::Exclusive, Span::hold(slot))?;
        }
        Ok(!is_free)
    }
}

pub(super) fn open_commit_file(locks: &Path) -> Result<LockFile> {
    std::fs::create_dir_all(locks)
        .map_err(|error| Error::io("cannot create the folder", locks, error))?;
    LockFile::open(&locks.join(COMMIT_FILE))
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        self.turns.file.unlock(Span::hold(TURN));
    }
}
