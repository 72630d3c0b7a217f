//! Streams: connections bound to a session, and the transfers that they do for it.
//!
//! 1. A bound connection has no requests of its own. Requests come on the session's first connection, and
//!    name a bound one to have their answer sent there, or to have the data of a write taken from there.
//! 2. What comes on a bound connection stays in the kernel until such a request says how much of it is data.
//! 3. What it was asked for it does in turn, and answers itself. A write that fails takes its data nevertheless,
//!    and one that is malformed ends the session.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_bind, kXR_write and kXR_pgwrite.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{Receiver, Sender, channel};
use xrd::limits::BOUND_STREAMS_MAX;
use xrd::{ErrorCode, PathId, StreamId};

use super::connection::Connection;
use super::failures::failed;
use super::reading::Reading;
use super::writing::Incoming;

/// Requests that wait for one bound connection; further ones make the session wait.
const WAITING_MAX: usize = 4;

/// A request that one connection got and another does and answers.
pub(super) struct Delegated {
    pub stream: StreamId,
    pub work: Work,
}

/// What a bound connection is to do.
pub(super) enum Work {
    Read(Reading),
    /// Take so many bytes of data, and write them.
    Write(Box<Incoming>, u64),
}

/// By session, the places of its streams.
type Bound = HashMap<[u8; 16], Vec<Option<Sender<Delegated>>>>;

/// The bound connections of all sessions.
#[derive(Default)]
pub(super) struct Streams {
    sessions: Mutex<Bound>,
}

impl Streams {
    /// Adds a connection to a session: its number, and where its work comes from. None if there are
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

    /// Where work for a bound connection goes.
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

impl Connection {
    /// Has another connection of the session do something. If there is no such one, nothing is skipped
    /// here: the data of a write do not come on this connection.
    pub(super) async fn delegate(
        &mut self,
        path: PathId,
        stream: StreamId,
        work: Work,
    ) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let Some(sender) = self.shared.streams.sender(&session.id, path) else {
            let what = format!("the session has no stream {}", path.0);
            return self.answer(stream, &failed(ErrorCode::ARG_INVALID, what)).await;
        };
        // What waits here may be what the client needs to go on taking what waits there.
        self.flush().await?;
        if sender.send(Delegated { stream, work }).await.is_err() {
            let what = format!("the stream {} has just ended", path.0);
            return self.answer(stream, &failed(ErrorCode::ARG_INVALID, what)).await;
        }
        Ok(())
    }
}
