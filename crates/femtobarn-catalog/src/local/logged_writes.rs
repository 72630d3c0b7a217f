//! Bytes of database files that are durable in the catalogue before they are in the files.
//!
//! A small commit has one sync: the bytes that it wrote are in its files, where readers find them at once, and in a
//! slot or in rows of the catalogue ([`log_slots`]), which the sync of the catalogue's log makes durable. Later they
//! are *written back*: to the files once more, many together; the files are synced, and slots and rows are free.
//!
//! 1. A slot or row is free only after its bytes were written to their file and synced there.
//! 2. One process at a time writes back. Until then, bytes in the file are those of the slot or row or, after a crash
//!    of the machine, lost: so writing them again does no harm.
//! 3. Nobody overwrites such bytes: who frees, moves or seals some writes back first ([`LocalCatalogue::write_back`]).
//! 4. A catalogue is open only once the files have the bytes of all slots and rows.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::LocalCatalogue;
use super::file_writes::{self, path_of};
use super::process_connections::ProcessConnections;
use crate::commit::log_slots::{self, SLOTS, WAITING_SLOTS, WRITTEN_BACK};
use crate::commit::{Commit, FileWrite};
use crate::error::{Error, Result};
use crate::host;
use crate::ids::{Csn, DatabaseId};
use crate::locks::{FileTurn, TurnKind};
use crate::numbers::{signed, unsigned};
use crate::paths::LOCKS_FOLDER;
use crate::rows::DatabaseState;
use crate::schema::{has_log_slots, has_logged_writes};
use crate::sql::{SqlConnection, SqlResult, params};
use rusqlite::ffi;

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
    /// None before this process's first small commit, and after [`end`](Self::end) before the next one.
    known: Mutex<Option<KnownLog>>,
    /// The thread that writes back, or did so last, with the process that has it.
    thread: Mutex<Option<(u32, JoinHandle<()>)>>,
    /// Whether bytes could not be written back.
    is_stuck: AtomicBool,
}

/// What a process knows of logged bytes.
#[derive(Clone, Copy, Default)]
struct KnownLog {
    /// Those that the catalogue had at this process's first small commit, and those of its commits, until it began to
    /// write back.
    bytes: u64,
    /// Its newest commit with logged bytes.
    newest: Csn,
    /// The newest commit of which the slot was written back, or is to be by now.
    written_back: Csn,
}

/// Logged bytes of one database. No two of them overlap, so they may be written in any order.
struct LoggedWrites {
    /// The path of the file, relative to the federation's folder.
    path: String,
    writes: Vec<FileWrite>,
}

/// By database.
type LoggedFiles = BTreeMap<DatabaseId, LoggedWrites>;

impl LocalCatalogue {
    /// The bytes that the next commit may have as [`Commit::writes`]; 0 if earlier ones could not be written back.
    /// While other processes commit, those of one page: they sync their files at the same time, but log one after the
    /// other.
    pub fn log_room(&self) -> usize {
        if self.file_log.is_stuck.load(Ordering::Relaxed) || self.connections.is_postgres() {
            return 0;
        }
        let connections = self.connections.current();
        let is_alone = connections.is_ok_and(|them| !them.are_others_committing());
        if is_alone { LOGGED_COMMIT_BYTES_MAX } else { log_slots::PAGE_ROOM }
    }

