//! Group commit over all sessions of a federation.
//!
//! One thread publishes as long as commits are queued: all that have arrived, up to a maximum, form one group with one
//! durable write. So publishing takes one thread, however many sessions wait.
//!
//! Invariants:
//! 1. A transaction is queued or being published at most once. A client that sends it again gets the same answer.
//! 2. A transaction that was sent before is looked up before it is published.
//! 3. One that was sent more than once and refused is not published any more, though an earlier request for it comes late: its
//!    client may have run it again.
//!
//! `commit_log` writes a line of the log for each commit, and one when no more commits are taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use femtobarn_catalog::{Commit, Csn, Error, ErrorKind, FilesToWrite, LocalCatalogue, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use uuid::Uuid;

mod commit_log;

use commit_log::CommitLog;

/// Commits in one durable write at most.
const GROUP_MAX: usize = 256;
/// Refused transactions that are remembered, at most: far more than are refused while a request is on its way.
const REFUSED_MAX: usize = 65_536;

/// Publishes the commits of a federation's sessions.
#[derive(Debug)]
pub struct Publisher {
    queue: Arc<PublishQueue>,
}

#[derive(Debug)]
struct PublishQueue {
    log: Arc<CommitLog>,
    catalog: Arc<LocalCatalogue>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<QueuedCommit>,
    /// The callers that wait for each transaction that is queued or being published.
    answers: HashMap<Uuid, Vec<oneshot::Sender<Result<Csn>>>>,
    refused: RefusedTransactions,
    is_publishing: bool,
    published: u64,
    writes: u64,
}

/// The last transactions that were sent more than once, and refused.
#[derive(Debug, Default)]
struct RefusedTransactions {
    all: HashSet<Uuid>,
    in_order: VecDeque<Uuid>,
}

#[derive(Debug)]
struct QueuedCommit {
    commit: Commit,
    /// If it was sent before: the commit after which it may have been published.
    again: Option<Csn>,
}

impl Publisher {
    pub(super) fn new(name: &str, catalog: Arc<LocalCatalogue>) -> Self {
        let log = Arc::new(CommitLog::new(name, Arc::clone(&catalog)));
        Publisher { queue: Arc::new(PublishQueue { log, catalog, state: Mutex::default() }) }
    }

    /// Logs once that no more changes are taken, if an earlier one failed in the operating system. Called after any change of
    /// the catalogue that failed.
    pub fn note_failure(&self) {
        self.queue.log.note_failure();
    }

    /// The numbers of published commits and of durable writes.
    pub fn published(&self) -> (u64, u64) {
        let state = self.queue.state.lock();
        (state.published, state.writes)
    }

    /// Publishes a commit. `again` is given if it was sent before: it may have been published after that commit.
    ///
    /// # Errors
    /// As [`LocalCatalogue::commit`]; [`Error::Invalid`] if the transaction has no id; [`Error::Changed`] if it was refused before.
    pub async fn publish(&self, commit: Commit, again: Option<Csn>) -> Result<Csn> {
        if commit.transaction.is_nil() {
            return Err(Error::Invalid {
                what: "invalid commit: the transaction has no id".to_owned(),
            });
        }
        let transaction = commit.transaction;
        if self.is_refused(transaction) {
            // It may have been published before it was refused, and that answer was lost.
            let published = match again {
                Some(after) => self.find_published(transaction, after).await?,
                None => None,
            };
            return published.ok_or_else(|| refused(transaction));
        }
        let (answer, answered) = oneshot::channel();
        let starts = {
            let mut state = self.queue.state.lock();
            if state.refused.all.contains(&transaction) {
                return Err(refused(transaction));
            }
            let answers = state.answers.entry(transaction).or_default();
            answers.push(answer);
            if answers.len() == 1 {
                state.queue.push_back(QueuedCommit { commit, again });
            }
            !std::mem::replace(&mut state.is_publishing, true)
        };
        if starts {
            let queue = Arc::clone(&self.queue);
            spawn_blocking(move || queue.publish_all());
        }
        answered.await.map_err(|_| stopped())?
    }

    /// The commit that a transaction made after commit `after`, or is making. If there is none, it is refused from now on.
    ///
    /// # Errors
    /// As [`LocalCatalogue::find_commit`].
    pub async fn find_or_refuse(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let (answer, answered) = oneshot::channel();
        let is_waiting = {
            let mut state = self.queue.state.lock();
            match state.answers.get_mut(&transaction) {
                Some(answers) => {
                    answers.push(answer);
                    true
                }
                None => {
                    // Before the catalogue is asked, so that nothing is published behind its answer.
                    state.refused.add(transaction);
                    false
                }
            }
        };
        if is_waiting {
            return answered.await.map_err(|_| stopped())?.map(Some);
        }
        self.find_published(transaction, after).await
    }

