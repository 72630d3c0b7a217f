//! A transaction is published at most once, and its client learns whether it was, or that this is unknown: the paths of
//! a commit through the publisher of a home, and through the server to which the client turns when the home falls
//! silent.
//!
//! Two clients begin transactions that write to one container. The first asks up to three times: twice at the home, and
//! once at the entry of the federation, another server; the other client asks once. The faults: answers are lost,
//! requests are late, a session falls silent, the home ends and restarts, and PostgreSQL does not report whether a
//! COMMIT succeeded, or has a commit whose connection was lost before it had the lock of the catalogue.
//!
//! The code: `femtobarn-rpc/src/client/{calls,homes,ledger}.rs`,
//! `femtobarn-server/src/logical/catalogue/{lease,homes}.rs` and `publisher`,
//! `femtobarn-catalog/src/local/{postgres_writer,postgres_group,barrier,home_check}.rs`.

mod client;
mod server;

use crate::explorer::Model;

const HOME: usize = 0;
const ENTRY: usize = 1;
/// Limit of the faults in one history.
const FAULTS_MAX: u8 = 2;

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishingGuard {
    /// A commit is applied only to the version that its transaction has seen.
    VersionCheck,
    /// A commit that was sent before is looked up, before it is published and also if it is refused.
    LookUp,
    /// The look-up holds the lock of the catalogue, which a COMMIT whose process has ended may still hold.
    LookUpUnderLock,
    /// A look-up that finds no commit, and a change that is no commit, change the barrier. So a commit that was sent before and
    /// has no lock yet has no effect any more.
    Barrier,
    /// If PostgreSQL's answer to a COMMIT is lost, the server asks the catalogue for the outcome.
    AskAfterLostAnswer,
    /// A refusal by another server does not prove that the home refuses the commit, too.
    DoubtElsewhere,
    /// That doubt ends only if the database has another home, and then the commit is looked up once more.
    LookUpAfterMove,
    /// A server that has refused a repeated commit does not publish it when an earlier request arrives late.
    RefusedForGood,
}

