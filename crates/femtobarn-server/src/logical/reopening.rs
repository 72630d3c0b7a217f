//! The snapshots that a client's files showed when its connection broke, so that it opens the same ones again.
//!
//! XRootD's clients open their files again after trouble, by the path that they had, and go on reading where they
//! were; by then the path may show a newer snapshot. Their first request is kXR_endsess with the id of the
//! session that broke, so the new session inherits what that one had open.
//!
//! Invariants:
//! 1. A session that inherits from one that this server knows gets each file that was still open as the same
//!    snapshot, as many times as it was open.
//! 2. Of a session of an earlier server (killed or restarted) only the begin is known, from its id. A session that
//!    inherits from it may open files that have not changed since then; any other is refused with ESTALE.
//! 3. The memory is bounded; a session that is forgotten is treated as one of an earlier server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use uuid::Uuid;

use crate::physical::{Answer, StoragePath, Trouble};

/// Open files of broken sessions that are remembered.
const OPENED_MAX: usize = 100_000;
/// Bytes of a session's id that tell when it began, in milliseconds since 1970, big-endian.
const TIME_BYTES: usize = 6;

/// The id of a session: it tells when the session began, and cannot be guessed.
pub type SessionId = [u8; 16];

/// A file that was open as of a snapshot that its client did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The path that the client named.
    pub path: StoragePath,
    /// The number of the snapshot's commit.
    pub snapshot: u64,
}

/// An id for a session that begins now.
pub fn new_session_id(now: SystemTime) -> SessionId {
    let mut id = Uuid::new_v4().into_bytes();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).to_be_bytes();
    id[..TIME_BYTES].copy_from_slice(&time[size_of::<u64>() - TIME_BYTES..]);
    id
}

fn time_of(id: &SessionId) -> SystemTime {
    let mut time = [0; size_of::<u64>()];
    time[size_of::<u64>() - TIME_BYTES..].copy_from_slice(&id[..TIME_BYTES]);
    UNIX_EPOCH + Duration::from_millis(u64::from_be_bytes(time))
}

/// What broken sessions had open.
#[derive(Debug)]
pub struct Broken(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    sessions: VecDeque<(SessionId, Vec<Opened>)>,
    count: usize,
    /// Sessions that began before this are not known.
    known_since: SystemTime,
}

impl Broken {
    /// Of a server that begins now.
    pub fn new(now: SystemTime) -> Self {
        let (sessions, count) = (VecDeque::new(), 0);
        // Ids tell milliseconds.
        let known_since = time_of(&new_session_id(now));
        Broken(Mutex::new(Memory { sessions, count, known_since }))
    }

    /// Remembers what a session had open when it ended.
    pub fn remember(&self, session: SessionId, opened: Vec<Opened>) {
        if opened.is_empty() {
            return;
        }
        let mut memory = locked(&self.0);
        memory.count += opened.len();
        memory.sessions.push_back((session, opened));
        while memory.count > OPENED_MAX {
            let Some((forgotten, opened)) = memory.sessions.pop_front() else { return };
            memory.count -= opened.len();
            let began = time_of(&forgotten) + Duration::from_millis(1);
            memory.known_since = memory.known_since.max(began);
        }
    }

    /// Takes what an ended session had open, for the session that inherits it.
    pub fn take(&self, session: &SessionId) -> Left {
        let mut memory = locked(&self.0);
        if let Some(position) = memory.sessions.iter().position(|(id, _)| id == session) {
            let opened = memory.sessions.remove(position).map(|(_, opened)| opened);
            let opened = opened.unwrap_or_default();
            memory.count -= opened.len();
            return Left { opened, unknown_since: None };
        }
        let began = time_of(session);
        let unknown_since = (began < memory.known_since).then_some(began);
        Left { opened: vec![], unknown_since }
    }
}

/// Files that sessions had open when they ended, for the session that inherits them.
#[derive(Debug, Default)]
pub struct Left {
    opened: Vec<Opened>,
    /// The earliest begin of the sessions that this server does not know.
    unknown_since: Option<SystemTime>,
}

