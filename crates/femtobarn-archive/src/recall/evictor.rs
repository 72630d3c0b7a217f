//! [`Evictor`]: evicts databases on behalf of clients, without making them wait for stores.
//!
//! The stores are asked whether they have the copies before a file is removed, and a store may take long to answer.
//!
//! 1. The client gets the outcome if it is known soon. Otherwise the eviction continues, and its outcome is reported.
//! 2. A database is evicted once, however often clients ask for it meanwhile.
//! 3. Databases with copies in the same stores are evicted one after the other: a store that hangs delays only
//!    databases with copies there.
//! 4. Waiting evictions are in memory, and are given up when the evictor is dropped; the files then stay as they were.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use femtobarn_catalog::{DatabaseId, clock};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::keeping::Archive;

/// Evictions that may wait.
const WAITING_MAX: usize = 10_000;
/// The time after which a client may ask again if too many evictions wait.
const COME_AGAIN: Duration = Duration::from_secs(60);

/// Called, if no client waits for the outcome, with the name of a database and the bytes freed or the error.
pub type EvictionReport = fn(&Archive, &str, &Result<u64>);

/// Evicts files of databases on behalf of clients.
#[derive(Debug)]
pub struct Evictor {
    shared: Arc<SharedEvictions>,
}

/// Counts of evictions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Evictions that wait or are being carried out.
    pub waiting: u64,
    /// Evictions after which the file was not on the disk.
    pub done: u64,
    /// Evictions that were refused or failed.
    pub failed: u64,
}

/// An eviction that waits or is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEviction {
    /// The database.
    pub database: DatabaseId,
    /// Whether it is being carried out.
    pub is_running: bool,
    /// The time since it was asked for.
    pub age: Duration,
}

#[derive(Debug)]
struct SharedEvictions {
    archive: Arc<Archive>,
    report: EvictionReport,
    state: Mutex<EvictionState>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct EvictionState {
    /// Evictions by the stores that have the copies. Each entry has a thread, which removes the entry when nothing
    /// waits.
    lines: BTreeMap<Vec<String>, EvictionLine>,
    counts: EvictionCounts,
}

#[derive(Debug, Default)]
struct EvictionLine {
    waiting: VecDeque<WantedEviction>,
    /// The database that is being evicted, when its eviction was asked for, and when it began.
    running: Option<(DatabaseId, Instant, Instant)>,
}

#[derive(Debug)]
struct WantedEviction {
    database: DatabaseId,
    asked: Instant,
    /// Receives the outcome only while a client waits for it.
    asker: SyncSender<Result<u64>>,
}

impl Evictor {
    /// An evictor without work and threads.
    pub fn new(archive: Arc<Archive>, report: EvictionReport) -> Self {
        let (state, is_stopped) = (Mutex::default(), AtomicBool::new(false));
        Evictor { shared: Arc::new(SharedEvictions { archive, report, state, is_stopped }) }
    }

    /// Evicts a database. Returns the bytes freed; `None` if the eviction continues after `patience`, or was asked for
    /// before.
    ///
    /// # Errors
    /// The errors of [`Archive::evict`], if they are known in that time; `NotBefore` if too many evictions wait.
    pub fn evict(&self, database: DatabaseId, patience: Duration) -> Result<Option<u64>> {
        let replicas = self.shared.archive.residence(database)?.replicas;
        let complete = replicas.into_iter().filter(|replica| replica.is_complete());
        let mut stores: Vec<String> = complete.map(|replica| replica.store).collect();
        stores.sort_unstable();
        let (asker, outcome) = sync_channel(0);
        let patience = {
            let mut state = self.shared.state.lock();
            if state.pending().any(|pending| pending.database == database) {
                return Ok(None);
            }
            if state.pending().count() >= WAITING_MAX {
                let what = format!("{WAITING_MAX} evictions wait; ask again later");
                return Err(Error::NotBefore { wait: COME_AGAIN, what });
            }
            let is_new = !state.lines.contains_key(&stores);
            let line = state.lines.entry(stores.clone()).or_default();
            line.waiting.push_back(WantedEviction { database, asked: clock::now(), asker });
            let ahead = line.running.map_or(Duration::ZERO, |(_, _, began)| began.elapsed());
            if is_new {
                self.start(&mut state, stores)?;
            }
            patience.saturating_sub(ahead)
        };
        outcome.recv_timeout(patience).map_or(Ok(None), |done| done.map(Some))
    }

