//! A writer that has lost its lock commits nothing: fences of homes, takeovers, and a program that locks in the folder
//! of a server which has ended.
//!
//! Two servers share a disk. Two clients lock its only database exclusively, as for vacuum, seal or a move, so no
//! version check would notice the changes of another writer in between. Each commit is sent to the home and to another
//! server. The faults: leases end, clients fall silent, requests and commits are late, servers end and restart. The
//! model [`leases`](crate::leases) proves that no server takes over before the other one knows that its lease is over.
//!
//! The code: `femtobarn-catalog/src/local/{servers,home_check,target_names}.rs`, `locks/presence.rs`, and
//! `femtobarn-server/src/logical/catalogue/{site,homes,lease,reacquisition}.rs`.

use crate::explorer::Model;

/// Limits: epochs of a server or of the home, and commits.
const EPOCHS_MAX: u8 = 3;
const COMMITS_MAX: u8 = 2;

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomesGuard {
    /// A server that joins begins an epoch.
    EpochAtJoin,
    /// A takeover begins an epoch of the home and of the server that lost it.
    EpochsAtTakeOver,
    /// Locks that were granted in an earlier epoch of a server are lost.
    LocksOfEpoch,
    /// The home's epoch is raised before the lock of a silent client is freed.
    FencesBeforeFreeing,
    /// A program in the folder of a server that has ended raises the epoch, too.
    ProgramFences,
    /// A lock is reacquired only if nobody committed in between.
    ReacquiresUnchanged,
}

