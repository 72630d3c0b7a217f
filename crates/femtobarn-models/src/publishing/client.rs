//! Steps of the clients.

use super::{
    CommitInQueue, CommittingClient, HOME, Publication, PublishingGuard, PublishingState,
    PublishingStep, Reported, SentRequest,
};

impl Publication {
    pub(super) fn client_steps(
        &self,
        state: &PublishingState,
        number: usize,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let client = &state.clients[number];
        let with = |change: &dyn Fn(&mut PublishingState, &mut CommittingClient)| {
            let mut after = state.clone();
            let mut client = after.clients[number].clone();
            change(&mut after, &mut client);
            after.clients[number] = client;
            after.tidy()
        };
        let home = &state.servers[HOME];
        if !client.has_begun && home.is_up {
            add(PublishingStep::Begin(number), begin(state, number));
        }
        // The other client has sent its commit in the same step, and waits.
        if !client.has_begun || number == 1 {
            return;
        }
        if client.reported == Reported::Nothing {
            self.asking_steps(state, number, add);
        }
        if client.holds.is_none() && client.reported == Reported::Refused && client.has_session {
            let again = with(&|_, client| client.holds = Some(home.epochs[0]));
            add(PublishingStep::RunAgain(number), again);
        } else if client.reported != Reported::Nothing && client.holds.is_some() {
            let freed = with(&|after, client| {
                if client.reported == Reported::InDoubt && home.is_up {
                    self.fence_off(after);
                }
                client.holds = None;
            });
            add(PublishingStep::Unlock(number), freed);
        }
        if !client.has_session && home.is_up {
            let may_hold = client.reported == Reported::Nothing && !client.has_lost;
            for holds in [true, false] {
                let opened = with(&|_, client| {
                    client.has_session = true;
                    client.holds = Some(home.epochs[0]).filter(|_| may_hold && holds);
                    client.has_lost |= !holds;
                });
                add(PublishingStep::ReopenSession(number, holds), opened);
            }
        }
        let is_published = home.queue[number].is_some() || home.doubt.is_some();
        if client.has_session && home.is_up && !is_published && state.faults_left > 0 {
            let ended = with(&|after, client| {
                if client.holds.is_some() {
                    self.fence_off(after);
                }
                after.faults_left -= 1;
                (client.has_session, client.holds) = (false, None);
            });
            add(PublishingStep::EndSession(number), ended);
        }
    }

    /// The steps of a client that does not know the outcome of its commit.
    fn asking_steps(
        &self,
        state: &PublishingState,
        number: usize,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let client = &state.clients[number];
        let with = |change: &dyn Fn(&mut CommittingClient)| {
            let mut after = state.clone();
            change(&mut after.clients[number]);
            after.tidy()
        };
        let home_is_up = state.servers[HOME].is_up;
        if client.asked == 0 && client.has_lost {
            add(
                PublishingStep::GiveUp(number),
                with(&|client| client.reported = Reported::Refused),
            );
        } else if client.refused.is_none() {
            let most = if self.is_alone { 2 } else { 3 };
            // The client asks the home first.
            for attempt in client.asked..if client.asked == 0 { 1 } else { most } {
                let asked = with(&|client| {
                    client.asked = attempt + 1;
                    // A server that does not run has no connections.
                    if home_is_up || attempt == 2 {
                        client.requests[attempt] = SentRequest::OnItsWay;
                    }
                });
                add(PublishingStep::Ask(number, attempt), asked);
            }
        }
        if client.asked > 0 {
            add(
                PublishingStep::GiveUp(number),
                with(&|client| client.reported = Reported::InDoubt),
            );
        }
        let answered = client.asked.checked_sub(1).map(|current| client.requests[current]);
        if let Some(SentRequest::Answered(is_committed)) = answered {
            let is_doubted = client.asked == 3 && self.has(PublishingGuard::DoubtElsewhere);
            let taken = with(&|client| match (is_committed, is_doubted) {
                (true, _) => client.reported = Reported::Committed,
                (false, false) => client.reported = Reported::Refused,
                (false, true) => {
                    client.refused = Some(None);
                    client.requests[2] = SentRequest::None;
                }
            });
            add(PublishingStep::TakeAnswer(number), taken);
        }
        self.settling_steps(state, number, add);
    }

    /// The steps of a client whose commit was refused at the entry.
    fn settling_steps(
        &self,
        state: &PublishingState,
        number: usize,
        add: &mut dyn FnMut(PublishingStep, PublishingState),
    ) {
        let client = &state.clients[number];
        let with = |change: &dyn Fn(&mut CommittingClient)| {
            let mut after = state.clone();
            change(&mut after.clients[number]);
            after.tidy()
        };
        match client.refused {
            Some(None) => {
                let has_moved = state.has_moved;
                let looks_again = self.has(PublishingGuard::LookUpAfterMove);
                let looked = with(&|client| {
                    client.refused = Some(Some(has_moved));
                    match has_moved {
                        true if !looks_again => client.reported = Reported::Refused,
                        true => {}
                        false => client.reported = Reported::InDoubt,
                    }
                });
                add(PublishingStep::LookForHome(number), looked);
            }
            Some(Some(true)) if self.may_look(state) => {
                let reported =
                    if state.has(number) { Reported::Committed } else { Reported::Refused };
                let mut after = self.looked_up(state, number);
                after.clients[number].reported = reported;
                add(PublishingStep::LookForCommit(number), after.tidy());
            }
            _ => {}
        }
    }
}

/// The state after a client has begun its transaction at the home.
fn begin(state: &PublishingState, number: usize) -> PublishingState {
    let mut after = state.clone();
    let home = &mut after.servers[HOME];
    let client = &mut after.clients[number];
    (client.has_begun, client.has_session) = (true, true);
    client.base = after.commits.len() as u8;
    (client.fence, client.holds) = (home.epochs, Some(home.epochs[0]));
    if number == 1 {
        (client.asked, client.requests[0]) = (1, SentRequest::Waits);
        let (is_again, is_looked_up, fence) = (false, false, home.epochs);
        home.queue[1] = Some(CommitInQueue { is_again, is_looked_up, fence });
    }
    after.tidy()
}
