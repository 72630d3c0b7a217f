//! How far the catalogue's log is durable: four numbers in `locks/commit`, a file that all processes map, and the lock
//! of the syncing process.
//!
//! ```text
//! byte 192        208        224        240        256
//!      +----------+----------+----------+----------+
//!      | written  | durable  | torn     | appending|    each a number and its complement, little-endian
//!      +----------+----------+----------+----------+
//! ```
//!
//! Changes of the catalogue are numbered in sequence. `written` is the newest change in the log, and `appending` the
//! one that is about to be appended: other processes can read it before it is in `written`. The holder of the turn to
//! commit writes both, `appending` first. A sync of the log that begins afterwards makes the change durable. `durable`
//! is the newest change known to be durable, and `torn` is 1 if a sync has failed since the log was last known to be
//! good; the holder of the sync lock writes both.
//!
//! A committer whose change is not durable takes the lock and syncs, or waits while another one does. After its sync it
//! wakes the committers whose changes are durable now, and the one after them, which syncs next. A reader does the same
//! for what it has read.
//!
//! Invariants:
//! 1. `durable` never exceeds the number of changes that are durable, even after a loss of power: a new number is
//!    greater than all others.
//! 2. A change that a process has read has a number up to `written` or `appending`. When `appending` is written,
//!    `written` covers every change in the log: the holder of the turn first records the change of a committer that was
//!    killed.
//! 3. While no process has the turn, `appending` exceeds `written` and `durable` only if a committer was killed.
//! 4. A number that differs from its complement is being written, so readers look again for a moment. If its writer was
//!    killed, a committer reads 0, which claims nothing, and a reader syncs; `torn` reads as 1. After a lost `written`,
//!    numbers are skipped: committers may still wait for the earlier ones.
//! 5. A wake-up is only a hint, since the holder of the lock may be killed: a waiter asks again after [`PAUSE`].

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bells::{Bells, Listener};
use super::commit_turn::{COMMIT_FILE, CommitTurns, open_commit_file};
use super::file::{LockFile, LockKind, SLOT_BYTES, Span};
use super::shared_numbers::{AtomicU64, SharedNumbers, spin_loop};
use crate::error::Result;

const SYNC: u64 = 2;
const NUMBERS_AT: usize = 3 * SLOT_BYTES as usize;
const NUMBER_BYTES: usize = 16;
const WRITTEN: usize = 0;
const DURABLE: usize = 1;
const TORN: usize = 2;
const APPENDING: usize = 3;
const NUMBERS_END: usize = NUMBERS_AT + 4 * NUMBER_BYTES;
/// The longest sleep of a waiter before it checks whether the lock is free.
const PAUSE: Duration = Duration::from_millis(10);
/// How many times a number that is being written is read again, which takes some nanoseconds.
const LOOKS: u32 = 1000;
/// The gap in the numbers of changes after a number was lost; greater than the number of committers.
const SKIPPED: u64 = 1 << 20;
/// The most changes for which a sync wakes waiters: one for each bell.
const WOKEN_MAX: u64 = 64;

/// The numbers and the lock, for one thread at a time.
#[derive(Debug)]
pub(crate) struct LogProgress {
    file: LockFile,
    numbers: SharedLogNumbers,
    /// `None` if bells are impossible; then waiters wait in the kernel's queue for the lock.
    bells: Option<Arc<Bells>>,
}

/// The numbers, as all processes see them.
#[derive(Debug)]
pub(crate) struct SharedLogNumbers(SharedNumbers);

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogNumbers {
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) appending: u64,
    pub(crate) is_torn: bool,
    /// No process has read a later change before this moment.
    pub(crate) readable: u64,
}

impl LogNumbers {
    /// Whether a change is being appended, or its committer was killed.
    pub(crate) fn is_appending(&self) -> bool {
        self.appending > self.written.max(self.durable)
    }
}

impl SharedLogNumbers {
    /// Opens the numbers to read them, if the file has all of them.
    pub(crate) fn open_to_read(locks: &Path) -> Option<Self> {
        SharedNumbers::open_to_read(&locks.join(COMMIT_FILE), NUMBERS_END).map(SharedLogNumbers)
    }

    pub(crate) fn read(&self) -> LogNumbers {
        let [written, durable, torn, appending] =
            [WRITTEN, DURABLE, TORN, APPENDING].map(|at| self.number(at));
        LogNumbers {
            written: written.unwrap_or(0),
            durable: durable.unwrap_or(0),
            appending: appending.unwrap_or(0),
            is_torn: torn != Some(0),
            readable: written.unwrap_or(u64::MAX).max(appending.unwrap_or(u64::MAX)),
        }
    }

