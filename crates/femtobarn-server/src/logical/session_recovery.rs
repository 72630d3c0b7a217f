//! Recovery of lost sessions: a client that reconnects opens its files as of the snapshots that they showed before.
//!
//! After a lost connection XRootD's clients open their files again by path and continue reading, but the path may show
//! a newer snapshot by then. They send kXR_endsess with the lost session's id first, so the new session inherits the
//! files of that session.
//!
//! 1. While a path is inherited, every open of it that names no snapshot gets the inherited one: until it was opened as
//!    often as the lost session had it open, and all files from these opens are closed.
//! 2. Of a session of another server (an earlier process, or another host of the same name) only the begin is known,
//!    from its id. A session that inherits from it, even indirectly, may open files that have not changed since; other
//!    files are refused with `ESTALE`. If two servers ended in between, only the begin of the last session is known.
//! 3. The memory is bounded; a forgotten session or path is treated as one of another server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::physical::{StorageError, StoragePath, StorageResult};

/// Remembered paths of lost sessions.
const REMEMBERED_MAX: usize = 100_000;
/// Paths that one session inherits.
const INHERITED_MAX: usize = 10_000;
/// Bytes of a session's id that hold its begin, in milliseconds since 1970, big-endian.
const TIME_BYTES: usize = 6;
/// Bytes of a session's id, after the time, that hold a random number of its server process.
const SERVER_BYTES: usize = 2;

/// The id of a session. It holds the session's begin and server, and cannot be guessed.
pub type SessionKey = [u8; 16];

/// An open file that showed a snapshot which its client did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedSnapshot {
    /// The path that the client sent.
    pub path: StoragePath,
    /// The number of the snapshot's commit.
    pub snapshot: u64,
}

/// The open files of lost sessions, for the session that inherits them.
#[derive(Debug, Default)]
pub struct InheritedFiles {
    paths: HashMap<StoragePath, InheritedPath>,
    /// The earliest begin of the sessions that had the files open.
    since: Option<SystemTime>,
    /// The earliest begin of inherited sessions that this server does not know.
    unknown_since: Option<SystemTime>,
}

/// The state of an inherited path.
#[derive(Debug)]
struct InheritedPath {
    /// `None` if the path was open as of several snapshots.
    snapshot: Option<u64>,
    /// Files of the path that were open and have not been opened again.
    waiting: usize,
    /// Opens of the path in progress, and open files that came from them.
    claims: usize,
}

impl InheritedFiles {
    /// The files of a session that began at this time.
    pub fn of(since: SystemTime, files: impl IntoIterator<Item = OpenedSnapshot>) -> Self {
        let mut all = InheritedFiles { since: Some(since), ..InheritedFiles::default() };
        files
            .into_iter()
            .for_each(|OpenedSnapshot { path, snapshot }| all.add(path, Some(snapshot), 1));
        all
    }

    fn add(&mut self, path: StoragePath, snapshot: Option<u64>, waiting: usize) {
        let before =
            self.paths.entry(path).or_insert(InheritedPath { snapshot, waiting: 0, claims: 0 });
        before.snapshot = before.snapshot.filter(|one| Some(*one) == snapshot);
        before.waiting += waiting;
    }

    /// The union of both.
    #[must_use]
    pub fn with(mut self, other: InheritedFiles) -> Self {
        self.merge(other);
        self
    }

    fn merge(&mut self, other: InheritedFiles) {
        let InheritedFiles { paths, since, unknown_since } = other;
        for (path, before) in paths {
            self.add(path, before.snapshot, before.waiting);
        }
        self.since = earliest(self.since, since);
        self.unknown_since = earliest(self.unknown_since, unknown_since);
    }

    /// Entries that the session takes of the bounded memory: at least one, for the begins.
    fn count(&self) -> usize {
        self.paths.len().max(1)
    }

    /// The begin of the earliest session that this one inherits from.
    fn begin(&self) -> Option<SystemTime> {
        earliest(self.since, self.unknown_since)
    }
}

fn earliest(one: Option<SystemTime>, other: Option<SystemTime>) -> Option<SystemTime> {
    one.into_iter().chain(other).min()
}

/// The open files of lost sessions.
#[derive(Debug)]
pub struct BrokenSessions {
    server: [u8; SERVER_BYTES],
    history: Mutex<SessionHistory>,
}

#[derive(Debug)]
struct SessionHistory {
    sessions: VecDeque<(SessionKey, InheritedFiles)>,
    count: usize,
    /// Sessions that began before this are unknown.
    known_since: SystemTime,
    /// The earliest begin of forgotten sessions.
    forgotten_since: Option<SystemTime>,
}

