//! The faults of a history, which follow from its seed.

use std::net::Ipv4Addr;

use crate::fault::FaultKind;
use crate::random::SplitMix;

/// The hosts of the servers: the leader's and its follower's.
pub(super) const SITES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// The number of the first leader.
pub(super) const LEADER: usize = 0;
/// The number of the copy.
pub(super) const FOLLOWER: usize = 1;
/// The number of clients in a history.
pub(super) const CLIENTS: u64 = 3;
/// The number of the client that reads at a copy.
pub(super) const READER: u64 = CLIENTS - 1;
/// The largest number of faults in a history.
const FAULTS_MAX: u64 = 8;
/// Faults begin within this time. Without faults, clients need about as long for all their transactions.
const FAULTS_WITHIN: u64 = 250 * MILLISECOND;
/// The longest time for which a fault waits until a client is busy with its target.
pub(super) const AIMED_WITHIN: u64 = 50 * MILLISECOND;
pub(super) const MILLISECOND: u64 = 1_000_000;

/// The servers of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One.
    Alone,
    /// A leader, and one that follows it, and may be promoted.
    Followed,
}

impl Cast {
    pub(super) fn sites(self) -> usize {
        match self {
            Cast::Alone => 1,
            Cast::Followed => 2,
        }
    }
}

/// The activity of the busiest client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientActivity {
    /// The client waits for the answer to a commit.
    Committing,
    /// The client holds a lock.
    Locking,
    /// The client reads, or has ended.
    Other,
}

/// A fault with its time.
#[derive(Clone, Debug)]
pub(super) struct PlannedFault {
    /// The earliest time at which it begins, in nanoseconds after the start of the clients.
    pub(super) time: u64,
    /// The fault waits, for at most [`AIMED_WITHIN`], until clients do this.
    pub(super) aim: Option<ClientActivity>,
    pub(super) begin: Vec<PlannedEvent>,
    /// The events that end the fault; empty if it does not last.
    pub(super) end: Vec<PlannedEvent>,
    /// The time from its beginning to its end, in nanoseconds.
    pub(super) lasts: u64,
}

/// The beginning or the end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedEvent {
    /// The direction from one host to another is blocked (`true`), or unblocked.
    Way(Ipv4Addr, Ipv4Addr, bool),
    DropConnections(Ipv4Addr),
    /// Messages are slower than usual, by this factor.
    Delay(u64),
    /// A server is killed; if `true`, its host loses power, too.
    KillServer(usize, bool),
    StartServer(usize),
    KillClient(u64),
    /// A fault of a server's disk begins (`true`), or ends.
    Disk(usize, FaultKind, bool),
    /// A server's disk is slower than usual, by this factor.
    SlowDisk(usize, u64),
    /// The time of day of a host changes by this many nanoseconds.
    SetClock(Ipv4Addr, i64),
    /// The follower is promoted, if necessary by force.
    Promote(bool),
}

impl PlannedEvent {
    /// The name of a fault that strikes when it begins; `None` for a fault that strikes the next operation, and for the
    /// end of a fault.
    pub(super) fn strikes_at_once(self) -> Option<&'static str> {
        Some(match self {
            _ if self.is_end() => return None,
            PlannedEvent::Way(..) => "a blocked way",
            PlannedEvent::DropConnections(_) => "dropped connections",
            PlannedEvent::Delay(_) => "a slow network",
            PlannedEvent::KillServer(LEADER, false) => "a kill of the server",
            PlannedEvent::KillServer(LEADER, true) => "a loss of power",
            PlannedEvent::KillServer(_, false) => "a kill of the copy's server",
            PlannedEvent::KillServer(_, true) => "a loss of the copy's power",
            PlannedEvent::KillClient(_) => "a kill of a client",
            PlannedEvent::SlowDisk(..) => "a slow disk",
            PlannedEvent::SetClock(..) => "a clock that is set",
            PlannedEvent::Disk(_, FaultKind::Full, _) => "a full disk",
            PlannedEvent::Promote(false) => "a promotion",
            PlannedEvent::Promote(true) => "a promotion by force, if necessary",
            PlannedEvent::StartServer(_) | PlannedEvent::Disk(..) => return None,
        })
    }

    /// Whether this event ends a fault.
    fn is_end(self) -> bool {
        matches!(
            self,
            PlannedEvent::Way(_, _, false)
                | PlannedEvent::Delay(1)
                | PlannedEvent::StartServer(_)
                | PlannedEvent::Disk(_, _, false)
                | PlannedEvent::SlowDisk(_, 1)
        )
    }
}

/// The host of a client.
pub(super) fn host_of(client: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, client as u8)
}

