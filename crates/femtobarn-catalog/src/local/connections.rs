//! The connections of one process to one catalogue.
//!
//! Invariants:
//! 1. There is one writer connection, used by the thread that holds its mutex, and a pool of readers.
//! 2. Connections are used only by the process that opened them.
//! 3. The open file is the file at the catalogue's path; otherwise commits would go to a file without a name.
//! 4. Nothing else in this process opens the catalogue's file or its shared memory: by the rules of POSIX, closing
//!    it would free the locks that SQLite holds on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::catalogue_place::CataloguePlace;
use super::change_reports::{ChangeQueries, note_change};
use super::commit_queue::CommitQueue;
use super::commit_writer::{ChangeFailure, CommitWriter, Effect, NotedChange};
use super::connection::CatalogueConnection;
use super::file_writes::{self, path_of};
use super::known_rows::{self, KnownRows};
use super::log::{SharedLog, sync_alone};
use super::postgres_writer::{PostgresWriter, apply_in_savepoint};
use super::reader_pool::ReaderPool;
use super::role;
use super::wal_index::log_state;
use crate::commit::{self, Commit};
use crate::error::{Error, Result};
use crate::host;
use crate::ids::Csn;
use crate::locks::RecentChanges;
use crate::paths::{CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE};
use crate::schema::FederationIdentity;
use crate::sql::{AtPath, SqlConnection, SqlResult, Work, once};

/// The connections that one process opened.
pub(super) struct Connections {
    pub(super) place: CataloguePlace,
    pid: u32,
    inode: (u64, u64),
    pub(super) readers: ReaderPool,
    writer: Mutex<Option<Writer>>,
    /// A reader's handle of the log, so that readers do not wait for the writer of this process.
    readers_log: Mutex<Option<SharedLog>>,
    queue: CommitQueue,
    pub(super) known: Mutex<KnownRows>,
    pub(super) recent: Mutex<Option<Arc<RecentChanges>>>,
    pub(super) told: ChangeQueries,
    /// Whether a commit failed in the operating system, so that the state of the disk is unknown.
    failed: AtomicBool,
    /// Whether the last change had to wait for another process.
    are_others_committing: AtomicBool,
}

/// The connection that changes the catalogue.
enum Writer {
    Sqlite(CommitWriter),
    Postgres(PostgresWriter),
}

impl Connections {
    pub(super) fn new(place: CataloguePlace) -> Result<Self> {
        let inode = place.inode();
        let inode = inode.map_err(|error| Error::io("cannot look at", &place.path, error))?;
        Ok(Connections {
            place,
            pid: host::process_id(),
            inode,
            readers: ReaderPool::default(),
            writer: Mutex::default(),
            readers_log: Mutex::default(),
            queue: CommitQueue::default(),
            known: Mutex::default(),
            recent: Mutex::default(),
            told: ChangeQueries::default(),
            failed: AtomicBool::new(false),
            are_others_committing: AtomicBool::new(false),
        })
    }