impl BrokenSessions {
    /// An empty memory, for a server process that starts now.
    pub fn new(now: SystemTime) -> Self {
        let (sessions, count) = (VecDeque::new(), 0);
        let [first, second, ..] = Uuid::new_v4().into_bytes();
        // Ids hold milliseconds.
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX >> TIME_BYTES);
        let known_since = UNIX_EPOCH + Duration::from_millis(since);
        let history = SessionHistory { sessions, count, known_since, forgotten_since: None };
        BrokenSessions { server: [first, second], history: Mutex::new(history) }
    }

    /// A new id for a session of this server that begins now.
    pub fn new_session_id(&self, now: SystemTime) -> SessionKey {
        let mut id = Uuid::new_v4().into_bytes();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).to_be_bytes();
        id[..TIME_BYTES].copy_from_slice(&time[size_of::<u64>() - TIME_BYTES..]);
        id[TIME_BYTES..][..SERVER_BYTES].copy_from_slice(&self.server);
        id
    }

    /// Remembers the open files of an ended session.
    pub fn remember(&self, session: SessionKey, left: InheritedFiles) {
        if left.paths.is_empty() && left.unknown_since.is_none() {
            return;
        }
        let mut history = self.history.lock();
        history.count += left.count();
        history.sessions.push_back((session, left));
        while history.count > REMEMBERED_MAX {
            let Some((forgotten, left)) = history.sessions.pop_front() else { return };
            history.count -= left.count();
            let began = time_of(&forgotten) + Duration::from_millis(1);
            history.known_since = history.known_since.max(began);
            history.forgotten_since = earliest(history.forgotten_since, left.begin());
        }
    }

    /// Takes the open files of an ended session, for the session that inherits them.
    pub fn take(&self, session: &SessionKey) -> InheritedFiles {
        let mut history = self.history.lock();
        if let Some(position) = history.sessions.iter().position(|(id, _)| id == session) {
            let left = history.sessions.remove(position).map(|(_, left)| left).unwrap_or_default();
            history.count -= left.count();
            return left;
        }
        let began = Some(time_of(session));
        let is_ours = session[TIME_BYTES..][..SERVER_BYTES] == self.server;
        let unknown_since = if !is_ours {
            began
        } else if began >= Some(history.known_since) {
            None
        } else {
            earliest(began, history.forgotten_since)
        };
        InheritedFiles { unknown_since, ..InheritedFiles::default() }
    }
}

fn time_of(id: &SessionKey) -> SystemTime {
    let mut time = [0; size_of::<u64>()];
    time[size_of::<u64>() - TIME_BYTES..].copy_from_slice(&id[..TIME_BYTES]);
    UNIX_EPOCH + Duration::from_millis(u64::from_be_bytes(time))
}

/// The files that an open session inherited.
#[derive(Debug, Default)]
pub struct Inheritance(Arc<Mutex<InheritedFiles>>);

impl Inheritance {
    /// Inherits the files of one more session.
    pub fn add(&self, left: InheritedFiles) {
        let mut all = self.0.lock();
        let begin = left.begin();
        let is_too_much = all.paths.len() + left.paths.len() > INHERITED_MAX;
        if is_too_much {
            all.unknown_since = earliest(all.unknown_since, begin)
        } else {
            all.merge(left)
        }
    }

    /// Takes the files that were not opened again.
    pub fn rest(&self) -> InheritedFiles {
        let mut all = self.0.lock();
        let waiting = all.paths.iter().filter(|(_, before)| before.waiting > 0);
        let waiting = waiting.map(|(path, before)| (path.clone(), before.snapshot, before.waiting));
        let mut rest = InheritedFiles {
            since: all.since,
            unknown_since: all.unknown_since,
            ..Default::default()
        };
        waiting.for_each(|(path, snapshot, waiting)| rest.add(path, snapshot, waiting));
        all.paths.values_mut().for_each(|before| before.waiting = 0);
        rest
    }

    /// Begins an open of a path without a named snapshot; `None` if the path is not inherited.
    pub fn claim(&self, path: &StoragePath) -> Option<SnapshotClaim> {
        self.0.lock().paths.get_mut(path)?.claims += 1;
        Some(SnapshotClaim { inherited: Arc::clone(&self.0), path: path.clone() })
    }

    /// The begin of the earliest inherited session that this server does not know.
    pub fn unknown_since(&self) -> Option<SystemTime> {
        self.0.lock().unknown_since
    }
}

/// An open of an inherited path, in progress or completed. The path stays inherited for as long as this lives.
#[derive(Debug)]
pub struct SnapshotClaim {
    inherited: Arc<Mutex<InheritedFiles>>,
    path: StoragePath,
}

impl SnapshotClaim {
    /// The snapshot that the open has to show.
    ///
    /// # Errors
    /// `ESTALE` if the path was open as of several snapshots.
    pub fn snapshot(&self) -> StorageResult<u64> {
        let inherited = self.inherited.lock();
        let snapshot = inherited.paths.get(&self.path).and_then(|before| before.snapshot);
        snapshot.ok_or_else(|| stale(&self.path, "it was open as of several snapshots"))
    }

    /// Records that the client gets the final answer to this open, successful or not: one file less is waiting.
    pub fn mark_answered(&self) {
        if let Some(before) = self.inherited.lock().paths.get_mut(&self.path) {
            before.waiting = before.waiting.saturating_sub(1);
        }
    }
}

impl Drop for SnapshotClaim {
    fn drop(&mut self) {
        let mut inherited = self.inherited.lock();
        let Some(before) = inherited.paths.get_mut(&self.path) else { return };
        before.claims -= 1;
        if before.claims == 0 && before.waiting == 0 {
            inherited.paths.remove(&self.path);
        }
    }
}

