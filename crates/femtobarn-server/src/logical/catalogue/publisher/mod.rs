//! Group commit over all sessions of a federation.
//!
//! One thread publishes as long as commits are queued: all that have arrived, up to a maximum, form one group with one
//! durable write. So publishing takes one thread, however many sessions wait.
//!
//! Invariants:
//! 1. A transaction is queued or being published at most once. A client that sends it again gets the same answer.
//! 2. A transaction that was sent before is looked up before it is published.
//!
//! `commit_log` writes a line of the log for each commit.

use std::collections::{HashMap, VecDeque};
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
    is_publishing: bool,
    published: u64,
    writes: u64,
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

    /// The numbers of published commits and of durable writes.
    pub fn published(&self) -> (u64, u64) {
        let state = self.queue.state.lock();
        (state.published, state.writes)
    }

    /// Publishes a commit. `again` is given if it was sent before: it may have been published after that commit.
    ///
    /// # Errors
    /// As [`LocalCatalogue::commit`]; [`Error::Invalid`] if the transaction has no id.
    pub async fn publish(&self, commit: Commit, again: Option<Csn>) -> Result<Csn> {
        if commit.transaction.is_nil() {
            return Err(Error::Invalid {
                what: "invalid commit: the transaction has no id".to_owned(),
            });
        }
        let (answer, answered) = oneshot::channel();
        let starts = {
            let mut state = self.queue.state.lock();
            let answers = state.answers.entry(commit.transaction).or_default();
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

    /// The commit that a transaction made after commit `after`, or is making.
    ///
    /// # Errors
    /// As [`LocalCatalogue::find_commit`].
    pub async fn find_published(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let (answer, answered) = oneshot::channel();
        let is_waiting = match self.queue.state.lock().answers.get_mut(&transaction) {
            Some(answers) => {
                answers.push(answer);
                true
            }
            None => false,
        };
        if is_waiting {
            return answered.await.map_err(|_| stopped())?.map(Some);
        }
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
                Some(outcome) => self.answer(waiting.commit.transaction, outcome),
                None => new.push(waiting),
            }
        }
        if new.is_empty() {
            return;
        }
        let results = self.catalog.commit_all(commits);
        self.state.lock().writes += 1;
        let is_logged = tracing::enabled!(tracing::Level::INFO);
        for (waiting, result) in new.into_iter().zip(results) {
            let result = result.or_else(|error| self.may_be_published(&waiting, error));
            let csn = result.as_ref().ok().copied();
            self.answer(waiting.commit.transaction, result);
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

    fn answer(&self, transaction: Uuid, result: Result<Csn>) {
        let answers = {
            let mut state = self.state.lock();
            state.published += u64::from(result.is_ok());
            state.answers.remove(&transaction).unwrap_or_default()
        };
        for answer in answers {
            // A caller that has stopped waiting asks again.
            drop(answer.send(result.clone()));
        }
    }
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
