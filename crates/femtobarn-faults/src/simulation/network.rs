//! The network of a simulation: connections whose messages can be delayed, blocked or lost with the connection.
//!
//! Each side of a connection has one end of a pair of local sockets, and the simulation has the other end. The
//! simulation reads the bytes that one side sends, keeps them until they are due, and writes them to the other side.
//!
//! Invariants:
//! 1. The bytes of one direction arrive in the order in which they were sent, and the end of the direction arrives
//!    after them.
//! 2. While a direction between two hosts is blocked, neither bytes nor an end arrive. Nothing is lost: they arrive
//!    later, as with TCP.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::sockopt::{ReceiveTimeout, SndBuf};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, setsockopt, shutdown,
    socketpair,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::message::send_connection;
use crate::random::SplitMix;

/// If a thread runs for longer than this, it waits for something that is not simulated, and the simulation fails. In
/// seconds.
const RUN_SECONDS_MAX: i64 = 60;
/// The largest number of bytes in flight in one direction.
const SENT_MAX: usize = 256 << 10;
/// The size of one read.
const READ_BYTES: usize = 64 << 10;
/// The send buffer of a connection's socket: until the connection is open, and afterwards. In bytes.
const BUFFERS: [usize; 2] = [4 << 10, 256 << 10];
/// The first port of clients.
const FIRST_PORT: u16 = 40_000;

/// The delay of a message, in nanoseconds.
pub(super) const DELAYS: Range<u64> = 20_000..1_000_000;

pub(super) struct SimulatedNetwork {
    random: SplitMix,
    connections: BTreeMap<u64, SimulatedConnection>,
    listeners: BTreeMap<(Ipv4Addr, u16), OwnedFd>,
    /// Blocked directions: pairs of sender and receiver.
    blocked: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    pub(super) delays: Range<u64>,
    opened: u64,
}

struct SimulatedConnection {
    /// The host that connected, and the host that listened.
    hosts: [Ipv4Addr; 2],
    ends: [OwnedFd; 2],
    /// The bytes that each end has sent.
    lanes: [Lane; 2],
    /// `None` once the connection is open.
    opening: Option<ConnectionOpening>,
}

/// One direction of a connection.
#[derive(Default)]
struct Lane {
    /// Times of arrival, each with the bytes that arrive then. An empty list marks the end of the direction.
    sent: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    last: u64,
    has_ended: bool,
    has_arrived: bool,
}

/// The state of a connection that is not open yet.
struct ConnectionOpening {
    due: u64,
    place: (Ipv4Addr, u16),
    port: u16,
    sockets: [OwnedFd; 2],
    /// Bytes that fill the connecting side's socket, so that it is not writable until the connection is open.
    filling: usize,
}

fn pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

impl SimulatedNetwork {
    pub(super) fn new(random: SplitMix) -> Self {
        SimulatedNetwork {
            random,
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            blocked: BTreeSet::new(),
            delays: DELAYS,
            opened: 0,
        }
    }

    /// Blocks a direction, or unblocks it.
    pub(super) fn block(&mut self, from: Ipv4Addr, to: Ipv4Addr, is_blocked: bool) {
        if is_blocked {
            self.blocked.insert((from, to));
        } else {
            self.blocked.remove(&(from, to));
        }
    }

    /// Ends all connections of a host. Bytes in flight are lost.
    pub(super) fn drop_connections(&mut self, host: Ipv4Addr) {
        self.connections.retain(|_, connection| !connection.hosts.contains(&host));
    }

    /// Removes all listening sockets of a host.
    pub(super) fn forget_listeners(&mut self, host: Ipv4Addr) {
        self.listeners.retain(|(listener, _), _| *listener != host);
    }

    pub(super) fn is_listening(&self, place: (Ipv4Addr, u16)) -> bool {
        self.listeners.contains_key(&place)
    }

    /// Creates a socket that receives connections; `None` if the port is in use.
    pub(super) fn listen(&mut self, host: Ipv4Addr, port: u16) -> io::Result<Option<OwnedFd>> {
        if self.is_listening((host, port)) {
            return Ok(None);
        }
        let (here, there) = pair(SockType::SeqPacket)?;
        self.listeners.insert((host, port), here);
        Ok(Some(there))
    }

