//! Bytes of database files that are durable in the catalogue before they are in the files.
//!
//! A small commit has one sync: the bytes that it wrote are in its files, where readers find them at once, and in the
//! table `logged_writes`, which the sync of the catalogue's log makes durable. Later they are *written back*: to the
//! files once more, many together; the files are synced, and the rows deleted.
//!
//! 1. A row is deleted only after its bytes were written to their file and synced there.
//! 2. One process at a time writes back. While a row exists, its bytes in the file are those of the row or, after a
//!    crash of the machine, lost: so writing them again does no harm.
//! 3. Nobody overwrites such bytes: who frees, moves or seals some writes back first ([`LocalCatalogue::write_back`]).
//! 4. A catalogue is open only once the files have the bytes of all rows.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rusqlite::{Connection, params};

use super::LocalCatalogue;
use super::connections::ProcessConnections;
use crate::commit::{Commit, FileWrite};
use crate::error::{Error, Result};
use crate::host;
use crate::ids::{Csn, DatabaseId};
use crate::locks::WriteBackTurn;
use crate::numbers::unsigned;
use crate::paths::LOCKS_FOLDER;
use crate::rows::DatabaseState;
use crate::schema::has_logged_writes;
use crate::sql::SqlResult;

/// Bytes of one commit that are worth a place in the log instead of a sync of their file.
pub const LOGGED_COMMIT_BYTES_MAX: usize = 32 << 10;
/// Bytes that a process lets the catalogue have before it writes back.
const LOGGED_BYTES_MAX: u64 = 1 << 20;
/// Bytes that may be logged while a thread writes back; a commit beyond them waits for it.
const WAITING_BYTES_MAX: u64 = 8 << 20;
/// Rows that are read at a time.
const ROWS: u32 = 1024;

/// The logged bytes of a catalogue, as a process knows them.
pub(super) struct FileLog {
    folder: PathBuf,
    connections: Arc<ProcessConnections>,
    /// Those that the catalogue had at this process's first small commit, and those of its commits, until it began to
    /// write back; none before that commit.
    bytes: Mutex<Option<u64>>,
    /// The thread that writes back, or did so last, with the process that has it.
    thread: Mutex<Option<(u32, JoinHandle<()>)>>,
    /// Whether bytes could not be written back.
    is_stuck: AtomicBool,
}

/// Logged bytes of one database, in the order in which they were committed.
struct LoggedWrites {
    /// The path of the file, relative to the federation's folder.
    path: String,
    writes: Vec<FileWrite>,
}

/// By database, with the last of their ids.
type LoggedPart = (i64, BTreeMap<DatabaseId, LoggedWrites>);

impl LocalCatalogue {
    /// The bytes that the next commit may have as [`Commit::writes`]; 0 if earlier ones could not be written back, and
    /// while other processes commit: they sync their files at the same time, but log one after the other.
    pub fn log_room(&self) -> usize {
        let connections = self.connections.current();
        let is_alone = connections.is_ok_and(|them| !them.are_others_committing());
        let is_possible = is_alone && !self.file_log.is_stuck.load(Ordering::Relaxed);
        if is_possible { LOGGED_COMMIT_BYTES_MAX } else { 0 }
    }

    /// Writes bytes to files before the commit that has them, for a writer that cannot reach the files. The caller keeps
    /// others from taking their place. Returns those that the commit is to have as [`Commit::writes`]: none if earlier
    /// ones could not be written back, when the files are synced.
    ///
    /// # Errors
    /// [`Error::Closed`] if a database is not open; [`Error::Invalid`] if bytes lie outside of its file;
    /// [`Error::NotFound`], [`Error::Full`] or [`Error::Io`] if it cannot be written.
    pub fn write_now(&self, writes: Vec<FileWrite>) -> Result<Vec<FileWrite>> {
        let is_stuck = self.file_log.is_stuck.load(Ordering::Relaxed);
        for write in &writes {
            let row = self.database_by_id(write.database, Csn::MAX)?;
            if row.state != DatabaseState::Open {
                return Err(Error::closed(format!("database {:?} is {}", row.name, row.state)));
            }
            let path = self.folder().join(&row.path);
            let failed = |error| Error::io("cannot write to", &path, error);
            let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
            let end = write.offset.checked_add(write.bytes.len() as u64);
            let size = file.metadata().map_err(failed)?.len();
            if end.is_none_or(|end| end > size) {
                let what = format!("byte {} and those behind it are not in its file", write.offset);
                return Err(Error::invalid(format!("database {:?}: {what}", row.name)));
            }
            file.write_all_at(&write.bytes, write.offset).map_err(failed)?;
            if is_stuck {
                file.sync_data().map_err(failed)?;
            }
        }
        Ok(if is_stuck { vec![] } else { writes })
    }

