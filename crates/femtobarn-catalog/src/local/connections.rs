//! The connections of one process to one catalogue.
//!
//! Invariants:
//! 1. There is one writer connection, used by the thread that holds its mutex, and a pool of readers.
//! 2. Connections are used only by the process that opened them.
//! 3. The open file is the file at the catalogue's path; otherwise commits would go to a file without a name.
//! 4. Nothing else in this process opens the catalogue's file or its shared memory: by the rules of POSIX, closing
//!    it would free the locks that SQLite holds on it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::commit_queue::CommitQueue;
use super::commit_writer::{ChangeFailure, Changed, CommitWriter, Effect};
use super::connection::CatalogueConnection;
use super::known_rows::{self, KnownRows};
use super::log::SharedLog;
use super::role;
use super::wal_index::log_state;
use crate::commit::{self, Commit};
use crate::error::{Error, Result};
use crate::host;
use crate::ids::Csn;
use crate::locks::{LogState, RecentChanges};
use crate::paths::{CATALOGUE_FILE, LOCKS_FOLDER};
use crate::schema::FederationIdentity;
use crate::sql::{AtPath, SqlResult};

/// Idle reader connections that the pool keeps.
const READERS_MAX: usize = 8;

/// The connections of the current process, opened anew after a fork.
pub(super) struct ProcessConnections {
    folder: PathBuf,
    read_only: bool,
    current: Mutex<Arc<Connections>>,
}

impl ProcessConnections {
    pub(super) fn open(folder: &Path) -> Result<(Self, FederationIdentity)> {
        let connections = Connections::new(folder)?;
        let (reader, identity) = CatalogueConnection::open_reader(&connections.path)?;
        let read_only = reader.is_read_only();
        connections.keep(reader);
        let current = Mutex::new(Arc::new(connections));
        Ok((ProcessConnections { folder: folder.to_owned(), read_only, current }, identity))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn current(&self) -> Result<Arc<Connections>> {
        let mut current = self.current.lock();
        if current.pid != host::process_id() {
            let inherited =
                std::mem::replace(&mut *current, Arc::new(Connections::new(&self.folder)?));
            inherited.leave_to_parent();
        }
        Ok(Arc::clone(&current))
    }

    pub(super) fn disconnect(&self) {
        let current = self.current.lock();
        if current.pid == host::process_id() {
            current.disconnect();
        }
    }
}

/// The connections that one process opened.
pub(super) struct Connections {
    path: PathBuf,
    pid: u32,
    inode: (u64, u64),
    readers: Mutex<Vec<CatalogueConnection>>,
    writer: Mutex<Option<CommitWriter>>,
    /// The log as readers use it, who do not wait for the writer of this process.
    readers_log: Mutex<Option<SharedLog>>,
    queue: CommitQueue,
    known: Mutex<KnownRows>,
    recent: Mutex<Option<Arc<RecentChanges>>>,
    /// Whether a commit failed in the operating system, so that the state of the disk is unknown.
    failed: AtomicBool,
    /// Whether the last change had to wait for another process.
    are_others_committing: AtomicBool,
}

impl Connections {
    fn new(folder: &Path) -> Result<Self> {
        let path = folder.join(CATALOGUE_FILE);
        let inode = inode(&path).map_err(|error| Error::io("cannot look at", &path, error))?;
        Ok(Connections {
            path,
            pid: host::process_id(),
            inode,
            readers: Mutex::default(),
            writer: Mutex::default(),
            readers_log: Mutex::default(),
            queue: CommitQueue::default(),
            known: Mutex::default(),
            recent: Mutex::default(),
            failed: AtomicBool::new(false),
            are_others_committing: AtomicBool::new(false),
        })
    }

    /// Runs a look-up. It sees a consistent catalogue only within one statement.
    pub(super) fn read<T>(&self, look_up: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        self.check_in_place()?;
        let reader = self.reader()?;
        let found = look_up(&reader.sql).at(&self.path);
        self.keep(reader);
        found
    }

    /// What `find` takes from the rows that this process knows, or else what `look_up` finds in the catalogue,
    /// which `keep` may add to them if it is of the newest state.
    pub(super) fn recall<T>(
        &self,
        find: impl FnOnce(&KnownRows) -> Option<T>,
        look_up: impl FnOnce() -> Result<T>,
        keep: impl FnOnce(&mut KnownRows, &T),
    ) -> Result<T> {
        let before = self.log_state();
        if let Some(found) = self.with_known(before, |known| find(known)).flatten() {
            self.check_in_place()?;
            return Ok(found);
        }
        let found = look_up()?;
        if self.log_state() == before {
            self.with_known(before, |known| keep(known, &found));
        }
        Ok(found)
    }

    /// Whether commit `at` is known to be the newest one.
    pub(super) fn is_newest(&self, at: Csn) -> bool {
        self.with_known(self.log_state(), |known| known.newest(at).is_some()) == Some(true)
    }