    /// Starts to open a connection. Returns its socket and port; `None` if the other host can be reached but does not
    /// listen.
    pub(super) fn connect(
        &mut self,
        (now, from): (u64, Ipv4Addr),
        place: (Ipv4Addr, u16),
    ) -> io::Result<Option<(OwnedFd, u16)>> {
        let is_reached = !self.is_blocked(from, place.0) && !self.is_blocked(place.0, from);
        if is_reached && !self.is_listening(place) {
            return Ok(None);
        }
        let ((first, client), (second, server)) =
            (pair(SockType::Stream)?, pair(SockType::Stream)?);
        setsockopt(&client, SndBuf, &BUFFERS[0]).map_err(io::Error::from)?;
        let mut filling = 0;
        while let Ok(count) = send(client.as_raw_fd(), &[0; 512], MsgFlags::MSG_DONTWAIT) {
            filling += count;
        }
        self.opened += 1;
        let port = FIRST_PORT + (self.opened % 20_000) as u16;
        let due = now + self.delay() + self.delay();
        let sockets = [client.try_clone()?, server];
        let opening = ConnectionOpening { due, place, port, sockets, filling };
        let connection = SimulatedConnection {
            hosts: [from, place.0],
            ends: [first, second],
            lanes: Default::default(),
            opening: Some(opening),
        };
        self.connections.insert(self.opened, connection);
        Ok(Some((client, port)))
    }

    fn delay(&mut self) -> u64 {
        self.delays.start + self.random.below(self.delays.end - self.delays.start)
    }

    fn is_blocked(&self, from: Ipv4Addr, to: Ipv4Addr) -> bool {
        self.blocked.contains(&(from, to))
    }

    /// Reads the bytes that have been sent, and delivers the bytes that are due. Every read goes into the trace.
    pub(super) fn carry(&mut self, now: u64, trace: &mut impl Hasher) -> io::Result<()> {
        self.take_sent(now, trace)?;
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            let Some(mut connection) = self.connections.remove(&number) else { continue };
            let [from, to] = connection.hosts;
            let blocked = [self.is_blocked(from, to), self.is_blocked(to, from)];
            if !self.open(&mut connection, now, blocked)? {
                continue;
            }
            for (side, is_blocked) in blocked.into_iter().enumerate() {
                if !is_blocked && connection.opening.is_none() {
                    connection.deliver(side, now)?;
                }
            }
            if !connection.lanes.iter().all(|lane| lane.has_arrived) {
                self.connections.insert(number, connection);
            }
        }
        Ok(())
    }

    /// Opens a connection when it is due; `false` if no process listens.
    fn open(
        &self,
        connection: &mut SimulatedConnection,
        now: u64,
        blocked: [bool; 2],
    ) -> io::Result<bool> {
        let is_due =
            connection.opening.as_ref().is_some_and(|it| it.due <= now) && blocked == [false; 2];
        let Some(opening) = connection.opening.take_if(|_| is_due) else { return Ok(true) };
        let Some(listener) = self.listeners.get(&opening.place) else { return Ok(false) };
        let [client, server] = opening.sockets;
        let from = (u32::from(connection.hosts[0]), opening.port);
        if send_connection(listener.as_fd(), from, server.as_fd()).is_err() {
            return Ok(false);
        }
        setsockopt(&client, SndBuf, &BUFFERS[1]).map_err(io::Error::from)?;
        let mut left = opening.filling;
        let mut bytes = [0; 4 << 10];
        while left > 0 {
            let room = left.min(bytes.len());
            left -=
                recv(connection.ends[0].as_raw_fd(), &mut bytes[..room], MsgFlags::MSG_DONTWAIT)?;
        }
        Ok(true)
    }

    fn take_sent(&mut self, now: u64, trace: &mut impl Hasher) -> io::Result<()> {
        let mut asked = vec![];
        for (number, connection) in &self.connections {
            for (side, lane) in connection.lanes.iter().enumerate() {
                if !lane.has_ended && lane.bytes < SENT_MAX && connection.opening.is_none() {
                    asked.push((*number, side));
                }
            }
        }
        let mut polled: Vec<PollFd> = asked
            .iter()
            .map(|(number, side)| {
                PollFd::new(self.connections[number].ends[*side].as_fd(), PollFlags::POLLIN)
            })
            .collect();
        poll_now(&mut polled)?;
        let ready: Vec<bool> = polled.iter().map(has_events).collect();
        drop(polled);
        for ((number, side), _) in asked.into_iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            let delay = self.delay();
            if let Some(connection) = self.connections.get_mut(&number) {
                trace.write_u64(number << 1 | side as u64);
                connection.take(side, now + delay, trace)?;
            }
        }
        Ok(())
    }

    /// The next moment after `now` at which bytes arrive or a connection opens.
    pub(super) fn next_arrival(&self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut note = |due: u64| {
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        };
        for connection in self.connections.values() {
            let [from, to] = connection.hosts;
            if let Some(opening) = &connection.opening {
                note(opening.due);
                continue;
            }
            for (lane, (from, to)) in connection.lanes.iter().zip([(from, to), (to, from)]) {
                if let Some((due, _)) = lane.sent.front().filter(|_| !self.is_blocked(from, to)) {
                    note(*due);
                }
            }
        }
        next
    }
}

