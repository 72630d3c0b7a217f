//! The turn to commit. Committers of all processes queue in front of SQLite in the order of arrival, because
//! SQLite's own waiting starves some of them.
//!
//! One lock would not be fair: a committer that frees it and asks again finds it free, before the kernel has woken the
//! next committer. So there are two locks. A committer takes the *queue*, then the *turn*, and then frees the queue.
//! While the next committer waits for the turn it holds the queue, so one that asks again gets behind it. If no
//! committer waits for the turn, which a number in shared memory shows, a committer asks for the turn alone.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::file::{LockFile, LockKind, Span};
use super::shared_numbers::{AtomicU32, SharedNumbers};
use crate::error::Result;

pub(super) const COMMIT_FILE: &str = "commit";
const QUEUE: u64 = 0;
const TURN: u64 = 1;
/// Offset in the file of the number that is 1 while the holder of the queue waits for the turn; it is after the locked
/// bytes. If that holder is killed, the next committer takes the queue.
const WAITING_AT: usize = 32;

/// The queue and the turn of a federation. Threads that share a value do not exclude each other, because they share its
/// open file description: the caller lets only one of them wait at a time.
#[derive(Debug)]
pub(crate) struct CommitTurns {
    file: LockFile,
    numbers: SharedNumbers,
}

/// The turn to commit, until this is dropped.
#[derive(Debug)]
pub(crate) struct CommitTurn<'a> {
    turns: &'a CommitTurns,
    /// Whether another process had the turn when this one asked for it.
    pub(crate) has_waited: bool,
}

impl CommitTurns {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        let file = open_commit_file(locks)?;
        let numbers = SharedNumbers::open(&locks.join(COMMIT_FILE), WAITING_AT + 4)?;
        Ok(CommitTurns { file, numbers })
    }

    /// Waits for the turn, without a time-out.
    pub(crate) fn wait(&self) -> Result<CommitTurn<'_>> {
        match self.try_now()? {
            Some(turn) => Ok(turn),
            None => self.wait_in_queue(),
        }
    }

    /// The turn, if it is free and no committer waits for it.
    pub(crate) fn try_now(&self) -> Result<Option<CommitTurn<'_>>> {
        let is_free = self.waiting().load(Ordering::SeqCst) == 0
            && self.file.try_lock(LockKind::Exclusive, Span::hold(TURN))?;
        Ok(is_free.then(|| CommitTurn { turns: self, has_waited: false }))
    }

    fn waiting(&self) -> &AtomicU32 {
        self.numbers.u32_at(WAITING_AT)
    }

    fn wait_in_queue(&self) -> Result<CommitTurn<'_>> {
        let has_waited = self.lock(QUEUE)?;
        self.waiting().store(1, Ordering::SeqCst);
        let turn = self.lock(TURN);
        self.waiting().store(0, Ordering::SeqCst);
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
    LockFile::open_with_folder(&locks.join(COMMIT_FILE))
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        self.turns.file.unlock(Span::hold(TURN));
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_committer_that_asks_again_comes_after_the_one_that_waits() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| CommitTurns::open(folder.path()).unwrap());
        let order = Mutex::new(vec![]);
        let turn = one.wait().unwrap();
        assert!(!turn.has_waited);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let turn = other.wait().unwrap();
                order.lock().push("other");
                drop(turn);
            });
            while one.waiting().load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            drop(turn);
            let _turn = one.wait().unwrap();
            order.lock().push("one");
        });
        assert_eq!(order.into_inner(), ["other", "one"]);
    }

    #[test]
    fn a_killed_waiter_is_forgotten_by_the_next_committer() {
        let folder = tempfile::tempdir().unwrap();
        let turns = CommitTurns::open(folder.path()).unwrap();
        turns.waiting().store(1, Ordering::SeqCst);
        assert!(!turns.wait().unwrap().has_waited);
        assert_eq!(turns.waiting().load(Ordering::SeqCst), 0);
    }
}
