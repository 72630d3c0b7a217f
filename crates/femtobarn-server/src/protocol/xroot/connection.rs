//! One connection: bytes come in, requests are done in turn, answers go out together.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use xrd::request::{Chkpoint, REQUEST_HEADER_BYTES, Request};
use xrd::response::{Attention, Response};
use xrd::{
    ErrorCode, Failure, HandshakeAnswer, ProtocolVersion, ReceivedRequest, RequestCode,
    RequestEvent, RequestFramer, StreamId,
};

use super::Shared;
use super::failures::failed;
use super::handler::RequestHandler;
use super::outgoing::{Outgoing, encoded};
use super::socket::Socket;
use super::streams::{Delegated, Work};
use super::writing::Incoming;
use crate::logical::sessions::{Counters, Session};
use crate::protocol::buffers::{BUFFER_BYTES, Buffer, PIECE_BYTES};

/// Requests that are done beside others on one connection. While there are so many, nothing is read.
const LATE_MAX: usize = 8;

/// How often is looked whether the client is still there while nothing is read.
const LOOK: Duration = Duration::from_secs(1);

/// How long a client may take to log in.
const LOGIN: Duration = Duration::from_secs(60);

/// Bytes that are received at once while no data to be written are due.
const REQUESTS_BYTES: usize = 16 * 1024 + 64;