impl Left {
    /// What was open in a session that ends now.
    pub fn of(opened: Vec<Opened>) -> Self {
        Left { opened, unknown_since: None }
    }
}

/// The same, of a session that lives.
#[derive(Debug, Default)]
pub struct Inheritance(Mutex<Left>);

impl Inheritance {
    /// Goes on from one more session.
    pub fn add(&self, left: Left) {
        let mut all = locked(&self.0);
        all.opened.extend(left.opened);
        all.unknown_since = match (all.unknown_since, left.unknown_since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// What was not opened again.
    pub fn rest(&self) -> Vec<Opened> {
        std::mem::take(&mut locked(&self.0).opened)
    }

    /// The snapshot that a path must be opened as, if it was open before; after that it is open again.
    ///
    /// # Errors
    /// `ESTALE` if it was open as of several.
    pub fn take(&self, path: &StoragePath) -> Answer<Option<u64>> {
        let opened = &mut locked(&self.0).opened;
        let Some(position) = opened.iter().position(|it| it.path == *path) else { return Ok(None) };
        let snapshot = opened[position].snapshot;
        if opened.iter().any(|it| it.path == *path && it.snapshot != snapshot) {
            return Err(stale(path, "it was open as of several snapshots"));
        }
        opened.swap_remove(position);
        Ok(Some(snapshot))
    }

    /// Refuses what may have been open before as something else: what has changed since a session began of which
    /// nothing is known.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn check_unchanged(&self, path: &StoragePath, changed: SystemTime) -> Answer<()> {
        match locked(&self.0).unknown_since {
            Some(since) if changed >= since => Err(stale(
                path,
                "it changed, and the server was restarted since the first connection was made",
            )),
            _ => Ok(()),
        }
    }
}

fn stale(path: &StoragePath, why: &str) -> Trouble {
    let what = format!(
        "cannot go on with {path}: {why}, so it may be another snapshot than before; begin anew, or name a \
         snapshot with fb.csn="
    );
    Trouble::refused(Errno::ESTALE, what)
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

    #[test]
    fn a_session_that_goes_on_gets_what_was_open_as_often_as_it_was() {
        let (broken, session) = (Broken::new(at(0)), new_session_id(at(1)));
        broken.remember(session, vec![opened(41), opened(41)]);
        let next = Inheritance::default();
        next.add(broken.take(&session));
        assert_eq!([(); 3].map(|()| next.take(&path()).unwrap()), [Some(41), Some(41), None]);
        next.check_unchanged(&path(), at(2)).unwrap();
        let third = Inheritance::default();
        third.add(broken.take(&session));
        assert_eq!(third.take(&path()).unwrap(), None, "another one has taken it");
    }

    #[test]
    fn what_was_open_as_of_several_snapshots_is_refused() {
        let next = Inheritance::default();
        next.add(Left::of(vec![opened(41), opened(42)]));
        assert!(next.take(&path()).is_err());
        assert_eq!(next.rest().len(), 2);
    }

    #[test]
    fn of_an_earlier_servers_session_only_what_did_not_change_is_opened() {
        let next = Inheritance::default();
        next.add(Broken::new(at(9)).take(&new_session_id(at(5))));
        next.check_unchanged(&path(), at(4)).unwrap();
        assert!(next.check_unchanged(&path(), at(5)).is_err());
        assert!(next.check_unchanged(&path(), at(8)).is_err());
    }

    #[test]
    fn what_is_forgotten_is_as_what_an_earlier_server_had() {
        let broken = Broken::new(at(0));
        let (first, second) = (new_session_id(at(1)), new_session_id(at(2)));
        broken.remember(first, vec![opened(1)]);
        broken.remember(second, vec![opened(2); OPENED_MAX]);
        assert_eq!(broken.take(&first).unknown_since, Some(at(1)));
        assert_eq!(broken.take(&second).opened.len(), OPENED_MAX);
    }
}
