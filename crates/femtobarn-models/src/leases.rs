//! A server relies on its lease only while no other server can have taken its databases over: leases measured by two
//! clocks, and their end.
//!
//! Two servers share a disk, and the first is the home of its only database. The faults: a server's clock is slower
//! than the catalogue's by a quarter, answers of the catalogue are late, and servers end, restart, or leave while a
//! renewal is under way.
//!
//! The code: `femtobarn-catalog/src/local/servers.rs` and `femtobarn-server/src/logical/catalogue/site.rs`.

use crate::explorer::Model;

/// Ticks of the catalogue's clock in a lease.
const LEASE: u8 = 3;
/// Epochs of each server at most.
const EPOCHS_MAX: [u8; 2] = [3, 2];

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasesGuard {
    /// A server assumes that its lease ends a quarter earlier.
    EndsEarlier,
    /// A server counts its lease from the request, not from the answer.
    CountsFromQuestion,
    /// A takeover begins an epoch of the server whose lease is over, so that this server cannot renew it.
    EpochAtTakeOver,
    /// A server forgets its homes when it joins again.
    ForgetsAtJoin,
    /// A server that is leaving ignores a late grant of a lease.
    LeavesForGood,
}

impl LeasesGuard {
    /// All guards.
    pub const ALL: [Self; 5] = [
        Self::EndsEarlier,
        Self::CountsFromQuestion,
        Self::EpochAtTakeOver,
        Self::ForgetsAtJoin,
        Self::LeavesForGood,
    ];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct Leases {
    /// The guard that is switched off.
    pub without: Option<LeasesGuard>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum LeasesStep {
    /// Time passes; the clocks of some servers may stand still.
    Tick([bool; 2]),
    /// A server asks the catalogue to renew its lease, or to let it join.
    AskForLease(usize),
    /// The catalogue renews the lease, or lets the server join.
    GrantLease(usize),
    /// The server receives the answer.
    TakeLease(usize),
    /// A server takes over from the other one.
    TakeOver(usize),
    /// A server looks up where the database is, and finds that it is the home.
    LookForHome(usize),
    /// A server begins to leave.
    BeginToLeave(usize),
    /// The catalogue records that the server has left.
    Leave(usize),
    /// A server's process ends.
    End(usize),
    /// The server is restarted.
    Start(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Renewal {
    /// Remaining ticks of the lease by the server's clock, and whether that clock may still be slow during this lease.
    left: u8,
    may_be_slow: bool,
    /// The epoch, once the catalogue has granted the lease.
    granted: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeasedServer {
    is_up: bool,
    is_leaving: bool,
    epoch: u8,
    /// The same fields as those of a renewal.
    left: u8,
    may_be_slow: bool,
    /// Whether it knows that it is the home.
    is_home: bool,
    renewal: Option<Renewal>,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeasesState {
    // The catalogue.
    epochs: [u8; 2],
    leases: [u8; 2],
    home: usize,
    // All other participants.
    servers: [LeasedServer; 2],
}

impl Leases {
    fn has(&self, guard: LeasesGuard) -> bool {
        self.without != Some(guard)
    }

    /// Ticks of a server's clock during which it relies on a lease.
    fn reliance(&self) -> u8 {
        if self.has(LeasesGuard::EndsEarlier) { LEASE - 1 } else { LEASE }
    }

    fn tick(state: &LeasesState, add: &mut dyn FnMut(LeasesStep, LeasesState)) {
        for slow in [[false, false], [true, false], [false, true], [true, true]] {
            let mut after = state.clone();
            let mut is_possible = true;
            for (server, is_slow) in after.servers.iter_mut().zip(slow) {
                let mut pass = |left: &mut u8, may_be_slow: &mut bool| {
                    if is_slow {
                        is_possible &= *may_be_slow || *left == 0;
                        *may_be_slow = false;
                    } else {
                        *left = left.saturating_sub(1);
                    }
                };
                pass(&mut server.left, &mut server.may_be_slow);
                if let Some(renewal) = &mut server.renewal {
                    pass(&mut renewal.left, &mut renewal.may_be_slow);
                }
                server.may_be_slow &= server.left > 0;
            }
            after.leases = after.leases.map(|left| left.saturating_sub(1));
            if is_possible {
                add(LeasesStep::Tick(slow), after);
            }
        }
    }

    fn lease_steps(
        &self,
        state: &LeasesState,
        at: usize,
        add: &mut dyn FnMut(LeasesStep, LeasesState),
    ) {
        let server = &state.servers[at];
        let with = |change: &dyn Fn(&mut LeasesState)| {
            let mut after = state.clone();
            change(&mut after);
            after
        };
        let is_final = self.has(LeasesGuard::LeavesForGood);
        match &server.renewal {
            None if server.is_up && !(server.is_leaving && is_final) => {
                let (left, may_be_slow) = (self.reliance(), true);
                let renewal = Some(Renewal { left, may_be_slow, granted: None });
                let asked = with(&|after| after.servers[at].renewal = renewal.clone());
                add(LeasesStep::AskForLease(at), asked);
            }
            Some(renewal) if renewal.granted.is_none() => {
                let has_epoch = state.epochs[at] == server.epoch && server.epoch > 0;
                let epoch = state.epochs[at] + u8::from(!has_epoch);
                if epoch <= EPOCHS_MAX[at] && (has_epoch || !server.is_leaving) {
                    let granted = with(&|after| {
                        (after.epochs[at], after.leases[at]) = (epoch, LEASE);
                        let renewal = Some(Renewal { granted: Some(epoch), ..renewal.clone() });
                        after.servers[at].renewal = renewal;
                    });
                    add(LeasesStep::GrantLease(at), granted);
                }
            }
            Some(Renewal { left, may_be_slow, granted: Some(epoch) }) => {
                let from_question = self.has(LeasesGuard::CountsFromQuestion);
                let taken = with(&|after| {
                    let server = &mut after.servers[at];
                    server.renewal = None;
                    if server.epoch != *epoch {
                        server.epoch = *epoch;
                        server.is_home &= !self.has(LeasesGuard::ForgetsAtJoin);
                    }
                    if server.is_leaving && is_final {
                        return;
                    }
                    server.left = if from_question { *left } else { self.reliance() };
                    server.may_be_slow = *may_be_slow && server.left > 0;
                });
                add(LeasesStep::TakeLease(at), taken);
            }
            _ => {}
        }
        let other = 1 - at;
        let is_active = server.is_up && !server.is_leaving && state.epochs[at] == server.epoch;
        if is_active && state.home == other && state.leases[other] == 0 {
            let raised = u8::from(self.has(LeasesGuard::EpochAtTakeOver));
            let taken = with(&|after| {
                after.epochs[other] += raised;
                after.home = at;
            });
            if taken.epochs[other] <= EPOCHS_MAX[other] {
                add(LeasesStep::TakeOver(at), taken);
            }
        }
        if server.is_up && server.left > 0 && state.home == at && !server.is_home {
            let found = with(&|after| after.servers[at].is_home = true);
            add(LeasesStep::LookForHome(at), found);
        }
    }

    fn ending_steps(
        &self,
        state: &LeasesState,
        at: usize,
        add: &mut dyn FnMut(LeasesStep, LeasesState),
    ) {
        let server = &state.servers[at];
        let mut after = state.clone();
        if server.is_up && !server.is_leaving && server.left > 0 {
            after.servers[at].is_leaving = true;
            after.servers[at].left = 0;
            add(LeasesStep::BeginToLeave(at), after.clone());
        }
        after.clone_from(state);
        if server.is_leaving && state.epochs[at] == server.epoch && server.epoch < EPOCHS_MAX[at] {
            after.epochs[at] += 1;
            after.leases[at] = 0;
            add(LeasesStep::Leave(at), after.clone());
        }
        after.clone_from(state);
        if server.is_up {
            let ended = &mut after.servers[at];
            (ended.is_up, ended.is_leaving) = (false, false);
            (ended.epoch, ended.left, ended.may_be_slow, ended.is_home) = (0, 0, false, false);
            ended.renewal = None;
            add(LeasesStep::End(at), after);
        } else if !server.is_up {
            after.servers[at].is_up = true;
            add(LeasesStep::Start(at), after);
        }
    }
}

impl Model for Leases {
    type State = LeasesState;
    type Transition = LeasesStep;

    /// The first server is the home, with a new lease; the second one has not started yet.
    fn beginning(&self) -> LeasesState {
        let server = LeasedServer {
            is_up: false,
            is_leaving: false,
            epoch: 0,
            left: 0,
            may_be_slow: false,
            is_home: false,
            renewal: None,
        };
        let home = LeasedServer {
            is_up: true,
            epoch: 1,
            left: self.reliance(),
            may_be_slow: true,
            is_home: true,
            ..server.clone()
        };
        LeasesState { epochs: [1, 0], leases: [LEASE, 0], home: 0, servers: [home, server] }
    }

    fn steps(&self, state: &LeasesState, add: &mut dyn FnMut(LeasesStep, LeasesState)) {
        Self::tick(state, add);
        for at in 0..2 {
            self.lease_steps(state, at, add);
            self.ending_steps(state, at, add);
        }
    }

    fn violated(&self, state: &LeasesState) -> Option<&'static str> {
        for (at, server) in state.servers.iter().enumerate() {
            if server.left > 0 && server.is_home && state.home != at {
                return Some("8: while the lease of a home lasts by its own clock, it is the home");
            }
        }
        None
    }

    fn reached(&self, state: &LeasesState, note: &mut dyn FnMut(&'static str)) {
        if state.home == 1 {
            note("the other server took over");
        }
        if state.home == 0 && state.epochs[1] > 1 {
            note("the first server took over again");
        }
        if state.servers.iter().any(|server| server.is_up && server.left == 0 && server.is_home) {
            note("a lease is over by the clock of its server");
        }
    }
}
