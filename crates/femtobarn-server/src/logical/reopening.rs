//! The snapshots that a client's files showed when its connection broke, so that it opens the same ones again.
//!
//! XRootD's clients open their files again after trouble, by the path that they had, and go on reading where they
//! were; by then the path may show a newer snapshot. Their first request is kXR_endsess with the id of the
//! session that broke, so the new session inherits what that one had open.
//!
//! Invariants:
//! 1. While a path is inherited, each open of it that names no snapshot gets the inherited one. It is inherited
//!    until it was opened as often as it had been open, and all files that were opened so are closed.
//! 2. Of a session of another server (one before this, or behind the same name) only the begin is known, from its
//!    id. A session that inherits from it, at any remove, may open files that have not changed since then; any other
//!    is refused with ESTALE. Where two servers ended in between, only the begin of the last session is known.
//! 3. The memory is bounded; a session or a path that is forgotten is treated as one of another server.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use uuid::Uuid;

use crate::physical::{StorageError, StoragePath, StorageResult};

/// Paths of broken sessions that are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// Paths that one session inherits.
const INHERITED_MAX: usize = 10_000;
/// Bytes of a session's id that tell when it began, in milliseconds since 1970, big-endian.
const TIME_BYTES: usize = 6;
/// Bytes of a session's id that tell its server, drawn when that starts; they stand behind the time.
const SERVER_BYTES: usize = 2;

/// The id of a session: it tells when and at which server the session began, and cannot be guessed.
pub type SessionId = [u8; 16];

/// A file that was open as of a snapshot that its client did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The path that the client named.
    pub path: StoragePath,
    /// The number of the snapshot's commit.
    pub snapshot: u64,
}

/// Files that sessions had open when they ended, for the session that inherits them.
#[derive(Debug, Default)]
pub struct Inherited {
    paths: HashMap<StoragePath, Before>,
    /// The earliest begin of the sessions that had them open.
    since: Option<SystemTime>,
    /// The earliest begin of the sessions that this server does not know.
    unknown_since: Option<SystemTime>,
}

/// What a path was open as.
#[derive(Debug)]
struct Before {
    /// None if it was open as of several.
    snapshot: Option<u64>,
    /// How often it was open and has not been opened again.
    waiting: usize,
    /// Opens of it that are under way, and files that came from such.
    claims: usize,
}

impl Inherited {
    /// The files of a session that began then.
    pub fn of(since: SystemTime, files: impl IntoIterator<Item = Opened>) -> Self {
        let mut all = Inherited { since: Some(since), ..Inherited::default() };
        files.into_iter().for_each(|Opened { path, snapshot }| all.add(path, Some(snapshot), 1));
        all
    }

    fn add(&mut self, path: StoragePath, snapshot: Option<u64>, waiting: usize) {
        let before = self.paths.entry(path).or_insert(Before { snapshot, waiting: 0, claims: 0 });
        before.snapshot = before.snapshot.filter(|one| Some(*one) == snapshot);
        before.waiting += waiting;
    }

    /// Both of them.
    #[must_use]
    pub fn with(mut self, other: Inherited) -> Self {
        self.merge(other);
        self
    }

    fn merge(&mut self, other: Inherited) {
        let Inherited { paths, since, unknown_since } = other;
        for (path, before) in paths {
            self.add(path, before.snapshot, before.waiting);
        }
        self.since = earliest(self.since, since);
        self.unknown_since = earliest(self.unknown_since, unknown_since);
    }

    /// Entries that it takes of the memory: one at least, for the begins.
    fn count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// The begin of the earliest session that something of this is from.
    fn begin(&self) -> Option<SystemTime> {
        earliest(self.since, self.unknown_since)
    }
}

fn earliest(one: Option<SystemTime>, other: Option<SystemTime>) -> Option<SystemTime> {
    one.into_iter().chain(other).min()
}

/// What broken sessions had open.
#[derive(Debug)]
pub struct BrokenSessions {
    server: [u8; SERVER_BYTES],
    memory: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    sessions: VecDeque<(SessionId, Inherited)>,
    count: usize,
    /// Sessions that began before this are not known.
    known_since: SystemTime,
    /// The begin of the earliest session that something forgotten is from.
    forgotten_since: Option<SystemTime>,
}