    /// A number, unless it is being written, or its writer was killed. The bytes are in this host's order, since only
    /// its processes read them.
    fn number(&self, at: usize) -> Option<u64> {
        for _ in 0..LOOKS {
            let words = self.words(at).each_ref();
            let [number, complement] = words.map(|word| word.load(Ordering::Acquire));
            // Zeros were never written.
            if number == !complement || number == 0 {
                return Some(number);
            }
            spin_loop();
        }
        None
    }

    fn set(&self, at: usize, number: u64) {
        let [word, complement] = self.words(at);
        word.store(number, Ordering::Release);
        complement.store(!number, Ordering::Release);
    }

    fn words(&self, at: usize) -> &[AtomicU64; 2] {
        let words = self.0.u64s()[(NUMBERS_AT + at * NUMBER_BYTES) / 8..].first_chunk();
        words.expect("the file has all numbers")
    }
}

impl LogProgress {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        let file = open_commit_file(locks)?;
        let numbers = SharedNumbers::open(&locks.join(COMMIT_FILE), NUMBERS_END)?;
        let bells = Bells::open(locks).map(Arc::new);
        Ok(LogProgress { file, numbers: SharedLogNumbers(numbers), bells })
    }

    pub(crate) fn numbers(&self) -> LogNumbers {
        self.numbers.read()
    }

    /// Records the change of a committer that was killed: it may be in the log. The caller has the turn to commit, so
    /// no committer is appending.
    pub(crate) fn record_lost_change(&self) {
        let numbers = self.numbers();
        if numbers.is_appending() {
            self.record_change(numbers.appending);
        }
    }

    /// Records a lost change if no process has the turn to commit: a committer that lives has it while it appends.
    pub(crate) fn look_for_lost_change(&self, turns: &CommitTurns) -> Result<()> {
        if let Some(_turn) = turns.try_now()? {
            self.record_lost_change();
        }
        Ok(())
    }

    /// Announces a change that is going to be appended, and returns its number. The caller has the turn to commit, and
    /// has recorded a lost change.
    pub(crate) fn announce_change(&self) -> u64 {
        let LogNumbers { written, durable, appending, .. } = self.numbers();
        // Otherwise the number of the change before was lost, and its committers may still wait for it.
        let is_known = written >= durable;
        let change = written.max(durable).max(appending) + if is_known { 1 } else { SKIPPED };
        self.numbers.set(APPENDING, change);
        change
    }

    /// Withdraws an announcement: no process can read the change. The caller has had the turn to commit since it
    /// announced.
    pub(crate) fn withdraw_change(&self) {
        self.numbers.set(APPENDING, self.numbers().written);
    }

    /// Records that the announced change can be read. The caller has had the turn to commit since it announced.
    pub(crate) fn record_change(&self, change: u64) {
        self.numbers.set(WRITTEN, change);
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_durable(&self, change: u64) {
        self.numbers.set(DURABLE, change);
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_torn(&self, is_torn: bool) {
        self.numbers.set(TORN, u64::from(is_torn));
    }

    /// Takes the sync lock, in the order of arrival.
    pub(crate) fn begin_sync(&self) -> Result<()> {
        self.file.lock(LockKind::Exclusive, Span::hold(SYNC))
    }

    /// Makes durable what was read from the log: by `sync`, or by the sync of another process. A change that is being
    /// appended may have been read, or one whose committer was killed; until that one is in `written`, each call syncs.
    ///
    /// # Errors
    /// Those of [`make_durable`](Self::make_durable).
    pub(crate) fn make_read_durable(&self, sync: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        self.sync_up_to(self.numbers().readable, 0, sync)
    }

    /// Makes a change durable: by `sync`, which makes everything durable that is in the log when it begins, or by the
    /// sync of another process. The argument of `sync` is whether an earlier sync has failed since the log was last
    /// known to be good.
    ///
    /// # Errors
    /// Those of `sync`; [`Error::Io`](crate::Error::Io) if the lock file cannot be used.
    pub(crate) fn make_durable(
        &self,
        change: u64,
        sync: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        self.sync_up_to(change, change, sync)
    }

    /// Waits until `until` is durable, or syncs, after which the changes in `written` are, and those up to `appended`,
    /// which the caller knows to be in the log.
    fn sync_up_to(
        &self,
        until: u64,
        appended: u64,
        sync: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        if self.numbers().durable >= until || !self.begin_sync_of(until)? {
            return Ok(());
        }
        let numbers = self.numbers();
        let mut synced = Ok(());
        if numbers.durable < until {
            synced = sync(numbers.is_torn);
            match synced {
                Ok(()) => self.set_durable(numbers.written.max(numbers.durable).max(appended)),
                Err(_) => self.set_torn(true),
            }
        }
        self.end_sync(numbers.durable);
        synced
    }

    /// Takes the sync lock, unless a change is durable before that.
    fn begin_sync_of(&self, change: u64) -> Result<bool> {
        let Some(bells) = &self.bells else { return self.begin_sync().map(|()| true) };
        let mut listener: Option<(Listener, u32)> = None;
        while self.numbers().durable < change {
            if self.file.try_lock(LockKind::Exclusive, Span::hold(SYNC))? {
                return Ok(true);
            }
            match &mut listener {
                Some((listener, rings)) => {
                    listener.pause(*rings, PAUSE);
                    *rings = listener.rings();
                }
                // The bell may have rung before the waiter listened to it, so it asks once more.
                None => {
                    let new = bells.listen_for_change(change);
                    let rings = new.rings();
                    listener = Some((new, rings));
                }
            }
        }
        Ok(false)
    }

    /// Frees the sync lock. Changes up to `durable` were durable before.
    pub(crate) fn end_sync(&self, durable: u64) {
        self.file.unlock(Span::hold(SYNC));
        let Some(bells) = &self.bells else { return };
        let end = self.numbers().durable.max(durable) + 1;
        (end.saturating_sub(WOKEN_MAX).max(durable + 1)..=end)
            .for_each(|change| bells.ring_for_change(change));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn torn_number_reads_as_old_new_or_zero() {
        let folder = tempfile::tempdir().unwrap();
        let progress = LogProgress::open(folder.path()).unwrap();
        let file = OpenOptions::new().write(true).open(folder.path().join(COMMIT_FILE)).unwrap();
        let encode = |number: u64| [number.to_ne_bytes(), (!number).to_ne_bytes()].concat();
        let (old, new) = (encode(0x00ff), encode(0x0100));
        assert_eq!(progress.numbers().written, 0);
        for at in 0..=NUMBER_BYTES {
            let torn = [&new[..at], &old[at..]].concat();
            file.write_all_at(&torn, NUMBERS_AT as u64).unwrap();
            let read = progress.numbers().written;
            assert!([0, 0x00ff, 0x0100].contains(&read), "{read:#x} when torn at {at}");
            // Half a number is none; a process that is killed has stored whole halves.
            let is_covered = progress.numbers().readable >= 0x00ff;
            assert!(is_covered || at % 8 != 0, "a reader takes it for 0 when torn at {at}");
        }
        assert_eq!(progress.numbers().written, 0x0100);
    }

    #[test]
    fn numbers_set_through_one_file_are_read_through_another() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| LogProgress::open(folder.path()).unwrap());
        let nothing =
            LogNumbers { written: 0, durable: 0, appending: 0, is_torn: false, readable: 0 };
        assert_eq!(one.numbers(), nothing);
        one.record_change(7);
        one.set_durable(6);
        one.announce_change();
        one.set_torn(true);
        let noted = LogNumbers { written: 7, durable: 6, appending: 8, is_torn: true, readable: 8 };
        assert_eq!(other.numbers(), noted);
        one.begin_sync().unwrap();
        one.end_sync(6);
        other.begin_sync().unwrap();
    }

    #[test]
    fn the_sync_of_a_reader_does_not_make_the_change_durable_that_is_being_appended() {
        let folder = tempfile::tempdir().unwrap();
        let progress = LogProgress::open(folder.path()).unwrap();
        progress.record_change(5);
        assert_eq!(progress.announce_change(), 6);
        let mut syncs = 0;
        for _ in 0..2 {
            let sync = |_| {
                syncs += 1;
                Ok(())
            };
            progress.make_read_durable(sync).unwrap();
        }
        assert_eq!((syncs, progress.numbers().durable), (2, 5));
        progress.record_change(6);
        progress.make_durable(6, |_| Ok(())).unwrap();
        progress.make_read_durable(|_| unreachable!("it is durable")).unwrap();
    }

    #[test]
    fn a_waiter_for_a_sync_gets_it_or_the_lock_when_the_sync_before_ends() {
        let folder = tempfile::tempdir().unwrap();
        let open = || LogProgress::open(folder.path()).unwrap();
        let syncs = open();
        syncs.record_change(3);
        syncs.begin_sync().unwrap();
        std::thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|change| {
                scope.spawn(move || {
                    let waits = open();
                    let has_lock = waits.begin_sync_of(change).unwrap();
                    if has_lock {
                        waits.set_durable(3);
                        waits.end_sync(2);
                    }
                    has_lock
                })
            });
            syncs.set_durable(2);
            syncs.end_sync(0);
            let has_lock = waiters.map(|waiter| waiter.join().unwrap());
            assert_eq!(has_lock, [false, false, true]);
        });
    }
}
