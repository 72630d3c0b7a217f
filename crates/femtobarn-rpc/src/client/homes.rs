//! The sessions of a client whose federation has several servers: one with each server that is the home of a database
//! to which the client writes.
//!
//! 1. All these sessions have one id, so every server to which the client is redirected admits its writes under this
//!    id, and an owner of locks has one number at all servers.
//! 2. A change under a database's lock is sent to the server that granted the lock, while that server holds it.
//! 3. A server that does not answer is given up after [`SILENCE_MAX`]. Then the entry is asked for the home again,
//!    which may be another one, until the client's patience is over, or the entry reports that the home is given up.
//! 4. If the outcome of a transaction is unknown, the servers of its locks are informed: they free the locks when no
//!    commit with their fences can be made any more.
//! 5. A transaction shows the fence of each database that it writes to. If its answer is lost with a server, another
//!    server is asked for the outcome. A transaction that the other server refuses may still be published by the first
//!    one, unless that is not the home any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use femtobarn_catalog::{
    Commit, Csn, DatabaseId, Error, ErrorKind, Fence, HeldLock, Home, LeasedLocks, LockKind,
    LockTarget, NewestRows, Result, Waiter, clock,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::address::Address;
use super::calls::SentCommit;
use super::home_session::SessionsByServer;
use super::options::ConnectOptions;
use super::session::RemoteSession;
use crate::convert::needed;
use crate::v1::change_request::Of as Change;
use crate::v1::question::Of;
use crate::v1::{ChangeReply, Empty, ListLocksReply, Numbered};

/// How long to wait for a home that does not answer before the entry is asked for the home again.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Databases whose homes are remembered; all are forgotten when there are more.
const HOMES_MAX: usize = 4096;
/// The pause before a home is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// The sessions with the homes of databases.
pub(super) struct HomeSessions {
    pub(super) id: Uuid,
    /// The session that answers questions, which any server may have.
    entry: Arc<RemoteSession>,
    options: ConnectOptions,
    sessions: Mutex<SessionsByServer>,
    homes: Mutex<HashMap<DatabaseId, Home>>,
    last_owner: AtomicU64,
}

impl HomeSessions {
    pub(super) fn new(entry: Arc<RemoteSession>, options: &ConnectOptions) -> Self {
        let patience = options.patience.min(SILENCE_MAX);
        HomeSessions {
            id: Uuid::new_v4(),
            entry,
            options: ConnectOptions { patience, has_alternatives: true, ..options.clone() },
            sessions: Mutex::default(),
            homes: Mutex::default(),
            last_owner: AtomicU64::new(0),
        }
    }

    /// The home of a database, from memory or from the entry. For a new database, the home that it will get.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the entry does not answer.
    fn home(&self, database: DatabaseId) -> Result<Home> {
        if let Some(home) = self.homes.lock().get(&database) {
            return Ok(home.clone());
        }
        let it = Numbered { database: database.0, ..Numbered::default() };
        let answers = self.entry.runtime.block_on(self.entry.look_up(Of::Home(it)))?;
        let home = answers.iter().find_map(|answer| answer.home.clone());
        let home = Home::from(needed(home, "home")?);
        if home.is_alive {
            let mut homes = self.homes.lock();
            if homes.len() >= HOMES_MAX {
                homes.clear();
            }
            homes.insert(database, home.clone());
        }
        Ok(home)
    }

    /// The session with a server; opens it first if necessary.
    fn session(&self, server: &str, url: &str) -> Result<Arc<RemoteSession>> {
        let address = Address::parse(url)?;
        let (known, former) = self.sessions.lock().session_of(server, &address);
        if let Some(session) = former.as_ref().and_then(|it| it.opened.get()) {
            // That of a process before a fork is not this one's to close.
            if session.is_of_this_process() {
                session.close();
            }
        }
        let _one = known.opening.lock();
        if let Some(session) = known.opened.get() {
            // The server may be at another address since it joined again.
            session.places.learn(vec![address]);
            return Ok(Arc::clone(session));
        }
        self.entry.check_open()?;
        let (session, _) =
            RemoteSession::begin(&self.entry.runtime, &address, self.id, &self.options)?;
        Ok(Arc::clone(known.opened.get_or_init(|| session)))
    }

    /// The open sessions, by the names of their servers. A session that is being opened holds no lock yet, so it is
    /// left out.
    fn opened(&self) -> Vec<(String, Arc<RemoteSession>)> {
        self.sessions.lock().opened()
    }

    /// The session that has the lock of a database, and the name of its server.
    fn holder(&self, database: DatabaseId) -> Option<(String, Arc<RemoteSession>)> {
        self.opened().into_iter().find(|(_, session)| session.ledger().holds(database))
    }

    /// The server at which a database is locked.
    pub(super) fn server_of(&self, database: DatabaseId) -> Option<String> {
        self.holder(database).map(|(server, _)| server)
    }