    /// The process that opened them.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn place(&self) -> &CataloguePlace {
        &self.place
    }

    /// Whether the folder now shows that its catalogue is elsewhere.
    pub(super) fn has_moved(&self) -> bool {
        let folder = self.place.folder();
        if !self.is_postgres() {
            return folder.join(CATALOGUE_ADDRESS_FILE).exists();
        }
        match self.place.inode() {
            Ok(found) => found != self.inode,
            Err(_) => folder.join(CATALOGUE_FILE).exists(),
        }
    }

    pub(super) fn is_postgres(&self) -> bool {
        self.place.postgres.is_some()
    }

    /// Whether PostgreSQL refuses changes, as far as this process knows; `None` for a file. A background thread asks
    /// the server again, so no caller waits.
    pub(super) fn is_read_only(self: &Arc<Self>) -> Option<bool> {
        let address = self.place.postgres.as_ref()?;
        if address.begin_asking_again() {
            let of = Arc::clone(self);
            drop(thread::Builder::new().spawn(move || of.look_for_primary()));
        }
        Some(address.is_read_only())
    }

    fn look_for_primary(&self) {
        if let (Ok(_turn), Ok(reader)) = (self.readers.wait(&self.place.path), self.reader()) {
            reader.look_for_primary();
            self.keep(reader);
        }
    }

    /// Runs a look-up. It sees a consistent catalogue only within one statement.
    pub(super) fn read<T>(
        &self,
        look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        once(look_up, |look_up| self.look_up(look_up))
    }

    fn look_up(&self, look_up: Work<'_>) -> Result<()> {
        self.check_in_place()?;
        let _turn = match self.place.postgres {
            None => None,
            Some(_) => Some(self.readers.wait(&self.place.path)?),
        };
        let reader = self.reader()?;
        let found = look_up(&reader.sql).at(&self.place.path);
        self.keep(reader);
        found
    }

    /// Runs a change in a transaction of its own, without checking the catalogue's role or place; durable when this
    /// returns.
    pub(super) fn write_unchecked<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        once(change, |change| self.change(change))
    }

    /// Runs a change as [`write_unchecked`](Self::write_unchecked) does, once.
    pub(super) fn change(&self, change: Work<'_>) -> Result<()> {
        let changed = self.run(&mut |sql| change(sql).map(|()| Effect::unknown()));
        changed.map(drop).map_err(|failed| self.record_failure(failed))
    }

    /// As [`change`](Self::change), for rows that no process keeps.
    pub(super) fn write_aside(&self, change: Work<'_>) -> Result<()> {
        let changed = self.run(&mut |sql| change(sql).map(|()| Effect::none()));
        changed.map(drop).map_err(|failed| self.record_failure(failed))
    }

    /// Runs a change that does not affect the contents of the catalogue, such as a new index. If it fails, nothing is
    /// in doubt; a change of the schema becomes durable with the next commit.
    pub(super) fn write_optional(&self, change: Work<'_>) -> Result<()> {
        let changed = self.run(&mut |sql| change(sql).map(|()| Effect::unknown()));
        changed.map(drop).map_err(|failed| failed.failure.at(&self.place.path))
    }

    fn run(
        &self,
        change: &mut dyn FnMut(&SqlConnection) -> SqlResult<Effect>,
    ) -> std::result::Result<Option<NotedChange>, ChangeFailure> {
        let mut slot = self.writer.lock();
        self.check_writable().map_err(ChangeFailure::before_commit)?;
        let writer = match &mut *slot {
            Some(writer) => writer,
            empty => empty.insert(self.open_writer().map_err(ChangeFailure::before_commit)?),
        };
        let writer = match writer {
            Writer::Sqlite(writer) => writer,
            Writer::Postgres(writer) => {
                let mut told = |sql: &SqlConnection| {
                    let effect = change(sql)?;
                    if effect.touches_rows() { note_change(sql) } else { Ok(()) }
                };
                return writer.run(&mut told).map(|_| None);
            }
        };
        let result = writer.run(change);
        self.are_others_committing.store(writer.has_waited(), Ordering::Relaxed);
        if self.failed.load(Ordering::Acquire) {
            writer.connection.disable_checkpoint_on_close();
        }
        if !writer.connection.sql.is_autocommit() {
            // The transaction could not be rolled back, so its connection is closed, which ends it.
            *slot = None;
        }
        result
    }

    /// Runs a look-up as [`read`](Self::read) does. What it returns is durable.
    ///
    /// # Errors
    /// Those of [`wait_durable`](Self::wait_durable).
    pub(super) fn read_durable<T>(
        &self,
        look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        let found = self.read(look_up)?;
        self.wait_durable()?;
        Ok(found)
    }

    /// Waits until all rows that look-ups have returned so far are durable. If a sync has failed, the log is mended
    /// first. PostgreSQL shows only durable rows.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the log cannot be made durable: a loss of power could undo what is read.
    pub(super) fn wait_durable(&self) -> Result<()> {
        if self.place.postgres.is_some() || self.sync_what_is_read().is_ok() {
            return Ok(());
        }
        // Every change mends the log first, or waits for the one that does. Whether that succeeded is seen next.
        drop(self.run(&mut |_| Ok(Effect::none())));
        self.sync_what_is_read().map_err(|error| Error::Unavailable {
            what: format!(
                "the newest commits of catalogue {} can be read, but a loss of power could undo them ({error}): check \
                 its disk, then open the federation again, or restart its server",
                self.place.path.display()
            ),
        })
    }

    fn sync_what_is_read(&self) -> Result<()> {
        let mut log = self.readers_log.lock();
        if log.is_none() {
            *log = SharedLog::open(&self.place.path).ok();
        }
        log.as_ref().map_or_else(|| sync_alone(&self.place.path), SharedLog::wait_durable)
    }

    /// The commits of threads that wait.
    pub(super) fn queue(&self) -> &CommitQueue {
        &self.queue
    }

    /// Publishes several commits in one durable write.
    pub(super) fn publish(&self, group: &[Commit]) -> Vec<Result<Csn>> {
        if self.place.postgres.is_some() {
            let published = self.publish_to_postgres(group);
            return published.unwrap_or_else(|error| vec![Err(error); group.len()]);
        }
        let mut results = vec![];
        let applied = self.run(&mut |sql| {
            self.check_leader(sql)?;
            results = match group {
                [one] => vec![Ok(commit::apply(sql, one, self.is_checked(sql, one))?)],
                several => {
                    let apply = |each| apply_in_savepoint(sql, &self.place.path, each);
                    several.iter().map(apply).collect::<SqlResult<_>>()?
                }
            };
            Ok(known_rows::effect(group, &results))
        });
        match applied {
            Ok(noted) => {
                if let Some((page, before)) = noted {
                    let published = known_rows::published(group, &results);
                    self.known.lock().apply(&page, before, published);
                }
                results
            }
            Err(failed) => vec![Err(self.record_failure(failed)); group.len()],
        }
    }

    /// Checks [`role::check_leader`] in the transaction that is open on `sql`.
    fn check_leader(&self, sql: &SqlConnection) -> SqlResult<()> {
        let state = log_state(sql);
        if self.with_known(state, |known| known.leads()) != Some(true) {
            role::check_leader(sql)?;
            self.with_known(state, KnownRows::note_leader);
        }
        Ok(())
    }

    /// Whether the rows that this process has in memory admit the commit, in the transaction that is open on `sql`.
    fn is_checked(&self, sql: &SqlConnection, commit: &Commit) -> bool {
        self.with_known(log_state(sql), |known| known.admits(commit)) == Some(true)
    }

    fn publish_to_postgres(&self, group: &[Commit]) -> Result<Vec<Result<Csn>>> {
        let path = |id| self.read(|sql| path_of(sql, id));
        let stored = file_writes::make_durable(self.place.folder(), group, path)?;
        let durable = group.iter().zip(&stored).filter(|(_, stored)| stored.is_ok());
        let without_writes = |commit: &Commit| Commit { writes: vec![], ..commit.clone() };
        let durable: Vec<Commit> = durable.map(|(commit, _)| without_writes(commit)).collect();
        let mut published = self.publish_durable(&durable)?.into_iter();
        let lost = || Err(Error::internal("a commit of a group has no result"));
        let result =
            |stored: Result<()>| stored.and_then(|()| published.next().unwrap_or_else(lost));
        Ok(stored.into_iter().map(result).collect())
    }

    /// Publishes to PostgreSQL commits without bytes of files, or with bytes that are durable already.
    fn publish_durable(&self, group: &[Commit]) -> Result<Vec<Result<Csn>>> {
        if group.is_empty() {
            return Ok(vec![]);
        }
        let mut slot = self.writer.lock();
        self.check_writable()?;
        let writer = match &mut *slot {
            Some(writer) => writer,
            empty => empty.insert(self.open_writer()?),
        };
        let Writer::Postgres(writer) = writer else {
            return Err(Error::internal("the writer is not PostgreSQL's"));
        };
        self.note_own(group);
        let published = writer.publish(&self.place.path, group);
        self.known.lock().forget_failed(group, &published);
        published
    }

    fn reader(&self) -> Result<CatalogueConnection> {
        while let Some(reader) = self.readers.take() {
            if !reader.is_stale(&self.place.path) {
                return Ok(reader);
            }
        }
        match &self.place.postgres {
            None => Ok(self.open_reader()?.0),
            Some(address) => Ok(CatalogueConnection::to_postgres(address)),
        }
    }

    pub(super) fn open_reader(&self) -> Result<(CatalogueConnection, FederationIdentity)> {
        match &self.place.postgres {
            None => CatalogueConnection::open_reader(&self.place.path),
            Some(address) => CatalogueConnection::open_postgres_reader(&self.place.path, address),
        }
    }

    pub(super) fn keep(&self, reader: CatalogueConnection) {
        if self.failed.load(Ordering::Acquire) {
            reader.disable_checkpoint_on_close();
        }
        self.readers.keep(reader);
    }

    pub(super) fn are_others_committing(&self) -> bool {
        self.are_others_committing.load(Ordering::Relaxed)
    }

    fn open_writer(&self) -> Result<Writer> {
        // The writer keeps this connection to PostgreSQL; it does not return to the pool of readers.
        let reader = self.reader()?;
        reader.connect(&self.place.path)?;
        reader.look_for_primary();
        let read_only = reader.is_read_only();
        if !read_only && self.place.postgres.is_some() {
            return Ok(Writer::Postgres(PostgresWriter::new(reader)));
        }
        self.keep(reader);
        if read_only {
            return Err(Error::denied(format!(
                "catalogue {} is read-only here; nothing was committed",
                self.place.path.display()
            )));
        }
        let writer = CommitWriter::open(&self.place.path)?;
        // The log's directory entry is new. SQLite syncs the folder, too, but ignores a failure.
        self.place.sync_folder()?;
        Ok(Writer::Sqlite(writer))
    }

    fn check_writable(&self) -> Result<()> {
        self.check_in_place()?;
        self.check_not_failed()
    }

    pub(super) fn check_not_failed(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::closed(format!(
                "an earlier commit to catalogue {} failed in the operating system; \
                 open the federation again, or restart its server, and check which transactions it has",
                self.place.path.display()
            )));
        }
        Ok(())
    }

    pub(super) fn check_in_place(&self) -> Result<()> {
        match self.place.inode() {
            Ok(found) if found == self.inode => Ok(()),
            Ok(_) => Err(self.gone("was replaced by another file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(self.gone("was deleted"))
            }
            Err(error) => Err(Error::io("cannot look at", &self.place.path, error)),
        }
    }

    fn gone(&self, what: &str) -> Error {
        Error::closed(format!(
            "catalogue {} {what} while it was open; put it back, or open the federation again",
            self.place.path.display()
        ))
    }

    /// Refuses all later commits if this one may be on the disk: COMMIT or its sync failed in the operating system.
    fn record_failure(&self, failed: ChangeFailure) -> Error {
        let ChangeFailure { failure, is_in_doubt } = failed;
        match failure.at(&self.place.path) {
            Error::Io { what, source } if is_in_doubt => {
                self.failed.store(true, Ordering::Release);
                self.readers.each_idle(CatalogueConnection::disable_checkpoint_on_close);
                let what = format!("whether the commit is durable is not known, {what}");
                Error::Io { what, source }
            }
            Error::Unavailable { what } if is_in_doubt => Error::Unavailable {
                what: format!("whether the change was made is not known, {what}"),
            },
            error => error,
        }
    }

    pub(super) fn disconnect(&self) {
        *self.readers_log.lock() = None;
        self.readers.clear();
        *self.writer.lock() = None;
    }

    /// In a forked child: closes the inherited connections that were idle. Those that another thread of the parent
    /// was using stay locked for ever, because that thread does not exist in the child.
    pub(super) fn leave_to_parent(self: Arc<Self>) {
        self.readers.clear_inherited();
        if let Some(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        std::mem::forget(self);
    }
}
