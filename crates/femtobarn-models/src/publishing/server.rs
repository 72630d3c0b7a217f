//! Steps of the servers and of the catalogue.

use super::{
    CatalogueTransaction, CommitInQueue, ENTRY, Epochs, GroupResult, HOME, LateCommit, Publication,
    PublishingGuard, PublishingServer, PublishingState, PublishingStep, SentRequest,
};

impl Publication {
    /// The steps of a server when a request arrives.
    pub(super) fn taking_steps(
        &self,
        state: &PublishingState,
        (number, attempt): (usize, usize),
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let client = &state.clients[number];
        let at = if attempt == 2 { ENTRY } else { HOME };
        let server = &state.servers[at];
        let is_heard = server.is_up && (at == ENTRY || client.has_session);
        if client.requests[attempt] != SentRequest::OnItsWay || !is_heard {
            return;
        }
        let is_again = attempt > 0;
        let change = |mut after: PublishingState, request, queued: Option<CommitInQueue>| {
            after.clients[number].requests[attempt] = request;
            if let Some(queued) = queued {
                after.servers[at].queue[number] = Some(queued);
            }
            if request == SentRequest::Answered(false) && is_again {
                after.servers[at].refused[number] = true;
            }
            after.tidy()
        };
        let with = |request, queued| change(state.clone(), request, queued);
        let look_up = || {
            let answer = SentRequest::Answered(state.has(number));
            change(self.looked_up(state, number), answer, None)
        };
        let step = PublishingStep::Take(number, attempt);
        let is_held = client.holds == Some(server.epochs[0]);
        let is_queued = server.queue[number].is_some();
        let fence = if at == HOME { server.epochs } else { client.fence };
        if server.refused[number] && self.has(PublishingGuard::RefusedForGood) {
            add(step, with(SentRequest::Answered(false), None));
        } else if is_queued && (is_held || is_again) {
            add(step, with(SentRequest::Waits, None));
        } else if at == ENTRY || is_held {
            let queued = CommitInQueue { is_again, is_looked_up: false, fence };
            add(step, with(SentRequest::Waits, Some(queued)));
        } else if !is_again {
            add(step, with(SentRequest::Answered(false), None));
        } else if self.may_look(state) {
            add(step, look_up());
        }
        if at == ENTRY && !is_queued && self.may_look(state) {
            add(PublishingStep::RefuseAtEntry(number), look_up());
        }
    }

    pub(super) fn server_steps(
        &self,
        state: &PublishingState,
        at: usize,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let server = &state.servers[at];
        let is_writing = state.open.as_ref().is_some_and(|open| open.by == at && !open.is_lost);
        for number in 0..2 {
            let Some(queued) = server.queue[number] else { continue };
            let is_due = queued.is_again && self.has(PublishingGuard::LookUp);
            if is_due && !queued.is_looked_up && !is_writing && self.may_look(state) {
                let mut after = self.looked_up(state, number);
                if state.has(number) {
                    after.answer(at, number, true);
                } else {
                    after.servers[at].queue[number] =
                        Some(CommitInQueue { is_looked_up: true, ..queued });
                }
                add(PublishingStep::LookUp(at, number), after.tidy());
            }
            let may_send = server.doubt.is_none() && (!is_due || queued.is_looked_up);
            if state.open.is_none() && may_send {
                let mut after = state.clone();
                after.open = Some(self.apply(state, at, number));
                add(PublishingStep::SendCommit(at, number), after);
            }
            if may_send && !is_writing && state.late.is_none() && state.faults_left > 0 {
                let mut after = state.clone();
                after.faults_left -= 1;
                after.late = Some(LateCommit { by: at, client: number, fence: queued.fence });
                after.servers[at].doubt = Some(alone(number, GroupResult::Applied));
                add(PublishingStep::LoseUnlocked(at, number), after);
            }
        }
        if let (Some(results), None) = (server.doubt, &state.open) {
            let mut after = state.clone();
            after.servers[at].doubt = None;
            let asks = self.has(PublishingGuard::AskAfterLostAnswer);
            let first = (0..2).find(|number| results[*number] == GroupResult::Applied);
            if asks && first.is_none_or(|first| state.has(first)) {
                self.answer_commits(&mut after, at, results);
            } else if asks {
                self.raise_barrier(&mut after);
            }
            add(PublishingStep::AskCatalogue(at), after.tidy());
        }
    }

    /// Applies the queued commits of a server in a transaction of the catalogue, that of `first` before the other one.
    fn apply(&self, state: &PublishingState, by: usize, first: usize) -> CatalogueTransaction {
        let (mut results, mut head) = ([GroupResult::Absent; 2], state.commits.len());
        for number in [first, 1 - first] {
            let Some(queued) = state.servers[by].queue[number] else { continue };
            if queued.is_again && !queued.is_looked_up && self.has(PublishingGuard::LookUp) {
                continue;
            }
            let is_applied = self.is_admitted(state, number, head, queued.fence);
            head += usize::from(is_applied);
            results[number] = if is_applied { GroupResult::Applied } else { GroupResult::Refused };
        }
        CatalogueTransaction { by, first, results, is_lost: false }
    }

