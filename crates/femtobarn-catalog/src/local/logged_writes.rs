//! Bytes of database files that are durable in the catalogue before they are in the files.
//!
//! A small commit has one sync: its bytes are in its files, where readers find them at once, and in a slot or in rows
//! of the catalogue ([`log_slots`]), which the sync of the catalogue's log makes durable. Later the bytes are *written
//! back*: many together are written to the files once more; the files are synced, and slots and rows are freed. The
//! first bytes of a small file that the commit made, and its name, are handled in the same way.
//!
//! 1. A slot or row is freed only after its bytes were written to their file and synced there.
//! 2. One process at a time writes back. Until then, bytes in the file are either those of the slot or row or, after a
//!    crash of the machine, lost: so writing them again does no harm.
//! 3. Such bytes are never overwritten: code that frees, moves or seals some writes back first
//!    ([`LocalCatalogue::write_back`]).
//! 4. A commit whose bytes were synced in a file is published only once the file's name is durable, too.
//! 5. A catalogue is open only once the files have the bytes of all slots and rows.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::LocalCatalogue;
use super::file_writes;
use super::logged_files::{self, LoggedFiles, LoggedWrites};
use super::logged_rows::{
    bytes_in_rows, first_rows, forget_rows, last_row, note_written_back, path_if_logged,
    rows_after, waiting_slots, written_back,
};
use super::process_connections::ProcessConnections;
use crate::commit::Commit;
use crate::commit::log_slots::{self, SLOTS};
use crate::error::{Error, Result};
use crate::host;
use crate::ids::{Csn, DatabaseId};
use crate::locks::{FileTurn, TurnKind};
use crate::paths::LOCKS_FOLDER;
use crate::schema::has_logged_writes;
use crate::sql::{SqlConnection, SqlResult};

/// The largest commit in bytes that is logged instead of syncing its files.
pub const LOGGED_COMMIT_BYTES_MAX: usize = 32 << 10;
/// Logged bytes after which a process writes back.
const LOGGED_BYTES_MAX: u64 = 1 << 20;
/// Bytes that may be logged while a thread writes back; a commit beyond this limit waits for the thread.
const WAITING_BYTES_MAX: u64 = 8 << 20;
/// Databases that are remembered as having durable names, about at most.
const NAMED_MAX: usize = 4096;

/// The logged bytes of a catalogue, as known to one process.
pub(super) struct FileLog {
    folder: PathBuf,
    connections: Arc<ProcessConnections>,
    /// `None` before this process's first small commit, and after [`end`](Self::end) until the next one.
    known: Mutex<Option<KnownLog>>,
    /// The thread that writes back, or the last one that did, and the id of its process.
    thread: Mutex<Option<(u32, JoinHandle<()>)>>,
    /// See [`is_stuck`](Self::is_stuck).
    is_stuck: AtomicBool,
    /// The databases whose files have durable names, among those whose files this process has synced.
    named: Mutex<HashSet<DatabaseId>>,
}

/// The state of the logged bytes, as known to one process.
#[derive(Clone, Copy, Default)]
struct KnownLog {
    /// Bytes that the catalogue had at this process's first small commit, and bytes of its commits, since it last began
    /// to write back.
    bytes: u64,
    /// This process's newest commit with logged bytes.
    newest: Csn,
    /// The newest commit whose slot was written back, or is being written back.
    written_back: Csn,
}

impl LocalCatalogue {
    /// The largest size in bytes of the next commit's [`Commit::writes`]; 0 if earlier bytes could not be written back.
    /// While other processes commit, at most one page: processes can sync their files at the same time, but they log
    /// one after the other.
    pub fn log_room(&self) -> usize {
        match self.connections.current() {
            // The commit reports why the catalogue cannot be used.
            Err(_) => 0,
            Ok(them) if self.file_log.is_stuck() || them.is_postgres() => 0,
            Ok(them) if them.are_others_committing() => log_slots::PAGE_ROOM,
            Ok(_) => LOGGED_COMMIT_BYTES_MAX,
        }
    }

    /// Whether [`Commit::writes`] may have the first bytes of a new file.
    pub fn logs_new_files(&self) -> bool {
        true
    }

    /// Writes all logged bytes to their files and syncs these; waits if another process does so already.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`] if a file cannot be written; the catalogue keeps the bytes.
    pub fn write_back(&self) -> Result<()> {
        self.file_log.write_back()
    }

