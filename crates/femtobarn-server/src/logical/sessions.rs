//! Sessions: who is connected, with which files, and how much they have moved.
//!
//! 1. A session's id cannot be guessed: who knows it may add connections to the session and end it.
//! 2. Counters are only ever added to, each by itself: a look at them is no snapshot.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use tokio::sync::Notify;

use super::handles::Handles;
use super::reopening::{BrokenSessions, Inheritance, Inherited, Opened, SessionId};
use crate::auth::Identity;

/// What was moved and asked.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests.
    pub requests: AtomicU64,
    /// Bytes that came.
    pub bytes_in: AtomicU64,
    /// Bytes that went.
    pub bytes_out: AtomicU64,
    /// Requests that were refused.
    pub errors: AtomicU64,
}

impl Counters {
    /// Adds to one of them.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds all of another's.
    pub fn add_all(&self, other: &Counters) {
        let pairs = [
            (&self.requests, &other.requests),
            (&self.bytes_in, &other.bytes_in),
            (&self.bytes_out, &other.bytes_out),
            (&self.errors, &other.errors),
        ];
        for (mine, theirs) in pairs {
            Counters::add(mine, theirs.load(Ordering::Relaxed));
        }
    }
}

/// What a client says of itself, without proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The user's name.
    pub user: String,
    /// The program.
    pub program: String,
    /// The number of its process.
    pub process: i32,
    /// Whether it takes answers that come later than those to what it asks next.
    pub takes_late_answers: bool,
}

/// Somebody who is connected.
pub struct Session {
    /// Names it to those who may join or end it.
    pub id: SessionId,
    /// Names it to everybody.
    pub number: u64,
    /// What the client says of itself.
    pub client: Client,
    /// Where it comes from.
    pub host: SocketAddr,
    /// When it began.
    pub since: SystemTime,
    /// The files that it has open.
    pub handles: Handles,
    /// What sessions had open whose clients go on in this one.
    pub inheritance: Inheritance,
    /// What it moved.
    pub counters: Counters,
    /// What the client calls its work.
    pub application: RwLock<String>,
    identity: OnceLock<Identity>,
    was_active: AtomicBool,
    is_ended: AtomicBool,
    ended: Notify,
}

impl Session {
    /// Who it is, once that is known.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.get()
    }

    /// Says who it is; the first word counts.
    pub fn identify(&self, identity: Identity) {
        // A second identity would let a client change what it opened as somebody else.
        let _ = self.identity.set(identity);
    }

    /// What the client may open again in another session: what it has open as of snapshots that it did not name,
    /// and what it had so before and has not opened again.
    fn opened(&self) -> Inherited {
        let files = self.handles.all().into_iter();
        let opened = files.filter_map(|file| {
            Some(Opened { path: file.path.clone(), snapshot: file.unnamed_snapshot? })
        });
        Inherited::of(self.since, opened).with(self.inheritance.rest())
    }

    /// Counts a request.
    pub fn asked(&self) {
        Counters::add(&self.counters.requests, 1);
    }

    /// Counts bytes that came.
    pub fn received(&self, count: u64) {
        self.was_active.store(true, Ordering::Relaxed);
        Counters::add(&self.counters.bytes_in, count);
    }

    /// Counts bytes that went.
    pub fn sent(&self, count: u64) {
        self.was_active.store(true, Ordering::Relaxed);
        Counters::add(&self.counters.bytes_out, count);
    }

    /// Tells the log of its end, if that was told of its beginning.
    fn log_end(&self) {
        let Some(identity) = self.identity() else { return };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, age) = (&self.counters, self.since.elapsed().unwrap_or_default());
        tracing::info!(
            session = self.number,
            peer = %self.host,
            user = %identity.name,
            seconds = age.as_secs(),
            requests = count(&counters.requests),
            refused = count(&counters.errors),
            bytes_read = count(&counters.bytes_out),
            bytes_written = count(&counters.bytes_in),
            "session ends"
        );
    }

    /// Ends it: its connections close.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Waits until it is ended.
    pub async fn ended(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        // Who listens before looking misses nothing.
        ended.as_mut().enable();
        if !self.is_ended() {
            ended.await;
        }
    }
}

/// Everybody who is connected.
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    broken: BrokenSessions,
    last: AtomicU64,
    /// What sessions moved that are over.
    past: Counters,
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions {
            sessions: Mutex::default(),
            broken: BrokenSessions::new(SystemTime::now()),
            last: AtomicU64::default(),
            past: Counters::default(),
        }
    }
}

impl Sessions {
    /// Begins one.
    pub fn begin(&self, client: Client, host: SocketAddr) -> Arc<Session> {
        let since = SystemTime::now();
        let session = Arc::new(Session {
            id: self.broken.new_session_id(since),
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            client,
            host,
            since,
            handles: Handles::default(),
            inheritance: Inheritance::default(),
            counters: Counters::default(),
            application: RwLock::default(),
            identity: OnceLock::new(),
            was_active: AtomicBool::new(true),
            is_ended: AtomicBool::new(false),
            ended: Notify::new(),
        });
        self.sessions().insert(session.id, Arc::clone(&session));
        session
    }

    /// The session of this id.
    pub fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    /// Lets a session go on from another one, which ends if it has not.
    pub fn go_on(&self, session: &Session, from: &SessionId) {
        // Looked at together, as in `remove`: it is known there or here.
        let mut sessions = self.sessions();
        let other = sessions.remove(from);
        if let Some(other) = &other {
            self.past.add_all(&other.counters);
            self.broken.remember(other.id, other.opened());
        }
        session.inheritance.add(self.broken.take(from));
        drop(sessions);
        if let Some(other) = other {
            other.end();
            other.log_end();
        }
    }

    /// Forgets a session, whose connection is gone, but for what its client may open again.
    pub fn remove(&self, session: &Session) {
        let mut sessions = self.sessions();
        if sessions.remove(&session.id).is_some() {
            self.broken.remember(session.id, session.opened());
            self.past.add_all(&session.counters);
            drop(sessions);
            session.log_end();
        }
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.sessions().values().cloned().collect();
        all.sort_by_key(|session| session.number);
        all
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sessions().len()
    }

    /// How many there ever were.
    pub fn begun(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// What all sessions moved since the server began.
    pub fn totals(&self) -> Counters {
        let totals = Counters::default();
        totals.add_all(&self.past);
        self.all().iter().for_each(|session| totals.add_all(&session.counters));
        totals
    }

    /// Ends those that moved nothing since the last call.
    pub fn end_idle(&self) {
        for session in self.all() {
            if !session.was_active.swap(false, Ordering::Relaxed) {
                session.end();
            }
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