/// Bytes of a request's body while nobody knows who sends it.
const UNKNOWN_BODY_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Connection {
    pub shared: Arc<Shared>,
    pub socket: Socket,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub stage: Stage,
    /// Whether TLS starts behind the answers that wait.
    pub begins_tls: bool,
    /// What the data are for that come now.
    pub incoming: Option<Incoming>,
    framer: RequestFramer,
    outgoing: Outgoing,
    late: JoinSet<Late>,
    /// When to look for the client, if nothing is read then.
    next_look: Option<Pin<Box<Sleep>>>,
    login_deadline: Option<Pin<Box<Sleep>>>,
    /// Held while there are data that are to be written, and what waits for it.
    write_permit: Option<OwnedSemaphorePermit>,
    write_turn: Option<Turn>,
    /// Held while the kernel gathers data for it.
    patience: Option<OwnedSemaphorePermit>,
    /// Whether a large write has just ended. Another one may follow, whose data are not to come with its
    /// header.
    pub expects_data: bool,
    /// Comes when the session is ended from elsewhere.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

/// What waits until this connection may hold data.
type Turn = Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send + Sync>>;

/// How far a client has come.
pub(super) enum Stage {
    /// It has not logged in.
    New,
    /// It has logged in, and must prove who it is.
    Proving(Arc<Session>),
    /// It has a session.
    In(Arc<Session>),
    /// It is one more connection of a session, without requests of its own.
    Bound(Arc<Session>, Receiver<Delegated>),
}

/// An answer that was made beside others.
pub(super) struct Late {
    pub bytes: Vec<u8>,
    /// What it takes of what all such answers may take together.
    pub _permit: Option<OwnedSemaphorePermit>,
}

enum Event {
    Received(Buffer),
    Late(Late),
    Delegated(Delegated),
    Over,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        shared: Arc<Shared>,
    ) -> Self {
        let mut framer = RequestFramer::new();
        framer.set_body_bytes_max(UNKNOWN_BODY_BYTES_MAX);
        Connection {
            shared,
            socket: Socket::Plain(stream),
            peer,
            local,
            stage: Stage::New,
            begins_tls: false,
            incoming: None,
            framer,
            outgoing: Outgoing::default(),
            late: JoinSet::new(),
            next_look: None,
            login_deadline: Some(Box::pin(tokio::time::sleep(LOGIN))),
            write_permit: None,
            write_turn: None,
            patience: None,
            expects_data: false,
            ended: None,
        }
    }

    /// Serves the client until it goes.
    pub(super) async fn run(&mut self) -> io::Result<()> {
        loop {
            match poll_fn(|context| self.poll_event(context)).await? {
                Event::Received(buffer) if buffer.filled().is_empty() => return Ok(()),
                Event::Received(buffer) => {
                    let input = self.detached(buffer);
                    self.received(input).await?;
                    self.write_permit = None;
                }
                Event::Late(late) => self.push(&late.bytes).await?,
                Event::Delegated(Delegated { stream, work: Work::Read(reading) }) => {
                    self.perform(stream, reading).await?;
                }
                Event::Delegated(Delegated { stream, work: Work::Write(incoming, bytes) }) => {
                    self.framer.expect_data(stream, bytes);
                    self.incoming = Some(*incoming);
                }
                Event::Over => return self.flush().await,
            }
            self.flush().await?;
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Ok(Event::Over));
        }
        if let Some(deadline) = &mut self.login_deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if let Poll::Ready(late) = self.poll_late(context) {
            return Poll::Ready(late.map(Event::Late));
        }
        if let (Stage::Bound(_, delegated), None) = (&mut self.stage, &self.incoming) {
            if let Poll::Ready(delegated) = delegated.poll_recv(context) {
                return Poll::Ready(Ok(delegated.map_or(Event::Over, Event::Delegated)));
            }
            return self.poll_closed(context).map_ok(|()| Event::Over);
        }
        if self.late.len() >= LATE_MAX {
            return Poll::Pending;
        }
        self.poll_receive(context).map(|buffer| buffer.map(Event::Received))
    }

    /// An answer that was made beside others. While nothing is read since there are so many, this fails if
    /// the client goes: else what it asked for would be made to the end.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Late>> {
        if let Poll::Ready(Some(joined)) = self.late.poll_join_next(context) {
            return Poll::Ready(joined.map_err(io::Error::other));
        }
        while self.late.len() >= LATE_MAX {
            let look = self.next_look.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
            ready!(look.as_mut().poll(context));
            look.as_mut().reset(tokio::time::Instant::now() + LOOK);
            if self.socket.is_ended() || self.session().is_some_and(|session| session.is_ended()) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        Poll::Pending
    }

    /// Comes when the client has closed a bound connection, on which nothing is due.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(look) = &mut self.next_look {
                ready!(look.as_mut().poll(context));
                self.next_look = None;
            }
            ready!(self.socket.poll_readable(context))?;
            if self.socket.is_ended() {
                return Poll::Ready(Ok(()));
            }
            // Data have overtaken the request that they belong to.
            self.next_look = Some(Box::pin(tokio::time::sleep(LOOK)));
        }
    }

    /// Some bytes. Data that are to be written are taken from the kernel only by those who may hold some.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        let Some(incoming) = &self.incoming else {
            let most = if self.expects_data { REQUEST_HEADER_BYTES } else { REQUESTS_BYTES };
            return self.socket.poll_receive(context, &self.shared.buffers, most);
        };
        let piece = incoming.piece_bytes(self.framer.data_remaining());
        let most = ready!(self.poll_arrived(context, piece))?;
        if self.write_permit.is_none() {
            self.write_permit = Some(ready!(self.poll_write_permit(context, most)));
        }
        let received = self.socket.poll_receive(context, &self.shared.buffers, most);
        if received.is_pending() {
            self.write_permit = None;
        }
        received
    }

    /// Waits until a whole piece is in the kernel, unless too many do so; the bytes to receive now.
    fn poll_arrived(&mut self, context: &mut Context<'_>, piece: usize) -> Poll<io::Result<usize>> {
        // Who waits for its turn waits for a buffer of a size.
        if self.patience.is_none() && self.write_turn.is_none() && !self.socket.is_encrypted() {
            self.patience = Arc::clone(&self.shared.patient).try_acquire_owned().ok();
        }
        match self.patience {
            Some(_) => self.socket.poll_arrived(context, piece).map_ok(|()| piece),
            None => Poll::Ready(Ok(piece.min(PIECE_BYTES))),
        }
    }

    fn poll_write_permit(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<OwnedSemaphorePermit> {
        let writers = &self.shared.writers;
        let buffers = bytes.div_ceil(BUFFER_BYTES) as u32;
        if self.write_turn.is_none()
            && let Ok(permit) = Arc::clone(writers).try_acquire_many_owned(buffers)
        {
            return Poll::Ready(permit);
        }
        let turn = self.write_turn.get_or_insert_with(|| {
            let turn = Arc::clone(writers).acquire_many_owned(buffers);
            Box::pin(async { turn.await.expect("nobody closes this semaphore") })
        });
        let permit = ready!(turn.as_mut().poll(context));
        self.write_turn = None;
        Poll::Ready(permit)
    }

    /// What was received. Requests are copied, so that their buffer is free while they are done.
    fn detached(&self, buffer: Buffer) -> Bytes {
        match self.incoming.is_some() {
            true => Bytes::from_owner(buffer),
            false => Bytes::copy_from_slice(buffer.filled()),
        }
    }

    async fn received(&mut self, mut input: Bytes) -> io::Result<()> {
        self.expects_data = false;
        if let Some(session) = self.session() {
            session.received(input.len() as u64);
        }
        loop {
            match self.framer.next(&mut input) {
                Ok(None) => return Ok(()),
                Ok(Some(RequestEvent::Handshake)) => {
                    let answer =
                        HandshakeAnswer { version: ProtocolVersion::CURRENT, data_server: true };
                    self.push(&answer.encode()).await?;
                }
                Ok(Some(RequestEvent::Request(request))) => self.request(request).await?,
                Ok(Some(RequestEvent::Data { bytes, remaining, .. })) => {
                    self.data(bytes, remaining).await?;
                    if remaining == 0 {
                        // Requests behind the data need neither their buffer nor their turn.
                        (self.write_permit, self.patience) = (None, None);
                        input = Bytes::copy_from_slice(&input);
                    }
                }
                Err(error) => {
                    let response = Response::Error(Failure::from(&error));
                    return self.refuse_and_close(self.framer.stream(), response).await;
                }
            }
            if self.begins_tls {
                self.begin_tls(&input).await?;
            }
            if matches!(self.stage, Stage::Bound(..))
                && self.incoming.is_none()
                && !input.is_empty()
            {
                return Err(io::Error::other("bytes came before the stream was bound"));
            }
        }
    }

    async fn begin_tls(&mut self, left: &Bytes) -> io::Result<()> {
        self.begins_tls = false;
        if !left.is_empty() {
            // Somebody on the way may have put it there, to be taken for what was sent encrypted.
            return Err(io::Error::other("bytes came before TLS was agreed on"));
        }
        self.flush().await?;
        match self.shared.tls.clone() {
            Some(config) => Box::pin(self.socket.encrypt(config)).await,
            None => Ok(()),
        }
    }

    async fn request(&mut self, received: ReceivedRequest) -> io::Result<()> {
        let stream = received.header.stream;
        self.incoming = None;
        let request = match received.request {
            Ok(request) => request,
            Err(error) => {
                let response = refusal(received.header.code, &error);
                return match received.header.data_elsewhere() {
                    // They would be taken for those of the next write there.
                    true => Box::pin(self.refuse_and_close(stream, response)).await,
                    false => self.answer(stream, &response).await,
                };
            }
        };
        let Stage::In(session) = &self.stage else {
            return Box::pin(self.greet(stream, request)).await;
        };
        session.asked();
        match request {
            Request::Read(read) => self.read_request(stream, read).await,
            Request::PgRead(read) => self.pgread_request(stream, read).await,
            Request::ReadV(read) => Box::pin(self.readv_request(stream, read)).await,
            Request::Write(_)
            | Request::PgWrite(_)
            | Request::WriteV(_)
            | Request::Chkpoint(Chkpoint::Execute(_)) => {
                let session = Arc::clone(session);
                Box::pin(self.begin_write(stream, &session, request)).await
            }
            other => Box::pin(self.other_request(stream, other)).await,
        }
    }

    async fn other_request(&mut self, stream: StreamId, request: Request) -> io::Result<()> {
        let Some(asker) = self.asker() else { return Ok(()) };
        let response = match request {
            Request::Query(query) => return self.query_request(stream, asker, query).await,
            Request::Dirlist(list) => return self.dirlist_request(stream, asker, list).await,
            Request::Protocol(protocol) => self.agree(protocol),
            Request::Endsess(end) => self.end_session(end),
            Request::Bind(_) | Request::Login(_) | Request::Auth(_) => {
                failed(ErrorCode::INVALID_REQUEST, "there is a session on this connection already")
            }
            // Nothing here must be signed; what is signed nevertheless is as good as what is not.
            Request::Sigver(_) => return Ok(()),
            other => asker.respond(other).await,
        };
        self.answer(stream, &response).await
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        match &self.stage {
            Stage::New => None,
            Stage::Proving(session) | Stage::In(session) | Stage::Bound(session, _) => {
                Some(session)
            }
        }
    }

    fn asker(&self) -> Option<RequestHandler> {
        let session = Arc::clone(self.session()?);
        let shared = Arc::clone(&self.shared);
        Some(RequestHandler { shared, session, local: self.local })
    }

    /// The client has shown who it is: lifts the limits for strangers.
    pub(super) fn admit(&mut self, session: Arc<Session>) {
        self.framer.set_body_bytes_max(usize::MAX);
        self.login_deadline = None;
        self.ended = Some(Box::pin({
            let session = Arc::clone(&session);
            async move { session.ended().await }
        }));
        self.stage = Stage::In(session);
    }

    /// This connection is one more of a session.
    pub(super) fn admit_bound(&mut self, session: Arc<Session>, delegated: Receiver<Delegated>) {
        self.admit(Arc::clone(&session));
        self.stage = Stage::Bound(session, delegated);
    }

    /// Sends a response together with others.
    pub(super) async fn answer(&mut self, stream: StreamId, response: &Response) -> io::Result<()> {
        if let (Response::Error(_), Some(session)) = (response, self.session()) {
            Counters::add(&session.counters.errors, 1);
        }
        self.push(&encoded(stream, response)).await
    }

    /// Sends a response and gives the client up.
    pub(super) async fn refuse_and_close(
        &mut self,
        stream: StreamId,
        response: Response,
    ) -> io::Result<()> {
        self.answer(stream, &response).await?;
        self.flush().await?;
        Err(io::Error::other("the client did what the protocol does not allow"))
    }

    /// Sends bytes together with others, or at once if they are many.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.outgoing.has_room(bytes.len()) {
            self.flush().await?;
        }
        if self.outgoing.buffer(&self.shared.buffers).append(bytes) {
            return Ok(());
        }
        self.send(&mut [IoSlice::new(bytes)]).await
    }

    /// A place for so many bytes of answers, at most a piece and its head.
    pub(super) async fn room(&mut self, count: usize) -> io::Result<&mut Buffer> {
        if !self.outgoing.has_room(count) {
            self.flush().await?;
        }
        Ok(self.outgoing.buffer(&self.shared.buffers))
    }

    /// Sends slices behind the answers that wait.
    pub(super) async fn send(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.flush().await?;
        self.count_out(slices.iter().map(|slice| slice.len()).sum());
        self.socket.send(slices).await
    }

    /// Sends the answers that wait.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let Some(buffer) = self.outgoing.take() else { return Ok(()) };
        self.count_out(buffer.filled().len());
        self.socket.send(&mut [IoSlice::new(buffer.filled())]).await
    }

    pub(super) fn count_out(&self, count: usize) {
        if let Some(session) = self.session() {
            session.sent(count as u64);
        }
    }

    /// Makes an answer beside others.
    pub(super) async fn later(
        &mut self,
        answer: impl Future<Output = Late> + Send + 'static,
    ) -> io::Result<()> {
        while self.late.len() >= LATE_MAX {
            self.flush().await?;
            let late = poll_fn(|context| self.poll_late(context)).await?;
            self.push(&late.bytes).await?;
        }
        self.late.spawn(answer);
        Ok(())
    }

    /// Makes a response beside others. The client is told to wait for it first, if `seconds` are told.
    pub(super) async fn respond_later(
        &mut self,
        stream: StreamId,
        seconds: Option<u32>,
        response: impl Future<Output = Response> + Send + 'static,
    ) -> io::Result<()> {
        let Some(seconds) = seconds else {
            let answer = async move { encoded(stream, &response.await) };
            return self.later(async move { Late { bytes: answer.await, _permit: None } }).await;
        };
        self.answer(stream, &Response::WaitResp(seconds)).await?;
        self.later(async move {
            let response = Box::new(response.await);
            let attention = Response::Attn(Attention::Response { stream, response });
            Late { bytes: encoded(StreamId::default(), &attention), _permit: None }
        })
        .await
    }

    /// Tidies up after the client.
    pub(super) async fn leave(mut self) {
        self.late.abort_all();
        if let Stage::Proving(session) | Stage::In(session) = self.stage {
            self.shared.streams.forget(&session.id);
            session.end();
            self.shared.logical.sessions.remove(&session);
            super::opening::abandon(Arc::clone(&self.shared.logical), session).await;
        }
    }
}

/// What a request is answered that cannot be understood.
fn refusal(code: RequestCode, error: &xrd::Error) -> Response {
    match code {
        RequestCode::GPFILE => failed(ErrorCode::UNSUPPORTED, "gpfile is not supported"),
        code if code.name().is_none() => {
            failed(ErrorCode::INVALID_REQUEST, format!("there is no request {}", code.0))
        }
        _ => Response::Error(Failure::from(error)),
    }
}
