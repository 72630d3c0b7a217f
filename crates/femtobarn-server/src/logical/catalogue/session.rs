//! One client's session: its locks and pins, and the events not yet sent to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{Csn, DatabaseId, Error, Holder, LockKind, LockTarget, PinGuard, Result};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::lease::Claims;
use super::over;
use super::writing::Writes;

/// What a session holds, waits for, or has to be told of, of each kind.
pub(super) const SHARE_MAX: usize = 100_000;

/// A session of a remote federation.
#[derive(Debug)]
pub struct Session {
    id: Uuid,
    number: u64,
    /// Who its client was proved to be.
    pub(super) identity: String,
    /// Whether it may lock.
    pub(super) may_write: bool,
    pub(super) state: Mutex<State>,
    outbox: Mutex<Vec<Outcome>>,
    told: Notify,
}

/// What a session holds.
#[derive(Debug)]
pub(super) struct State {
    pub client: Holder,
    /// How often its client has come; who speaks for an earlier time is not heard.
    pub generation: u64,
    pub is_over: bool,
    /// Why it is over, for the log.
    pub end: &'static str,
    /// Transactions that are being published now, until when it does not end.
    pub publishing: usize,
    /// Transactions that were published.
    pub published: u64,
    /// Changed together with `writes`: see [`State::hold`] and [`State::release`].
    pub held: HashMap<(u64, LockTarget), HeldBy>,
    /// What is written of the databases that it holds.
    pub writes: HashMap<DatabaseId, Writes>,
    /// By the numbers of the operations.
    pub waiting: HashMap<u64, Wait>,
    pub pins: HashMap<Csn, (PinGuard, u32)>,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBy {
    /// Whether the kernel has it, too.
    pub in_kernel: bool,
    /// The epoch of its database when it was taken.
    pub epoch: u64,
}

/// A wait for a lock.
#[derive(Debug)]
pub(super) struct Wait {
    pub owner: u64,
    pub target: LockTarget,
    /// What ends it; none if it may take as long as it takes.
    pub timer: Option<AbortHandle>,
}

/// What is asked for by an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub number: u64,
    pub owner: u64,
    pub target: LockTarget,
    pub kind: LockKind,
    pub generation: u64,
    pub since: Instant,
    /// None if it may take as long as it takes.
    pub deadline: Option<Instant>,
}

/// Who waits in the lock table, and for what.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub session: Arc<Session>,
    pub asked: Asked,
    pub since_ms: u64,
}

/// What became of an operation.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub number: u64,
    /// What.
    pub result: Result<Granted>,
}

/// What comes with a lock or a pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The epoch of the database that is locked.
    pub epoch: u64,
    /// The snapshot that is pinned.
    pub csn: Csn,
}

impl Session {
    pub(super) fn new(number: u64, claims: &Claims) -> Self {
        Session {
            id: claims.session,
            number,
            identity: claims.identity.clone(),
            may_write: claims.may_write,
            state: Mutex::new(State {
                client: claims.client.clone(),
                generation: 0,
                is_over: false,
                end: "",
                publishing: 0,
                published: 0,
                held: HashMap::new(),
                writes: HashMap::new(),
                waiting: HashMap::new(),
                pins: HashMap::new(),
            }),
            outbox: Mutex::default(),
            told: Notify::new(),
        }
    }

    /// What its client calls it.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// What the server calls it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its client, as it says, and since when.
    pub fn client(&self) -> Holder {
        self.lock().client.clone()
    }

    /// Whether one of its transactions holds a lock.
    pub fn holds(&self, target: LockTarget) -> bool {
        self.lock().held.keys().any(|(_, held)| *held == target)
    }

    /// How many locks it holds.
    pub fn locks(&self) -> usize {
        self.lock().held.len()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has the client told of an outcome.
    pub(super) fn tell(&self, outcome: Outcome) {
        lock(&self.outbox).push(outcome);
        self.told.notify_one();
    }

    /// What the client is to be told that came as the `generation`th; waits until there is something.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client has come again.
    pub async fn outcomes(&self, generation: u64) -> Result<Vec<Outcome>> {
        loop {
            {
                let state = self.lock();
                if state.generation != generation {
                    // The other one may have been told.
                    self.told.notify_one();
                    return Err(over());
                }
                let outcomes = std::mem::take(&mut *lock(&self.outbox));
                if !outcomes.is_empty() {
                    return Ok(outcomes);
                }
            }
            self.told.notified().await;
        }
    }

    /// What the session has of the locks, for the server's page.
    pub fn waits(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Forgets what the client of an earlier time was to be told.
    pub(super) fn forget_outcomes(&self) {
        lock(&self.outbox).clear();
        self.told.notify_one();
    }
}

impl State {
    /// Refuses more than a client can need.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check_share(&self) -> Result<()> {
        match self.held.len() + self.waiting.len() + self.pins.len() < SHARE_MAX {
            true => Ok(()),
            false => Err(Error::Invalid {
                what: format!("a session can have at most {SHARE_MAX} locks and pins"),
            }),
        }
    }
}

/// A panic elsewhere leaves the collections whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