    /// Writes back the bytes that this process has logged, as dropping the catalogue does: for a user who may move or
    /// copy the folder while something still keeps the catalogue open. If that fails, the catalogue keeps the bytes.
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
            named: Mutex::default(),
        }
    }

    /// Adds the logged bytes of commits up to `newest`. If there are many, a thread writes back.
    pub(super) fn count(self: &Arc<Self>, bytes: u64, newest: Csn) {
        // PostgreSQL has no bytes that could be written back: the files had them before the commit.
        if bytes == 0 || self.connections.was_postgres() {
            return;
        }
        let mut slot = self.known.lock();
        // If the catalogue cannot be read, counting begins at 0, and this process writes back later.
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

    /// Starts a thread that writes back, unless one is running or none can be started.
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

    /// Writes back the bytes that this process has logged, so that the files of a federation that no process has open
    /// are complete.
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
        // If that fails, or another process is writing back, the catalogue keeps the bytes.
        if self.known.lock().take().is_some() {
            self.write_back_once();
        }
    }

    /// Writes back until few bytes are left, or until it fails.
    fn write_back_many(&self) {
        loop {
            self.write_back_once();
            let mut slot = self.known.lock();
            let Some(known) = slot.as_mut().filter(|known| !self.is_stuck() && known.is_much())
            else {
                return;
            };
            known.note_write_back();
        }
    }

    fn write_back_once(&self) {
        let turn = FileTurn::take_if_free(&self.folder.join(LOCKS_FOLDER), TurnKind::WriteBack);
        self.note(turn.and_then(|turn| turn.map_or(Ok(()), |turn| self.write_back_in(&turn))));
    }

    /// Records the result. The commits are durable in any case. After a failure the next commits sync their own files,
    /// and report a failing disk.
    fn note(&self, written: Result<()>) {
        self.is_stuck.store(written.is_err(), Ordering::Relaxed);
    }

    /// Whether bytes could not be written back.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
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
        let are_whole =
            |files: &LoggedFiles| files.values().all(|file| file.are_in_file(&self.folder));
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

    /// Writes back the slots and rows that exist now.
    fn write_back_in(&self, _turn: &FileTurn) -> Result<()> {
        let connections = self.connections.current()?;
        let (slots, first_rows) = (self.read(waiting_slots)?, self.read(first_rows)?);
        self.make_files(slots.as_ref(), &first_rows)?;
        if let Some((last, files)) = slots {
            self.store(&files)?;
            connections.write_aside(&mut |sql| note_written_back(sql, last))?;
        }
        let Some(until) = self.read(last_row)? else { return Ok(()) };
        while let Some((last, files)) = self.read(|sql| rows_after(sql, 0))? {
            logged_files::make_files(&self.folder, files.values())?;
            self.store(&files)?;
            connections.write_aside(&mut |sql| forget_rows(sql, last))?;
            if last >= until {
                break;
            }
        }
        Ok(())
    }

    /// Writes back all logged bytes in the transaction that is open on `sql`, which is the last one that changes this
    /// catalogue. The caller has the turn to write back.
    pub(super) fn write_back_last(&self, sql: &SqlConnection) -> SqlResult<()> {
        let (slots, first_rows) = (waiting_slots(sql)?, first_rows(sql)?);
        self.make_files(slots.as_ref(), &first_rows)?;
        if let Some((last, files)) = slots {
            self.store(&files)?;
            note_written_back(sql, last)?;
        }
        while let Some((last, files)) = rows_after(sql, 0)? {
            self.store(&files)?;
            forget_rows(sql, last)?;
        }
        Ok(())
    }

    /// Makes the files whose first bytes are in slots or rows, before any bytes are written to them.
    fn make_files(
        &self,
        slots: Option<&(Csn, LoggedFiles)>,
        first_rows: &[LoggedWrites],
    ) -> Result<()> {
        let in_slots = slots.into_iter().flat_map(|(_, files)| files.values());
        logged_files::make_files(&self.folder, in_slots.chain(first_rows))
    }

    fn store(&self, files: &LoggedFiles) -> Result<()> {
        files.values().try_for_each(|file| file.store(&self.folder))
    }

    /// Makes durable the names of files whose first bytes are logged, before commits that synced these files.
    pub(super) fn sync_names<'a>(
        &self,
        commits: impl IntoIterator<Item = &'a Commit>,
    ) -> Result<()> {
        let synced: BTreeSet<DatabaseId> = commits.into_iter().flat_map(synced_databases).collect();
        let unknown: Vec<DatabaseId> = {
            let named = self.named.lock();
            synced.into_iter().filter(|database| !named.contains(database)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let mut paths: Vec<String> = vec![];
        for database in &unknown {
            paths.extend(self.read(|sql| path_if_logged(sql, *database))?);
        }
        file_writes::sync_names(&self.folder, paths.iter().map(String::as_str))?;
        let mut named = self.named.lock();
        if named.len() > NAMED_MAX {
            named.clear();
        }
        named.extend(unknown);
        Ok(())
    }

    fn read<T>(&self, look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>) -> Result<T> {
        self.connections.current()?.read(look_up)
    }
}

impl KnownLog {
    fn is_much(&self) -> bool {
        self.bytes > LOGGED_BYTES_MAX || self.are_slots_used_up()
    }

    /// Whether commits use slots that are due to be written back.
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

/// The databases whose files a commit refers to without including their bytes: the committer has synced these files.
fn synced_databases(commit: &Commit) -> impl Iterator<Item = DatabaseId> {
    let versions = commit.versions.iter().map(|version| version.database);
    let dropped = commit.dropped_databases.iter().map(|dropped| dropped.id);
    let renamed = commit.renamed_databases.iter().map(|(id, ..)| *id);
    let renamed_containers = commit.renamed_containers.iter().map(|(id, ..)| *id);
    let dropped_containers = commit.dropped_containers.iter().map(|(id, ..)| *id);
    let touched =
        versions.chain(dropped).chain(renamed).chain(renamed_containers).chain(dropped_containers);
    // The name of a new file was synced with it.
    let is_new = |id| commit.new_databases.iter().any(|new| new.id == id);
    touched
        .filter(move |id| !is_new(*id) && commit.writes.iter().all(|write| write.database != *id))
}

/// Removes the logged bytes of a deleted database.
pub(super) fn forget_database(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if has_logged_writes(sql)? {
        sql.execute("DELETE FROM logged_writes WHERE database = ?1", [database.0])?;
    }
    log_slots::forget_database(sql, database)
}

/// The logged bytes in the catalogue before this process adds any.
fn known_log(sql: &SqlConnection) -> SqlResult<KnownLog> {
    let bytes = bytes_in_rows(sql)?;
    Ok(KnownLog { bytes, newest: Csn::ZERO, written_back: written_back(sql)? })
}
