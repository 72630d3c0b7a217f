//! One session with a server. All its requests go over the main channel; answers to large reads may arrive on
//! bound channels.
//!
//! 1. In [`CallMode::Thread`], one waiting caller reads the main channel for all callers, its own data straight
//!    into its buffer. When it has its answer, it wakes another. A single caller thus costs one write and one
//!    read, without a change of threads.
//! 2. In [`CallMode::Task`], a task reads the main channel. Each bound channel has a reader of its own.
//! 3. A caller waits for its answer or drops it, so a reader exists whenever an answer is due, and a server
//!    that stops taking requests until its answers are read does not block the session.
//! 4. Lock order: a channel's receive lock, then the request table's.
//! 5. A caller may drop its call at any moment. While it waits for its turn to write, its request is not in the table; a
//!    request of which only a part was written ends the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::attempt_error::AttemptError;
use super::call_mode::{CallMode, ready};
use super::channel::{Channel, ReceiveState, unreachable};
use super::clock;
use super::endpoint::Endpoint;
use super::options::Options;
use super::requests::{Arrival, Delivery, RequestTable};
use super::session_setup::{Purpose, SessionSetup};
use super::shown_token::ShownToken;
use super::sink::{AnswerSink, CollectSink};
use crate::flags::ServerFlags;
use crate::ids::{PathId, SessionId, StreamId};
use crate::limits::RESPONSE_BODY_BYTES_MAX;
use crate::request::Request;

/// Fewer bytes than this are read by way of the receive buffer, which may pick up further answers in the same
/// call.
const STRAIGHT_BYTES_MIN: usize = 32 * 1024;
/// Data are sent in pieces of this size, after each of which the requests in flight have more time.
const PIECE_BYTES: usize = 1 << 20;
/// After this long without a request, the connection is checked before use: the server may have closed it.
const IDLE: Duration = Duration::from_secs(2);

/// A session.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<SessionInner>,
    shown_token: ShownToken,
    readers: Vec<tokio::task::AbortHandle>,
}

#[derive(Debug)]
struct SessionInner {
    server: Endpoint,
    flags: ServerFlags,
    session: SessionId,
    main: Channel,
    /// The channels for answers to large reads.
    bound: Vec<(PathId, Channel)>,
    requests: Mutex<RequestTable>,
    opened_at: Instant,
    /// When the last request was sent, in milliseconds since `opened_at`.
    used_ms: AtomicU64,
}

impl Connection {
    /// Connects, logs in, and binds streams.
    pub(super) async fn open(
        call_mode: CallMode,
        server: &Endpoint,
        wants_tls: bool,
        options: &Options,
        purpose: Purpose,
    ) -> Result<Self, AttemptError> {
        let mut setup = SessionSetup::new(options, wants_tls, purpose);
        let main = Channel::open(call_mode, server, options, &mut setup).await?;
        let (flags, session) = (setup.server.flags, setup.session);
        let shown_token = ShownToken::new(setup.is_encrypted, setup.token);
        let mut bound = Vec::new();
        for _ in 0..options.bound_streams() {
            let mut setup = SessionSetup::new(options, wants_tls, Purpose::Stream(session));
            // A server may refuse further streams; reads then use the ones that it granted.
            match Channel::open(call_mode, server, options, &mut setup).await {
                Ok(channel) => bound.push((setup.path, channel)),
                Err(_) => break,
            }
        }
        let shared = Arc::new(SessionInner {
            server: server.clone(),
            flags,
            session,
            main,
            bound,
            requests: Mutex::new(RequestTable::new(options)),
            opened_at: clock::now(),
            used_ms: AtomicU64::new(0),
        });
        let mut connection = Connection { shared, shown_token, readers: Vec::new() };
        connection.start_readers(call_mode).map_err(unreachable)?;
        Ok(connection)
    }

