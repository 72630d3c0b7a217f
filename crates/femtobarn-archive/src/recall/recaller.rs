//! [`Recaller`]: stages databases on request, one after the other, and estimates how long that will take.
//!
//! 1. A request that fails is remembered for a while: a client that asks again in that time gets the reason, and later
//!    the request starts anew.
//! 2. The queue is in memory. After a restart, waiting clients ask again, as their answers instructed them to.
//! 3. Dropping a recaller stops the staging in progress; the databases then are as they were.
//! 4. Each store has its own queue and threads: a store that hangs delays only databases with copies there.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use femtobarn_catalog::{DatabaseId, DiskState, ReplicaRow, ReplicaState, Residence, clock};
use parking_lot::Mutex;

use super::evictor::{EvictionReport, Evictor};
use super::excerpt::{QueueExcerpt, QueuedRecall};
use super::queue::{Recall, RecallQueue, Tape};
use super::rates::RecallRates;
use super::wanted::WantedBy;
use crate::error::{Error, Result};
use crate::keeping::Archive;

/// The time for which a recall waits for another process that moves the same database.
const LOCK_WAIT: Duration = Duration::from_secs(600);
/// The time for which a failure is remembered.
const FAILURE_TIME: Duration = Duration::from_secs(30);
const FAILURE_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Failures that are remembered.
const FAILURES_MAX: usize = 10_000;

/// Stages databases on request.
#[derive(Debug)]
pub struct Recaller {
    shared: Arc<SharedQueue>,
    evictor: Evictor,
}

/// Counts of recalls since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecallCounts {
    /// Recalls that wait or are being carried out.
    pub waiting: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Recalls that brought a file back.
    pub done: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Recalls that failed.
    pub failed: u64,
    /// The sum of the differences between estimated and real times of `done`, in seconds.
    pub estimate_errors_seconds: f64,
}

#[derive(Debug)]
struct SharedQueue {
    archive: Arc<Archive>,
    state: Mutex<RecallState>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct RecallState {
    /// The recalls from each store, by its name.
    stores: BTreeMap<String, StoreRecalls>,
    /// Recalls that are being carried out.
    running: HashMap<DatabaseId, Recall>,
    failures: HashMap<DatabaseId, RecentFailure>,
    counts: RecallCounts,
}

/// The recalls from one store.
#[derive(Debug, Default)]
struct StoreRecalls {
    queue: RecallQueue,
    /// The number of recalls that are being carried out.
    running: usize,
    rates: RecallRates,
    threads: usize,
    /// When each recall was asked for, and the time that was estimated then.
    promised: HashMap<DatabaseId, (Instant, Duration)>,
    /// When a file was last staged.
    last_done: Option<Instant>,
}

/// The reason of a failed recall, and the time until which it is not tried again.
#[derive(Debug)]
struct RecentFailure {
    until: Instant,
    is_for_now: bool,
    what: String,
}

impl RecentFailure {
    fn error(&self, rest: Duration) -> Error {
        let what = self.what.clone();
        if self.is_for_now {
            Error::NotBefore { wait: rest, what }
        } else {
            Error::Unavailable { what }
        }
    }
}

impl Recaller {
    /// A recaller without work and threads.
    pub fn new(archive: Arc<Archive>) -> Self {
        let (state, is_stopped) = (Mutex::default(), AtomicBool::new(false));
        let evictor = Evictor::new(Arc::clone(&archive), |_, _, _| {});
        Recaller { shared: Arc::new(SharedQueue { archive, state, is_stopped }), evictor }
    }

    /// Sets the callback for evictions whose outcome no client waited for.
    pub fn reporting_evictions(mut self, report: EvictionReport) -> Self {
        self.evictor = Evictor::new(Arc::clone(self.archive()), report);
        self
    }

    /// The evictor for clients' requests to remove files from the disk.
    pub fn evictor(&self) -> &Evictor {
        &self.evictor
    }

    /// The archive that it stages from.
    pub fn archive(&self) -> &Arc<Archive> {
        &self.shared.archive
    }