impl PublishingGuard {
    /// All guards.
    pub const ALL: [Self; 8] = [
        Self::VersionCheck,
        Self::LookUp,
        Self::LookUpUnderLock,
        Self::Barrier,
        Self::AskAfterLostAnswer,
        Self::DoubtElsewhere,
        Self::LookUpAfterMove,
        Self::RefusedForGood,
    ];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct Publication {
    /// Whether the home is the only server: it has no epoch, and there is no entry.
    pub is_alone: bool,
    /// The guard that is switched off.
    pub without: Option<PublishingGuard>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum PublishingStep {
    /// A client begins a transaction: it locks the database at the home, and sees the newest version.
    Begin(usize),
    /// A client sends the request for its commit, for the nth time.
    Ask(usize, usize),
    /// A server accepts the request of a client, or refuses it at once.
    Take(usize, usize),
    /// The entry refuses a request because the client has lost one of the entry's own locks.
    RefuseAtEntry(usize),
    /// A server looks up a commit that was sent before.
    LookUp(usize, usize),
    /// A server applies its queued commits and sends COMMIT; the commit of the given client is first.
    SendCommit(usize, usize),
    /// PostgreSQL has committed, and the server knows it.
    Committed,
    /// The connection to PostgreSQL is lost; its transaction ends later.
    LoseConnection,
    /// A server sends a commit together with the request for the lock, and loses the connection.
    LoseUnlocked(usize, usize),
    /// That commit gets the lock.
    LockLate,
    /// The transaction of the lost connection ends, committed or not.
    EndLost(bool),
    /// A server asks the catalogue for the outcome of that transaction.
    AskCatalogue(usize),
    /// A client receives an answer.
    TakeAnswer(usize),
    /// After the entry refused its commit, a client checks whether the home is another server.
    LookForHome(usize),
    /// After that the client looks up the commit.
    LookForCommit(usize),
    /// A client gives up waiting.
    GiveUp(usize),
    /// A client frees its lock.
    Unlock(usize),
    /// A client's session falls silent and ends.
    EndSession(usize),
    /// The session of a client with another transaction falls silent and ends.
    EndOtherSession,
    /// The client's session is reopened, and has reacquired its lock or lost it.
    ReopenSession(usize, bool),
    /// The client runs its transaction again after a refusal, and its session locks the database again.
    RunAgain(usize),
    /// The home's process ends.
    EndHome,
    /// The home is restarted.
    StartHome,
    /// Another server takes over from the home.
    TakeOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reported {
    Nothing,
    Committed,
    Refused,
    InDoubt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SentRequest {
    /// Not sent, or of no interest to any participant any more.
    None,
    OnItsWay,
    Waits,
    Answered(bool),
}

/// The outcome of a commit within a transaction of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GroupResult {
    Absent,
    Applied,
    Refused,
}

/// The epochs of a server and of the home of its database.
type Epochs = [u8; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CommitInQueue {
    is_again: bool,
    is_looked_up: bool,
    fence: Epochs,
}

/// A commit that PostgreSQL has got over a connection that is lost, and that waits for the lock. The barrier is still the one
/// that it was sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LateCommit {
    by: usize,
    client: usize,
    fence: Epochs,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PublishingServer {
    is_up: bool,
    /// The epochs of the server and of the home, as the server knows them.
    epochs: Epochs,
    queue: [Option<CommitInQueue>; 2],
    /// The repeated commits that the server has refused.
    refused: [bool; 2],
    /// The transaction whose outcome in PostgreSQL the server does not know.
    doubt: Option<[GroupResult; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CommittingClient {
    has_begun: bool,
    /// The version that the client has seen, and the fence that it was granted then.
    base: u8,
    fence: Epochs,
    /// Whether the home has the client's session.
    has_session: bool,
    /// The server's epoch in which the session locked the database, while it holds the lock.
    holds: Option<u8>,
    /// Whether the client knows that the lock is lost.
    has_lost: bool,
    /// Number of requests that the client has sent.
    asked: usize,
    requests: [SentRequest; 3],
    /// Whether the entry has refused its commit, and whether the home was another server then, once the client has
    /// checked.
    refused: Option<Option<bool>>,
    reported: Reported,
}

/// The open transaction of the catalogue, which holds the catalogue's lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CatalogueTransaction {
    by: usize,
    first: usize,
    results: [GroupResult; 2],
    is_lost: bool,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublishingState {
    /// The commits, each as the number of its client.
    commits: Vec<usize>,
    /// The epochs in the catalogue.
    epochs: Epochs,
    open: Option<CatalogueTransaction>,
    late: Option<LateCommit>,
    servers: [PublishingServer; 2],
    clients: [CommittingClient; 2],
    /// Whether another server has become the home.
    has_moved: bool,
    /// The faults that may still strike.
    faults_left: u8,
}

impl PublishingState {
    fn has(&self, client: usize) -> bool {
        self.commits.contains(&client)
    }

    fn answer(&mut self, server: usize, client: usize, is_committed: bool) {
        self.servers[server].queue[client] = None;
        let attempts = if server == HOME { 0..2 } else { 2..3 };
        for request in &mut self.clients[client].requests[attempts] {
            if *request == SentRequest::Waits {
                *request = SentRequest::Answered(is_committed);
            }
        }
        if client == 1 {
            self.clients[1].reported =
                if is_committed { Reported::Committed } else { Reported::Refused };
        }
    }

    /// Removes requests and facts that no client needs any more.
    fn tidy(mut self) -> Self {
        for client in &mut self.clients {
            if client.reported != Reported::Nothing {
                (client.refused, client.has_lost) = (None, false);
            }
            let current =
                client.asked.checked_sub(1).filter(|_| client.reported == Reported::Nothing);
            for (number, request) in client.requests.iter_mut().enumerate() {
                if *request != SentRequest::OnItsWay && current != Some(number) {
                    *request = SentRequest::None;
                }
            }
        }
        self
    }
}

impl Publication {
    fn has(&self, guard: PublishingGuard) -> bool {
        self.without != Some(guard)
    }

    /// Changes the barrier.
    fn raise_barrier(&self, state: &mut PublishingState) {
        if self.has(PublishingGuard::Barrier) {
            state.late = None;
        }
    }

    /// The state after a commit was looked up.
    fn looked_up(&self, state: &PublishingState, number: usize) -> PublishingState {
        let mut after = state.clone();
        if !state.has(number) {
            self.raise_barrier(&mut after);
        }
        after
    }

    /// Whether a commit can be looked up now.
    fn may_look(&self, state: &PublishingState) -> bool {
        state.open.is_none() || !self.has(PublishingGuard::LookUpUnderLock)
    }
}

impl Model for Publication {
    type State = PublishingState;
    type Transition = PublishingStep;

    fn beginning(&self) -> PublishingState {
        let server = PublishingServer {
            is_up: true,
            epochs: [0, 0],
            queue: [None; 2],
            refused: [false; 2],
            doubt: None,
        };
        let client = CommittingClient {
            has_begun: false,
            base: 0,
            fence: [0, 0],
            has_session: false,
            holds: None,
            has_lost: false,
            asked: 0,
            requests: [SentRequest::None; 3],
            refused: None,
            reported: Reported::Nothing,
        };
        PublishingState {
            commits: vec![],
            epochs: [0, 0],
            open: None,
            late: None,
            servers: [server.clone(), server],
            clients: [client.clone(), client],
            has_moved: false,
            faults_left: FAULTS_MAX,
        }
    }

    fn steps(&self, state: &PublishingState, add: &mut dyn FnMut(PublishingStep, PublishingState)) {
        for number in 0..2 {
            self.client_steps(state, number, add);
            for attempt in 0..3 {
                self.taking_steps(state, (number, attempt), add);
            }
        }
        for at in [HOME, ENTRY] {
            self.server_steps(state, at, add);
        }
        self.catalogue_steps(state, add);
        self.ending_steps(state, add);
    }

    fn violated(&self, state: &PublishingState) -> Option<&'static str> {
        for (place, number) in state.commits.iter().enumerate() {
            if usize::from(state.clients[*number].base) != place {
                return Some("3: a commit follows the version that its transaction has seen");
            }
            if state.commits[..place].contains(number) {
                return Some("4: a transaction is published once");
            }
        }
        for (number, client) in state.clients.iter().enumerate() {
            match client.reported {
                Reported::Committed if !state.has(number) => {
                    return Some("4: what is acknowledged is published");
                }
                Reported::Refused if state.has(number) => {
                    return Some("4: what is refused is not published");
                }
                _ => {}
            }
        }
        None
    }

    fn reached(&self, state: &PublishingState, note: &mut dyn FnMut(&'static str)) {
        for client in &state.clients {
            match (client.reported, client.asked) {
                (Reported::Committed, 1) => note("committed at once"),
                (Reported::Committed, 2) => note("committed when asked again"),
                (Reported::Committed, 3) => note("committed at the entry"),
                (Reported::Refused, 3) => note("refused at the entry"),
                (Reported::Refused, _) => note("refused at the home"),
                (Reported::InDoubt, _) => note("in doubt"),
                _ => {}
            }
        }
        if state.commits.len() == 2 {
            note("two commits");
        }
    }
}