impl HomesGuard {
    /// All guards.
    pub const ALL: [Self; 6] = [
        Self::EpochAtJoin,
        Self::EpochsAtTakeOver,
        Self::LocksOfEpoch,
        Self::FencesBeforeFreeing,
        Self::ProgramFences,
        Self::ReacquiresUnchanged,
    ];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct Homes {
    /// Whether kernel locks reach all machines that mount the disk, and a program runs in the folder there. Otherwise
    /// fences and leases have to suffice.
    pub has_kernel_locks: bool,
    /// The guard that is switched off.
    pub without: Option<HomesGuard>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum HomesStep {
    /// The lease of a server is over, by its own clock and by that of the catalogue.
    EndLease(usize),
    /// A server renews its lease, or joins again if it has another epoch.
    Renew(usize),
    /// A server takes over from the other one.
    TakeOver(usize),
    /// A server looks up where the database is.
    LookForHome(usize),
    /// A server's process ends.
    End(usize),
    /// The server is restarted.
    Start(usize),
    /// A client locks the database at a server.
    Lock(usize, usize),
    /// A client reacquires its lock at a server that was restarted.
    LockAgain(usize, usize),
    /// A client sends its commit to another server.
    SendElsewhere(usize),
    /// A client sends its commit to the home, which queues it.
    SendHome(usize),
    /// The catalogue applies a commit, or refuses it, at another server.
    ApplyElsewhere(usize),
    /// The catalogue applies a commit, or refuses it, at the home.
    ApplyHome(usize),
    /// A client frees its lock.
    Unlock(usize),
    /// A client's session falls silent, and ends.
    EndSession(usize),
    /// A program locks the database in the folder.
    LockInFolder,
    /// The program fences off servers that have ended.
    FenceInFolder,
    /// The program commits.
    CommitInFolder,
    /// The program frees its lock.
    UnlockInFolder,
}

/// The right to write: a server, its epoch, and the epoch of the home.
type Right = (usize, u8, u8);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HomeServer {
    is_up: bool,
    epoch: u8,
    has_lease: bool,
    /// The epoch of the home, if it knows that it is the home.
    home: Option<u8>,
    /// The client that holds the lock in the server's table.
    holder: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WritingClient {
    /// The right that the client was granted, while it believes that it holds the lock.
    right: Option<Right>,
    /// The number of commits that it has seen under its lock.
    seen: u8,
    elsewhere: Option<Right>,
    at_home: Option<Right>,
}

/// A program in the folder: the number of commits that it has seen, and whether it has fenced off servers that have
/// ended.
type Program = Option<(u8, bool)>;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomesState {
    // The catalogue.
    epochs: [u8; 2],
    home: usize,
    home_epoch: u8,
    commits: u8,
    // All other participants.
    servers: [HomeServer; 2],
    clients: [WritingClient; 2],
    program: Program,
    ends: u8,
    has_overtaken: bool,
}

impl HomesState {
    fn admits(&self, (server, epoch, home_epoch): Right) -> bool {
        self.home == server && self.epochs[server] == epoch && self.home_epoch == home_epoch
    }

    /// Publishes the commit of a writer that has seen this number of commits.
    fn publish(&mut self, seen: u8) {
        self.has_overtaken |= seen != self.commits;
        self.commits += 1;
    }

    /// Whether no participant holds the database's kernel lock.
    fn is_free_in_kernel(&self) -> bool {
        self.program.is_none() && self.servers.iter().all(|server| server.holder.is_none())
    }
}

impl Homes {
    fn has(&self, guard: HomesGuard) -> bool {
        self.without != Some(guard)
    }

    fn server_steps(
        &self,
        state: &HomesState,
        at: usize,
        add: &mut dyn FnMut(HomesStep, HomesState),
    ) {
        let (server, other) = (&state.servers[at], 1 - at);
        let with = |change: &dyn Fn(&mut HomesState, &mut HomeServer)| {
            let mut after = state.clone();
            let mut server = after.servers[at].clone();
            change(&mut after, &mut server);
            after.servers[at] = server;
            after
        };
        if !server.is_up {
            add(HomesStep::Start(at), with(&|_, server| server.is_up = true));
            return;
        }
        if server.has_lease {
            add(HomesStep::EndLease(at), with(&|_, server| server.has_lease = false));
        } else {
            let has_epoch = state.epochs[at] == server.epoch && server.epoch > 0;
            let begun = u8::from(!has_epoch && self.has(HomesGuard::EpochAtJoin));
            let renewed = with(&|after, server| {
                after.epochs[at] += begun;
                if !has_epoch {
                    (server.epoch, server.home) = (after.epochs[at], None);
                }
                server.has_lease = true;
            });
            if renewed.epochs[at] <= EPOCHS_MAX {
                add(HomesStep::Renew(at), renewed);
            }
        }
        let is_over = !state.servers[other].has_lease;
        if server.has_lease && state.epochs[at] == server.epoch && state.home == other && is_over {
            let raised = u8::from(self.has(HomesGuard::EpochsAtTakeOver));
            let taken = with(&|after, _| {
                after.epochs[other] += raised;
                after.home_epoch += raised;
                after.home = at;
            });
            if taken.home_epoch <= EPOCHS_MAX && taken.epochs[other] <= EPOCHS_MAX {
                add(HomesStep::TakeOver(at), taken);
            }
        }
        if server.has_lease && state.home == at && server.home.is_none() {
            let found = with(&|after, server| server.home = Some(after.home_epoch));
            add(HomesStep::LookForHome(at), found);
        }
        if state.ends > 0 {
            let ended = with(&|after, server| {
                after.ends -= 1;
                let (is_up, has_lease, home, holder) = (false, false, None, None);
                *server = HomeServer { is_up, epoch: 0, has_lease, home, holder };
                for client in &mut after.clients {
                    client.at_home = client.at_home.filter(|right| right.0 != at);
                }
            });
            add(HomesStep::End(at), ended);
        }
    }

    fn client_steps(
        &self,
        state: &HomesState,
        number: usize,
        add: &mut dyn FnMut(HomesStep, HomesState),
    ) {
        let client = &state.clients[number];
        let with = |change: &dyn Fn(&mut HomesState, &mut WritingClient)| {
            let mut after = state.clone();
            let mut client = after.clients[number].clone();
            change(&mut after, &mut client);
            after.clients[number] = client;
            after
        };
        let idle = WritingClient { right: None, seen: 0, elsewhere: None, at_home: None };
        for at in 0..2 {
            let server = &state.servers[at];
            let is_free = if self.has_kernel_locks {
                state.is_free_in_kernel()
            } else {
                server.holder.is_none()
            };
            let (Some(home), true) = (server.home, server.has_lease && is_free) else { continue };
            let locked = with(&|after, client| {
                after.servers[at].holder = Some(number);
                client.right = Some((at, after.servers[at].epoch, home));
                client.seen = if client.right.is_none() { client.seen } else { after.commits };
            });
            if *client == idle {
                add(HomesStep::Lock(number, at), locked);
            } else if client.right.is_some_and(|right| right.0 == at) {
                let is_unchanged = client.seen == state.commits;
                if is_unchanged || !self.has(HomesGuard::ReacquiresUnchanged) {
                    let again = with(&|after, client| {
                        after.servers[at].holder = Some(number);
                        client.right = Some((at, after.servers[at].epoch, home));
                    });
                    add(HomesStep::LockAgain(number, at), again);
                }
            }
        }
        if let Some(right) = client.right {
            self.sending_steps(state, (number, right), add);
        }
        for (is_home, sent) in [(false, client.elsewhere), (true, client.at_home)] {
            let Some(right) = sent else { continue };
            let applied = with(&|after, client| {
                if after.admits(right) {
                    after.publish(client.seen);
                    // The commit is published once.
                    (client.elsewhere, client.at_home) = (None, None);
                    client.seen = after.commits;
                } else if is_home {
                    client.at_home = None;
                } else {
                    client.elsewhere = None;
                }
                if client.right.is_none() && (client.elsewhere, client.at_home) == (None, None) {
                    client.seen = 0;
                }
            });
            let step = if is_home { HomesStep::ApplyHome } else { HomesStep::ApplyElsewhere };
            if applied.commits <= COMMITS_MAX {
                add(step(number), applied);
            }
        }
    }

    /// The steps of a client that believes that it holds the lock.
    fn sending_steps(
        &self,
        state: &HomesState,
        (number, right): (usize, Right),
        add: &mut dyn FnMut(HomesStep, HomesState),
    ) {
        let (client, at) = (&state.clients[number], right.0);
        let server = &state.servers[at];
        let with = |change: &dyn Fn(&mut HomesState, &mut WritingClient)| {
            let mut after = state.clone();
            let mut client = after.clients[number].clone();
            change(&mut after, &mut client);
            after.clients[number] = client;
            after
        };
        let holds = server.is_up && server.holder == Some(number);
        let is_valid = server.epoch == right.1 || !self.has(HomesGuard::LocksOfEpoch);
        if client.elsewhere.is_none() {
            let sent = with(&|_, client| client.elsewhere = Some(right));
            add(HomesStep::SendElsewhere(number), sent);
        }
        if client.at_home.is_none() && holds && server.has_lease && is_valid {
            // The client shows the newest epoch of the home.
            let newest = (at, server.epoch, server.home.unwrap_or(0));
            add(HomesStep::SendHome(number), with(&|_, client| client.at_home = Some(newest)));
        }
        if client.at_home.is_some() {
            return;
        }
        if client.elsewhere.is_none() {
            let freed = with(&|after, client| {
                if holds {
                    after.servers[at].holder = None;
                }
                (client.right, client.seen) = (None, 0);
            });
            add(HomesStep::Unlock(number), freed);
        }
        if holds {
            let ended = with(&|after, client| {
                let is_known = after.epochs[at] == server.epoch && after.home == at;
                if is_known && self.has(HomesGuard::FencesBeforeFreeing) {
                    after.home_epoch += 1;
                    after.servers[at].home = Some(after.home_epoch);
                }
                after.servers[at].holder = None;
                client.right = None;
                if client.elsewhere.is_none() {
                    client.seen = 0;
                }
            });
            if ended.home_epoch <= EPOCHS_MAX {
                add(HomesStep::EndSession(number), ended);
            }
        }
    }

    fn program_steps(&self, state: &HomesState, add: &mut dyn FnMut(HomesStep, HomesState)) {
        let mut after = state.clone();
        let Some((seen, has_fenced)) = state.program else {
            if state.is_free_in_kernel() {
                after.program = Some((state.commits, !self.has(HomesGuard::ProgramFences)));
                add(HomesStep::LockInFolder, after);
            }
            return;
        };
        if !has_fenced {
            // A server is visible in the folder once it has joined.
            let is_seen = state.servers[state.home].epoch > 0;
            after.home_epoch += u8::from(!is_seen);
            after.program = Some((state.commits, true));
            if after.home_epoch <= EPOCHS_MAX {
                add(HomesStep::FenceInFolder, after.clone());
            }
        } else if state.commits < COMMITS_MAX {
            after.publish(seen);
            after.program = Some((after.commits, true));
            add(HomesStep::CommitInFolder, after.clone());
        }
        after.clone_from(state);
        after.program = None;
        add(HomesStep::UnlockInFolder, after);
    }
}

impl Model for Homes {
    type State = HomesState;
    type Transition = HomesStep;

    /// The first server is the home; the second one has not started yet.
    fn beginning(&self) -> HomesState {
        let (is_up, has_lease, home, holder) = (false, false, None, None);
        let server = HomeServer { is_up, epoch: 0, has_lease, home, holder };
        let home = HomeServer { is_up: true, epoch: 1, has_lease: true, home: Some(1), ..server };
        let client = WritingClient { right: None, seen: 0, elsewhere: None, at_home: None };
        HomesState {
            epochs: [1, 0],
            home: 0,
            home_epoch: 1,
            commits: 0,
            servers: [home, server],
            clients: [client.clone(), client],
            program: None,
            ends: 1,
            has_overtaken: false,
        }
    }

    fn steps(&self, state: &HomesState, add: &mut dyn FnMut(HomesStep, HomesState)) {
        for number in 0..2 {
            self.server_steps(state, number, add);
            self.client_steps(state, number, add);
        }
        if self.has_kernel_locks {
            self.program_steps(state, add);
        }
    }

    fn violated(&self, state: &HomesState) -> Option<&'static str> {
        let what = "3: a writer that has lost its lock does not commit behind another one";
        state.has_overtaken.then_some(what)
    }

    fn reached(&self, state: &HomesState, note: &mut dyn FnMut(&'static str)) {
        if state.home == 1 {
            note("the other server took over");
        }
        if state.home == 0 && state.home_epoch > 1 && state.epochs[1] > 1 {
            note("the first server took over again");
        }
        if state.commits == 2 {
            note("two commits");
        }
        if state.program.is_some() && state.commits > 0 {
            note("a program works in the folder");
        }
    }
}