impl BrokenSessions {
    /// Ids from before `now` belong to earlier servers.
    pub fn new(now: SystemTime) -> Self {
        let (sessions, count) = (VecDeque::new(), 0);
        let [first, second, ..] = Uuid::new_v4().into_bytes();
        // Ids tell milliseconds.
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX >> TIME_BYTES);
        let known_since = UNIX_EPOCH + Duration::from_millis(since);
        let memory = Memory { sessions, count, known_since, forgotten_since: None };
        BrokenSessions { server: [first, second], memory: Mutex::new(memory) }
    }

    /// An id for a session of this server that begins now.
    pub fn new_session_id(&self, now: SystemTime) -> SessionId {
        let mut id = Uuid::new_v4().into_bytes();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).to_be_bytes();
        id[..TIME_BYTES].copy_from_slice(&time[size_of::<u64>() - TIME_BYTES..]);
        id[TIME_BYTES..][..SERVER_BYTES].copy_from_slice(&self.server);
        id
    }

    /// Remembers what a session had open when it ended.
    pub fn remember(&self, session: SessionId, left: Inherited) {
        if left.paths.is_empty() && left.unknown_since.is_none() {
            return;
        }
        let mut memory = locked(&self.memory);
        memory.count += left.count();
        memory.sessions.push_back((session, left));
        while memory.count > REMEMBERED_MAX {
            let Some((forgotten, left)) = memory.sessions.pop_front() else { return };
            memory.count -= left.count();
            let began = time_of(&forgotten) + Duration::from_millis(1);
            memory.known_since = memory.known_since.max(began);
            memory.forgotten_since = earliest(memory.forgotten_since, left.begin());
        }
    }

    /// Takes what an ended session had open, for the session that inherits it.
    pub fn take(&self, session: &SessionId) -> Inherited {
        let mut memory = locked(&self.memory);
        if let Some(position) = memory.sessions.iter().position(|(id, _)| id == session) {
            let left = memory.sessions.remove(position).map(|(_, left)| left).unwrap_or_default();
            memory.count -= left.count();
            return left;
        }
        let began = Some(time_of(session));
        let is_ours = session[TIME_BYTES..][..SERVER_BYTES] == self.server;
        let unknown_since = match is_ours {
            true if began >= Some(memory.known_since) => None,
            true => earliest(began, memory.forgotten_since),
            false => began,
        };
        Inherited { unknown_since, ..Inherited::default() }
    }
}

fn time_of(id: &SessionId) -> SystemTime {
    let mut time = [0; size_of::<u64>()];
    time[size_of::<u64>() - TIME_BYTES..].copy_from_slice(&id[..TIME_BYTES]);
    UNIX_EPOCH + Duration::from_millis(u64::from_be_bytes(time))
}

/// What a live session inherited.
#[derive(Debug, Default)]
pub struct Inheritance(Arc<Mutex<Inherited>>);

impl Inheritance {
    /// Goes on from one more session.
    pub fn add(&self, left: Inherited) {
        let mut all = locked(&self.0);
        let begin = left.begin();
        let is_too_much = all.paths.len() + left.paths.len() > INHERITED_MAX;
        match is_too_much {
            false => all.merge(left),
            true => all.unknown_since = earliest(all.unknown_since, begin),
        }
    }

    /// What was not opened again.
    pub fn rest(&self) -> Inherited {
        let mut all = locked(&self.0);
        let waiting = all.paths.iter().filter(|(_, before)| before.waiting > 0);
        let waiting = waiting.map(|(path, before)| (path.clone(), before.snapshot, before.waiting));
        let mut rest =
            Inherited { since: all.since, unknown_since: all.unknown_since, ..Default::default() };
        waiting.for_each(|(path, snapshot, waiting)| rest.add(path, snapshot, waiting));
        all.paths.values_mut().for_each(|before| before.waiting = 0);
        rest
    }

    /// Begins to open a path without naming a snapshot; none if it is not inherited.
    pub fn claim(&self, path: &StoragePath) -> Option<Claim> {
        locked(&self.0).paths.get_mut(path)?.claims += 1;
        Some(Claim { inherited: Arc::clone(&self.0), path: path.clone() })
    }

    /// The begin of the earliest session that this one goes on from and nothing is known of.
    pub fn unknown_since(&self) -> Option<SystemTime> {
        locked(&self.0).unknown_since
    }
}

/// An inherited path that is being opened, or open: it stays inherited for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    inherited: Arc<Mutex<Inherited>>,
    path: StoragePath,
}

impl Claim {
    /// The snapshot that the path must be opened as.
    ///
    /// # Errors
    /// `ESTALE` if it was open as of several.
    pub fn snapshot(&self) -> StorageResult<u64> {
        let inherited = locked(&self.inherited);
        let snapshot = inherited.paths.get(&self.path).and_then(|before| before.snapshot);
        snapshot.ok_or_else(|| stale(&self.path, "it was open as of several snapshots"))
    }