    /// Runs `use_rows` on the rows that this process knows, if they are those of a state of the log.
    fn with_known<T>(
        &self,
        state: Option<LogState>,
        use_rows: impl FnOnce(&mut KnownRows) -> T,
    ) -> Option<T> {
        let state = state?;
        let recent = self.recent();
        let mut known = self.known.lock();
        known.advance(&state, recent.as_deref()).then(|| use_rows(&mut known))
    }

    fn recent(&self) -> Option<Arc<RecentChanges>> {
        let mut recent = self.recent.lock();
        if recent.is_none() {
            let locks = self.path.with_file_name(LOCKS_FOLDER);
            *recent = RecentChanges::open_if_there(&locks).map(Arc::new);
        }
        recent.clone()
    }

    /// The state of the log, if a connection is idle.
    fn log_state(&self) -> Option<LogState> {
        let reader = self.readers.lock().pop()?;
        let state = reader.log_state();
        self.keep(reader);
        state
    }

    /// Runs a change of the catalogue's users in a transaction of its own; it is durable when this returns.
    pub(super) fn write<T>(&self, change: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        self.write_as_anyone(|sql| {
            role::check_leader(sql)?;
            change(sql)
        })
    }

    /// As [`write`](Self::write), for what a follower receives from its leader.
    pub(super) fn write_as_follower<T>(
        &self,
        change: impl FnOnce(&Connection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_as_anyone(|sql| {
            role::check_follower(sql)?;
            change(sql)
        })
    }

    /// As [`write`](Self::write), whoever may change the catalogue.
    pub(super) fn write_as_anyone<T>(
        &self,
        change: impl FnOnce(&Connection) -> SqlResult<T>,
    ) -> Result<T> {
        let changed = self.run(change, Effect::unknown, |failed| self.record_failure(failed))?;
        Ok(changed.value)
    }

    /// As [`write_as_anyone`](Self::write_as_anyone), for rows that no process keeps.
    pub(super) fn write_aside<T>(
        &self,
        it: impl FnOnce(&Connection) -> SqlResult<T>,
    ) -> Result<()> {
        self.run(it, Effect::none, |failed| self.record_failure(failed)).map(drop)
    }

    /// Runs a change without which the catalogue says the same, such as an index. If it fails, nothing is in doubt; if
    /// it is one of the schema, the next commit makes it durable.
    pub(super) fn write_optional(
        &self,
        change: impl FnOnce(&Connection) -> SqlResult<()>,
    ) -> Result<()> {
        self.run(change, Effect::unknown, |failed| failed.failure.at(&self.path)).map(drop)
    }

    fn run<T>(
        &self,
        change: impl FnOnce(&Connection) -> SqlResult<T>,
        effect: impl FnOnce(&T) -> Effect,
        refused: impl FnOnce(ChangeFailure) -> Error,
    ) -> Result<Changed<T>> {
        let mut slot = self.writer.lock();
        self.check_writable()?;
        let writer = match &mut *slot {
            Some(writer) => writer,
            empty => empty.insert(self.open_writer()?),
        };
        let result = writer.run(change, effect).map_err(refused);
        self.are_others_committing.store(writer.has_waited(), Ordering::Relaxed);
        if self.failed.load(Ordering::Acquire) {
            writer.connection.disable_checkpoint_on_close();
        }
        if !writer.connection.sql.is_autocommit() {
            // The transaction could not be rolled back, so its connection is closed with it.
            *slot = None;
        }
        result
    }

    /// Waits until everything that look-ups have returned so far is durable. On a read-only medium there is no log
    /// that this process could sync, and this does nothing.
    pub(super) fn wait_durable(&self) {
        let mut log = self.readers_log.lock();
        if log.is_none() {
            *log = SharedLog::open(&self.path).ok();
        }
        if let Some(log) = &*log {
            log.wait_durable();
        }
    }

    /// Publishes `commit` together with the commits of other threads that are waiting.
    pub(super) fn commit(&self, commit: Commit) -> Result<Csn> {
        self.queue.submit(commit, |group| self.publish(group))
    }

    /// Publishes several commits in one durable write. Invalid ones are refused first.
    pub(super) fn commit_all(&self, commits: Vec<Commit>) -> Vec<Result<Csn>> {
        let checked: Vec<Result<()>> = commits.iter().map(Commit::validate).collect();
        let valid = commits.into_iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let valid: Vec<Commit> = valid.map(|(commit, _)| commit).collect();
        let published = if valid.is_empty() { vec![] } else { self.publish(&valid) };
        let mut published = published.into_iter();
        let lost = || Err(Error::internal("a commit of a group has no result"));
        let result =
            |checked: Result<()>| checked.and_then(|()| published.next().unwrap_or_else(lost));
        checked.into_iter().map(result).collect()
    }

    fn publish(&self, group: &[Commit]) -> Vec<Result<Csn>> {
        let applied = self.run(
            |sql| {
                self.check_leader(sql)?;
                match group {
                    [one] => Ok(vec![Ok(commit::apply(sql, one, self.is_checked(sql, one))?)]),
                    several => {
                        several.iter().map(|each| self.apply_in_savepoint(sql, each)).collect()
                    }
                }
            },
            |results| known_rows::effect(group, results),
            |failed| self.record_failure(failed),
        );
        match applied {
            Ok(Changed { value: results, recent }) => {
                if let Some((page, before)) = recent {
                    let published = known_rows::published(group, &results);
                    self.known.lock().apply(&page, before, published);
                }
                results
            }
            Err(error) => vec![Err(error); group.len()],
        }
    }

    /// As [`role::check_leader`], in the transaction that is open on `sql`.
    fn check_leader(&self, sql: &Connection) -> SqlResult<()> {
        let state = log_state(sql);
        if self.with_known(state, |known| known.leads()) != Some(true) {
            role::check_leader(sql)?;
            self.with_known(state, KnownRows::note_leader);
        }
        Ok(())
    }

    /// Whether the rows that this process knows admit the commit, in the transaction that is open on `sql`.
    fn is_checked(&self, sql: &Connection, commit: &Commit) -> bool {
        self.with_known(log_state(sql), |known| known.admits(commit)) == Some(true)
    }

    fn apply_in_savepoint(&self, sql: &Connection, commit: &Commit) -> SqlResult<Result<Csn>> {
        sql.prepare_cached("SAVEPOINT one")?.execute([])?;
        let applied = commit::apply(sql, commit, false);
        if applied.is_err() {
            if sql.is_autocommit() {
                // SQLite has rolled back the whole transaction, as it does when the disk is full.
                return applied.map(Ok);
            }
            sql.prepare_cached("ROLLBACK TO one")?.execute([])?;
        }
        sql.prepare_cached("RELEASE one")?.execute([])?;
        Ok(applied.at(&self.path))
    }

    fn reader(&self) -> Result<CatalogueConnection> {
        while let Some(reader) = self.readers.lock().pop() {
            if !reader.is_stale(&self.path) {
                return Ok(reader);
            }
        }
        Ok(CatalogueConnection::open_reader(&self.path)?.0)
    }

    fn keep(&self, reader: CatalogueConnection) {
        if self.failed.load(Ordering::Acquire) {
            reader.disable_checkpoint_on_close();
        }
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
    }

    pub(super) fn are_others_committing(&self) -> bool {
        self.are_others_committing.load(Ordering::Relaxed)
    }

    fn open_writer(&self) -> Result<CommitWriter> {
        let reader = self.reader()?;
        let read_only = reader.is_read_only();
        self.keep(reader);
        if read_only {
            return Err(Error::denied(format!(
                "catalogue {} is read-only here; nothing was committed",
                self.path.display()
            )));
        }
        let writer = CommitWriter::open(&self.path)?;
        // The log's entry in the folder is new. SQLite syncs the folder, too, but ignores a failure.
        sync_folder(&self.path)?;
        Ok(writer)
    }

    fn check_writable(&self) -> Result<()> {
        self.check_in_place()?;
        self.check_not_failed()
    }

    pub(super) fn check_not_failed(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::closed(format!(
                "an earlier commit to catalogue {} failed in the operating system; \
                 open the federation again and check which transactions it has",
                self.path.display()
            )));
        }
        Ok(())
    }

