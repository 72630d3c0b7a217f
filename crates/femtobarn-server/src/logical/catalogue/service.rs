//! [`FederationService`]: a federation whose catalogue is served, its sessions, and the lists of locks.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    HeldLock, Holder, LocalCatalogue, LockKind, LockTarget, Result, Waiter, clock,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::arrivals::Arrivals;
use super::followers::Followers;
use super::publisher::Publisher;
use super::session::{CatalogueSession, Ticket};
use super::site::Site;
use super::uncommitted::UncommittedFiles;
use crate::logical::latency::Latencies;
use crate::logical::locks::{OwnerId, ServerKernelLocks, SessionLockTable, WaitingRequest};

/// Sessions of one federation at most.
pub(super) const SESSIONS_MAX: usize = 100_000;

/// A federation whose catalogue is served.
#[derive(Debug)]
pub struct FederationService {
    pub(super) name: String,
    pub(super) catalog: Arc<LocalCatalogue>,
    pub(super) is_read_only: bool,
    pub(super) lease: Duration,
    pub(super) grace: Duration,
    pub(super) since: Instant,
    pub(super) table: SessionLockTable<Ticket>,
    pub(super) kernel: ServerKernelLocks,
    pub(super) publisher: Publisher,
    pub(super) uncommitted: UncommittedFiles,
    pub(super) sessions: Mutex<HashMap<Uuid, Arc<CatalogueSession>>>,
    pub(super) next_session: AtomicU64,
    pub(super) deadlocks: AtomicU64,
    messages: AtomicU64,
    pub(super) latencies: Arc<Latencies>,
    followers: Followers,
    /// This server as one of several of the federation, if it has joined.
    site: OnceLock<Arc<Site>>,
    /// The databases that move here.
    pub(super) arrivals: Arrivals,
}

impl FederationService {
    /// Serves the federation in `folder` under a name. Sessions live for `lease` after their client's last message.
    ///
    /// # Errors
    /// As [`LocalCatalogue::open`].
    pub fn open(name: &str, folder: &Path, is_read_only: bool, lease: Duration) -> Result<Self> {
        let catalog = Arc::new(LocalCatalogue::open(folder)?);
        Ok(FederationService {
            name: name.to_owned(),
            is_read_only,
            lease,
            grace: lease,
            since: clock::now(),
            table: SessionLockTable::default(),
            kernel: ServerKernelLocks::new(Arc::clone(&catalog)),
            publisher: Publisher::new(name, Arc::clone(&catalog)),
            catalog,
            uncommitted: UncommittedFiles::open(folder),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            deadlocks: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            latencies: Arc::default(),
            followers: Followers::default(),
            site: OnceLock::new(),
            arrivals: Arrivals::default(),
        })
    }

    /// Sets how long sessions live after their connection was closed without a goodbye, as by the kernel when a client
    /// died; at most as long as the lease.
    pub fn with_grace(self, grace: Duration) -> Self {
        FederationService { grace: grace.min(self.lease), ..self }
    }

    /// The name under which the federation is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The catalogue of the federation.
    pub fn catalog(&self) -> &Arc<LocalCatalogue> {
        &self.catalog
    }

    /// Whether the federation is served read-only, or is a copy that follows another server's.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only || self.catalog.is_read_only()
    }

    /// The followers of the federation at other servers.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// Sets this server's place among the servers of the federation, which it has joined.
    pub fn be_at(&self, site: Arc<Site>) {
        // A server joins a federation once.
        let _ = self.site.set(site);
    }

    /// This server's place among the servers of the federation; `None` if there are no others.
    pub fn site(&self) -> Option<&Arc<Site>> {
        self.site.get()
    }

    /// The epoch of this server; 0 if the federation has no other servers.
    ///
    /// # Errors
    /// [`Error::Unavailable`](femtobarn_catalog::Error::Unavailable) if its lease is over.
    pub(super) fn site_epoch(&self) -> Result<u64> {
        self.site().map_or(Ok(0), |site| site.epoch())
    }

    /// Whether a lock of this epoch of the server still holds.
    pub(super) fn is_valid(&self, site_epoch: u64) -> bool {
        self.site().is_none_or(|site| site.is_valid(site_epoch))
    }

    /// The publisher of commits.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// How long sessions live after their client's last message.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The open sessions, in the order in which they began.
    pub fn sessions(&self) -> Vec<Arc<CatalogueSession>> {
        let mut sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        sessions.sort_by_key(|session| session.number());
        sessions
    }

    /// The session with this id.
    pub fn session(&self, id: Uuid) -> Option<Arc<CatalogueSession>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// The number of deadlocks since the start.
    pub fn deadlocks(&self) -> u64 {
        self.deadlocks.load(Ordering::Relaxed)
    }

    /// Counts a message of a client of its catalogue.
    pub fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of messages from clients of the catalogue since the start: calls, and turns of sessions that are not
    /// empty.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// The latencies of its commits and lock waits.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The target of a lock by its names, or by its numbers if it has no committed name.
    pub fn describe(&self, target: &LockTarget) -> String {
        self.catalog.describe(target)
    }

    /// All locks of sessions, and those of local processes.
    ///
    /// # Errors
    /// [`Error::Io`](femtobarn_catalog::Error::Io) if the lock files cannot be read.
    pub fn held(&self) -> Result<Vec<HeldLock>> {
        let clients: HashMap<u64, Holder> =
            self.sessions().iter().map(|session| (session.number(), session.client())).collect();
        let own = self.table.held().into_iter().map(|held| HeldLock {
            target: held.target,
            is_shared: held.kind == LockKind::Shared,
            holder: clients.get(&held.owner.session).cloned(),
        });
        let mut all: Vec<HeldLock> = own.collect();
        // The locks of the server's process in the kernel are those of its sessions.
        let own: HashSet<LockTarget> = all.iter().map(|lock| lock.target).collect();
        let local = self.catalog.locks().held()?.into_iter();
        all.extend(local.filter(|lock| !own.contains(&lock.target)));
        all.sort_by_key(|lock| lock.target);
        Ok(all)
    }

    /// All waiters, sessions and local processes, the longest waiting first.
    ///
    /// # Errors
    /// [`Error::Io`](femtobarn_catalog::Error::Io) if the lock files cannot be read.
    pub fn waiting(&self) -> Result<Vec<Waiter>> {
        let mut all = self.catalog.locks().waiting()?;
        for WaitingRequest { target, request: queued, .. } in self.table.waiting() {
            let holder = self.table.holder(&target).and_then(|owner| self.holder(owner));
            let ticket = queued.ticket;
            let by = Holder { since_ms: ticket.since_ms, ..ticket.session.client() };
            all.push(Waiter { target, by, holder });
        }
        all.sort_by_key(|waiter| waiter.by.since_ms);
        Ok(all)
    }

    /// The client that an owner belongs to.
    pub(super) fn holder(&self, owner: OwnerId) -> Option<Holder> {
        let sessions = self.sessions.lock();
        let of = sessions.values().find(|session| session.number() == owner.session);
        of.map(|session| session.client())
    }
}
