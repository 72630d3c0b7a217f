//! The commits of this process that wait for their turn, and the groups that they make.
//!
//! A thread that finds nobody committing becomes the leader: it takes everything that waits, up to
//! a maximum, publishes it as one group, and hands out the results. Those who come meanwhile wait
//! for the next leader. A single thread never waits, and many share one durable write.
//!
//! Invariants:
//! 1. There is at most one leader.
//! 2. Every commit that was submitted gets exactly one result, even if the leader panics.
//! 3. Groups are made in the order of submission.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::Csn;

/// Most commits in one group, which bounds how long the last of them waits.
const GROUP_COMMITS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct CommitQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next_ticket: u64,
    leading: bool,
    waiting: VecDeque<(u64, Commit)>,
    results: HashMap<u64, Result<Csn>>,
}

impl CommitQueue {
    /// Has `publish` called with a group that holds `commit`, by this thread or by another one.
    pub(super) fn submit(
        &self,
        commit: Commit,
        publish: impl Fn(&[Commit]) -> Vec<Result<Csn>>,
    ) -> Result<Csn> {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, commit));
        loop {
            if let Some(result) = state.results.remove(&ticket) {
                return result;
            }
            if state.leading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let (mut lead, group) = Lead::take(self, &mut state);
                drop(state);
                lead.results = publish(&group);
                drop(lead);
                state = self.lock();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leader's duty to answer its group, done when this is dropped.
struct Lead<'a> {
    queue: &'a CommitQueue,
    tickets: Vec<u64>,
    results: Vec<Result<Csn>>,
}

impl<'a> Lead<'a> {
    fn take(queue: &'a CommitQueue, state: &mut State) -> (Self, Vec<Commit>) {
        state.leading = true;
        let size = state.waiting.len().min(GROUP_COMMITS_MAX);
        let (tickets, group) = state.waiting.drain(..size).unzip();
        (Lead { queue, tickets, results: Vec::new() }, group)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut results = std::mem::take(&mut self.results).into_iter();
        let mut state = self.queue.lock();
        for ticket in &self.tickets {
            let unanswered = || Err(Error::internal("the thread that led this commit stopped"));
            state.results.insert(*ticket, results.next().unwrap_or_else(unanswered));
        }
        state.leading = false;
        if self.tickets.len() > 1 || !state.waiting.is_empty() {
            self.queue.changed.notify_all();
        }
    }
}