    /// The client is told that the path is open again, or that it cannot be: one that waited does so no more.
    pub fn answered(&self) {
        if let Some(before) = locked(&self.inherited).paths.get_mut(&self.path) {
            before.waiting = before.waiting.saturating_sub(1);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut inherited = locked(&self.inherited);
        let Some(before) = inherited.paths.get_mut(&self.path) else { return };
        before.claims -= 1;
        if before.claims == 0 && before.waiting == 0 {
            inherited.paths.remove(&self.path);
        }
    }
}

/// Why a file that changed after the begin of an inherited session is refused if this server does not know that one.
pub fn changed_since_unknown(path: &StoragePath) -> StorageError {
    stale(path, "it changed, and the server was restarted since the first connection was made")
}

fn stale(path: &StoragePath, why: &str) -> StorageError {
    let what = format!(
        "cannot go on with {path}: {why}, so it may be another snapshot than before; begin anew, or name a \
         snapshot with fb.csn="
    );
    StorageError::refused(Errno::ESTALE, what)
}

/// A panic elsewhere leaves the collections whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> StoragePath {
        StoragePath::new(b"/lhc.fed/run7.root").unwrap()
    }

    fn opened(snapshot: u64) -> Opened {
        Opened { path: path(), snapshot }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    /// Opens the path to the end: its snapshot, and what keeps it so.
    fn open(inheritance: &Inheritance) -> Option<(u64, Claim)> {
        let claim = inheritance.claim(&path())?;
        claim.answered();
        Some((claim.snapshot().unwrap(), claim))
    }

    fn inheriting(left: Inherited) -> Inheritance {
        let next = Inheritance::default();
        next.add(left);
        next
    }

    #[test]
    fn a_path_stays_inherited_until_all_is_opened_again_and_closed() {
        let broken = BrokenSessions::new(at(0));
        let session = broken.new_session_id(at(1));
        broken.remember(session, Inherited::of(at(1), [opened(41), opened(41)]));
        let next = inheriting(broken.take(&session));
        let (one, first) = open(&next).unwrap();
        drop(first);
        let (two, second) = open(&next).unwrap();
        let (beside, third) = open(&next).unwrap();
        assert_eq!((one, two, beside), (41, 41, 41));
        drop(second);
        assert!(open(&next).is_some(), "one is still open");
        drop(third);
        assert!(open(&next).is_none());
        assert_eq!(next.unknown_since(), None);
        assert!(open(&inheriting(broken.take(&session))).is_none(), "another one has taken it");
    }

    #[test]
    fn an_open_that_is_to_come_again_finds_the_path_inherited() {
        let next = inheriting(Inherited::of(at(1), [opened(41)]));
        drop(next.claim(&path()).unwrap());
        assert_eq!(open(&next).unwrap().0, 41);
    }

    #[test]
    fn what_was_open_as_of_several_snapshots_is_refused_as_often_as_it_was() {
        let next = inheriting(Inherited::of(at(1), [opened(41), opened(42)]));
        for _ in 0..2 {
            let claim = next.claim(&path()).unwrap();
            assert!(claim.snapshot().is_err());
            claim.answered();
        }
        assert!(next.claim(&path()).is_none());
    }

    #[test]
    fn an_unknown_session_is_so_for_all_that_follow_it() {
        let (old, broken) = (BrokenSessions::new(at(0)), BrokenSessions::new(at(9)));
        let first = inheriting(broken.take(&old.new_session_id(at(5))));
        assert_eq!(first.unknown_since(), Some(at(5)));
        let id = broken.new_session_id(at(10));
        broken.remember(id, first.rest());
        let second = inheriting(broken.take(&id));
        assert_eq!(second.unknown_since(), Some(at(5)));
    }

    #[test]
    fn ids_of_other_servers_are_unknown_whatever_the_clocks_say() {
        let broken = BrokenSessions::new(at(9));
        let mut other = broken.new_session_id(at(20));
        assert_eq!(broken.take(&other).unknown_since, None);
        other[TIME_BYTES] ^= 1;
        assert_eq!(broken.take(&other).unknown_since, Some(at(20)));
        let early = broken.new_session_id(at(5));
        assert_eq!(broken.take(&early).unknown_since, Some(at(5)));
    }

    fn many(count: usize) -> impl Iterator<Item = Opened> {
        let path = |n: usize| StoragePath::new(format!("/{n}").as_bytes()).unwrap();
        (0..count).map(move |n| Opened { path: path(n), snapshot: 1 })
    }

    #[test]
    fn what_is_forgotten_is_as_what_another_server_had() {
        let broken = BrokenSessions::new(at(0));
        let [first, second] = [2, 3].map(|time| broken.new_session_id(at(time)));
        // The first went on from one that began before it.
        let mut left = Inherited::of(at(2), [opened(1)]);
        left.merge(Inherited::of(at(1), [opened(1)]));
        broken.remember(first, left);
        broken.remember(second, Inherited::of(at(3), many(REMEMBERED_MAX)));
        assert_eq!(broken.take(&first).unknown_since, Some(at(1)));
        assert_eq!(broken.take(&second).paths.len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_session_inherits_so_many_paths_and_no_more() {
        let next = inheriting(Inherited::of(at(2), many(INHERITED_MAX)));
        next.add(Inherited::of(at(1), [opened(41)]));
        assert!(next.claim(&path()).is_none());
        assert_eq!(next.unknown_since(), Some(at(1)));
    }
}
