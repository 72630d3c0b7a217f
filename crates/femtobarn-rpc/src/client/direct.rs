//! A direct connection: the turns of one opening of a session, and the calls in them that await their replies.
//!
//! Invariants:
//! 1. A connection that is lost stays lost. From then on no operation is taken from the session's queue for it, and
//!    outcomes that it brought are ignored: the session's next opening has made its claims without them.
//! 2. One thread at a time sends, and one receives.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};

use super::address::Address;
use super::direct_socket::{DirectSocket, READ_BYTES};
use super::options::ConnectOptions;
use crate::turns::{TURNS_PATH, TURNS_PROTOCOL, TurnDecoder};
use crate::v1::{CallStatus, Reply, ServerTurn};

/// Bytes of the head of the answer that begins a connection.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A connection that carries nothing but turns.
#[derive(Debug)]
pub(super) struct DirectConnection {
    socket: DirectSocket,
    token: Option<MetadataValue<Ascii>>,
    sending: Mutex<()>,
    decoder: Mutex<TurnDecoder>,
    is_lost: AtomicBool,
    /// Turns that have arrived.
    received: AtomicU64,
    calls: Mutex<PendingCalls>,
    /// Why the server ends the connection, if it gave a reason.
    end: Mutex<Option<CallStatus>>,
}

#[derive(Debug, Default)]
struct PendingCalls {
    last_number: u64,
    replies: HashMap<u64, oneshot::Sender<Reply>>,
}

impl DirectConnection {
    /// Connects to a server with the caller's token.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::TimedOut`] if the server does not answer in time; [`ErrorKind::Unsupported`] if it accepts
    /// no direct connections from this caller; errors of the system and of TLS.
    pub(super) fn connect(
        address: &Address,
        options: &ConnectOptions,
        token: Option<MetadataValue<Ascii>>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let socket = DirectSocket::connect(address, options, timeout)?;
        let mut request = format!(
            "GET {TURNS_PATH} HTTP/1.1\r\nHost: {}:{}\r\nConnection: Upgrade\r\nUpgrade: {TURNS_PROTOCOL}\r\n",
            address.host, address.port
        );
        if let Some(token) = token.as_ref().and_then(|token| token.to_str().ok()) {
            request.push_str(&format!("Authorization: {token}\r\n"));
        }
        request.push_str("\r\n");
        socket.write(request.as_bytes())?;
        let mut decoder = TurnDecoder::default();
        decoder.push(&first_bytes(&socket)?);
        Ok(DirectConnection {
            socket,
            token,
            sending: Mutex::default(),
            decoder: Mutex::new(decoder),
            is_lost: AtomicBool::new(false),
            received: AtomicU64::new(0),
            calls: Mutex::default(),
            end: Mutex::default(),
        })
    }

    /// The caller's token, with which its calls are made.
    pub(super) fn token(&self) -> Option<&MetadataValue<Ascii>> {
        self.token.as_ref()
    }

    /// Limits how long the server may be silent while a thread waits for it.
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_timeout(timeout)
    }

    /// Begins to send: turns are sent in the order in which threads get this guard.
    pub(super) fn begin_to_send(&self) -> MutexGuard<'_, ()> {
        self.sending.lock()
    }

    /// Sends bytes of turns, while `_sending` is held.
    pub(super) fn send(&self, bytes: &[u8], _sending: &MutexGuard<'_, ()>) -> io::Result<()> {
        self.socket.write(bytes)
    }

    /// Waits for the next turn, and passes the replies in it to their calls. Only one thread may receive at a time.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::TimedOut`] if no turn arrives in time; [`ErrorKind::UnexpectedEof`] at the end of the
    /// connection, which [`end`](Self::end) may explain; errors of the system, of TLS and of malformed turns.
    pub(super) fn receive(&self) -> io::Result<ServerTurn> {
        let mut decoder = self.decoder.lock();
        loop {
            if let Some(mut turn) = decoder.next_turn::<ServerTurn>().map_err(io::Error::other)? {
                self.received.fetch_add(1, Ordering::AcqRel);
                self.settle(std::mem::take(&mut turn.replies));
                if turn.end.is_some() {
                    *self.end.lock() = turn.end;
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                return Ok(turn);
            }
            let mut bytes = [0; READ_BYTES];
            match self.socket.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => decoder.push(&bytes[..count]),
            }
        }
    }

    /// Why the server has ended the connection, if it gave a reason.
    pub(super) fn end(&self) -> Option<Status> {
        self.end.lock().clone().map(Status::from)
    }

    /// The number of turns that have arrived.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Registers a call that is about to be sent. Returns its number and the channel for its reply, which is closed if
    /// the connection is lost.
    pub(super) fn begin_call(&self) -> (u64, oneshot::Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        let mut calls = self.calls.lock();
        calls.last_number += 1;
        let number = calls.last_number;
        if !self.is_lost() {
            calls.replies.insert(number, reply);
        }
        (number, replied)
    }

    fn settle(&self, replies: Vec<Reply>) {
        for reply in replies {
            let waiting = self.calls.lock().replies.remove(&reply.number);
            if let Some(waiting) = waiting {
                // A caller that has stopped waiting does not need it.
                drop(waiting.send(reply));
            }
        }
    }

    /// Whether the server closes the connection within `wait`; see [`DirectSocket::is_closed_within`].
    pub(super) fn is_closed_within(&self, wait: Duration) -> bool {
        self.socket.is_closed_within(wait)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Ends the connection; its calls have no reply.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.socket.shut_down();
        self.calls.lock().replies.clear();
    }
}

/// The bytes that have arrived after the head of the server's answer.
fn first_bytes(socket: &DirectSocket) -> io::Result<Vec<u8>> {
    let mut received = vec![];
    loop {
        let mut bytes = [0; 1024];
        match socket.read(&mut bytes)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&bytes[..count]),
        }
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        match end {
            Some(_) if !received.starts_with(b"HTTP/1.1 101 ") => {
                return Err(ErrorKind::Unsupported.into());
            }
            Some(end) => return Ok(received.split_off(end + 4)),
            None if received.len() > HEAD_BYTES_MAX => return Err(ErrorKind::InvalidData.into()),
            None => {}
        }
    }
}
