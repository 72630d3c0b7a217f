//! Catalogues for remote sessions: their locks, their pins and their commits.
//!
//! | module | what |
//! |---|---|
//! | `session` | what one client holds, and what it is still to be told |
//! | `locking` | locks and pins of sessions |
//! | `lease` | how sessions begin, are taken up again, and end |
//! | `extending` | space at the ends of files |
//! | `publisher` | commits of many sessions in one durable write |
//! | `writing` | who may write to databases' files |
//! | `uncommitted` | files of databases that are not committed yet |
//!
//! Invariants:
//! 1. Whatever a session holds is free once it has ended, and it ends a lease after its client fell silent, or
//!    a little after its client was gone.
//! 2. A transaction is published only while its session holds the databases that it wrote to, since the
//!    space that it took there may be given to others as soon as nobody holds them.
//! 3. A transaction is published once, however often it is sent.
//! 4. Nobody writes to a database's file through here but for a session that holds the database, in the epoch
//!    in which the file was opened; and what a session holds is not free before its writes have ended.
//!
//! Lock order: sessions, then what one of them holds, then files that are not committed, the lock table, and
//! the kernel's locks. What grants locks holds none of the first two.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    Error, HeldLock, Holder, LocalCatalogue, LockKind, LockTarget, Result, Waiter,
};
use uuid::Uuid;

use super::latency::Latencies;
use super::locks::{KernelLocks, Owner, Table};

mod extending;
mod lease;
mod locking;
mod publisher;
mod session;
mod uncommitted;
mod writing;

pub use lease::{Claims, Welcome};
pub use locking::Operation;
pub use publisher::Publisher;
pub use session::{Granted, Outcome, Session};

use session::Ticket;
use uncommitted::UncommittedFiles;

/// Sessions of one federation at once.
const SESSIONS_MAX: usize = 100_000;

/// A federation whose catalogue is served.
#[derive(Debug)]
pub struct FederationService {
    name: String,
    catalog: Arc<LocalCatalogue>,
    is_read_only: bool,
    lease: Duration,
    grace: Duration,
    since: Instant,
    table: Table<Ticket>,
    kernel: KernelLocks,
    publisher: Publisher,
    unborn: UncommittedFiles,
    sessions: Mutex<HashMap<Uuid, Arc<Session>>>,
    next_session: AtomicU64,
    deadlocks: AtomicU64,
    latencies: Arc<Latencies>,
}

impl FederationService {
    /// Serves the federation in a folder under a name. Sessions live as long as `lease` after their
    /// client was last heard of.
    ///
    /// # Errors
    /// As [`LocalCatalogue::open`].
    pub fn open(name: &str, folder: &Path, is_read_only: bool, lease: Duration) -> Result<Self> {
        let catalog = Arc::new(LocalCatalogue::open(folder)?);
        Ok(FederationService {
            name: name.to_owned(),
            is_read_only: is_read_only || catalog.is_read_only(),
            lease,
            grace: lease,
            since: Instant::now(),
            table: Table::default(),
            kernel: KernelLocks::new(Arc::clone(&catalog)),
            publisher: Publisher::new(name, Arc::clone(&catalog)),
            catalog,
            unborn: UncommittedFiles::default(),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            deadlocks: AtomicU64::new(0),
            latencies: Arc::default(),
        })
    }

    /// Sessions live only so long, and no longer than the lease, after their connection was closed without
    /// a goodbye, as the kernel does for a client that died.
    pub fn with_grace(self, grace: Duration) -> Self {
        FederationService { grace: grace.min(self.lease), ..self }
    }

    /// The name under which it is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its catalogue.
    pub fn catalog(&self) -> &Arc<LocalCatalogue> {
        &self.catalog
    }

    /// Whether nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// What publishes commits.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// How long sessions outlive their connection.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The sessions that are open, in the order in which they began.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions: Vec<_> = session::lock(&self.sessions).values().cloned().collect();
        sessions.sort_by_key(|session| session.number());
        sessions
    }

    /// The session with this name.
    pub fn session(&self, id: Uuid) -> Option<Arc<Session>> {
        session::lock(&self.sessions).get(&id).cloned()
    }

    /// Deadlocks that were found since the start.
    pub fn deadlocks(&self) -> u64 {
        self.deadlocks.load(Ordering::Relaxed)
    }

    /// How long its commits and lock waits took.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// What people call the target of a lock.
    pub fn describe(&self, target: &LockTarget) -> String {
        self.catalog.describe(target)
    }

    /// All locks of sessions, and those of local processes.
    ///
    /// # Errors
    /// As the files of the kernel's locks.
    pub fn held(&self) -> Result<Vec<HeldLock>> {
        let clients: HashMap<u64, Holder> =
            self.sessions().iter().map(|session| (session.number(), session.client())).collect();
        let own = self.table.held().into_iter().map(|held| HeldLock {
            target: held.target,
            is_shared: held.kind == LockKind::Shared,
            holder: clients.get(&held.owner.session).cloned(),
        });
        let mut all: Vec<HeldLock> = own.collect();
        // What the server holds in the kernel, it holds for its sessions.
        let own: HashSet<LockTarget> = all.iter().map(|lock| lock.target).collect();
        let local = self.catalog.locks().held()?.into_iter();
        all.extend(local.filter(|lock| !own.contains(&lock.target)));
        all.sort_by_key(|lock| lock.target);
        Ok(all)
    }

    /// All who wait, the longest first.
    ///
    /// # Errors
    /// As the files of the kernel's locks.
    pub fn waiting(&self) -> Result<Vec<Waiter>> {
        let mut all = self.catalog.locks().waiting()?;
        for (target, waiting) in self.table.waiting() {
            let holder = self.table.holder(&target).and_then(|owner| self.holder(owner));
            let by =
                Holder { since_ms: waiting.ticket.since_ms, ..waiting.ticket.session.client() };
            all.push(Waiter { target, by, holder });
        }
        all.sort_by_key(|waiter| waiter.by.since_ms);
        Ok(all)
    }

    fn holder(&self, owner: Owner) -> Option<Holder> {
        let sessions = session::lock(&self.sessions);
        let of = sessions.values().find(|session| session.number() == owner.session);
        of.map(|session| session.client())
    }
}

/// What is said to a client whose session is not known.
fn over() -> Error {
    Error::Closed { what: "the session is over; open it again".to_owned() }
}