    /// Asks for a database on behalf of a user; returns the estimated time until its turn is over, or `None` if it is
    /// on the disk. A request that would miss its deadline in that time is moved before the user's other requests; this
    /// is checked again at each further call.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if it recently could not be staged; `Corrupt` if no copy is left.
    pub fn recall(&self, database: DatabaseId, wanted: WantedBy<'_>) -> Result<Option<Duration>> {
        let shared = &self.shared;
        let residence = shared.archive.residence(database)?;
        // The disk may have lost the file.
        let is_away = residence.disk != DiskState::Online
            || residence.has_copy() && !shared.archive.is_on_disk(database)?;
        if !is_away {
            shared.state.lock().failures.remove(&database);
            return Ok(None);
        }
        let known = shared.known(database)?;
        let recall = shared.recall_of(database, &residence, wanted);
        if let Some((asked, rest)) = known {
            // If its copy was just found bad, the running recall will soon report the reason.
            if let Ok(recall) = recall {
                let priority = wanted.priority_for(asked, rest);
                let mut state = shared.state.lock();
                if let Some(of_store) = state.stores.get_mut(&recall.tape.store) {
                    of_store.queue.hasten(Recall { priority, ..recall });
                }
            }
            return Ok(Some(rest));
        }
        let mut recall = recall?;
        let store = recall.tape.store.clone();
        let streams = shared.archive.streams_of(&store);
        let mut state = shared.state.lock();
        let of_store = state.stores.entry(store.clone()).or_default();
        let wait = of_store.estimate(&recall, streams);
        recall.priority = wanted.priority_for(clock::now(), wait);
        if of_store.queue.add(recall) {
            of_store.promised.insert(database, (clock::now(), wait));
        }
        if of_store.threads < streams && of_store.threads < of_store.waiting() {
            of_store.threads += 1;
            let shared = Arc::downgrade(shared);
            let thread = thread::Builder::new().name("femtobarn-recall".to_owned());
            if let Err(source) = thread.spawn(move || carry_out(&shared, &store)) {
                of_store.threads -= 1;
                if of_store.threads == 0 {
                    of_store.promised.remove(&database);
                    of_store.queue.remove(database);
                    let what = "cannot start a thread that recalls".to_owned();
                    return Err(Error::Io { what, source });
                }
            }
        }
        Ok(Some(wait))
    }

    /// Counts since the start.
    pub fn counts(&self) -> RecallCounts {
        let state = self.shared.state.lock();
        let waiting = state.stores.values().map(|of_store| of_store.waiting() as u64).sum();
        let waiting_bytes = state.stores.values().map(|of_store| of_store.queue.waiting().1).sum();
        RecallCounts { waiting, waiting_bytes, ..state.counts }
    }

    /// For each store, the time for which files have been wanted from it and none was staged; zero if none is wanted.
    pub fn stalls(&self) -> BTreeMap<String, Duration> {
        let state = self.shared.state.lock();
        let known = self.shared.archive.settings().stores.keys();
        let idle = known.map(|store| (store.clone(), Duration::ZERO));
        let asked = state.stores.iter().map(|(store, it)| (store.clone(), it.stalled()));
        idle.chain(asked).collect()
    }

    /// The first recalls, `most` at most.
    pub fn excerpt(&self, most: usize) -> QueueExcerpt {
        let state = self.shared.state.lock();
        let queued = |recall: &Recall, is_running| {
            let promised = state.promised(recall.database);
            let (age, wait) =
                promised.map(|(asked, wait)| (asked.elapsed(), wait)).unwrap_or_default();
            let remaining = wait.saturating_sub(age);
            QueuedRecall { recall: recall.clone(), is_running, age, remaining }
        };
        let running = state.running.values().map(|recall| queued(recall, true));
        let queues = || state.stores.values().map(|of_store| &of_store.queue);
        let waiting = queues().flat_map(RecallQueue::in_order).map(|recall| queued(recall, false));
        QueueExcerpt {
            mounted: queues().flat_map(RecallQueue::mounted).cloned().collect(),
            recalls: running.chain(waiting).take(most).collect(),
        }
    }
}

impl Drop for Recaller {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl SharedQueue {
    /// When a known recall was asked for, and the estimated time left.
    fn known(&self, database: DatabaseId) -> Result<Option<(Instant, Duration)>> {
        let mut state = self.state.lock();
        if let Some(failure) = state.failures.get(&database) {
            let rest = failure.until.saturating_duration_since(clock::now());
            if !rest.is_zero() {
                return Err(failure.error(rest));
            }
            state.failures.remove(&database);
        }
        let promised = state.promised(database);
        Ok(promised.map(|(asked, wait)| (asked, wait.saturating_sub(asked.elapsed()))))
    }

    /// The recall of a database from the first of its complete copies, on behalf of a user. If there is none, from a
    /// copy recorded as lost, which may have returned.
    ///
    /// # Errors
    /// `Corrupt` if there is no copy.
    fn recall_of(
        &self,
        database: DatabaseId,
        residence: &Residence,
        wanted: WantedBy<'_>,
    ) -> Result<Recall> {
        let replicas = &residence.replicas;
        let was_made = |replica: &&ReplicaRow| replica.state != ReplicaState::Migrating;
        let complete = replicas.iter().find(|replica| replica.is_complete());
        let Some(replica) = complete.or_else(|| replicas.iter().find(was_made)) else {
            let what = format!("{} is lost: no store has a good copy", self.name(database));
            return Err(Error::Corrupt { what });
        };
        let (is_object, tape) = (replica.tape.is_none(), replica.tape.clone());
        let (name, position) = tape.unwrap_or_else(|| (replica.key.clone(), 0));
        let tape = Tape { store: replica.store.clone(), name, is_object };
        let (bytes, user) = (replica.size, wanted.user.to_owned());
        Ok(Recall { database, bytes, tape, position, user, priority: wanted.priority })
    }

