//! The connections of one process to one catalogue.
//!
//! Invariants:
//! 1. There is one writer connection, used by whoever holds its mutex, and a pool of readers.
//! 2. Connections are used only by the process that opened them.
//! 3. The file that is open is the file at the path; otherwise commits would go to a file that
//!    nobody can find any more.
//! 4. Nothing else in this process opens the catalogue's file or its index of the log: closing it would free the locks
//!    that SQLite holds on it, as POSIX wants it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::connection::Handle;
use super::log::SharedLog;
use super::queue::CommitQueue;
use super::{CATALOGUE_FILE, LOCKS_FOLDER};
use crate::commit::{self, Commit};
use crate::error::{Attempt, Error, Failure, Result};
use crate::host;
use crate::ids::Csn;
use crate::locks::CommitOrder;
use crate::schema::Identity;

/// Idle reader connections that are kept.
const READERS_MAX: usize = 8;

/// The session of this process, made anew after a fork.
pub(super) struct Sessions {
    folder: PathBuf,
    read_only: bool,
    current: Mutex<Arc<Session>>,
}

impl Sessions {
    pub(super) fn open(folder: &Path) -> Result<(Self, Identity)> {
        let session = Session::new(folder)?;
        let (reader, identity) = Handle::open_reader(&session.path)?;
        let read_only = reader.is_read_only();
        session.keep(reader);
        let current = Mutex::new(Arc::new(session));
        Ok((Sessions { folder: folder.to_owned(), read_only, current }, identity))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn current(&self) -> Result<Arc<Session>> {
        let mut current = lock(&self.current);
        if current.pid != host::process_id() {
            let inherited = std::mem::replace(&mut *current, Arc::new(Session::new(&self.folder)?));
            inherited.leave_to_parent();
        }
        Ok(Arc::clone(&current))
    }

    pub(super) fn disconnect(&self) {
        let current = lock(&self.current);
        if current.pid == host::process_id() {
            current.disconnect();
        }
    }
}

/// The connections of one process.
pub(super) struct Session {
    path: PathBuf,
    pid: u32,
    inode: (u64, u64),
    readers: Mutex<Vec<Handle>>,
    writer: Mutex<Option<Writer>>,
    /// The log for readers, who do not wait for the writer of this process.
    seen: Mutex<Option<SharedLog>>,
    queue: CommitQueue,
    /// A commit failed halfway, so what the disk holds is not known.
    failed: AtomicBool,
}

struct Writer {
    handle: Handle,
    order: CommitOrder,
    log: SharedLog,
}

impl Writer {
    /// Runs `change` in its turn, and makes it durable after that.
    fn run<T>(
        &self,
        change: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> std::result::Result<T, Broken> {
        let before_end = |error: Error| Broken { failure: error.into(), at_the_end: false };
        let turn = self.order.wait().map_err(before_end)?;
        let numbers = self.log.numbers().map_err(before_end)?;
        if numbers.is_torn {
            self.log.mend(&self.handle.sql).map_err(before_end)?;
        }
        let changes = self.handle.sql.total_changes();
        let value = transact(&self.handle.sql, change)?;
        if self.handle.sql.total_changes() == changes {
            return Ok(value);
        }
        let noted = self.log.note(numbers);
        self.log.write_ahead(&self.handle.sql);
        drop(turn);
        match self.log.make_durable(noted) {
            Ok(()) => Ok(value),
            Err(error) => {
                // Others may be about to commit on top of this. If it fails again, they are told.
                drop(self.order.wait().and_then(|_turn| self.log.mend(&self.handle.sql)));
                Err(Broken { failure: error.into(), at_the_end: true })
            }
        }
    }
}

impl Session {
    fn new(folder: &Path) -> Result<Self> {
        let path = folder.join(CATALOGUE_FILE);
        let inode = inode(&path).map_err(|error| Error::io("cannot look at", &path, error))?;
        Ok(Session {
            path,
            pid: host::process_id(),
            inode,
            readers: Mutex::default(),
            writer: Mutex::default(),
            seen: Mutex::default(),
            queue: CommitQueue::default(),
            failed: AtomicBool::new(false),
        })
    }

