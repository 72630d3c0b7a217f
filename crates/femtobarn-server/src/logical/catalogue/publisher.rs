//! Commits of many sessions in one durable write.
//!
//! One thread publishes, as long as there is something to publish: all that has come meanwhile, up to a
//! maximum, is one group. So commits take one thread, however many sessions wait for theirs.
//!
//! Invariants:
//! 1. A transaction is in the queue, or being published, at most once; who sends it again gets the same
//!    answer.
//! 2. A transaction that was sent before is looked for before it is published.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{Commit, Csn, Error, ErrorKind, LocalCatalogue, Result};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use uuid::Uuid;

mod log;

use log::CommitLog;

/// Commits in one durable write.
const GROUP_MAX: usize = 256;

/// What publishes commits.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Arc<CommitLog>,
    catalog: Arc<LocalCatalogue>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Who waits for each transaction that is in the queue or being published.
    answers: HashMap<Uuid, Vec<oneshot::Sender<Result<Csn>>>>,
    is_publishing: bool,
    published: u64,
    writes: u64,
}

#[derive(Debug)]
struct Waiting {
    commit: Commit,
    /// After which commit it may have been published.
    again: Option<Csn>,
}

impl Publisher {
    pub(super) fn new(name: &str, catalog: Arc<LocalCatalogue>) -> Self {
        let log = Arc::new(CommitLog::new(name, Arc::clone(&catalog)));
        Publisher { shared: Arc::new(Shared { log, catalog, state: Mutex::default() }) }
    }

    /// Commits that were published, and the durable writes that it took.
    pub fn published(&self) -> (u64, u64) {
        let state = self.shared.lock();
        (state.published, state.writes)
    }

    /// Publishes a commit; `again` says that it may have been published before, after that commit.
    ///
    /// # Errors
    /// As [`LocalCatalogue::commit`].
    pub async fn publish(&self, commit: Commit, again: Option<Csn>) -> Result<Csn> {
        if commit.transaction.is_nil() {
            return Err(Error::Invalid { what: "a transaction has no identity".to_owned() });
        }
        let (answer, answered) = oneshot::channel();
        let starts = {
            let mut state = self.shared.lock();
            let answers = state.answers.entry(commit.transaction).or_default();
            answers.push(answer);
            if answers.len() == 1 {
                state.queue.push_back(Waiting { commit, again });
            }
            !std::mem::replace(&mut state.is_publishing, true)
        };
        if starts {
            let shared = Arc::clone(&self.shared);
            spawn_blocking(move || shared.publish_all());
        }
        answered.await.map_err(|_| stopped())?
    }

    /// The commit that a transaction made after another one, or is making.
    ///
    /// # Errors
    /// As [`LocalCatalogue::find_commit`].
    pub async fn made(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let (answer, answered) = oneshot::channel();
        let is_waiting = match self.shared.lock().answers.get_mut(&transaction) {
            Some(answers) => {
                answers.push(answer);
                true
            }
            None => false,
        };
        if is_waiting {
            return answered.await.map_err(|_| stopped())?.map(Some);
        }
        let shared = Arc::clone(&self.shared);
        let made = spawn_blocking(move || shared.made(transaction, after));
        made.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Shared {
    /// The commit that a transaction made after another one.
    fn made(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        self.catalog.find_commit(transaction, after)
    }

    fn publish_all(&self) {
        let mut leading = Leading { shared: self, is_done: false };
        loop {
            let group: Vec<Waiting> = {
                let mut state = self.lock();
                let size = state.queue.len().min(GROUP_MAX);
                if size == 0 {
                    state.is_publishing = false;
                    leading.is_done = true;
                    return;
                }
                state.queue.drain(..size).collect()
            };
            self.publish_group(group);
        }
    }

    fn publish_group(&self, group: Vec<Waiting>) {
        let mut new = Vec::with_capacity(group.len());
        for waiting in group {
            match self.find(&waiting) {
                Ok(None) => new.push(waiting),
                Ok(Some(csn)) => self.answer(waiting.commit.transaction, Ok(csn)),
                Err(error) => self.answer(waiting.commit.transaction, Err(error)),
            }
        }
        if new.is_empty() {
            return;
        }
        let commits = new.iter().map(|waiting| waiting.commit.clone()).collect();
        let results = self.catalog.commit_all(commits);
        self.lock().writes += 1;
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

    /// The commit that a transaction has made already.
    fn find(&self, waiting: &Waiting) -> Result<Option<Csn>> {
        match waiting.again {
            Some(after) => self.made(waiting.commit.transaction, after),
            None => Ok(None),
        }
    }

    /// A server that was not dead yet may have published it just now.
    fn may_be_published(&self, waiting: &Waiting, error: Error) -> Result<Csn> {
        match error.kind() {
            ErrorKind::Conflict | ErrorKind::Exists => self.find(waiting)?.ok_or(error),
            _ => Err(error),
        }
    }

    fn answer(&self, transaction: Uuid, result: Result<Csn>) {
        let answers = {
            let mut state = self.lock();
            state.published += u64::from(result.is_ok());
            state.answers.remove(&transaction).unwrap_or_default()
        };
        for answer in answers {
            // Who does not wait any more asks again.
            drop(answer.send(result.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped() -> Error {
    Error::Internal { what: "the publisher stopped".to_owned() }
}

/// The duty of the one thread that publishes: if it stops halfway, nobody waits for it.
struct Leading<'a> {
    shared: &'a Shared,
    is_done: bool,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.shared.lock();
            state.queue.clear();
            state.answers.clear();
            state.is_publishing = false;
        }
    }
}
