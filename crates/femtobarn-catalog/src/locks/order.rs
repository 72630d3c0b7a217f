//! The turn to commit: committers of all processes queue up in front of SQLite, first come first
//! served, because SQLite's own waiting starves some of them.
//!
//! One lock would not be fair: who frees it and comes straight back finds it free, before the
//! kernel has woken the one that waited. So there are two. A committer waits for the *queue*, and
//! holding it for the *turn*, and then frees the queue. Whoever comes straight back has to get past
//! the queue, which the next committer is holding.

use std::path::Path;

use super::file::{Kind, LockFile, Span};
use crate::error::{Error, Result};

pub(super) const COMMIT_FILE: &str = "commit";
const QUEUE: u64 = 0;
const TURN: u64 = 1;

/// One process's place in the order of commits. It has one committer at a time.
#[derive(Debug)]
pub(crate) struct CommitOrder {
    file: LockFile,
}

/// The turn to commit, until this is dropped.
#[derive(Debug)]
pub(crate) struct CommitTurn<'a> {
    order: &'a CommitOrder,
}

impl CommitOrder {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        std::fs::create_dir_all(locks)
            .map_err(|error| Error::io("cannot create the folder", locks, error))?;
        Ok(CommitOrder { file: LockFile::open(&locks.join(COMMIT_FILE))? })
    }

    pub(crate) fn wait(&self) -> Result<CommitTurn<'_>> {
        self.file.lock(Kind::Exclusive, Span::hold(QUEUE))?;
        let turn = self.file.lock(Kind::Exclusive, Span::hold(TURN));
        self.file.unlock(Span::hold(QUEUE));
        turn.map(|()| CommitTurn { order: self })
    }
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        self.order.file.unlock(Span::hold(TURN));
    }
}
