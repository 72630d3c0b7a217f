//! The catalogue's write-ahead log, and its syncs, which committers share.
//!
//! SQLite appends a commit to the log, where other processes see it, but does not sync the log. The committer does
//! that after its turn, while others commit. One sync makes all commits durable that were in the log when it began:
//! their committers wait for the sync lock, and then find nothing left to do. Processes communicate through
//! [`LogProgress`].
//!
//! A sync is quicker if the file keeps its length, so zeros are written ahead of SQLite whenever it has used up the
//! earlier ones. SQLite takes the first frame that does not belong to the log for its end.
//!
//! Invariants:
//! 1. A commit is acknowledged only after a sync that began when it was in the log, or after a checkpoint, in which
//!    SQLite syncs both files itself.
//! 2. After a failed sync the kernel may have dropped the pages that it could not write, and the next sync may succeed
//!    without them; everything after them in the log would be lost. So no commit begins, and no snapshot is pinned,
//!    until the log has been rewritten from its readable part, and synced.
//! 3. Zeros are written only after the end of the file, while no process can append to it.
//! 4. SQLite holds no locks on the log, so this file handle may be closed at any time. It is the file that SQLite uses
//!    as long as the connection beside it is open.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::wal_index::{log_end, log_state};
use crate::error::{Error, Result};
use crate::locks::{LogNumbers, LogProgress};
use crate::paths::{LOCKS_FOLDER, log_path};
use crate::sql::{AtPath, SqlConnection};

/// Bytes that are rewritten at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The length of a log with zeros at its end is a multiple of this. After SQLite has extended the log its length is
/// not, except once in some thousand times; then the next commit adds the zeros.
const AHEAD_BYTES: u64 = 64 << 10;
/// The gap in the numbers of changes after a number was lost; greater than the number of committers.
const SKIPPED: u64 = 1 << 20;
/// The log doubles in length until it grows by this much at a time.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// The write-ahead log of a catalogue, for one thread at a time.
pub(super) struct SharedLog {
    file: File,
    path: PathBuf,
    progress: LogProgress,
    /// The length of the file when it was last read.
    known_size: Cell<u64>,
}

impl SharedLog {
    /// Opens the log of the catalogue at `catalogue`, on which a connection must be open.
    pub(super) fn open(catalogue: &Path) -> Result<Self> {
        let path = log_path(catalogue);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| Error::io("cannot open", &path, error))?;
        let progress = LogProgress::open(&catalogue.with_file_name(LOCKS_FOLDER))?;
        Ok(SharedLog { file, path, progress, known_size: Cell::new(0) })
    }

    /// The numbers of the newest changes, and whether a sync has failed, so that the log must be mended.
    pub(super) fn numbers(&self) -> LogNumbers {
        self.progress.numbers()
    }

    /// Records the change after `before`, and returns its number. The caller has held the turn to commit since it read
    /// `before`.
    pub(super) fn record_change(&self, before: LogNumbers) -> u64 {
        // Otherwise the number of the change before was lost, and its committers may still wait for it.
        let is_known = before.written >= before.durable;
        let change = before.written.max(before.durable) + if is_known { 1 } else { SKIPPED };
        self.progress.set_written(change);
        change
    }

    /// Writes zeros after the log if SQLite has used up the earlier ones. The caller has the turn to commit; `sql`
    /// locks out programs that do not take turns. Without the zeros, syncs only take longer.
    pub(super) fn write_ahead(&self, sql: &SqlConnection) {
        let is_longer = log_state(sql).is_none_or(|state| log_end(&state) > self.known_size.get());
        if !is_longer || !self.read_size().is_ok_and(|size| !size.is_multiple_of(AHEAD_BYTES)) {
            return;
        }
        if sql.execute_batch("BEGIN IMMEDIATE").is_ok() {
            if let Ok(size) = self.read_size() {
                let end = (size + size.min(AHEAD_BYTES_MAX)).next_multiple_of(AHEAD_BYTES);
                drop(self.file.write_all_at(&vec![0; (end - size) as usize], size));
                self.known_size.set(end);
            }
            // The caller notices an open transaction if this fails.
            drop(sql.execute_batch("ROLLBACK"));
        }
    }

    /// After this call the kernel records the time of the next write so exactly that the next sync must write the
    /// inode, too. So this is not called at every commit.
    fn read_size(&self) -> std::io::Result<u64> {
        let size = self.file.metadata()?.len();
        self.known_size.set(size);
        Ok(size)
    }

    /// Makes a change durable.
    pub(super) fn make_durable(&self, change: u64) -> Result<()> {
        self.progress.make_durable(change, |is_torn| {
            let earlier = || std::io::Error::other("an earlier sync of it failed");
            let synced = if is_torn { Err(earlier()) } else { self.file.sync_data() };
            synced.map_err(|error| self.failed(error))
        })
    }

    /// Waits until everything that can be read is durable.
    pub(super) fn wait_durable(&self) -> Result<()> {
        let LogNumbers { written, durable, .. } = self.progress.numbers();
        if durable < written { self.make_durable(written) } else { Ok(()) }
    }

    /// Rewrites the log from its readable part. The caller has the turn to commit; `sql` locks out programs that do not
    /// take turns.
    pub(super) fn mend(&self, sql: &SqlConnection) -> Result<()> {
        let run = |statement| sql.execute_batch(statement).at(&self.path);
        run("BEGIN IMMEDIATE")?;
        let mended = self.progress.begin_sync().and_then(|()| {
            let before = self.progress.numbers().durable;
            let mended = self.rewrite();
            self.progress.end_sync(before);
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
        self.progress.set_durable(self.progress.numbers().written);
        self.progress.set_torn(false);
        Ok(())
    }

    /// Always [`Error::Io`], also on a full disk: the commit is in the log, so no error may claim that it was not made.
    fn failed(&self, source: std::io::Error) -> Error {
        let what = format!("cannot sync {}", self.path.display());
        Error::Io { what, source: Arc::new(source) }
    }
}
