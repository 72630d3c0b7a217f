//! One session with a server: requests of many callers over one connection, and over bound ones for
//! the answers to large reads.
//!
//! 1. Where callers are threads, one of those who wait reads for all, straight into its own buffer
//!    what is its own; when it has its answer, it wakes another. So a caller that is alone costs one
//!    write and one read, and no change of threads.
//! 2. Where callers are tasks, a task reads for all. Bound connections have a reader of their own.
//! 3. Who asks for something waits for it, or gives it up: so somebody always reads, and a server
//!    that must be rid of answers before it takes more requests is never waited for in vain.
//! 4. Lock order: the reader's, then the requests'.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::failure::AttemptError;
use super::greeting::{Greeting, Purpose, Step};
use super::options::Options;
use super::requests::{Arrival, Current, News, Requests};
use super::sink::{Gathered, Sink};
use super::stream::Stream;
use super::url::Endpoint;
use super::waiting::{Waiter, ready};
use crate::flags::ServerFlags;
use crate::framing::{ResponseEvent, ResponseFramer};
use crate::ids::{PathId, SessionId, StreamId};
use crate::limits::RESPONSE_BODY_BYTES_MAX;
use crate::request::Request;

/// Bytes read from a socket at a time, where they do not go straight to a caller.
const INPUT_BYTES: usize = 64 * 1024;
/// Buffers smaller than this are not read to straight: reading answers ahead saves more.
const STRAIGHT_BYTES_MIN: usize = 32 * 1024;
/// A connection that was not used for so long may have been closed by the server.
const IDLE: Duration = Duration::from_secs(2);

/// A session.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    readers: Vec<tokio::task::AbortHandle>,
}

#[derive(Debug)]
struct Shared {
    server: Endpoint,
    flags: ServerFlags,
    session: SessionId,
    main: Link,
    /// Those that answers to large reads come on.
    bound: Vec<(PathId, Link)>,
    requests: Mutex<Requests>,
    began: Instant,
    /// When a request was sent last, in milliseconds since the beginning.
    used_ms: AtomicU64,
}

/// One connection and what came on it.
#[derive(Debug)]
struct Link {
    stream: Stream,
    incoming: tokio::sync::Mutex<Incoming>,
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Incoming {
    framer: ResponseFramer,
    current: Current,
    /// Memory for what comes; taken off its front as it is used.
    room: BytesMut,
}

impl Incoming {
    fn room(&mut self) -> &mut [u8] {
        if self.room.len() < INPUT_BYTES / 4 {
            self.room = BytesMut::zeroed(INPUT_BYTES);
        }
        &mut self.room
    }
}

impl Connection {
    /// Connects, logs in, and binds streams.
    pub async fn open(
        waiter: Waiter,
        server: &Endpoint,
        wants_tls: bool,
        options: &Options,
        purpose: Purpose,
    ) -> Result<Self, AttemptError> {
        let mut greeting = Greeting::new(options, wants_tls, purpose);
        let main = Link::open(waiter, server, options, &mut greeting).await?;
        let (flags, session) = (greeting.server.flags, greeting.session);
        let mut bound = Vec::new();
        for _ in 0..options.bound_streams() {
            let mut greeting = Greeting::new(options, wants_tls, Purpose::Stream(session));
            // A server may refuse some of them; fewer streams do as well.
            match Link::open(waiter, server, options, &mut greeting).await {
                Ok(link) => bound.push((greeting.path, link)),
                Err(_) => break,
            }
        }
        let shared = Arc::new(Shared {
            server: server.clone(),
            flags,
            session,
            main,
            bound,
            requests: Mutex::new(Requests::new(options.request_timeout, options.patience)),
            began: Instant::now(),
            used_ms: AtomicU64::new(0),
        });
        let mut connection = Connection { shared, readers: Vec::new() };
        connection.start_readers(waiter).map_err(unreachable)?;
        Ok(connection)
    }