    /// Runs a look-up. Each sees the catalogue as of one moment only if it is one statement.
    pub(super) fn read<T>(&self, look_up: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T> {
        self.check_in_place()?;
        let reader = self.reader()?;
        let found = look_up(&reader.sql).map_err(|failure| failure.at(&self.path));
        self.keep(reader);
        found
    }

    /// Runs `change` in a transaction of its own; it is durable when this returns.
    pub(super) fn write<T>(&self, change: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T> {
        let mut slot = lock(&self.writer);
        self.check_writable()?;
        let writer = match &mut *slot {
            Some(writer) => writer,
            empty => empty.insert(self.open_writer()?),
        };
        let result = writer.run(change).map_err(|broken| self.note(broken));
        if self.failed.load(Ordering::Acquire) {
            writer.handle.leave_log();
        }
        if !writer.handle.sql.is_autocommit() {
            // The transaction could not be rolled back, so its connection is given up with it.
            *slot = None;
        }
        result
    }

    /// Waits until all that look-ups found so far is durable. Where nothing can be written there is
    /// no log, or somebody else looks after it.
    pub(super) fn settle(&self) {
        let mut seen = lock(&self.seen);
        if seen.is_none() {
            *seen = SharedLog::open(&self.path).ok();
        }
        if let Some(log) = &*seen {
            log.settle();
        }
    }

    /// Publishes `commit`, together with those of other threads that wait at the same time.
    pub(super) fn commit(&self, commit: Commit) -> Result<Csn> {
        self.queue.submit(commit, |group| self.publish(group))
    }

    /// As [`Session::commit`] for several, of which those that make no sense are refused first.
    pub(super) fn commit_all(&self, commits: Vec<Commit>) -> Vec<Result<Csn>> {
        let checked: Vec<Result<()>> = commits.iter().map(Commit::validate).collect();
        let valid = commits.into_iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let valid: Vec<Commit> = valid.map(|(commit, _)| commit).collect();
        let mut published = match valid[..] {
            [] => vec![],
            _ => self.publish(&valid),
        }
        .into_iter();
        let lost = || Err(Error::internal("a commit of a group has no result"));
        let result =
            |checked: Result<()>| checked.and_then(|()| published.next().unwrap_or_else(lost));
        checked.into_iter().map(result).collect()
    }

    fn publish(&self, group: &[Commit]) -> Vec<Result<Csn>> {
        match group {
            [one] => vec![self.write(|sql| commit::apply(sql, one))],
            several => self.commit_group(several),
        }
    }

    /// One durable write for all. Each succeeds or fails by itself, unless that write fails.
    fn commit_group(&self, group: &[Commit]) -> Vec<Result<Csn>> {
        let applied = self
            .write(|sql| group.iter().map(|commit| self.apply_in_savepoint(sql, commit)).collect());
        match applied {
            Ok(results) => results,
            Err(error) => vec![Err(error); group.len()],
        }
    }

    fn apply_in_savepoint(&self, sql: &Connection, commit: &Commit) -> Attempt<Result<Csn>> {
        sql.prepare_cached("SAVEPOINT one")?.execute([])?;
        let applied = commit::apply(sql, commit);
        if applied.is_err() {
            if sql.is_autocommit() {
                // SQLite has rolled back everything, as it does when the disk is full.
                return applied.map(Ok);
            }
            sql.prepare_cached("ROLLBACK TO one")?.execute([])?;
        }
        sql.prepare_cached("RELEASE one")?.execute([])?;
        Ok(applied.map_err(|failure| failure.at(&self.path)))
    }

    fn reader(&self) -> Result<Handle> {
        while let Some(reader) = lock(&self.readers).pop() {
            if !reader.is_stale(&self.path) {
                return Ok(reader);
            }
        }
        Ok(Handle::open_reader(&self.path)?.0)
    }

    fn keep(&self, reader: Handle) {
        if self.failed.load(Ordering::Acquire) {
            reader.leave_log();
        }
        let mut readers = lock(&self.readers);
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
    }

    fn open_writer(&self) -> Result<Writer> {
        let reader = self.reader()?;
        let read_only = reader.is_read_only();
        self.keep(reader);
        if read_only {
            return Err(Error::denied(format!(
                "catalogue {} is read-only here; nothing was committed",
                self.path.display()
            )));
        }
        let handle = Handle::open_writer(&self.path)?;
        // The folder has the log by now. SQLite syncs it, and says nothing if that fails.
        sync_folder(&self.path)?;
        let locks = self.path.with_file_name(LOCKS_FOLDER);
        let order = CommitOrder::open(&locks)?;
        Ok(Writer { handle, order, log: SharedLog::open(&self.path)? })
    }

    fn check_writable(&self) -> Result<()> {
        self.check_in_place()?;
        self.check_not_failed()
    }

    pub(super) fn check_not_failed(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::closed(format!(
                "an earlier commit to catalogue {} failed in the operating system; \
                 open the federation again and look which transactions it has",
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

    /// A COMMIT that fails in the operating system, or is not synced, may be on the disk all the same.
    fn note(&self, broken: Broken) -> Error {
        match broken.failure.at(&self.path) {
            Error::Io { what, source } if broken.at_the_end => {
                self.failed.store(true, Ordering::Release);
                lock(&self.readers).iter().for_each(Handle::leave_log);
                let what = format!("whether the commit is durable is not known, {what}");
                Error::Io { what, source }
            }
            error => error,
        }
    }

    fn disconnect(&self) {
        *lock(&self.seen) = None;
        lock(&self.readers).clear();
        *lock(&self.writer) = None;
    }

    /// In a forked child: closes what it inherited idle. What another thread of the parent was
    /// using is left alone, since that thread does not exist here.
    fn leave_to_parent(self: Arc<Self>) {
        if let Ok(mut readers) = self.readers.try_lock() {
            readers.clear();
        }
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        std::mem::forget(self);
    }
}

/// A failed change, and whether it was the final COMMIT that failed, or the sync after it.
struct Broken {
    failure: Failure,
    at_the_end: bool,
}

fn transact<T>(
    sql: &Connection,
    change: impl FnOnce(&Connection) -> Attempt<T>,
) -> std::result::Result<T, Broken> {
    let run = |statement: &str| sql.prepare_cached(statement).and_then(|mut s| s.execute([]));
    let before_end = |failure| Broken { failure, at_the_end: false };
    run("BEGIN IMMEDIATE").map_err(|error| before_end(error.into()))?;
    let outcome = change(sql).map_err(before_end).and_then(|value| match run("COMMIT") {
        Ok(_) => Ok(value),
        Err(error) => Err(Broken { failure: error.into(), at_the_end: true }),
    });
    if !sql.is_autocommit() {
        // The first error is the one that matters; the caller notices if this one fails too.
        let _ = run("ROLLBACK");
    }
    outcome
}

/// Makes the entries of the folder in which a file is durable.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io("cannot sync the folder", folder, error))
}

fn inode(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A panic elsewhere leaves these collections whole, so a poisoned mutex is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