    fn is_refused(&self, transaction: Uuid) -> bool {
        self.queue.state.lock().refused.all.contains(&transaction)
    }

    async fn find_published(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let queue = Arc::clone(&self.queue);
        let published = spawn_blocking(move || queue.find_published(transaction, after));
        published.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl PublishQueue {
    /// The commit that a transaction made after commit `after`.
    fn find_published(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        self.catalog.find_commit(transaction, after)
    }

    fn publish_all(&self) {
        let mut duty = PublishingDuty { queue: self, is_done: false };
        loop {
            let group: Vec<QueuedCommit> = {
                let mut state = self.state.lock();
                let size = state.queue.len().min(GROUP_MAX);
                if size == 0 {
                    state.is_publishing = false;
                    duty.is_done = true;
                    return;
                }
                state.queue.drain(..size).collect()
            };
            self.publish_group(group);
        }
    }

    fn publish_group(&self, group: Vec<QueuedCommit>) {
        let mut new = Vec::with_capacity(group.len());
        let mut commits = Vec::with_capacity(group.len());
        let mut files = FilesToWrite::default();
        for mut waiting in group {
            let writes = std::mem::take(&mut waiting.commit.writes);
            // Those of a transaction that was published before may lie where others are by now.
            let outcome = match self.find(&waiting) {
                Ok(Some(csn)) => Some(Ok(csn)),
                Err(error) => Some(Err(error)),
                Ok(None) => {
                    let mut commit = Commit { writes, ..waiting.commit.clone() };
                    let written = self.catalog.write_now(&mut commit, &mut files);
                    let failed = written.err().map(Err);
                    if failed.is_none() {
                        commits.push(commit);
                    }
                    failed
                }
            };
            match outcome {
                Some(outcome) => self.answer(&waiting, outcome),
                None => new.push(waiting),
            }
        }
        if new.is_empty() {
            return;
        }
        let results = self.catalog.commit_all(commits);
        self.state.lock().writes += 1;
        if results.iter().any(Result::is_err) {
            self.log.note_failure();
        }
        let is_logged = tracing::enabled!(tracing::Level::INFO);
        for (waiting, result) in new.into_iter().zip(results) {
            let result = result.or_else(|error| self.may_be_published(&waiting, error));
            let csn = result.as_ref().ok().copied();
            self.answer(&waiting, result);
            if let Some(csn) = csn.filter(|_| is_logged) {
                self.log.add(csn, waiting.commit);
            }
        }
    }

    /// The commit that a transaction has made already, if it was sent before.
    fn find(&self, waiting: &QueuedCommit) -> Result<Option<Csn>> {
        match waiting.again {
            Some(after) => self.find_published(waiting.commit.transaction, after),
            None => Ok(None),
        }
    }

    /// A conflict may be with the same transaction: an earlier server process that had not ended yet may have published
    /// it just now.
    fn may_be_published(&self, waiting: &QueuedCommit, error: Error) -> Result<Csn> {
        match error.kind() {
            ErrorKind::Conflict | ErrorKind::Exists => self.find(waiting)?.ok_or(error),
            _ => Err(error),
        }
    }

    fn answer(&self, waiting: &QueuedCommit, result: Result<Csn>) {
        let transaction = waiting.commit.transaction;
        let answers = {
            let mut state = self.state.lock();
            state.published += u64::from(result.is_ok());
            let answers = state.answers.remove(&transaction).unwrap_or_default();
            let was_sent_again = waiting.again.is_some() || answers.len() > 1;
            if was_sent_again && result.as_ref().is_err_and(is_final) {
                state.refused.add(transaction);
            }
            answers
        };
        for answer in answers {
            // A caller that has stopped waiting asks again.
            drop(answer.send(result.clone()));
        }
    }
}

impl RefusedTransactions {
    fn add(&mut self, transaction: Uuid) {
        if !self.all.insert(transaction) {
            return;
        }
        self.in_order.push_back(transaction);
        if self.in_order.len() > REFUSED_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

/// Whether a client takes an error for a refusal of its transaction, and not for one of its request alone.
fn is_final(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable)
}

fn refused(transaction: Uuid) -> Error {
    Error::Changed { what: format!("transaction {transaction} was refused when it was sent again") }
}

fn stopped() -> Error {
    Error::Internal { what: "the publisher stopped".to_owned() }
}

/// The duty of the publishing thread. If the thread panics, its callers get an error instead of waiting for ever.
struct PublishingDuty<'a> {
    queue: &'a PublishQueue,
    is_done: bool,
}

impl Drop for PublishingDuty<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.queue.state.lock();
            state.queue.clear();
            state.answers.clear();
            state.is_publishing = false;
        }
    }
}