    /// Starts the readers of links that no caller reads.
    fn start_readers(&mut self, waiter: Waiter) -> std::io::Result<()> {
        let first = usize::from(waiter == Waiter::Thread);
        for index in first..=self.shared.bound.len() {
            let shared = self.shared.clone();
            let reading = async move { shared.read_link(index).await };
            match waiter {
                Waiter::Task => self.readers.push(tokio::spawn(reading).abort_handle()),
                Waiter::Thread => {
                    let named = std::thread::Builder::new().name("xrd-stream".to_owned());
                    named.spawn(move || ready(reading))?;
                }
            }
        }
        Ok(())
    }

    pub fn server(&self) -> &Endpoint {
        &self.shared.server
    }

    pub fn session(&self) -> SessionId {
        self.shared.session
    }

    /// What the server is and has.
    pub fn flags(&self) -> ServerFlags {
        self.shared.flags
    }

    /// The streams that answers to large reads may come on beside the main one.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathId> {
        self.shared.bound.iter().map(|(path, _)| *path)
    }

    /// Whether it is of no use any more.
    pub fn is_lost(&self) -> bool {
        if self.shared.requests().is_lost() {
            return true;
        }
        let now_ms = self.shared.began.elapsed().as_millis() as u64;
        let idle = now_ms.saturating_sub(self.shared.used_ms.load(Ordering::Relaxed));
        if idle < IDLE.as_millis() as u64 {
            return false;
        }
        let is_closed = self.shared.is_closed();
        // Who wanted to read meanwhile could not.
        self.shared.requests().wake_one();
        is_closed
    }

    /// Sends a request and gathers its answer.
    pub async fn call(&self, request: &Request, data: &[u8]) -> Result<Bytes, AttemptError> {
        let mut answer = Gathered::default();
        self.call_into(request, data, RESPONSE_BODY_BYTES_MAX as u64, &mut answer).await?;
        Ok(answer.into_bytes())
    }

    /// Sends a request whose answer has at most so many bytes, and puts the answer where it belongs.
    pub async fn call_into(
        &self,
        request: &Request,
        data: &[u8],
        bytes_max: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), AttemptError> {
        self.send(request, data, bytes_max).await?.answer(sink).await
    }

