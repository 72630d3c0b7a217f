//! Connections that were bound to a session, and what they are to answer.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_bind.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{Receiver, Sender, channel};
use xrd::limits::BOUND_STREAMS_MAX;
use xrd::{PathId, StreamId};

use super::reading::Reading;

/// Readings that wait for one bound connection; further ones make the session wait.
const WAITING_MAX: usize = 4;

/// A reading that one connection was asked for and another answers.
pub(super) struct Delegated {
    pub stream: StreamId,
    pub reading: Reading,
}

/// By session, the places of its streams.
type Bound = HashMap<[u8; 16], Vec<Option<Sender<Delegated>>>>;

/// The bound connections of all sessions.
#[derive(Default)]
pub(super) struct Streams {
    sessions: Mutex<Bound>,
}

impl Streams {
    /// Adds a connection to a session: its number, and where its readings come from. None if there are
    /// as many as the protocol allows.
    pub(super) fn bind(&self, session: [u8; 16]) -> Option<(PathId, Receiver<Delegated>)> {
        let (sender, receiver) = channel(WAITING_MAX);
        let mut sessions = self.sessions();
        let bound = sessions.entry(session).or_default();
        let free = bound.iter().position(|slot| slot.as_ref().is_none_or(Sender::is_closed));
        let index = free.unwrap_or(bound.len());
        if index >= usize::from(BOUND_STREAMS_MAX) {
            return None;
        }
        match free {
            Some(_) => bound[index] = Some(sender),
            None => bound.push(Some(sender)),
        }
        Some((PathId(index as u8 + 1), receiver))
    }

    /// Where readings for a bound connection go.
    pub(super) fn sender(&self, session: &[u8; 16], path: PathId) -> Option<Sender<Delegated>> {
        let index = usize::from(path.0).checked_sub(1)?;
        self.sessions().get(session)?.get(index)?.clone()
    }

    /// Forgets a session's connections, which end by that.
    pub(super) fn forget(&self, session: &[u8; 16]) {
        self.sessions().remove(session);
    }

    fn sessions(&self) -> MutexGuard<'_, Bound> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