    /// Whether a commit may follow the first `head` commits.
    fn is_admitted(
        &self,
        state: &PublishingState,
        number: usize,
        head: usize,
        fence: Epochs,
    ) -> bool {
        let follows = usize::from(state.clients[number].base) == head
            || !self.has(PublishingGuard::VersionCheck);
        follows && fence == state.epochs
    }

    /// Answers the commits of a transaction that has ended.
    fn answer_commits(&self, after: &mut PublishingState, by: usize, results: [GroupResult; 2]) {
        for (number, result) in results.into_iter().enumerate() {
            let is_again = after.servers[by].queue[number].is_some_and(|queued| queued.is_again);
            let looks = is_again && self.has(PublishingGuard::LookUp);
            match result {
                GroupResult::Absent => {}
                GroupResult::Applied => after.answer(by, number, true),
                GroupResult::Refused => {
                    let is_committed = looks && after.has(number);
                    after.servers[by].refused[number] |= is_again && !is_committed;
                    after.answer(by, number, is_committed);
                }
            }
        }
    }

    pub(super) fn catalogue_steps(
        &self,
        state: &PublishingState,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let Some(open) = &state.open else { return self.late_steps(state, add) };
        let end = |is_committed: bool| {
            let mut after = state.clone();
            after.open = None;
            for number in [open.first, 1 - open.first] {
                if is_committed && open.results[number] == GroupResult::Applied {
                    after.commits.push(number);
                }
            }
            after
        };
        if open.is_lost {
            for is_committed in [true, false] {
                add(PublishingStep::EndLost(is_committed), end(is_committed));
            }
            return;
        }
        let mut after = end(true);
        self.answer_commits(&mut after, open.by, open.results);
        add(PublishingStep::Committed, after.tidy());
        if state.faults_left == 0 {
            return;
        }
        let mut after = state.clone();
        after.faults_left -= 1;
        after.servers[open.by].doubt = Some(open.results);
        after.open = Some(CatalogueTransaction { is_lost: true, ..open.clone() });
        add(PublishingStep::LoseConnection, after);
    }

    /// The steps of PostgreSQL with a commit whose connection was lost before it had the lock.
    fn late_steps(
        &self,
        state: &PublishingState,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let Some(late) = state.late else { return };
        let mut after = state.clone();
        after.late = None;
        if self.is_admitted(state, late.client, state.commits.len(), late.fence) {
            let results = alone(late.client, GroupResult::Applied);
            let (by, first) = (late.by, late.client);
            after.open = Some(CatalogueTransaction { by, first, results, is_lost: true });
        }
        add(PublishingStep::LockLate, after);
    }

    /// Raises the epoch of the home, as the home does before it frees a lock of a client that may still commit.
    pub(super) fn fence_off(&self, state: &mut PublishingState) {
        if state.epochs[0] == state.servers[HOME].epochs[0] && !state.has_moved {
            self.raise_barrier(state);
            state.epochs[1] += 1;
            state.servers[HOME].epochs[1] = state.epochs[1];
        }
    }

    pub(super) fn ending_steps(
        &self,
        state: &PublishingState,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let home = &state.servers[HOME];
        if home.is_up && state.faults_left > 0 {
            let mut after = state.clone();
            self.fence_off(&mut after);
            after.faults_left -= 1;
            add(PublishingStep::EndOtherSession, after);
        }
        let mut after = state.clone();
        if home.is_up && state.faults_left > 0 {
            after.faults_left -= 1;
            if let Some(open) = after.open.as_mut().filter(|open| open.by == HOME) {
                open.is_lost = true;
            }
            let nothing = PublishingServer {
                is_up: false,
                queue: [None; 2],
                refused: [false; 2],
                doubt: None,
                ..home.clone()
            };
            after.servers[HOME] = nothing;
            for client in &mut after.clients {
                (client.has_session, client.holds) = (false, None);
                for request in &mut client.requests[..2] {
                    // The server's connections end with it.
                    if matches!(request, SentRequest::OnItsWay | SentRequest::Waits) {
                        *request = SentRequest::None;
                    }
                }
            }
            add(PublishingStep::EndHome, after.tidy());
        } else if !home.is_up && !state.has_moved && (state.open.is_none() || self.is_alone) {
            // To join, the server waits for the lock of the catalogue.
            if !self.is_alone {
                self.raise_barrier(&mut after);
                after.epochs[0] += 1;
            }
            after.servers[HOME].is_up = true;
            after.servers[HOME].epochs = after.epochs;
            add(PublishingStep::StartHome, after);
        }
        if !self.is_alone && !state.has_moved && state.open.is_none() && state.faults_left > 0 {
            let mut after = state.clone();
            self.raise_barrier(&mut after);
            after.epochs[1] += 1;
            after.has_moved = true;
            after.faults_left -= 1;
            add(PublishingStep::TakeOver, after);
        }
    }
}

/// The results of a transaction with one commit.
fn alone(number: usize, result: GroupResult) -> [GroupResult; 2] {
    let mut results = [GroupResult::Absent; 2];
    results[number] = result;
    results
}