/// The error for opening a file that changed after the begin of an inherited session which this server does not know.
pub fn changed_since_unknown(path: &StoragePath) -> StorageError {
    stale(path, "it changed, and the server was restarted since the first connection was made")
}

fn stale(path: &StoragePath, why: &str) -> StorageError {
    let what = format!(
        "cannot reopen {path}: {why}, so it may show another snapshot than before; start again, or name a \
         snapshot with fb.csn="
    );
    StorageError::refused(Errno::ESTALE, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> StoragePath {
        StoragePath::new(b"/lhc.fed/run7.root").unwrap()
    }

    fn opened(snapshot: u64) -> OpenedSnapshot {
        OpenedSnapshot { path: path(), snapshot }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    /// Claims the path and answers the open; returns its snapshot and the claim.
    fn open(inheritance: &Inheritance) -> Option<(u64, SnapshotClaim)> {
        let claim = inheritance.claim(&path())?;
        claim.mark_answered();
        Some((claim.snapshot().unwrap(), claim))
    }

    fn inheriting(left: InheritedFiles) -> Inheritance {
        let next = Inheritance::default();
        next.add(left);
        next
    }

    #[test]
    fn a_path_stays_inherited_until_all_its_files_are_reopened_and_closed() {
        let broken = BrokenSessions::new(at(0));
        let session = broken.new_session_id(at(1));
        broken.remember(session, InheritedFiles::of(at(1), [opened(41), opened(41)]));
        let next = inheriting(broken.take(&session));
        let (one, first) = open(&next).unwrap();
        drop(first);
        let (two, second) = open(&next).unwrap();
        let (beside, third) = open(&next).unwrap();
        assert_eq!((one, two, beside), (41, 41, 41));
        drop(second);
        assert!(open(&next).is_some(), "one file is still open");
        drop(third);
        assert!(open(&next).is_none());
        assert_eq!(next.unknown_since(), None);
        assert!(
            open(&inheriting(broken.take(&session))).is_none(),
            "another session has taken the path"
        );
    }

    #[test]
    fn an_unanswered_open_leaves_the_path_inherited() {
        let next = inheriting(InheritedFiles::of(at(1), [opened(41)]));
        drop(next.claim(&path()).unwrap());
        assert_eq!(open(&next).unwrap().0, 41);
    }

    #[test]
    fn each_file_of_a_path_open_at_several_snapshots_is_refused_once() {
        let next = inheriting(InheritedFiles::of(at(1), [opened(41), opened(42)]));
        for _ in 0..2 {
            let claim = next.claim(&path()).unwrap();
            assert!(claim.snapshot().is_err());
            claim.mark_answered();
        }
        assert!(next.claim(&path()).is_none());
    }

    #[test]
    fn an_unknown_session_is_unknown_to_all_its_successors() {
        let (old, broken) = (BrokenSessions::new(at(0)), BrokenSessions::new(at(9)));
        let first = inheriting(broken.take(&old.new_session_id(at(5))));
        assert_eq!(first.unknown_since(), Some(at(5)));
        let id = broken.new_session_id(at(10));
        broken.remember(id, first.rest());
        let second = inheriting(broken.take(&id));
        assert_eq!(second.unknown_since(), Some(at(5)));
    }

    #[test]
    fn ids_of_other_servers_are_unknown_at_any_time() {
        let broken = BrokenSessions::new(at(9));
        let mut other = broken.new_session_id(at(20));
        assert_eq!(broken.take(&other).unknown_since, None);
        other[TIME_BYTES] ^= 1;
        assert_eq!(broken.take(&other).unknown_since, Some(at(20)));
        let early = broken.new_session_id(at(5));
        assert_eq!(broken.take(&early).unknown_since, Some(at(5)));
    }

    fn many(count: usize) -> impl Iterator<Item = OpenedSnapshot> {
        let path = |n: usize| StoragePath::new(format!("/{n}").as_bytes()).unwrap();
        (0..count).map(move |n| OpenedSnapshot { path: path(n), snapshot: 1 })
    }

    #[test]
    fn a_forgotten_session_counts_as_one_of_another_server() {
        let broken = BrokenSessions::new(at(0));
        let [first, second] = [2, 3].map(|time| broken.new_session_id(at(time)));
        // The first session continued one that began before it.
        let mut left = InheritedFiles::of(at(2), [opened(1)]);
        left.merge(InheritedFiles::of(at(1), [opened(1)]));
        broken.remember(first, left);
        broken.remember(second, InheritedFiles::of(at(3), many(REMEMBERED_MAX)));
        assert_eq!(broken.take(&first).unknown_since, Some(at(1)));
        assert_eq!(broken.take(&second).paths.len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_session_inherits_a_bounded_number_of_paths() {
        let next = inheriting(InheritedFiles::of(at(2), many(INHERITED_MAX)));
        next.add(InheritedFiles::of(at(1), [opened(41)]));
        assert!(next.claim(&path()).is_none());
        assert_eq!(next.unknown_since(), Some(at(1)));
    }
}
