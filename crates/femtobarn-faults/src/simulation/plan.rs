//! The faults of a history, which follow from its seed.

use std::net::Ipv4Addr;

use crate::fault::FaultKind;
use crate::random::SplitMix;

/// The host of the server.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The number of clients in a history.
pub(super) const CLIENTS: u64 = 3;
/// The largest number of faults in a history.
const FAULTS_MAX: u64 = 8;
/// Faults begin within this time. Without faults, clients need about as long for all their transactions.
const FAULTS_WITHIN: u64 = 250 * MILLISECOND;
/// The longest time that a fault waits until clients do what it aims at.
pub(super) const AIMED_WITHIN: u64 = 50 * MILLISECOND;
pub(super) const MILLISECOND: u64 = 1_000_000;

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
    /// The server is killed; if `true`, its host loses power, too.
    KillServer(bool),
    StartServer,
    KillClient(u64),
    /// A fault of the server's disk begins (`true`), or ends.
    Disk(FaultKind, bool),
    /// The server's disk is slower than usual, by this factor.
    SlowDisk(u64),
    /// The time of day of a host changes by this many nanoseconds.
    SetClock(Ipv4Addr, i64),
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
            PlannedEvent::KillServer(false) => "a kill of the server",
            PlannedEvent::KillServer(true) => "a loss of power",
            PlannedEvent::KillClient(_) => "a kill of a client",
            PlannedEvent::SlowDisk(_) => "a slow disk",
            PlannedEvent::SetClock(..) => "a clock that is set",
            PlannedEvent::Disk(FaultKind::Full, _) => "a full disk",
            PlannedEvent::StartServer | PlannedEvent::Disk(..) => return None,
        })
    }

    /// Whether this event ends a fault.
    fn is_end(self) -> bool {
        matches!(
            self,
            PlannedEvent::Way(_, _, false)
                | PlannedEvent::Delay(1)
                | PlannedEvent::StartServer
                | PlannedEvent::Disk(_, false)
                | PlannedEvent::SlowDisk(1)
        )
    }
}

/// The host of a client.
pub(super) fn host_of(client: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, client as u8)
}

/// The faults of a seed, in the order of their times.
pub(super) fn plan(random: &mut SplitMix) -> Vec<PlannedFault> {
    let mut faults = vec![];
    for _ in 0..1 + random.below(FAULTS_MAX) {
        let time = random.below(FAULTS_WITHIN);
        let lasts = (MILLISECOND << random.below(15)) + random.below(MILLISECOND);
        let aim = match random.below(4) {
            0 => None,
            1 => Some(ClientActivity::Locking),
            _ => Some(ClientActivity::Committing),
        };
        let (begin, end) = draw(random);
        faults.push(PlannedFault { time, aim, begin, end, lasts });
    }
    faults.sort_by_key(|fault| fault.time);
    faults
}

/// Draws a fault: the events that begin it, and the events that end it if it lasts.
fn draw(random: &mut SplitMix) -> (Vec<PlannedEvent>, Vec<PlannedEvent>) {
    let host = host_of(random.below(CLIENTS));
    let ways = |ways: &[(Ipv4Addr, Ipv4Addr)]| {
        let events = |is_blocked| {
            ways.iter().map(|(from, to)| PlannedEvent::Way(*from, *to, is_blocked)).collect()
        };
        (events(true), events(false))
    };
    let lasting = |begin, end| (vec![begin], vec![end]);
    let once = |event| (vec![event], vec![]);
    match random.below(13) {
        0 => ways(&[(host, SERVER), (SERVER, host)]),
        1 => ways(&[(host, SERVER)]),
        2 => ways(&[(SERVER, host)]),
        3 => once(PlannedEvent::DropConnections(host)),
        4 => lasting(PlannedEvent::Delay(2 << random.below(8)), PlannedEvent::Delay(1)),
        5 => lasting(PlannedEvent::KillServer(false), PlannedEvent::StartServer),
        6 | 7 => lasting(PlannedEvent::KillServer(true), PlannedEvent::StartServer),
        8 => once(PlannedEvent::KillClient(random.below(CLIENTS))),
        9 => {
            let disk = |is_full| PlannedEvent::Disk(FaultKind::Full, is_full);
            lasting(disk(true), disk(false))
        }
        10 => {
            let kinds = [FaultKind::Error, FaultKind::FailedSync, FaultKind::Short];
            once(PlannedEvent::Disk(*random.pick(&kinds), true))
        }
        11 => lasting(PlannedEvent::SlowDisk(2 << random.below(12)), PlannedEvent::SlowDisk(1)),
        _ => {
            let host = *random.pick(&[host, SERVER]);
            let by = (MILLISECOND << random.below(33)) as i64;
            once(PlannedEvent::SetClock(host, if random.one_in(2) { by } else { -by }))
        }
    }
}
