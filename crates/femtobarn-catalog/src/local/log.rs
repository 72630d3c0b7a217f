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
//! 3. A change is announced after its last statement and before its COMMIT, after which other processes can read it.
//!    Still in the turn, it is recorded; if COMMIT failed, the log is synced or mended, or the change is withdrawn,
//!    which needs that no process can read it. The change of a killed committer is recorded by the next process that
//!    gets the turn.
//! 4. Zeros are written only after the end of the file, while no process can append to it.
//! 5. SQLite holds no locks on the log, so this file handle may be closed at any time. It is the file that SQLite uses
//!    as long as the connection beside it is open.

use std::cell::{Cell, OnceCell};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::wal_index::{log_end, log_state};
use crate::error::{Error, Result};
use crate::locks::{CommitTurns, LogNumbers, LogProgress, SharedLogNumbers};
use crate::paths::{LOCKS_FOLDER, log_path};
use crate::sql::{AtPath, SqlConnection};

/// Bytes that are rewritten at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The length of a log with zeros at its end is a multiple of this. After SQLite has extended the log its length is
/// not, except once in some thousand times; then the next commit adds the zeros.
const AHEAD_BYTES: u64 = 64 << 10;
/// The log doubles in length until it grows by this much at a time.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// The write-ahead log of a catalogue, for one thread at a time.
pub(super) struct SharedLog {
    file: File,
    path: PathBuf,
    progress: LogProgress,
    /// Opened when a committer seems to have been killed.
    turns: OnceCell<Box<CommitTurns>>,
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
        Ok(SharedLog { file, path, progress, turns: OnceCell::new(), known_size: Cell::new(0) })
    }

    /// How far the log is durable.
    pub(super) fn progress(&self) -> &LogProgress {
        &self.progress
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
        self.progress.make_durable(change, |is_torn| self.sync(is_torn))
    }

    fn sync(&self, is_torn: bool) -> Result<()> {
        sync(&self.file, is_torn).map_err(|error| failed(&self.path, error))
    }

    /// Waits until everything is durable that was read before.
    pub(super) fn wait_durable(&self) -> Result<()> {
        if self.progress.numbers().is_appending() {
            // Without the turn, or the right to take it, each call syncs until the next change.
            drop(self.turns().and_then(|turns| self.progress.look_for_lost_change(turns)));
        }
        self.progress.make_read_durable(|is_torn| self.sync(is_torn))
    }

    fn turns(&self) -> Result<&CommitTurns> {
        if let Some(turns) = self.turns.get() {
            return Ok(turns);
        }
        let turns = CommitTurns::open(&self.path.with_file_name(LOCKS_FOLDER))?;
        Ok(self.turns.get_or_init(|| Box::new(turns)))
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
        copy().map_err(|error| failed(&self.path, error))?;
        let LogNumbers { written, appending, .. } = self.progress.numbers();
        // The turn to commit is this process's, so an announced change is in the log, or nowhere.
        self.progress.set_durable(written.max(appending));
        self.progress.set_torn(false);
        Ok(())
    }
}

/// Makes durable what was read from the log of the catalogue at `catalogue`, as a process does that may not write, or
/// cannot open the log for writing now: it syncs for itself, unless the numbers show that others have.
pub(super) fn sync_alone(catalogue: &Path) -> Result<()> {
    let path = log_path(catalogue);
    let file = match File::open(&path) {
        Ok(file) => file,
        // The tables have everything.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("cannot open", &path, error)),
    };
    let numbers = SharedLogNumbers::open_to_read(&catalogue.with_file_name(LOCKS_FOLDER));
    let numbers = numbers.map(|numbers| numbers.read());
    if numbers.is_some_and(|numbers| numbers.durable >= numbers.readable) {
        return Ok(());
    }
    // A medium that cannot be written has all that can be read of it, also if its numbers say that the log is torn.
    if fstatvfs(&file).is_ok_and(|medium| medium.flags().contains(FsFlags::ST_RDONLY)) {
        return Ok(());
    }
    match sync(&file, numbers.is_some_and(|numbers| numbers.is_torn)) {
        // File systems without syncs.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| failed(&path, error)),
    }
}

fn sync(log: &File, is_torn: bool) -> std::io::Result<()> {
    let earlier = || std::io::Error::other("an earlier sync of it failed");
    if is_torn { Err(earlier()) } else { log.sync_data() }
}

/// Always [`Error::Io`], also on a full disk: the commit is in the log, so no error may claim that it was not made.
fn failed(path: &Path, source: std::io::Error) -> Error {
    let what = format!("cannot sync {}", path.display());
    Error::Io { what, source: Arc::new(source) }
}

#[cfg(test)]
impl SharedLog {
    /// Makes the later syncs of this handle fail.
    pub(super) fn fail_syncs(&mut self) {
        self.file = File::open("/dev/null").expect("the device can be opened, and not be synced");
    }
}