    /// Writes bytes to files before the commit that has them, for a writer that cannot reach the files. The caller
    /// keeps others from taking their place. Returns those that the commit is to have as [`Commit::writes`]: none if
    /// earlier ones could not be written back, when the files are synced.
    ///
    /// # Errors
    /// [`Error::Closed`] if a database is not open; [`Error::Invalid`] if bytes lie outside of its file;
    /// [`Error::NotFound`], [`Error::Full`] or [`Error::Io`] if it cannot be written.
    pub fn write_now(&self, writes: Vec<FileWrite>) -> Result<Vec<FileWrite>> {
        let is_stuck =
            self.file_log.is_stuck.load(Ordering::Relaxed) || self.connections.is_postgres();
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

    /// Writes back what this process has logged, as dropping the catalogue does: for a user after whom something keeps
    /// it, and who may move or copy the folder. If that fails, the catalogue keeps the bytes.
    pub fn end_writes(&self) {
        self.file_log.end();
    }
}

impl FileLog {
    pub(super) fn new(folder: PathBuf, connections: Arc<ProcessConnections>) -> Self {
        FileLog {
            folder,
            connections,
            known: Mutex::default(),
            thread: Mutex::default(),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Adds the logged bytes of commits, the newest of which is `newest`. If there are many, a thread writes back.
    pub(super) fn count(self: &Arc<Self>, bytes: u64, newest: Csn) {
        if bytes == 0 {
            return;
        }
        let mut slot = self.known.lock();
        // Without what the catalogue has, this process writes back later.
        let known = slot.get_or_insert_with(|| self.read(known_log).unwrap_or_default());
        known.bytes += bytes;
        known.newest = newest;
        if known.are_slots_used_up() {
            known.written_back = self.read(written_back).unwrap_or_default();
        }
        if !known.is_much() {
            return;
        }
        let is_begun = self.begin_thread();
        let is_waiting = !is_begun && known.bytes > WAITING_BYTES_MAX;
        if is_begun {
            known.note_write_back();
        }
        drop(slot);
        if is_waiting {
            self.note(self.write_back());
            self.known.lock().iter_mut().for_each(KnownLog::note_write_back);
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
        if self.known.lock().take().is_some() {
            self.write_back_once();
        }
    }

    /// Writes back until there is little again, or it fails.
    fn write_back_many(&self) {
        loop {
            self.write_back_once();
            let mut slot = self.known.lock();
            let is_stuck = self.is_stuck.load(Ordering::Relaxed);
            let Some(known) = slot.as_mut().filter(|known| !is_stuck && known.is_much()) else {
                return;
            };
            known.note_write_back();
        }
    }

    fn write_back_once(&self) {
        let turn = FileTurn::take_if_free(&self.folder.join(LOCKS_FOLDER), TurnKind::WriteBack);
        self.note(turn.and_then(|turn| turn.map_or(Ok(()), |turn| self.write_back_in(&turn))));
    }

    /// The commits are durable. If writing back failed, the next ones sync their files, and tell of a disk that fails.
    fn note(&self, written: Result<()>) {
        self.is_stuck.store(written.is_err(), Ordering::Relaxed);
    }

    fn write_back(&self) -> Result<()> {
        if self.read(waiting_slots)?.is_none() && self.read(last_row)?.is_none() {
            return Ok(());
        }
        let turn = FileTurn::wait(&self.folder.join(LOCKS_FOLDER), TurnKind::WriteBack)?;
        self.write_back_in(&turn)
    }

    /// Writes back if a file does not have the bytes that were logged, as after a crash of the machine.
    pub(super) fn recover(&self) -> Result<()> {
        let are_whole = |files: &LoggedFiles| files.values().all(|file| self.has_bytes(file));
        if self.read(waiting_slots)?.is_some_and(|(_, files)| !are_whole(&files)) {
            return self.write_back_where_possible();
        }
        let mut after = 0;
        while let Some((last, files)) = self.read(|sql| rows_after(sql, after))? {
            if !are_whole(&files) {
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

    /// Writes back the slots and rows that there are now.
    fn write_back_in(&self, _turn: &FileTurn) -> Result<()> {
        let connections = self.connections.current()?;
        if let Some((last, files)) = self.read(waiting_slots)? {
            files.values().try_for_each(|file| self.store(file))?;
            connections.write_aside(&mut |sql| note_written_back(sql, last))?;
        }
        let Some(until) = self.read(last_row)? else { return Ok(()) };
        while let Some((last, files)) = self.read(|sql| rows_after(sql, 0))? {
            files.values().try_for_each(|file| self.store(file))?;
            connections.write_aside(&mut |sql| forget_rows(sql, last))?;
            if last >= until {
                break;
            }
        }
        Ok(())
    }

    /// Writes back what the catalogue has, in the transaction that is open on `sql`, which is the last one that changes it.
    /// The caller has the turn to write back.
    pub(super) fn write_back_last(&self, sql: &SqlConnection) -> SqlResult<()> {
        if let Some((last, files)) = waiting_slots(sql)? {
            files.values().try_for_each(|file| self.store(file))?;
            note_written_back(sql, last)?;
        }
        while let Some((last, files)) = rows_after(sql, 0)? {
            files.values().try_for_each(|file| self.store(file))?;
            forget_rows(sql, last)?;
        }
        Ok(())
    }

    fn read<T>(&self, look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>) -> Result<T> {
        self.connections.current()?.read(look_up)
    }

    /// Writes bytes to their file and makes them durable.
    fn store(&self, logged: &LoggedWrites) -> Result<()> {
        file_writes::store(&self.folder.join(&logged.path), &logged.writes)
    }

    /// Whether a file has the bytes, or cannot be read at all.
    fn has_bytes(&self, logged: &LoggedWrites) -> bool {
        let Ok(file) = File::open(self.folder.join(&logged.path)) else { return true };
        logged.writes.iter().all(|write| {
            let mut found = vec![0; write.bytes.len()];
            file.read_exact_at(&mut found, write.offset).is_ok() && found == write.bytes
        })
    }
}

impl KnownLog {
    fn is_much(&self) -> bool {
        self.bytes > LOGGED_BYTES_MAX || self.are_slots_used_up()
    }

    /// Whether commits take slots that are soon to be written back.
    fn are_slots_used_up(&self) -> bool {
        self.newest.0.saturating_sub(self.written_back.0) > SLOTS / 2
    }

    fn note_write_back(&mut self) {
        (self.bytes, self.written_back) = (0, self.newest);
    }
}

/// The bytes that a commit has for the log.
pub(super) fn bytes_of(commit: &Commit) -> u64 {
    commit.writes.iter().map(|write| write.bytes.len() as u64).sum()
}

/// Forgets the bytes of a database that is deleted.
pub(super) fn forget_database(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if has_logged_writes(sql)? {
        sql.execute("DELETE FROM logged_writes WHERE database = ?1", [database.0])?;
    }
    log_slots::forget_database(sql, database)
}

/// What the catalogue has before this process adds to it.
fn known_log(sql: &SqlConnection) -> SqlResult<KnownLog> {
    if !has_logged_writes(sql)? {
        return Ok(KnownLog::default());
    }
    let sum = "SELECT coalesce(sum(length(bytes)), 0) FROM logged_writes";
    let bytes = unsigned(sql.prepare_cached(sum)?.query_row([], |row| row.get(0))?);
    Ok(KnownLog { bytes, newest: Csn::ZERO, written_back: written_back(sql)? })
}

/// The newest commit up to which all slots were written back.
fn written_back(sql: &SqlConnection) -> SqlResult<Csn> {
    if !has_log_slots(sql)? {
        return Ok(Csn::ZERO);
    }
    let find = "SELECT csn FROM log_slots WHERE slot = ?1";
    let csn = sql.prepare_cached(find)?.query_row([WRITTEN_BACK], |row| row.get(0))?;
    Ok(Csn(unsigned(csn)))
}

/// What slots have that was not written back, up to their newest commit; none if there is nothing.
fn waiting_slots(sql: &SqlConnection) -> SqlResult<Option<(Csn, LoggedFiles)>> {
    if !has_log_slots(sql)? {
        return Ok(None);
    }
    let mut statement = sql.prepare_cached(WAITING_SLOTS)?;
    let mut rows = statement.query([WRITTEN_BACK])?;
    let (mut last, mut files) = (None, LoggedFiles::new());
    while let Some(row) = rows.next()? {
        last = last.max(Some(Csn(unsigned(row.get(1)?))));
        let writes = row.get_ref(2)?.as_blob().ok().and_then(log_slots::decode);
        let writes = writes.ok_or_else(damaged_slot)?;
        for write in writes {
            if let Some(file) = files.get_mut(&write.database) {
                file.writes.push(write);
            } else if let Some(path) = path_of(sql, write.database)? {
                files.insert(write.database, LoggedWrites { path, writes: vec![write] });
            }
        }
    }
    Ok(last.map(|last| (last, files)))
}

/// Frees the slots of the commits up to `last`.
fn note_written_back(sql: &SqlConnection, last: Csn) -> SqlResult<()> {
    let note = "UPDATE log_slots SET csn = ?2 WHERE slot = ?1";
    sql.prepare_cached(note)?.execute(params![WRITTEN_BACK, signed(last.0)]).map(drop)
}

/// Deletes the rows of `logged_writes` up to `last`.
fn forget_rows(sql: &SqlConnection, last: i64) -> SqlResult<()> {
    sql.prepare_cached("DELETE FROM logged_writes WHERE id <= ?1")?.execute([last]).map(drop)
}

fn damaged_slot() -> rusqlite::Error {
    let what = "a slot of logged bytes is damaged".to_owned();
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what))
}

/// The id of the last row; none if there is no row.
fn last_row(sql: &SqlConnection) -> SqlResult<Option<i64>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let last = "SELECT max(id) FROM logged_writes";
    sql.prepare_cached(last)?.query_row([], |row| row.get(0))
}

/// What the first rows after row `after` have, and the last of these; none if there is no such row.
fn rows_after(sql: &SqlConnection, after: i64) -> SqlResult<Option<(i64, LoggedFiles)>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let mut statement = sql.prepare_cached(
        "SELECT logged_writes.id, database, path, start, bytes \
         FROM logged_writes JOIN databases ON databases.id = database \
         WHERE logged_writes.id > ?1 ORDER BY logged_writes.id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, ROWS])?;
    let (mut last, mut files) = (None, LoggedFiles::new());
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        let (database, path) = (DatabaseId(row.get(1)?), row.get(2)?);
        let write = FileWrite { database, offset: unsigned(row.get(3)?), bytes: row.get(4)? };
        let file = LoggedWrites { path, writes: vec![] };
        files.entry(database).or_insert(file).writes.push(write);
    }
    Ok(last.map(|last| (last, files)))
}