    fn check_in_place(&self) -> Result<()> {
        match inode(&self.path) {
            Ok(found) if found == self.inode => Ok(()),
            Ok(_) => Err(self.gone("was replaced by another file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(self.gone("was deleted"))
            }
            Err(error) => Err(Error::io("cannot look at", &self.path, error)),
        }
    }

    fn gone(&self, what: &str) -> Error {
        Error::closed(format!(
            "catalogue {} {what} while it was open; put it back, or open the federation again",
            self.path.display()
        ))
    }

    /// Refuses all later commits if this one may be on the disk: its COMMIT or its sync failed in the operating
    /// system.
    fn record_failure(&self, failed: ChangeFailure) -> Error {
        match failed.failure.at(&self.path) {
            Error::Io { what, source } if failed.is_in_doubt => {
                self.failed.store(true, Ordering::Release);
                self.readers
                    .lock()
                    .iter()
                    .for_each(CatalogueConnection::disable_checkpoint_on_close);
                let what = format!("whether the commit is durable is not known, {what}");
                Error::Io { what, source }
            }
            error => error,
        }
    }

    fn disconnect(&self) {
        *self.readers_log.lock() = None;
        self.readers.lock().clear();
        *self.writer.lock() = None;
    }

    /// In a forked child: closes the inherited connections that were idle. Those that another thread of the parent
    /// was using stay locked for ever, because that thread does not exist in the child.
    fn leave_to_parent(self: Arc<Self>) {
        if let Some(mut readers) = self.readers.try_lock() {
            readers.clear();
        }
        if let Some(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        std::mem::forget(self);
    }
}

/// Makes the entries of a file's folder durable.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io("cannot sync the folder", folder, error))
}

fn inode(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
