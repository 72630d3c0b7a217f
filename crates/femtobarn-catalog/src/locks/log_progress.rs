//! How far the catalogue's log is durable: three numbers in `locks/commit`, a file that all processes map, and the lock
//! of the syncing process.
//!
//! ```text
//! byte 192        208        224        240
//!      +----------+----------+----------+
//!      | written  | durable  | torn     |    each a number and its complement, little-endian
//!      +----------+----------+----------+
//! ```
//!
//! Changes of the catalogue are numbered in sequence. `written` is the newest change in the log; the holder of the
//! turn to commit writes it. A sync of the log that begins afterwards makes the change durable. `durable` is the
//! newest change known to be durable, and `torn` is 1 if a sync has failed since the log was last known to be good;
//! the holder of the sync lock writes both.
//!
//! A committer whose change is not durable takes the lock and syncs, or waits while another one does. After its sync it
//! wakes the committers whose changes are durable now, and the one after them, which syncs next.
//!
//! Invariants:
//! 1. `durable` never exceeds the number of changes that are durable, even after a loss of power: a new number is
//!    greater than both.
//! 2. A number that differs from its complement is being written, so readers look again for a moment; if its writer was
//!    killed, it reads as 0, which claims nothing. After a lost `written`, numbers are skipped: committers may still
//!    wait for the earlier ones.
//! 3. A wake-up is only a hint, since the holder of the lock may be killed: a waiter asks again after [`PAUSE`].

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bells::{Bells, Listener};
use super::commit_turn::COMMIT_FILE;
use super::file::{LockFile, LockKind, SLOT_BYTES, Span};
use super::shared_numbers::{AtomicU64, SharedNumbers, spin_loop};
use crate::error::Result;

const SYNC: u64 = 2;
const NUMBERS_AT: usize = 3 * SLOT_BYTES as usize;
const NUMBER_BYTES: usize = 16;
const WRITTEN: usize = 0;
const DURABLE: usize = 1;
const TORN: usize = 2;
/// The longest sleep of a waiter before it checks whether the lock is free.
const PAUSE: Duration = Duration::from_millis(10);
/// How many times a number that is being written is read again, which takes some nanoseconds.
const LOOKS: u32 = 1000;
/// The most changes for which a sync wakes waiters: one for each bell.
const WOKEN_MAX: u64 = 64;

/// The numbers, for one thread at a time.
#[derive(Debug)]
pub(crate) struct LogProgress {
    file: LockFile,
    numbers: SharedNumbers,
    /// `None` if bells are impossible; then waiters wait in the kernel's queue for the lock.
    bells: Option<Arc<Bells>>,
}

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogNumbers {
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) is_torn: bool,
}

impl LogProgress {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        let path = locks.join(COMMIT_FILE);
        let numbers = SharedNumbers::open(&path, NUMBERS_AT + 3 * NUMBER_BYTES)?;
        let bells = Bells::open(locks).map(Arc::new);
        Ok(LogProgress { file: LockFile::open(&path)?, numbers, bells })
    }

    pub(crate) fn numbers(&self) -> LogNumbers {
        LogNumbers {
            written: self.number(WRITTEN),
            durable: self.number(DURABLE),
            is_torn: self.number(TORN) != 0,
        }
    }

    /// The caller has the turn to commit.
    pub(crate) fn set_written(&self, change: u64) {
        self.set(WRITTEN, change);
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_durable(&self, change: u64) {
        self.set(DURABLE, change);
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_torn(&self, is_torn: bool) {
        self.set(TORN, u64::from(is_torn));
    }

    /// The bytes are in this host's order, since only its processes read them.
    fn number(&self, at: usize) -> u64 {
        for _ in 0..LOOKS {
            let words = self.words(at).each_ref();
            let [number, complement] = words.map(|word| word.load(Ordering::Acquire));
            // Zeros were never written.
            if number == !complement || number == 0 {
                return number;
            }
            spin_loop();
        }
        0
    }

    fn set(&self, at: usize, number: u64) {
        let [word, complement] = self.words(at);
        word.store(number, Ordering::Release);
        complement.store(!number, Ordering::Release);
    }

    fn words(&self, at: usize) -> &[AtomicU64; 2] {
        let words = self.numbers.u64s()[(NUMBERS_AT + at * NUMBER_BYTES) / 8..].first_chunk();
        words.expect("the file has all numbers")
    }

    /// Takes the sync lock, in the order of arrival.
    pub(crate) fn begin_sync(&self) -> Result<()> {
        self.file.lock(LockKind::Exclusive, Span::hold(SYNC))
    }

    /// Makes a change durable: by `sync`, which makes everything durable that is in the log when it begins, or by the
    /// sync of another committer. The argument of `sync` is whether an earlier sync has failed since the log was last
    /// known to be good.
    ///
    /// # Errors
    /// Those of `sync`; [`Error::Io`](crate::Error::Io) if the lock file cannot be used.
    pub(crate) fn make_durable(
        &self,
        change: u64,
        sync: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        if !self.begin_sync_of(change)? {
            return Ok(());
        }
        let numbers = self.numbers();
        let mut synced = Ok(());
        if numbers.durable < change {
            synced = sync(numbers.is_torn);
            match synced {
                Ok(()) => self.set_durable(numbers.written.max(change)),
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
        }
        assert_eq!(progress.numbers().written, 0x0100);
    }

    #[test]
    fn numbers_set_through_one_file_are_read_through_another() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| LogProgress::open(folder.path()).unwrap());
        let nothing = LogNumbers { written: 0, durable: 0, is_torn: false };
        assert_eq!(one.numbers(), nothing);
        one.set_written(7);
        one.set_durable(6);
        one.set_torn(true);
        let noted = LogNumbers { written: 7, durable: 6, is_torn: true };
        assert_eq!(other.numbers(), noted);
        one.begin_sync().unwrap();
        one.end_sync(6);
        other.begin_sync().unwrap();
    }

    #[test]
    fn a_waiter_for_a_sync_gets_it_or_the_lock_when_the_sync_before_ends() {
        let folder = tempfile::tempdir().unwrap();
        let open = || LogProgress::open(folder.path()).unwrap();
        let syncs = open();
        syncs.set_written(3);
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
