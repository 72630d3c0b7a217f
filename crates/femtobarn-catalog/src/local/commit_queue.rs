//! Group commit within a process: one thread publishes the waiting commits of all threads together.
//!
//! A thread that finds no leader becomes one: it takes the waiting commits, up to a maximum, publishes them as one
//! group, and hands out the results. Threads that arrive meanwhile wait, and one of them leads the next group. A single
//! thread never waits, and many share one durable write.
//!
//! Invariants:
//! 1. There is at most one leader.
//! 2. Every commit that was submitted gets exactly one result, even if the leader panics.
//! 3. Groups take commits in the order of submission.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Condvar, Mutex};

use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::Csn;

/// Commits in one group at most, which bounds how long the last of them waits.
const GROUP_COMMITS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct CommitQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next_ticket: u64,
    has_leader: bool,
    waiting: VecDeque<(u64, Commit)>,
    results: HashMap<u64, Result<Csn>>,
}

impl CommitQueue {
    /// Returns the result of `commit`, which this thread or another one publishes in a group. `publish` returns one
    /// result for each commit of the group, in order.
    pub(super) fn submit(
        &self,
        commit: Commit,
        publish: impl Fn(&[Commit]) -> Vec<Result<Csn>>,
    ) -> Result<Csn> {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, commit));
        loop {
            if let Some(result) = state.results.remove(&ticket) {
                return result;
            }
            if state.has_leader {
                self.changed.wait(&mut state);
            } else {
                let (mut lead, group) = Leadership::take(self, &mut state);
                drop(state);
                lead.results = publish(&group);
                drop(lead);
                state = self.state.lock();
            }
        }
    }
}

/// A leader's duty to answer its group, which it fulfils when this is dropped.
struct Leadership<'a> {
    queue: &'a CommitQueue,
    tickets: Vec<u64>,
    results: Vec<Result<Csn>>,
}

impl<'a> Leadership<'a> {
    fn take(queue: &'a CommitQueue, state: &mut State) -> (Self, Vec<Commit>) {
        state.has_leader = true;
        let size = state.waiting.len().min(GROUP_COMMITS_MAX);
        let (tickets, group) = state.waiting.drain(..size).unzip();
        (Leadership { queue, tickets, results: Vec::new() }, group)
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut results = std::mem::take(&mut self.results).into_iter();
        let mut state = self.queue.state.lock();
        for ticket in &self.tickets {
            // The leader panicked in `publish`.
            let what = || "the thread that led this commit stopped".to_owned();
            let result = results.next().unwrap_or_else(|| Err(Error::Internal { what: what() }));
            state.results.insert(*ticket, result);
        }
        state.has_leader = false;
        if self.tickets.len() > 1 || !state.waiting.is_empty() {
            self.queue.changed.notify_all();
        }
    }
}
