//! Making the catalogue's write-ahead log durable, once for all who wait.
//!
//! SQLite appends a commit to the log and shows it to others, but does not sync the log. The committer
//! does that after its turn, while others commit. One sync serves everybody whose commit was in the
//! log when it began: the others wait for the sync lock and then find that nothing is left to be done.
//! What is said between processes is in [`LogProgress`].
//!
//! A sync is quicker if the file is as long as it was, so zeros are written ahead of SQLite whenever it
//! has used up those that were there. It takes the first frame that is not of this log for its end.
//!
//! Invariants:
//! 1. A commit is acknowledged only after a sync that began when it was in the log, or after SQLite
//!    wrote the log into the tables, for which it syncs both itself.
//! 2. After a failed sync the kernel may have forgotten what it could not write, and the next sync may
//!    say nothing of it. What is behind that in the log would be lost with it. So nothing is committed
//!    until the log was written again from what can be read of it, and was synced.
//! 3. Zeros are written behind the end of the file only, while nobody can append to it.
//! 4. SQLite holds no locks on the log, so this file of ours may be closed at any time. It stays the
//!    file that SQLite has while the connection beside it is open.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::LOCKS_FOLDER;
use super::connection::log_path;
use crate::error::{Error, Result};
use crate::locks::{LogNumbers, LogProgress};

/// Bytes that are written again at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The length of a log that has zeros at its end is a multiple of this. One that SQLite has made longer
/// is none, but for one in thousands, which has to wait for the next commit.
const AHEAD_BYTES: u64 = 64 << 10;
/// The log doubles until it grows by so much at a time.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// The log of a catalogue, for one thread at a time.
pub(super) struct SharedLog {
    file: File,
    path: PathBuf,
    progress: LogProgress,
    /// The length of the file when it was looked at last.
    known_size: Cell<u64>,
}

impl SharedLog {
    /// The log of the catalogue at `catalogue`, which some connection has open.
    pub(super) fn open(catalogue: &Path) -> Result<Self> {
        let path = log_path(catalogue);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| Error::io("cannot open", &path, error))?;
        let progress = LogProgress::open(&catalogue.with_file_name(LOCKS_FOLDER))?;
        Ok(SharedLog { file, path, progress, known_size: Cell::new(0) })
    }

    /// How far the log is. It says whether a sync has failed, so that the log must be mended.
    pub(super) fn numbers(&self) -> Result<LogNumbers> {
        self.progress.numbers()
    }

    /// Notes that the log has one change more than it had by these numbers, and returns its number. The
    /// caller has the turn, and had it then. If it cannot be noted, there is nothing to share.
    pub(super) fn note(&self, before: LogNumbers) -> Option<u64> {
        let change = before.written.max(before.durable) + 1;
        self.progress.set_written(change).ok()?;
        Some(change)
    }

    /// Writes zeros behind the log if SQLite has used up those that were there. The caller has the turn;
    /// `sql` keeps out those who do not ask for it. Without zeros syncs take longer, no more.
    pub(super) fn write_ahead(&self, sql: &Connection) {
        let is_longer =
            self.file.read_at(&mut [0], self.known_size.get()).is_ok_and(|read| read > 0);
        if !is_longer || !self.look_at_size().is_ok_and(|size| !size.is_multiple_of(AHEAD_BYTES)) {
            return;
        }
        if sql.execute_batch("BEGIN IMMEDIATE").is_ok() {
            if let Ok(size) = self.look_at_size() {
                let end = (size + size.min(AHEAD_BYTES_MAX)).next_multiple_of(AHEAD_BYTES);
                drop(self.file.write_all_at(&vec![0; (end - size) as usize], size));
                self.known_size.set(end);
            }
            // The caller notices if this fails.
            drop(sql.execute_batch("ROLLBACK"));
        }
    }

    /// After each look the kernel notes the time of the next write so exactly that a sync writes it,
    /// too. So this is not asked at every commit.
    fn look_at_size(&self) -> std::io::Result<u64> {
        let size = self.file.metadata()?.len();
        self.known_size.set(size);
        Ok(size)
    }

    /// Makes a change durable that was noted, or could not be.
    pub(super) fn make_durable(&self, change: Option<u64>) -> Result<()> {
        let Some(change) = change else { return self.sync_alone() };
        if self.progress.numbers()?.durable >= change {
            return Ok(());
        }
        self.progress.begin_sync()?;
        let synced = self.sync(change);
        self.progress.end_sync();
        synced
    }

    /// Waits until all that can be read is durable. If the disk fails, who committed is told.
    pub(super) fn settle(&self) {
        if let Ok(numbers) = self.progress.numbers()
            && numbers.durable < numbers.written
        {
            drop(self.make_durable(Some(numbers.written)));
        }
    }

    /// The caller holds the sync lock.
    fn sync(&self, change: u64) -> Result<()> {
        let numbers = self.progress.numbers()?;
        if numbers.durable >= change {
            return Ok(());
        }
        if numbers.is_torn {
            return Err(self.failed(std::io::Error::other("an earlier sync of it failed")));
        }
        self.file.sync_data().map_err(|error| {
            // If this cannot be said either, the one who says so is told at least.
            drop(self.progress.set_torn(true));
            self.failed(error)
        })?;
        // If this is not noted, others sync again.
        drop(self.progress.set_durable(numbers.written.max(change)));
        Ok(())
    }

    fn sync_alone(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| {
            drop(self.progress.set_torn(true));
            self.failed(error)
        })
    }

    /// Writes the log again from what can be read of it. The caller has the turn; `sql` keeps out those
    /// who do not ask for it.
    pub(super) fn mend(&self, sql: &Connection) -> Result<()> {
        let run = |statement| sql.execute_batch(statement).map_err(|e| Error::sql(&self.path, e));
        run("BEGIN IMMEDIATE")?;
        let mended = self.progress.begin_sync().and_then(|()| {
            let mended = self.rewrite();
            self.progress.end_sync();
            mended
        });
        run("ROLLBACK")?;
        mended
    }

    fn rewrite(&self) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut copy = || -> std::io::Result<()> {
            let mut offset = 0;
            loop {
                let size = self.file.read_at(&mut piece, offset)?;
                if size == 0 {
                    return self.file.sync_data();
                }
                self.file.write_all_at(&piece[..size], offset)?;
                offset += size as u64;
            }
        };
        copy().map_err(|error| self.failed(error))?;
        let written = self.progress.numbers()?.written;
        drop(self.progress.set_durable(written));
        self.progress.set_torn(false)
    }

    /// Always an error of input or output, whatever the reason: the commit is in the log.
    fn failed(&self, source: std::io::Error) -> Error {
        let what = format!("cannot sync {}", self.path.display());
        Error::Io { what, source: Arc::new(source) }
    }
}