    /// Sends a request and its data; the answer is to be waited for.
    pub async fn send(
        &self,
        request: &Request,
        data: &[u8],
        bytes_max: u64,
    ) -> Result<Sent, AttemptError> {
        let shared = &*self.shared;
        let stream = shared.requests().add(bytes_max, Instant::now())?;
        let sent = Sent { shared: self.shared.clone(), stream };
        let mut bytes = Vec::with_capacity(128);
        request.encode(stream, &mut bytes)?;
        let now_ms = shared.began.elapsed().as_millis() as u64;
        shared.used_ms.store(now_ms, Ordering::Relaxed);
        let writing = shared.main.writing.lock().await;
        if let Err(error) = shared.main.stream.write_all(&bytes, data).await {
            // A part may be there already, so nothing else can follow.
            shared.lose(AttemptError::Lost(error.to_string()));
        }
        drop(writing);
        Ok(sent)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.shut_down();
        self.readers.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// A request that was sent. It is given up if it is dropped.
#[derive(Debug)]
pub(super) struct Sent {
    shared: Arc<Shared>,
    stream: StreamId,
}

impl Sent {
    /// Waits for the answer and puts it where it belongs.
    pub async fn answer(self, sink: &mut dyn Sink) -> Result<(), AttemptError> {
        std::future::poll_fn(|context| self.poll(sink, context)).await
    }

    fn poll(
        &self,
        sink: &mut dyn Sink,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), AttemptError>> {
        if let Some(end) = self.look(sink, context.waker()) {
            return Poll::Ready(end);
        }
        if self.shared.main.stream.waiter() == Waiter::Task {
            return Poll::Pending;
        }
        let end = {
            let Ok(mut incoming) = self.shared.main.incoming.try_lock() else {
                return Poll::Pending;
            };
            self.lead(&mut incoming, sink, context.waker())
        };
        self.shared.requests().wake_one();
        Poll::Ready(end)
    }

    /// Reads for all until the own answer is there.
    fn lead(
        &self,
        incoming: &mut Incoming,
        sink: &mut dyn Sink,
        waker: &Waker,
    ) -> Result<(), AttemptError> {
        loop {
            if let Some(end) = self.look(sink, waker) {
                return end;
            }
            let is_straight = incoming.framer.data_remaining() as usize >= STRAIGHT_BYTES_MIN
                && incoming.current.stream == self.stream
                && sink.room().len() >= STRAIGHT_BYTES_MIN;
            match is_straight {
                true => self.read_straight(incoming, sink),
                false => ready(self.shared.read_some(&self.shared.main, incoming)),
            }
        }
    }

    /// Reads from the socket to where the bytes belong.
    fn read_straight(&self, incoming: &mut Incoming, sink: &mut dyn Sink) {
        let room = sink.room();
        let count = room.len().min(incoming.framer.data_remaining() as usize);
        match ready(self.shared.main.stream.read_much(&mut room[..count])) {
            Ok(Some(0)) => self.shared.lose(closed()),
            Ok(Some(count)) => {
                sink.filled(count);
                incoming.framer.data_taken(count as u32);
                let remaining = incoming.framer.data_remaining();
                let mut requests = self.shared.requests();
                let now = Instant::now();
                if let Err(error) = requests.taken(incoming.current, count as u32, remaining, now) {
                    requests.lose(error.into());
                }
            }
            Ok(None) => self.shared.requests().expire(Instant::now()),
            Err(error) => self.shared.lose(AttemptError::Lost(error.to_string())),
        }
    }

    /// Puts what has come where it belongs; tells the end.
    fn look(&self, sink: &mut dyn Sink, waker: &Waker) -> Option<Result<(), AttemptError>> {
        let News { arrivals, end } = self.shared.requests().take(self.stream, waker);
        for arrival in arrivals {
            let put = match &arrival {
                Arrival::Part(status) => sink.begin(status.as_ref()),
                Arrival::Bytes(bytes) => sink.push(bytes),
            };
            if let Err(error) = put {
                // What else such a server sends is not to be relied on either.
                self.shared.lose(error.clone().into());
                return Some(Err(error.into()));
            }
        }
        end
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.shared.requests().abandon(self.stream);
    }
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is of no use any more.
    fn lose(&self, how: AttemptError) {
        self.requests().lose(how);
        self.shut_down();
    }

    fn shut_down(&self) {
        self.main.stream.shut_down();
        self.bound.iter().for_each(|(_, link)| link.stream.shut_down());
    }

    /// Whether the server closed the connection while nobody read from it.
    fn is_closed(&self) -> bool {
        let reading = self.main.incoming.try_lock();
        let writing = self.main.writing.try_lock();
        if reading.is_err() || writing.is_err() || !self.requests().is_idle() {
            return false;
        }
        let is_closed = self.main.stream.is_closed();
        if is_closed {
            self.lose(closed());
        }
        is_closed
    }

    /// Reads a link, 0 for the main one, until the connection is lost.
    async fn read_link(&self, index: usize) {
        let link = match index.checked_sub(1) {
            None => &self.main,
            Some(bound) => &self.bound[bound].1,
        };
        let mut incoming = link.incoming.lock().await;
        while !self.requests().is_lost() {
            self.read_some(link, &mut incoming).await;
        }
    }

    /// Reads from a link once and tells requests what came.
    async fn read_some(&self, link: &Link, incoming: &mut Incoming) {
        let read = link.stream.read(incoming.room()).await;
        let mut input = match read {
            Ok(Some(0)) => return self.lose(closed()),
            Ok(Some(count)) => incoming.room.split_to(count).freeze(),
            Ok(None) => return self.requests().expire(Instant::now()),
            Err(error) => return self.lose(AttemptError::Lost(error.to_string())),
        };
        if let Err(error) = self.hear(incoming, &mut input) {
            self.lose(error.into());
        }
    }

    fn hear(&self, incoming: &mut Incoming, input: &mut Bytes) -> crate::Result<()> {
        let now = Instant::now();
        let mut requests = self.requests();
        while let Some(event) = incoming.framer.next(input)? {
            requests.hear(event, &mut incoming.current, now)?;
        }
        Ok(())
    }
}

impl Link {
    /// Connects and goes through the greeting.
    async fn open(
        waiter: Waiter,
        server: &Endpoint,
        options: &Options,
        greeting: &mut Greeting<'_>,
    ) -> Result<Self, AttemptError> {
        let deadline = Instant::now() + options.connect_timeout;
        let connected = Stream::connect(waiter, server, options.connect_timeout).await;
        let mut stream = connected.map_err(|error| AttemptError::Unreachable(error.to_string()))?;
        let mut incoming = Incoming {
            framer: ResponseFramer::new(),
            current: Current::default(),
            room: BytesMut::new(),
        };
        let mut input = Bytes::new();
        let mut step = Step::Send(greeting.first()?);
        loop {
            step = match step {
                Step::Ready => break,
                Step::StartTls => {
                    start_tls(&mut stream, server, options).await?;
                    greeting.secret()?
                }
                Step::Send(bytes) => {
                    stream.write_all(&bytes, &[]).await.map_err(unreachable)?;
                    Step::Hear
                }
                Step::Hear => {
                    hear_greeting(&stream, &mut incoming, &mut input, greeting, deadline).await?
                }
            };
        }
        // What nobody asked for.
        while incoming.framer.next(&mut input)?.is_some() {}
        incoming.framer.hand_out_all();
        Ok(Link {
            stream,
            incoming: tokio::sync::Mutex::new(incoming),
            writing: tokio::sync::Mutex::new(()),
        })
    }
}

/// Hears one answer of the greeting.
async fn hear_greeting(
    stream: &Stream,
    incoming: &mut Incoming,
    input: &mut Bytes,
    greeting: &mut Greeting<'_>,
    deadline: Instant,
) -> Result<Step, AttemptError> {
    loop {
        if let Some(ResponseEvent::Response(received)) = incoming.framer.next(input)? {
            return greeting.hear(received.response?);
        }
        match stream.read(incoming.room()).await.map_err(unreachable)? {
            Some(0) => {
                return Err(AttemptError::Unreachable("it closed the connection".to_owned()));
            }
            Some(count) => *input = incoming.room.split_to(count).freeze(),
            None if Instant::now() >= deadline => {
                return Err(AttemptError::Unreachable(
                    "it does not answer the greeting".to_owned(),
                ));
            }
            None => {}
        }
    }
}

#[cfg(feature = "tls")]
async fn start_tls(
    stream: &mut Stream,
    server: &Endpoint,
    options: &Options,
) -> Result<(), AttemptError> {
    let tls = super::tls::Tls::new(&server.host, options);
    let started = async { stream.start_tls(tls?).await }.await;
    started.map_err(|error| match super::tls::is_distrust(&error) {
        true => AttemptError::Distrust(format!(
            "TLS: {error}; SSL_CERT_FILE and X509_CERT_DIR name certificates that are trusted"
        )),
        false => AttemptError::Unreachable(format!("TLS: {error}")),
    })
}

#[cfg(not(feature = "tls"))]
async fn start_tls(_: &mut Stream, _: &Endpoint, _: &Options) -> Result<(), AttemptError> {
    Err(AttemptError::Login("this client is without TLS".to_owned()))
}

fn closed() -> AttemptError {
    AttemptError::Lost("it closed the connection".to_owned())
}

fn unreachable(error: std::io::Error) -> AttemptError {
    AttemptError::Unreachable(error.to_string())
}