    /// Counts since the start.
    pub fn counts(&self) -> EvictionCounts {
        let state = self.shared.state.lock();
        EvictionCounts { waiting: state.pending().count() as u64, ..state.counts }
    }

    /// The evictions that run or wait, `most` at most.
    pub fn pending(&self, most: usize) -> Vec<PendingEviction> {
        let mut pending: Vec<_> = self.shared.state.lock().pending().collect();
        pending.sort_by_key(|one| (!one.is_running, std::cmp::Reverse(one.age)));
        pending.truncate(most);
        pending
    }

    /// Starts the thread of a new line of evictions.
    fn start(&self, state: &mut EvictionState, stores: Vec<String>) -> Result<()> {
        let (shared, of) = (Arc::downgrade(&self.shared), stores.clone());
        let thread = thread::Builder::new().name("femtobarn-evict".to_owned());
        thread.spawn(move || carry_out(&shared, &of)).map(drop).map_err(|source| {
            state.lines.remove(&stores);
            Error::Io { what: "cannot start a thread that evicts".to_owned(), source }
        })
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl EvictionState {
    fn pending(&self) -> impl Iterator<Item = PendingEviction> {
        self.lines.values().flat_map(|line| {
            let running = line.running.map(|(database, asked, _)| (database, asked, true));
            let waiting = line.waiting.iter().map(|it| (it.database, it.asked, false));
            let all = running.into_iter().chain(waiting);
            all.map(|(database, asked, is_running)| PendingEviction {
                database,
                is_running,
                age: asked.elapsed(),
            })
        })
    }
}

impl SharedEvictions {
    /// The next eviction of a line, which is removed if there is none.
    fn next(&self, stores: &[String]) -> Option<WantedEviction> {
        let mut state = self.state.lock();
        let line = state.lines.get_mut(stores)?;
        let next = line.waiting.pop_front();
        match next.filter(|_| !self.is_stopped.load(Ordering::Relaxed)) {
            Some(next) => {
                line.running = Some((next.database, next.asked, clock::now()));
                Some(next)
            }
            None => {
                state.lines.remove(stores);
                None
            }
        }
    }

    /// Carries out an eviction, and reports its outcome.
    fn evict(&self, stores: &[String], wanted: &WantedEviction) {
        let mut watch = |_| !self.is_stopped.load(Ordering::Relaxed);
        let evict = AssertUnwindSafe(|| self.archive.evict(wanted.database, &mut watch));
        let evicted = catch_unwind(evict).unwrap_or_else(|_| {
            Err(Error::Unavailable {
                what: "evicting failed because of a bug; see the log".to_owned(),
            })
        });
        {
            let mut state = self.state.lock();
            match &evicted {
                Ok(_) => state.counts.done += 1,
                Err(_) => state.counts.failed += 1,
            }
            if let Some(line) = state.lines.get_mut(stores) {
                line.running = None;
            }
        }
        if let Err(SendError(evicted)) = wanted.asker.send(evicted) {
            let name = self.archive.name_of(wanted.database);
            let name = name.unwrap_or_else(|| wanted.database.to_string());
            (self.report)(&self.archive, &name, &evicted);
        }
    }
}

/// The loop of a line's thread.
fn carry_out(shared: &Weak<SharedEvictions>, stores: &[String]) {
    while let Some(shared) = shared.upgrade() {
        let Some(wanted) = shared.next(stores) else { return };
        shared.evict(stores, &wanted);
    }
}