    /// Asks the home of a database; repeats this if the home is offline or has changed.
    ///
    /// # Errors
    /// The last error of `ask`, when the client's patience is over.
    fn at_home<T>(
        &self,
        database: DatabaseId,
        mut ask: impl FnMut(&RemoteSession) -> Result<T>,
    ) -> Result<T> {
        let deadline = clock::now() + self.entry.patience();
        loop {
            let home = self.home(database);
            let is_given_up = home.as_ref().is_ok_and(Home::is_given_up);
            let asked = home.and_then(|home| {
                if !home.is_alive {
                    return Err(home.absence(database));
                }
                let session = self.session(&home.server, &home.url)?;
                ask(&session)
            });
            match asked {
                Err(error)
                    if may_be_elsewhere(&error) && !is_given_up && clock::now() < deadline =>
                {
                    self.homes.lock().remove(&database);
                    std::thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// Makes a change at the server that holds the lock of a database, or else at its home.
    ///
    /// # Errors
    /// The errors of the call.
    pub(super) fn change(
        &self,
        database: DatabaseId,
        change: &Change,
        is_once: bool,
    ) -> Result<Option<ChangeReply>> {
        let make = |session: &RemoteSession| {
            session.check_open()?;
            let change = change.clone();
            self.entry.runtime.block_on(async {
                if is_once {
                    session.change_once(change).await
                } else {
                    Ok(Some(session.change(change).await?.0))
                }
            })
        };
        let deadline = clock::now() + self.entry.patience();
        while let Some((server, session)) = self.holder(database) {
            match make(&session) {
                Err(error) if may_be_elsewhere(&error) && clock::now() < deadline => {
                    self.check_still_home(database, &server)?;
                    std::thread::sleep(PAUSE);
                }
                made => return made,
            }
        }
        self.at_home(database, make)
    }

    /// Fails if the server that granted the lock of a database is not its home any more, or is given up.
    fn check_still_home(&self, database: DatabaseId, holder: &str) -> Result<()> {
        self.homes.lock().remove(&database);
        match self.home(database) {
            Ok(home) if home.server != holder => {
                let Home { server, .. } = home;
                let what = format!(
                    "the lock on database {database} was lost when {server:?} became its home"
                );
                Err(Error::Changed { what })
            }
            Ok(home) if home.is_given_up() => Err(home.absence(database)),
            _ => Ok(()),
        }
    }

    /// Makes a change at a server, given by its name and URL.
    ///
    /// # Errors
    /// The errors of the call.
    pub(super) fn change_at(
        &self,
        (server, url): (&str, &str),
        change: Change,
    ) -> Result<ChangeReply> {
        let session = self.session(server, url)?;
        Ok(self.entry.runtime.block_on(session.change(change))?.0)
    }

    /// Whether the lock of a database was lost.
    pub(super) fn has_lost(&self, database: DatabaseId) -> bool {
        let lost = |(_, it): &(_, Arc<RemoteSession>)| {
            it.ledger().lost_database([database].into_iter()).is_some()
        };
        self.opened().iter().any(lost)
    }

    /// Publishes a transaction once: at the home of one of its databases, or, if that dies meanwhile, at the server of the
    /// entry.
    ///
    /// # Errors
    /// As [`RemoteSession::publish`].
    pub(super) fn publish(&self, mut commit: Commit) -> Result<Csn> {
        self.entry.check_open()?;
        let written = written_databases(&commit);
        for (_, session) in &self.opened() {
            session.check_locks(&commit)?;
        }
        commit.fences = self.fences(&written);
        let mut sent = SentCommit::new(&self.entry);
        let published = self.publish_at_one(&commit, &written, &mut sent);
        if published.is_err() && sent.why.is_some() {
            // A server may still publish it, under the locks of the other servers.
            let opened = self.opened();
            opened.iter().for_each(|(_, session)| session.ledger().doubt(&written));
        }
        published
    }

    fn publish_at_one(
        &self,
        commit: &Commit,
        written: &BTreeSet<DatabaseId>,
        sent: &mut SentCommit,
    ) -> Result<Csn> {
        let runtime = &self.entry.runtime;
        if let Some((_, home)) = written.iter().find_map(|database| self.holder(*database)) {
            let published = runtime.block_on(home.publish(commit, sent));
            match published {
                Err(error) if sent.why.is_some() || error.kind() == ErrorKind::Unavailable => {}
                published => {
                    published.iter().for_each(|csn| self.entry.observe_head(*csn));
                    return published;
                }
            }
        }
        let was_sent = sent.why.is_some();
        match runtime.block_on(self.entry.publish(commit, sent)) {
            // The error of a transaction that is in doubt already.
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            Err(refused) if was_sent => self.settle(commit, sent, refused),
            published => published,
        }
    }

    /// The outcome of a transaction that the entry has refused, but another server may have received before. If one of
    /// its fences is of a server that is not the home any more, it cannot be published any more, but may have been
    /// published earlier.
    fn settle(&self, commit: &Commit, sent: &SentCommit, refused: Error) -> Result<Csn> {
        let has_moved = |fence: &Fence| {
            self.homes.lock().remove(&fence.database);
            // A database that is not committed yet has no home; the answer is then the home that it would get.
            self.home(fence.database)
                .is_ok_and(|home| home.epoch > 0 && home.server != fence.server)
        };
        if commit.fences.iter().any(has_moved)
            && let Ok(made) = self.entry.runtime.block_on(self.entry.find_sent(commit, sent.after))
        {
            return made.ok_or(refused);
        }
        Err(self.entry.in_doubt(refused, sent))
    }

    fn fences(&self, databases: &BTreeSet<DatabaseId>) -> Vec<Fence> {
        let opened = self.opened();
        let fences = opened.iter().flat_map(|(_, session)| session.ledger().fences(databases));
        fences.collect()
    }

    /// The locks at each server that is alive.
    fn list_all_locks(&self) -> Result<Vec<ListLocksReply>> {
        self.entry.check_open()?;
        let answers = self.entry.runtime.block_on(self.entry.look_up(Of::Servers(Empty {})))?;
        let servers = answers.iter().flat_map(|answer| &answer.servers);
        let listed = servers.filter(|server| server.alive).map(|server| {
            let session = self.session(&server.name, &server.url)?;
            self.entry.runtime.block_on(session.list_locks(None))
        });
        listed.collect()
    }

    /// Limits the waits of all sessions; see [`RemoteSession::begin_close`].
    pub(super) fn begin_close(&self) {
        self.opened().iter().for_each(|(_, session)| session.begin_close());
    }

    /// Closes the sessions.
    pub(super) fn close(&self) {
        self.opened().iter().for_each(|(_, session)| session.close());
    }
}

/// The databases of a commit whose locks its transaction must hold.
fn written_databases(commit: &Commit) -> BTreeSet<DatabaseId> {
    let changed = commit.versions.iter().map(|version| version.database);
    changed.chain(commit.new_databases.iter().map(|new| new.id)).collect()
}

/// Whether another server may answer, or this one may do so later.
fn may_be_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Elsewhere { .. }) || error.kind() == ErrorKind::Unavailable
}

/// The database of all targets, if they have one.
fn common_database(locks: &[(LockTarget, LockKind)]) -> Option<DatabaseId> {
    let first = locks.first()?.0.database()?;
    locks.iter().all(|(target, _)| target.database() == Some(first)).then_some(first)
}

impl LeasedLocks for HomeSessions {
    fn new_owner(&self) -> u64 {
        self.last_owner.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<()> {
        let Some(database) = target.database() else {
            let what = format!("{target} is locked in the folder of a server: run this there");
            return Err(Error::Unsupported { what });
        };
        let since = clock::now();
        self.at_home(database, |session| {
            let left = wait.map(|wait| wait.saturating_sub(since.elapsed()));
            session.lock(owner, target, kind, left)
        })
    }

    fn lock_together(
        &self,
        owner: u64,
        locks: &[(LockTarget, LockKind)],
        wait: Duration,
    ) -> (Vec<Result<()>>, Option<NewestRows>) {
        let Some(database) = common_database(locks) else {
            let lock = |(target, kind): &(_, _)| self.lock(owner, *target, *kind, Some(wait));
            return (locks.iter().map(lock).collect(), None);
        };
        let since = clock::now();
        let locked = self.at_home(database, |session| {
            let left = wait.saturating_sub(since.elapsed());
            let (locked, rows) = session.lock_together(owner, locks, left);
            let failed = |locked: &Result<()>| locked.as_ref().err().cloned();
            match locked.iter().filter_map(failed).find(may_be_elsewhere) {
                Some(error) => {
                    let held = locks.iter().zip(&locked).filter(|(_, locked)| locked.is_ok());
                    let held: Vec<_> = held.map(|((target, _), _)| *target).collect();
                    session.unlock(owner, &held);
                    Err(error)
                }
                None => Ok((locked, rows)),
            }
        });
        locked.unwrap_or_else(|error| (vec![Err(error); locks.len()], None))
    }

    fn unlock(&self, owner: u64, targets: &[LockTarget]) {
        // Each session frees only the locks that it holds itself.
        self.opened().iter().for_each(|(_, session)| session.unlock(owner, targets));
    }

    fn held(&self) -> Result<Vec<HeldLock>> {
        let listed = self.list_all_locks()?.into_iter();
        listed.flat_map(|reply| reply.held).map(TryInto::try_into).collect()
    }

    fn waiting(&self) -> Result<Vec<Waiter>> {
        let listed = self.list_all_locks()?.into_iter();
        listed.flat_map(|reply| reply.waiting).map(TryInto::try_into).collect()
    }
}

impl std::fmt::Debug for HomeSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HomeSessions").field("entry", &self.entry).finish_non_exhaustive()
    }
}