    /// Writes all bytes that are logged by now to their files and syncs these, waiting for a process that does so.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`] if a file cannot be written; the catalogue keeps the bytes.
    pub fn write_back(&self) -> Result<()> {
        self.file_log.write_back()
    }
}

impl FileLog {
    pub(super) fn new(folder: PathBuf, connections: Arc<ProcessConnections>) -> Self {
        FileLog {
            folder,
            connections,
            bytes: Mutex::default(),
            thread: Mutex::default(),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Adds the logged bytes of commits. If there are many, a thread writes back.
    pub(super) fn count(self: &Arc<Self>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut known = self.bytes.lock();
        // Without the count, this process writes back later.
        let before = known.unwrap_or_else(|| self.read(logged_bytes).unwrap_or(0));
        let now = before + bytes;
        *known = Some(now);
        if now <= LOGGED_BYTES_MAX {
            return;
        }
        let is_begun = self.begin_thread();
        if is_begun {
            *known = Some(0);
        }
        drop(known);
        if !is_begun && now > WAITING_BYTES_MAX {
            self.note(self.write_back());
            *self.bytes.lock() = Some(0);
        }
    }

    /// Has a thread write back, unless one does so already, or none can be had.
    fn begin_thread(self: &Arc<Self>) -> bool {
        let mut slot = self.thread.lock();
        if let Some((of, thread)) = slot.take() {
            if of != host::process_id() {
                // A forked child does not have the threads of its parent.
                std::mem::forget(thread);
            } else if !thread.is_finished() {
                *slot = Some((of, thread));
                return false;
            }
        }
        let (log, name) = (Arc::clone(self), "femtobarn-files".to_owned());
        let begun = thread::Builder::new().name(name).spawn(move || log.write_back_many()).ok();
        *slot = begun.map(|thread| (host::process_id(), thread));
        slot.is_some()
    }

    /// Writes back what this process has logged, so that the files of a federation that nobody has open are whole.
    pub(super) fn end(&self) {
        let thread = self.thread.lock().take();
        if let Some((of, thread)) = thread {
            if of == host::process_id() {
                // A closed federation may be copied or removed.
                drop(thread.join());
            } else {
                std::mem::forget(thread);
            }
        }
        // If it fails, or others write back now, the catalogue keeps the bytes.
        if self.bytes.lock().is_some_and(|bytes| bytes > 0) {
            self.write_back_once();
        }
    }

    /// Writes back until there are few bytes again, or it fails.
    fn write_back_many(&self) {
        loop {
            self.write_back_once();
            let mut known = self.bytes.lock();
            let is_stuck = self.is_stuck.load(Ordering::Relaxed);
            if is_stuck || known.is_none_or(|bytes| bytes <= LOGGED_BYTES_MAX) {
                return;
            }
            *known = Some(0);
        }
    }

    fn write_back_once(&self) {
        let turn = WriteBackTurn::take_if_free(&self.folder.join(LOCKS_FOLDER));
        self.note(turn.and_then(|turn| turn.map_or(Ok(()), |turn| self.write_back_in(&turn))));
    }

    /// The commits are durable. If writing back failed, the next ones sync their files, and tell of a disk that fails.
    fn note(&self, written: Result<()>) {
        self.is_stuck.store(written.is_err(), Ordering::Relaxed);
    }

    fn write_back(&self) -> Result<()> {
        if self.read(last_row)?.is_none() {
            return Ok(());
        }
        let turn = WriteBackTurn::wait(&self.folder.join(LOCKS_FOLDER))?;
        self.write_back_in(&turn)
    }

    /// Writes back if a file does not have the bytes that were logged, as after a crash of the machine.
    pub(super) fn recover(&self) -> Result<()> {
        let mut after = 0;
        while let Some((last, parts)) = self.read(|sql| part_after(sql, after))? {
            if !parts.values().all(|part| self.has_bytes(part)) {
                return self.write_back_where_possible();
            }
            after = last;
        }
        Ok(())
    }

    fn write_back_where_possible(&self) -> Result<()> {
        if !self.connections.is_read_only() {
            return self.write_back();
        }
        Err(Error::Unsupported {
            what: format!(
                "federation {} cannot be read on a read-only medium, because bytes of its last commits are \
                 in its catalogue and not in its files; open it once where it can be written",
                self.folder.display()
            ),
        })
    }

    /// Writes back the rows that there are now.
    fn write_back_in(&self, _turn: &WriteBackTurn) -> Result<()> {
        let Some(until) = self.read(last_row)? else { return Ok(()) };
        while let Some((last, parts)) = self.read(|sql| part_after(sql, 0))? {
            parts.values().try_for_each(|part| self.store(part))?;
            self.connections.current()?.write_aside(|sql| {
                sql.prepare_cached("DELETE FROM logged_writes WHERE id <= ?1")?.execute([last])?;
                Ok(())
            })?;
            if last >= until {
                break;
            }
        }
        Ok(())
    }

    fn read<T>(&self, look_up: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        self.connections.current()?.read(look_up)
    }

    /// Writes bytes to their file and makes them durable.
    fn store(&self, part: &LoggedWrites) -> Result<()> {
        let path = self.folder.join(&part.path);
        let file = match OpenOptions::new().write(true).open(&path) {
            Ok(file) => file,
            // It was lost, or removed with its database.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("cannot open", &path, error)),
        };
        let written = part.writes.iter().try_for_each(|it| file.write_all_at(&it.bytes, it.offset));
        let synced = written.and_then(|()| file.sync_data());
        synced.map_err(|error| Error::io("cannot write what was committed to", &path, error))
    }

    /// Whether a file has the bytes, or cannot be read at all.
    fn has_bytes(&self, part: &LoggedWrites) -> bool {
        let Ok(file) = File::open(self.folder.join(&part.path)) else { return true };
        part.writes.iter().all(|write| {
            let mut found = vec![0; write.bytes.len()];
            file.read_exact_at(&mut found, write.offset).is_ok() && found == write.bytes
        })
    }
}

/// The bytes that a commit has for the log.
pub(super) fn bytes_of(commit: &Commit) -> u64 {
    commit.writes.iter().map(|write| write.bytes.len() as u64).sum()
}

/// Forgets the bytes of a database that is deleted.
pub(super) fn forget_database(sql: &Connection, database: DatabaseId) -> SqlResult<()> {
    if has_logged_writes(sql)? {
        sql.execute("DELETE FROM logged_writes WHERE database = ?1", [database.0])?;
    }
    Ok(())
}

/// The id of the last row; none if there is no row.
fn last_row(sql: &Connection) -> SqlResult<Option<i64>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let last = "SELECT max(id) FROM logged_writes";
    Ok(sql.prepare_cached(last)?.query_row([], |row| row.get(0))?)
}

fn logged_bytes(sql: &Connection) -> SqlResult<u64> {
    let sum = "SELECT coalesce(sum(length(bytes)), 0) FROM logged_writes";
    Ok(unsigned(sql.prepare_cached(sum)?.query_row([], |row| row.get(0))?))
}

/// The first rows after row `after`; none if there is no such row.
fn part_after(sql: &Connection, after: i64) -> SqlResult<Option<LoggedPart>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let mut statement = sql.prepare_cached(
        "SELECT logged_writes.id, database, path, start, bytes \
         FROM logged_writes JOIN databases ON databases.id = database \
         WHERE logged_writes.id > ?1 ORDER BY logged_writes.id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, ROWS])?;
    let (mut last, mut parts) = (None, BTreeMap::new());
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        let (database, path) = (DatabaseId(row.get(1)?), row.get(2)?);
        let write = FileWrite { database, offset: unsigned(row.get(3)?), bytes: row.get(4)? };
        let part = LoggedWrites { path, writes: vec![] };
        parts.entry(database).or_insert(part).writes.push(write);
    }
    Ok(last.map(|last| (last, parts)))
}