    /// Starts the readers of the channels that no caller reads.
    fn start_readers(&mut self, call_mode: CallMode) -> std::io::Result<()> {
        let first = usize::from(call_mode == CallMode::Thread);
        for index in first..=self.shared.bound.len() {
            let shared = self.shared.clone();
            let reading = async move { shared.read_channel(index).await };
            match call_mode {
                CallMode::Task => self.readers.push(tokio::spawn(reading).abort_handle()),
                CallMode::Thread => {
                    let named = std::thread::Builder::new().name("xrd-stream".to_owned());
                    named.spawn(move || ready(reading))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn server(&self) -> &Endpoint {
        &self.shared.server
    }

    pub(super) fn session(&self) -> SessionId {
        self.shared.session
    }

    pub(super) fn shown_token(&self) -> &ShownToken {
        &self.shown_token
    }

    /// The server's features.
    pub(super) fn flags(&self) -> ServerFlags {
        self.shared.flags
    }

    /// The bound streams, on which answers to large reads may arrive.
    pub(super) fn paths(&self) -> impl ExactSizeIterator<Item = PathId> {
        self.shared.bound.iter().map(|(path, _)| *path)
    }

    /// Whether the server is on this machine, judging by its address.
    pub(super) fn is_on_this_machine(&self) -> bool {
        self.shared.main.transport.is_on_this_machine()
    }

    /// Whether requests can no longer be sent.
    pub(super) fn is_lost(&self) -> bool {
        if self.shared.requests().is_lost() {
            return true;
        }
        let idle = self.shared.now_ms().saturating_sub(self.shared.used_ms.load(Ordering::Relaxed));
        if idle < IDLE.as_millis() as u64 {
            return false;
        }
        let is_closed = self.shared.is_closed();
        // `is_closed` held the receive lock, which a caller may have failed to take.
        self.shared.requests().wake_one();
        is_closed
    }

    /// Sends a request and returns its answer.
    pub(super) async fn call(&self, request: &Request, data: &[u8]) -> Result<Bytes, AttemptError> {
        let mut answer = CollectSink::default();
        self.call_into(request, data, RESPONSE_BODY_BYTES_MAX as u64, &mut answer).await?;
        Ok(answer.into_bytes())
    }

    /// Sends a request, and writes its answer, at most `bytes_max` bytes, to a sink.
    pub(super) async fn call_into(
        &self,
        request: &Request,
        data: &[u8],
        bytes_max: u64,
        sink: &mut dyn AnswerSink,
    ) -> Result<(), AttemptError> {
        self.send(request, data, bytes_max).await?.receive(sink).await
    }

    /// Sends a request and its data, without waiting for the answer of at most `bytes_max` bytes.
    pub(super) async fn send(
        &self,
        request: &Request,
        data: &[u8],
        bytes_max: u64,
    ) -> Result<PendingAnswer, AttemptError> {
        let shared = &*self.shared;
        let turn = shared.main.writing.lock().await;
        let stream = shared.requests().add(bytes_max, clock::now())?;
        let mut bytes = Vec::with_capacity(128);
        if let Err(error) = request.encode(stream, &mut bytes) {
            shared.requests().withdraw(stream);
            return Err(error.into());
        }
        let sent = PendingAnswer { shared: self.shared.clone(), stream };
        shared.used_ms.store(shared.now_ms(), Ordering::Relaxed);
        let mut write = BegunWrite { shared, has_ended: false };
        let mut pieces = data.chunks(PIECE_BYTES);
        let first = pieces.next().unwrap_or_default();
        let mut written = shared.main.transport.write_all(&bytes, first).await;
        for piece in pieces {
            if written.is_ok() {
                written = shared.main.transport.write_all(&[], piece).await;
                shared.requests().note_sent(clock::now());
            }
        }
        if let Err(error) = written {
            shared.fail(AttemptError::Lost(error.to_string()));
        }
        write.has_ended = true;
        drop(write);
        drop(turn);
        Ok(sent)
    }
}

/// A write to the main channel. The server may have received a part of the request, so if the caller drops it, no other
/// can follow it.
struct BegunWrite<'a> {
    shared: &'a SessionInner,
    has_ended: bool,
}

impl Drop for BegunWrite<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let what = "a request was abandoned while it was being sent";
            self.shared.fail(AttemptError::Lost(what.to_owned()));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.shut_down();
        self.readers.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The answer to a request that was sent. Dropping it abandons the request.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    shared: Arc<SessionInner>,
    stream: StreamId,
}

impl PendingAnswer {
    /// Waits for the answer and writes it to a sink.
    pub(super) async fn receive(self, sink: &mut dyn AnswerSink) -> Result<(), AttemptError> {
        std::future::poll_fn(|context| self.poll(sink, context)).await
    }

    fn poll(
        &self,
        sink: &mut dyn AnswerSink,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), AttemptError>> {
        if let Some(end) = self.deliver(sink, context.waker()) {
            return Poll::Ready(end);
        }
        if self.shared.main.transport.call_mode() == CallMode::Task {
            return Poll::Pending;
        }
        let end = {
            let Ok(mut receive) = self.shared.main.receive.try_lock() else {
                return Poll::Pending;
            };
            self.read_for_all(&mut receive, sink, context.waker())
        };
        self.shared.requests().wake_one();
        Poll::Ready(end)
    }

    /// Reads the main channel for all callers, until this caller's answer has ended.
    fn read_for_all(
        &self,
        receive: &mut ReceiveState,
        sink: &mut dyn AnswerSink,
        waker: &Waker,
    ) -> Result<(), AttemptError> {
        loop {
            if let Some(end) = self.deliver(sink, waker) {
                return end;
            }
            let goes_into_sink = receive.framer.data_remaining() as usize >= STRAIGHT_BYTES_MIN
                && receive.current.stream == self.stream
                && sink.room().len() >= STRAIGHT_BYTES_MIN;
            if goes_into_sink {
                self.read_into_sink(receive, sink)
            } else {
                ready(self.shared.read_some(&self.shared.main, receive))
            }
        }
    }

    /// Reads this answer's data from the socket straight into the sink's buffer.
    fn read_into_sink(&self, receive: &mut ReceiveState, sink: &mut dyn AnswerSink) {
        let room = sink.room();
        let count = room.len().min(receive.framer.data_remaining() as usize);
        match ready(self.shared.main.transport.read_large(&mut room[..count])) {
            Ok(Some(0)) => self.shared.fail(closed()),
            Ok(Some(count)) => {
                sink.filled(count);
                receive.framer.data_taken(count as u32);
                let remaining = receive.framer.data_remaining();
                let mut requests = self.shared.requests();
                let now = clock::now();
                if let Err(error) =
                    requests.on_data_read(receive.current, count as u32, remaining, now)
                {
                    requests.fail_all(error.into());
                }
            }
            Ok(None) => self.shared.requests().expire(clock::now()),
            Err(error) => self.shared.fail(AttemptError::Lost(error.to_string())),
        }
    }

    /// Writes the delivered bytes to the sink. Returns the result if the answer has ended.
    fn deliver(
        &self,
        sink: &mut dyn AnswerSink,
        waker: &Waker,
    ) -> Option<Result<(), AttemptError>> {
        let Delivery { arrivals, end } = self.shared.requests().take_delivery(self.stream, waker);
        for arrival in arrivals {
            let put = match &arrival {
                Arrival::Part(status) => sink.begin(status.as_ref()),
                Arrival::Bytes(bytes) => sink.push(bytes),
            };
            if let Err(error) = put {
                // The server's later messages cannot be trusted either.
                self.shared.fail(error.clone().into());
                return Some(Err(error.into()));
            }
        }
        end
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.shared.requests().abandon(self.stream);
    }
}

impl SessionInner {
    fn requests(&self) -> MutexGuard<'_, RequestTable> {
        self.requests.lock()
    }

    /// Milliseconds since the session was opened.
    fn now_ms(&self) -> u64 {
        clock::now().duration_since(self.opened_at).as_millis() as u64
    }

    /// Ends all requests with this error, and the connection.
    fn fail(&self, error: AttemptError) {
        self.requests().fail_all(error);
        self.shut_down();
    }

    fn shut_down(&self) {
        self.main.transport.shut_down();
        self.bound.iter().for_each(|(_, channel)| channel.transport.shut_down());
    }

    /// Whether the server has closed the connection, if no request is in flight and no caller uses the channel.
    fn is_closed(&self) -> bool {
        let reading = self.main.receive.try_lock();
        let writing = self.main.writing.try_lock();
        if reading.is_err() || writing.is_err() || !self.requests().is_idle() {
            return false;
        }
        let is_closed = self.main.transport.is_closed();
        if is_closed {
            self.fail(closed());
        }
        is_closed
    }

    /// Reads a channel until the connection is lost. Index 0 is the main channel.
    async fn read_channel(&self, index: usize) {
        let channel = match index.checked_sub(1) {
            None => &self.main,
            Some(bound) => &self.bound[bound].1,
        };
        let mut receive = channel.receive.lock().await;
        while !self.requests().is_lost() {
            self.read_some(channel, &mut receive).await;
        }
    }

    /// Reads from a channel once, and hands the bytes to the request table.
    async fn read_some(&self, channel: &Channel, receive: &mut ReceiveState) {
        let read = channel.transport.read(receive.room()).await;
        let mut input = match read {
            Ok(Some(0)) => return self.fail(closed()),
            Ok(Some(count)) => receive.room.split_to(count).freeze(),
            Ok(None) => return self.requests().expire(clock::now()),
            Err(error) => return self.fail(AttemptError::Lost(error.to_string())),
        };
        if let Err(error) = self.dispatch(receive, &mut input) {
            self.fail(error.into());
        }
    }

    fn dispatch(&self, receive: &mut ReceiveState, input: &mut Bytes) -> crate::Result<()> {
        let now = clock::now();
        let mut requests = self.requests();
        while let Some(event) = receive.framer.next(input)? {
            requests.on_event(event, &mut receive.current, now)?;
        }
        Ok(())
    }
}

fn closed() -> AttemptError {
    AttemptError::Lost("connection closed by the server".to_owned())
}