impl SimulatedConnection {
    /// Reads the bytes, or the end, that one side has sent.
    fn take(&mut self, side: usize, due: u64, trace: &mut impl Hasher) -> io::Result<()> {
        let lane = &mut self.lanes[side];
        let mut bytes = vec![0; READ_BYTES];
        let count = match recv(self.ends[side].as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(count) => count,
            Err(Errno::EAGAIN) => return Ok(()),
            // The other end was closed before it had read all bytes.
            Err(Errno::ECONNRESET | Errno::EPIPE) => 0,
            Err(error) => return Err(error.into()),
        };
        bytes.truncate(count);
        // Only the count: the bytes contain inodes and times of files, which the kernel chooses.
        trace.write_u64(count as u64);
        lane.last = lane.last.max(due);
        lane.bytes += count;
        lane.has_ended = count == 0;
        lane.sent.push_back((lane.last, bytes));
        Ok(())
    }

    /// Writes the bytes of one side that are due to the other side.
    fn deliver(&mut self, side: usize, now: u64) -> io::Result<()> {
        let lane = &mut self.lanes[side];
        let to = self.ends[1 - side].as_raw_fd();
        while let Some((_, bytes)) = lane.sent.front_mut().filter(|(due, _)| *due <= now) {
            if bytes.is_empty() {
                // This fails if the receiver has already closed its end.
                let _ = shutdown(to, Shutdown::Write);
                lane.has_arrived = true;
                lane.sent.pop_front();
                continue;
            }
            match send(to, bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => {
                    lane.bytes -= count;
                    bytes.drain(..count);
                    if !bytes.is_empty() {
                        return Ok(());
                    }
                    lane.sent.pop_front();
                }
                Err(Errno::EAGAIN) => return Ok(()),
                // The receiver has closed its end. The sender notices by the end of the other direction.
                Err(Errno::EPIPE | Errno::ECONNRESET) => {
                    lane.bytes -= bytes.len();
                    lane.sent.pop_front();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Polls descriptors without waiting.
pub(super) fn poll_now(polled: &mut [PollFd]) -> io::Result<()> {
    loop {
        match nix::poll::poll(polled, nix::poll::PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}

/// Whether a poll found events, including events that this library has no name for, such as the end of the other side's
/// bytes.
pub(super) fn has_events(polled: &PollFd) -> bool {
    polled.any().unwrap_or(true)
}

/// The two ends of the socket between the simulation and a thread.
pub(super) fn thread_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (here, there) = pair(SockType::SeqPacket)?;
    setsockopt(&here, ReceiveTimeout, &TimeVal::seconds(RUN_SECONDS_MAX))?;
    Ok((here, there))
}

/// A descriptor and the events for which it is polled.
pub(super) fn polled(file: BorrowedFd, events: u16) -> PollFd {
    PollFd::new(file, PollFlags::from_bits_retain(events as i16))
}
