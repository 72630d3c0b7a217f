//! One client's session: its state, and the outcomes that are not sent yet.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::{Csn, Error, Holder, LockKind, LockTarget, Result};
use femtobarn_rpc::SESSION_OVER;
use femtobarn_rpc::convert::ClientOwner;
use md5::{Digest, Md5};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use uuid::Uuid;

use super::state::{Granted, LockRequest, SessionState};

/// A session of a remote client.
#[derive(Debug)]
pub struct CatalogueSession {
    id: Uuid,
    /// The digest of the session's id, which other servers and clients may know.
    client_id: Uuid,
    number: u64,
    /// The authenticated identity of its client.
    pub(super) identity: String,
    /// Whether the client may lock.
    pub(super) may_write: bool,
    pub(super) state: Mutex<SessionState>,
    outcomes: Mutex<Vec<OperationOutcome>>,
    has_outcomes: Notify,
}

/// A client's first message on a stream.
#[derive(Clone, Debug)]
pub struct SessionClaims {
    /// The id of its session.
    pub session: Uuid,
    /// The authenticated identity. Only the same identity may resume the session.
    pub identity: String,
    /// Whether the client may lock and publish.
    pub may_write: bool,
    /// The client as other users see it.
    pub client: Holder,
    /// The claimed locks: owner, target, kind, and the epoch at which each was granted.
    pub locks: Vec<(u64, LockTarget, LockKind, u64)>,
    /// The claimed pins: snapshots, and the number of pins on each.
    pub pins: Vec<(Csn, u32)>,
}

/// A session's request in the queue of the lock table.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub session: Arc<CatalogueSession>,
    pub request: LockRequest,
    pub since_ms: u64,
}

/// The outcome of an operation.
#[derive(Debug)]
pub struct OperationOutcome {
    /// The number of the operation.
    pub number: u64,
    /// The granted lock or pin, or the error.
    pub result: Result<Granted>,
}

impl CatalogueSession {
    pub(super) fn new(number: u64, claims: &SessionClaims) -> Self {
        CatalogueSession {
            id: claims.session,
            client_id: Uuid::from_bytes(Md5::digest(claims.session.as_bytes()).into()),
            number,
            identity: claims.identity.clone(),
            may_write: claims.may_write,
            state: Mutex::new(SessionState {
                client: claims.client.clone(),
                generation: 0,
                is_over: false,
                end: "",
                publishing: 0,
                published: 0,
                held: HashMap::new(),
                writes: HashMap::new(),
                requests: HashMap::new(),
                postponed: HashMap::new(),
                pins: HashMap::new(),
            }),
            outcomes: Mutex::default(),
            has_outcomes: Notify::new(),
        }
    }

    /// The session's id, chosen by its client.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The owner by which all servers of the federation know one of its transactions.
    pub(super) fn client_owner(&self, number: u64) -> ClientOwner {
        ClientOwner { client: self.client_id, number }
    }

    /// The session's number at this server.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The client, as it describes itself.
    pub fn client(&self) -> Holder {
        self.lock().client.clone()
    }

    /// Whether one of its transactions holds a lock on `target`.
    pub fn holds(&self, target: LockTarget) -> bool {
        self.lock().held.keys().any(|(_, held)| *held == target)
    }

    /// The number of locks that it holds.
    pub fn locks(&self) -> usize {
        self.lock().held.len()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }

    /// Refuses requests from a stream of the client before `generation`, or for a session that has ended.
    ///
    /// # Errors
    /// [`Error::Closed`] for these.
    pub(super) fn check_current(&self, generation: u64) -> Result<()> {
        self.lock().is_current(generation).then_some(()).ok_or_else(session_over)
    }

    /// Queues an outcome for the client's stream `generation`. On a later stream, or in the session after this one, the
    /// client has asked again under the same number.
    pub(super) fn push_outcome(&self, generation: u64, outcome: OperationOutcome) {
        let state = self.lock();
        if state.is_current(generation) {
            self.outcomes.lock().push(outcome);
        }
        // The stream of a session that has ended gets no outcome: it ends.
        self.has_outcomes.notify_one();
    }

    /// The next outcomes for the client's stream `generation`; waits until there are some.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client has opened another stream, or the session has ended.
    pub async fn outcomes(&self, generation: u64) -> Result<Vec<OperationOutcome>> {
        loop {
            {
                let state = self.lock();
                if !state.is_current(generation) {
                    // The notification may have been meant for the other stream.
                    self.has_outcomes.notify_one();
                    return Err(session_over());
                }
                let outcomes = std::mem::take(&mut *self.outcomes.lock());
                if !outcomes.is_empty() {
                    return Ok(outcomes);
                }
            }
            self.has_outcomes.notified().await;
        }
    }

    /// The number of locks that it waits for.
    pub fn waits(&self) -> usize {
        self.lock().waits()
    }

    /// Drops the outcomes for an earlier stream, or of a session that has ended; a stream that waits for them ends. The
    /// state stays locked, so that none of a later stream is dropped.
    pub(super) fn forget_outcomes(&self, _locked: &SessionState) {
        self.outcomes.lock().clear();
        self.has_outcomes.notify_one();
    }
}

/// The error for a client whose session is unknown, or was resumed on another stream.
pub(super) fn session_over() -> Error {
    Error::Closed { what: SESSION_OVER.to_owned() }
}
