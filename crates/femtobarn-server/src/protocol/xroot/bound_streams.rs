//! Bound streams: additional connections of a session, which transfer data for it.
//!
//! 1. A bound connection carries no requests. A request on the session's first connection may name a bound one: its
//!    answer is sent there, or the data of its write are received there.
//! 2. Bytes that arrive on a bound connection stay in the kernel until such a request states how many are data.
//! 3. A bound connection performs and answers its work in order. The data of a failed write are consumed nevertheless;
//!    a malformed write ends the session.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_bind, kXR_write and kXR_pgwrite.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use xrd::PathId;
use xrd::limits::BOUND_STREAMS_MAX;

use super::transfer::Delegated;

/// Requests that are queued for a bound connection; a further one makes the session's connection wait.
const QUEUED_MAX: usize = 4;

/// The senders to the bound connections of each session.
type StreamsBySession = HashMap<[u8; 16], Vec<Option<Sender<Delegated>>>>;

/// The bound connections of all sessions.
#[derive(Default)]
pub(super) struct BoundStreams {
    sessions: Mutex<StreamsBySession>,
}

impl BoundStreams {
    /// Binds a connection to a session: returns its number and the queue of its work. `None` if the session has as many
    /// as the protocol allows.
    pub(super) fn bind(&self, session: [u8; 16]) -> Option<(PathId, Receiver<Delegated>)> {
        let (sender, receiver) = channel(QUEUED_MAX);
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

    /// The sender of work to a bound connection.
    pub(super) fn sender(&self, session: &[u8; 16], path: PathId) -> Option<Sender<Delegated>> {
        let index = usize::from(path.0).checked_sub(1)?;
        self.sessions().get(session)?.get(index)?.clone()
    }

    /// Removes a session's bound connections, which end when their queue closes.
    pub(super) fn forget(&self, session: &[u8; 16]) {
        self.sessions().remove(session);
    }

    fn sessions(&self) -> MutexGuard<'_, StreamsBySession> {
        self.sessions.lock()
    }
}
