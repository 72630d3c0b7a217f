//! Sessions of connected clients: identity, open files, and traffic.
//!
//! 1. A session's id cannot be guessed. It authorises its holder to bind connections to the session, and to end it.
//! 2. Counters only grow, and each is read separately: a reading of several is not a snapshot.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use femtobarn_catalog::clock;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use super::handles::Handles;
use super::session_recovery::{
    BrokenSessions, Inheritance, InheritedFiles, OpenedSnapshot, SessionKey,
};
use crate::auth::Identity;

/// Requests and traffic.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests.
    pub requests: AtomicU64,
    /// Bytes that were received.
    pub bytes_in: AtomicU64,
    /// Bytes that were sent.
    pub bytes_out: AtomicU64,
    /// Requests that failed.
    pub errors: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds all counters of another set.
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

/// A client's description of itself, which is not verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user's name.
    pub user: String,
    /// The program.
    pub program: String,
    /// The id of the client's process.
    pub process: i32,
    /// Whether the client accepts delayed answers, sent after those to later requests.
    pub takes_late_answers: bool,
}

/// A session of a connected client.
pub struct ClientSession {
    /// The secret id, for binding connections and ending the session.
    pub id: SessionKey,
    /// The public number, for lists and logs.
    pub number: u64,
    /// The client's description of itself.
    pub client: ClientInfo,
    /// The client's address.
    pub host: SocketAddr,
    /// When the session began.
    pub since: SystemTime,
    /// Open files.
    pub handles: Handles,
    /// The files of lost sessions that the client continues in this one.
    pub inheritance: Inheritance,
    /// Requests and traffic.
    pub counters: Counters,
    /// The client's name for its work.
    pub application: RwLock<String>,
    identity: RwLock<Option<Arc<Identity>>>,
    was_active: AtomicBool,
    is_ended: AtomicBool,
    ended: Notify,
}

impl ClientSession {
    /// The client's identity, once it is authenticated.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.read().clone()
    }

    /// Sets the client's identity, if it has none, is anonymous, or has shown another token before. Returns false for
    /// the identity of a different client, which would get access to the files that this one opened.
    pub fn identify(&self, identity: Identity) -> bool {
        let mut current = self.identity.write();
        let is_same = current.as_ref().is_none_or(|current| {
            current.how == "anonymous"
                || (current.how == identity.how && current.owner() == identity.owner())
        });
        if is_same {
            *current = Some(Arc::new(identity));
        }
        is_same
    }

    /// The files that the client may open again in its next session: those that show snapshots which the client did not
    /// name, and inherited ones that it has not opened again yet.
    fn inheritable_files(&self) -> InheritedFiles {
        let files = self.handles.all().into_iter();
        let opened = files.filter_map(|file| {
            Some(OpenedSnapshot { path: file.path.clone(), snapshot: file.unnamed_snapshot? })
        });
        InheritedFiles::of(self.since, opened).with(self.inheritance.rest())
    }

    /// Counts a request.
    pub fn count_request(&self) {
        Counters::add(&self.counters.requests, 1);
    }

    /// Counts received bytes.
    pub fn count_received(&self, count: u64) {
        self.was_active.store(true, Ordering::Relaxed);
        Counters::add(&self.counters.bytes_in, count);
    }

    /// Counts sent bytes.
    pub fn count_sent(&self, count: u64) {
        self.was_active.store(true, Ordering::Relaxed);
        Counters::add(&self.counters.bytes_out, count);
    }

    /// Logs the end of the session, if its beginning was logged.
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

    /// Ends the session: its connections close.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// Whether the session was ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Waits until the session is ended.
    pub async fn ended(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        // Registered before the flag is read, so that no notification is missed.
        ended.as_mut().enable();
        if !self.is_ended() {
            ended.await;
        }
    }
}

/// All sessions of a server.
pub struct ClientSessions {
    sessions: Mutex<HashMap<SessionKey, Arc<ClientSession>>>,
    broken: BrokenSessions,
    last: AtomicU64,
    /// The sums of ended sessions.
    past: Counters,
}

impl Default for ClientSessions {
    fn default() -> Self {
        ClientSessions {
            sessions: Mutex::default(),
            broken: BrokenSessions::new(clock::utc()),
            last: AtomicU64::default(),
            past: Counters::default(),
        }
    }
}

impl ClientSessions {
    /// Begins a session.
    pub fn begin(&self, client: ClientInfo, host: SocketAddr) -> Arc<ClientSession> {
        let since = clock::utc();
        let session = Arc::new(ClientSession {
            id: self.broken.new_session_id(since),
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            client,
            host,
            since,
            handles: Handles::default(),
            inheritance: Inheritance::default(),
            counters: Counters::default(),
            application: RwLock::default(),
            identity: RwLock::default(),
            was_active: AtomicBool::new(true),
            is_ended: AtomicBool::new(false),
            ended: Notify::new(),
        });
        self.sessions().insert(session.id, Arc::clone(&session));
        session
    }

    /// The session of this id.
    pub fn get(&self, id: &SessionKey) -> Option<Arc<ClientSession>> {
        self.sessions().get(id).cloned()
    }

    /// Lets a session inherit the files of an earlier session of its client, which is ended.
    pub fn inherit(&self, session: &ClientSession, from: &SessionKey) {
        // Both tables change under one lock, as in `remove`: the other session is always in one of them.
        let mut sessions = self.sessions();
        let other = sessions.remove(from);
        if let Some(other) = &other {
            self.past.add_all(&other.counters);
            self.broken.remember(other.id, other.inheritable_files());
        }
        session.inheritance.add(self.broken.take(from));
        drop(sessions);
        if let Some(other) = other {
            other.end();
            other.log_end();
        }
    }

    /// Removes a session whose connection is closed, and remembers the files that its client may open again.
    pub fn remove(&self, session: &ClientSession) {
        let mut sessions = self.sessions();
        if sessions.remove(&session.id).is_some() {
            self.broken.remember(session.id, session.inheritable_files());
            self.past.add_all(&session.counters);
            drop(sessions);
            session.log_end();
        }
    }

    /// All sessions, the oldest first.
    pub fn all(&self) -> Vec<Arc<ClientSession>> {
        let mut all: Vec<_> = self.sessions().values().cloned().collect();
        all.sort_by_key(|session| session.number);
        all
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.sessions().len()
    }

    /// The number of sessions since the server started.
    pub fn begun(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The sums of all sessions since the server started.
    pub fn totals(&self) -> Counters {
        let totals = Counters::default();
        totals.add_all(&self.past);
        self.all().iter().for_each(|session| totals.add_all(&session.counters));
        totals
    }

    /// Ends sessions without traffic since the last call.
    pub fn end_idle(&self) {
        for session in self.all() {
            if !session.was_active.swap(false, Ordering::Relaxed) {
                session.end();
            }
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<ClientSession>>> {
        self.sessions.lock()
    }
}