/// The faults of a seed, in the order of their times.
pub(super) fn plan(random: &mut SplitMix, cast: Cast) -> Vec<PlannedFault> {
    let mut faults = vec![];
    for _ in 0..1 + random.below(FAULTS_MAX) {
        let time = random.below(FAULTS_WITHIN);
        let lasts = (MILLISECOND << random.below(15)) + random.below(MILLISECOND);
        let aim = match random.below(4) {
            0 => None,
            1 => Some(ClientActivity::Locking),
            _ => Some(ClientActivity::Committing),
        };
        let (begin, end) = draw(random, cast);
        faults.push(PlannedFault { time, aim, begin, end, lasts });
    }
    if cast == Cast::Followed && !random.one_in(4) {
        faults.extend(plan_promotion(random));
    }
    faults.sort_by_key(|fault| fault.time);
    faults
}

/// The events that block paths, and the events that free them.
fn block(ways: &[(Ipv4Addr, Ipv4Addr)]) -> (Vec<PlannedEvent>, Vec<PlannedEvent>) {
    let events = |is_blocked| {
        ways.iter().map(|(from, to)| PlannedEvent::Way(*from, *to, is_blocked)).collect()
    };
    (events(true), events(false))
}

/// A promotion, and mostly its reason: the leader dies, or is cut off from its follower and from some clients. Perhaps one of the
/// two is killed, or fails to write, meanwhile.
fn plan_promotion(random: &mut SplitMix) -> Vec<PlannedFault> {
    let (leader, follower) = (SITES[LEADER], SITES[FOLLOWER]);
    let (begin, end) = match random.below(6) {
        0 => (vec![], vec![]),
        1 | 2 => {
            let kill = PlannedEvent::KillServer(LEADER, random.one_in(2));
            (vec![kill], vec![PlannedEvent::StartServer(LEADER)])
        }
        _ => {
            let clients: Vec<Ipv4Addr> =
                (0..CLIENTS).filter(|_| random.one_in(2)).map(host_of).collect();
            let cut_off = std::iter::once(follower).chain(clients);
            let ways: Vec<_> = cut_off.flat_map(|it| [(leader, it), (it, leader)]).collect();
            block(&ways)
        }
    };
    let time = random.below(FAULTS_WITHIN);
    let lasts = MILLISECOND << (6 + random.below(11));
    let aim = Some(ClientActivity::Committing);
    let reason = PlannedFault { time, aim, begin, end, lasts };
    let time = time + soon(random);
    let begin = vec![PlannedEvent::Promote(random.one_in(2))];
    let promotion = PlannedFault { time, aim: None, begin, end: vec![], lasts: 0 };
    let mut faults = vec![reason, promotion];
    if random.one_in(2) {
        let time = time + soon(random);
        let site = random.below(2) as usize;
        let (begin, end) = if random.one_in(3) {
            let kinds = [FaultKind::Error, FaultKind::FailedSync, FaultKind::Short];
            (vec![PlannedEvent::Disk(site, *random.pick(&kinds), true)], vec![])
        } else {
            let kill = PlannedEvent::KillServer(site, random.one_in(2));
            (vec![kill], vec![PlannedEvent::StartServer(site)])
        };
        let lasts = MILLISECOND << random.below(14);
        faults.push(PlannedFault { time, aim: None, begin, end, lasts });
    }
    faults
}

fn soon(random: &mut SplitMix) -> u64 {
    let longest = MILLISECOND << random.below(12);
    random.below(longest)
}

/// A fault, and its end if it lasts.
fn draw(random: &mut SplitMix, cast: Cast) -> (Vec<PlannedEvent>, Vec<PlannedEvent>) {
    let client = host_of(random.below(CLIENTS));
    let site = if cast == Cast::Followed { random.below(2) as usize } else { LEADER };
    let server = SITES[site];
    let is_between_servers = cast == Cast::Followed && random.one_in(2);
    let host = if is_between_servers { SITES[1 - site] } else { client };
    let lasting = |begin, end| (vec![begin], vec![end]);
    let once = |event| (vec![event], vec![]);
    let kill = |loses_power| PlannedEvent::KillServer(site, loses_power);
    match random.below(13) {
        0 => block(&[(host, server), (server, host)]),
        1 => block(&[(host, server)]),
        2 => block(&[(server, host)]),
        3 => once(PlannedEvent::DropConnections(host)),
        4 => lasting(PlannedEvent::Delay(2 << random.below(8)), PlannedEvent::Delay(1)),
        5 => lasting(kill(false), PlannedEvent::StartServer(site)),
        6 | 7 => lasting(kill(true), PlannedEvent::StartServer(site)),
        8 => once(PlannedEvent::KillClient(random.below(CLIENTS))),
        9 => {
            let disk = |is_full| PlannedEvent::Disk(site, FaultKind::Full, is_full);
            lasting(disk(true), disk(false))
        }
        10 => {
            let kinds = [FaultKind::Error, FaultKind::FailedSync, FaultKind::Short];
            once(PlannedEvent::Disk(site, *random.pick(&kinds), true))
        }
        11 => {
            let slow = PlannedEvent::SlowDisk(site, 2 << random.below(12));
            lasting(slow, PlannedEvent::SlowDisk(site, 1))
        }
        _ => {
            let host = *random.pick(&[host, server]);
            let by = (MILLISECOND << random.below(33)) as i64;
            once(PlannedEvent::SetClock(host, if random.one_in(2) { by } else { -by }))
        }
    }
}