    /// A database by its name, or else by its number.
    fn name(&self, database: DatabaseId) -> String {
        let name = self.archive.name_of(database);
        name.map_or_else(|| format!("database {database}"), |name| format!("database {name:?}"))
    }

    /// Stages a database, and records the outcome.
    fn stage(&self, recall: &Recall, is_after_mount: bool) {
        let (began, mut bytes) = (clock::now(), 0);
        let mut watch = |done| {
            bytes = done;
            !self.is_stopped.load(Ordering::Relaxed)
        };
        let stage = AssertUnwindSafe(|| self.archive.stage(recall.database, LOCK_WAIT, &mut watch));
        let staged = catch_unwind(stage).unwrap_or_else(|_| {
            Err(Error::Unavailable {
                what: "staging failed because of a bug; see the log".to_owned(),
            })
        });
        let state = &mut *self.state.lock();
        state.running.remove(&recall.database);
        let of_store = state.stores.entry(recall.tape.store.clone()).or_default();
        of_store.running = of_store.running.saturating_sub(1);
        let promised = of_store.promised.remove(&recall.database);
        match staged {
            Ok(()) => {
                // Nothing was moved if another process had staged it meanwhile.
                if bytes == 0 {
                    return;
                }
                of_store.rates.note(recall.bytes, began.elapsed(), is_after_mount);
                state.counts.done += 1;
                of_store.last_done = Some(clock::now());
                state.counts.bytes += recall.bytes;
                if let Some((asked, wait)) = promised {
                    let error = asked.elapsed().as_secs_f64() - wait.as_secs_f64();
                    state.counts.estimate_errors_seconds += error.abs();
                }
            }
            Err(error) => {
                state.counts.failed += 1;
                if state.failures.len() >= FAILURES_MAX {
                    let now = clock::now();
                    state.failures.retain(|_, failure| failure.until > now);
                }
                let (is_for_now, wait) = match &error {
                    Error::NotBefore { wait, .. } => (true, *wait),
                    _ => (false, FAILURE_TIME),
                };
                let what = match error {
                    Error::NotBefore { what, .. } => what,
                    other => other.to_string(),
                };
                // A store's announced delay is trusted for a day at most.
                let until = clock::now() + wait.min(FAILURE_TIME_MAX);
                state.failures.insert(recall.database, RecentFailure { until, is_for_now, what });
            }
        }
    }
}

impl RecallState {
    /// When a recall that waits or runs was asked for, and the time that was estimated then.
    fn promised(&self, database: DatabaseId) -> Option<(Instant, Duration)> {
        self.stores.values().find_map(|of_store| of_store.promised.get(&database).copied())
    }
}

impl StoreRecalls {
    fn waiting(&self) -> usize {
        self.queue.waiting().0 + self.running
    }

    /// The time for which a file has been wanted and none was staged.
    fn stalled(&self) -> Duration {
        let wanted = self.promised.values().map(|(asked, _)| asked.elapsed()).max();
        let since_last = self.last_done.map_or(Duration::MAX, |last| last.elapsed());
        wanted.unwrap_or_default().min(since_last)
    }

    /// The time that a new recall will take after those that wait.
    fn estimate(&self, recall: &Recall, streams: usize) -> Duration {
        let (recalls, ahead) = self.queue.waiting();
        let (recalls, bytes) = (recalls + self.running + 1, ahead.saturating_add(recall.bytes));
        let mounts = self.queue.mounts_with(&recall.tape);
        self.rates.estimate((recalls, bytes), (mounts, !recall.tape.is_object), streams)
    }
}

/// The loop of a thread: mounts a tape of a store, stages all files that are wanted from it, and repeats that until
/// nothing waits.
fn carry_out(shared: &Weak<SharedQueue>, store: &str) {
    let mut mounted: Option<Tape> = None;
    let mut is_after_mount = false;
    while let Some(shared) = shared.upgrade() {
        let mut locked = shared.state.lock();
        let state = &mut *locked;
        let Some(of_store) = state.stores.get_mut(store) else { return };
        if shared.is_stopped.load(Ordering::Relaxed) {
            of_store.threads -= 1;
            return;
        }
        let next = mounted.as_ref().and_then(|tape| of_store.queue.next(tape));
        let Some(recall) = next else {
            mounted = of_store.queue.mount();
            is_after_mount = true;
            if mounted.is_none() {
                // The next request starts a thread again.
                of_store.threads -= 1;
                return;
            }
            continue;
        };
        of_store.running += 1;
        state.running.insert(recall.database, recall.clone());
        drop(locked);
        shared.stage(&recall, is_after_mount);
        is_after_mount = false;
    }
}
