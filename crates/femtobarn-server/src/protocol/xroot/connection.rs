//! The state of one connection: receiving, queued answers, delayed answers, and limits on data to be written.
//!
//! `dispatch` runs the loop over it; the families of requests answer through it.
//!
//! 1. Only connections with a permit for enough buffers receive the data of writes from the kernel.
//! 2. While [`DELAYED_MAX`] requests are handled concurrently nothing is read, but a client that disconnects is
//!    noticed.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use xrd::request::REQUEST_HEADER_BYTES;
use xrd::response::{Attention, Response};
use xrd::{ErrorCode, PathId, RequestFramer, StreamId};

use super::answer_queue::{AnswerQueue, encoded};
use super::responses::{error_of, failed, kind_of};
use super::service::RootService;
use super::socket::ClientSocket;
use super::transfer::{Delegated, DelegatedWork, IncomingWrite};
use crate::logical::request_counts::ClientProtocol;
use crate::logical::sessions::{ClientSession, Counters};
use crate::protocol::buffers::{BUFFER_BYTES, PIECE_BYTES, PooledBuffer};

/// Requests of one connection that are handled concurrently.
const DELAYED_MAX: usize = 8;

/// How often the connection checks whether its client has disconnected while it reads nothing.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time until a client has logged in.
const LOGIN_MAX: Duration = Duration::from_secs(60);

/// Bytes of one receive call while no data of a write are due.
const REQUESTS_BYTES: usize = 16 * 1024 + 64;

/// Bytes of a request's body before the client is authenticated.
const LOGIN_BODY_BYTES_MAX: usize = 16 * 1024;

pub(super) struct RootConnection {
    pub service: Arc<RootService>,
    pub socket: ClientSocket,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub stage: Stage,
    pub framer: RequestFramer,
    /// Whether TLS starts after the answers that wait.
    pub begins_tls: bool,
    /// The write whose data are arriving.
    pub incoming: Option<IncomingWrite>,
    /// Whether a large write has just ended. Another one may follow, whose data should not be received with its header.
    pub expects_data: bool,
    pub write_budget: WriteBudget,
    answers: AnswerQueue,
    delayed: JoinSet<DelayedAnswer>,
    /// The next check for a disconnected client, while nothing is read.
    next_check: Option<Pin<Box<Sleep>>>,
    login_deadline: Option<Pin<Box<Sleep>>>,
    /// Completes when the session is ended from elsewhere.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

/// The permits that a connection holds while it receives the data of a write.
#[derive(Default)]
pub(super) struct WriteBudget {
    /// The permit for buffers of received data.
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<WaitingPermit>,
    /// The permit to let the kernel gather a whole piece.
    gathering: Option<OwnedSemaphorePermit>,
}

/// The wait for a permit.
type WaitingPermit = Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send + Sync>>;

/// The progress of a client's login.
pub(super) enum Stage {
    /// Not logged in.
    New,
    /// Logged in, but not authenticated.
    Authenticating(Arc<ClientSession>),
    /// A connection with a session.
    Active(Arc<ClientSession>),
    /// An additional connection of a session, which carries no requests.
    Bound(Arc<ClientSession>, Receiver<Delegated>),
}

/// The answer to a request that was handled concurrently with others.
#[derive(Default)]
pub(super) struct DelayedAnswer {
    pub bytes: Vec<u8>,
    /// The code of the error, if the answer is one.
    pub error: Option<ErrorCode>,
    /// The answer's share in the limit on the bytes of all delayed answers.
    pub _permit: Option<OwnedSemaphorePermit>,
}

impl DelayedAnswer {
    /// A response.
    pub(super) fn of(stream: StreamId, response: &Response) -> Self {
        let (bytes, error) = (encoded(stream, response), error_of(response));
        DelayedAnswer { bytes, error, _permit: None }
    }
}

/// An event that a connection has to react to.
pub(super) enum Event {
    Received(PooledBuffer),
    Delayed(DelayedAnswer),
    Delegated(Delegated),
    Ended,
}

impl WriteBudget {
    /// Returns the permit for buffers; gathering continues.
    pub(super) fn release_buffers(&mut self) {
        self.permit = None;
    }

    /// Gives all permits back.
    pub(super) fn release(&mut self) {
        (self.permit, self.gathering) = (None, None);
    }
}

impl RootConnection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        service: Arc<RootService>,
    ) -> Self {
        let mut framer = RequestFramer::new();
        framer.set_body_bytes_max(LOGIN_BODY_BYTES_MAX);
        RootConnection {
            service,
            socket: ClientSocket::Plain(stream),
            peer,
            local,
            stage: Stage::New,
            framer,
            begins_tls: false,
            incoming: None,
            expects_data: false,
            write_budget: WriteBudget::default(),
            answers: AnswerQueue::default(),
            delayed: JoinSet::new(),
            next_check: None,
            login_deadline: Some(Box::pin(tokio::time::sleep(LOGIN_MAX))),
            ended: None,
        }
    }

    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Ok(Event::Ended));
        }
        if let Some(deadline) = &mut self.login_deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if let Poll::Ready(delayed) = self.poll_delayed(context) {
            return Poll::Ready(delayed.map(Event::Delayed));
        }
        if let (Stage::Bound(_, delegated), None) = (&mut self.stage, &self.incoming) {
            if let Poll::Ready(delegated) = delegated.poll_recv(context) {
                return Poll::Ready(Ok(delegated.map_or(Event::Ended, Event::Delegated)));
            }
            return self.poll_closed(context).map_ok(|()| Event::Ended);
        }
        if self.delayed.len() >= DELAYED_MAX {
            return Poll::Pending;
        }
        self.poll_receive(context).map(|buffer| buffer.map(Event::Received))
    }

    /// The next delayed answer. While nothing is read because there are too many, this fails if the client disconnects,
    /// since otherwise its requests would be completed in vain.
    fn poll_delayed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<DelayedAnswer>> {
        if let Poll::Ready(Some(joined)) = self.delayed.poll_join_next(context) {
            return Poll::Ready(joined.map_err(io::Error::other));
        }
        while self.delayed.len() >= DELAYED_MAX {
            let check =
                self.next_check.get_or_insert_with(|| Box::pin(tokio::time::sleep(CHECK_INTERVAL)));
            ready!(check.as_mut().poll(context));
            check.as_mut().reset(tokio::time::Instant::now() + CHECK_INTERVAL);
            if self.socket.is_ended() || self.session().is_some_and(|session| session.is_ended()) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        Poll::Pending
    }

    /// Ready when the client has closed a bound connection that has no work.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(check) = &mut self.next_check {
                ready!(check.as_mut().poll(context));
                self.next_check = None;
            }
            ready!(self.socket.poll_readable(context))?;
            if self.socket.is_ended() {
                return Poll::Ready(Ok(()));
            }
            // The data of a request have arrived before the request itself.
            self.next_check = Some(Box::pin(tokio::time::sleep(CHECK_INTERVAL)));
        }
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<PooledBuffer>> {
        let Some(incoming) = &self.incoming else {
            let most = if self.expects_data { REQUEST_HEADER_BYTES } else { REQUESTS_BYTES };
            return self.socket.poll_receive(context, &self.service.buffers, most);
        };
        let piece = incoming.piece_bytes(self.framer.data_remaining());
        let most = ready!(self.poll_arrived(context, piece))?;
        if self.write_budget.permit.is_none() {
            self.write_budget.permit = Some(ready!(self.poll_write_permit(context, most)));
        }
        let received = self.socket.poll_receive(context, &self.service.buffers, most);
        if received.is_pending() {
            self.write_budget.permit = None;
        }
        received
    }

    /// Waits until the kernel has gathered a whole piece, unless too many connections do so. Returns the number of
    /// bytes to receive now.
    fn poll_arrived(&mut self, context: &mut Context<'_>, piece: usize) -> Poll<io::Result<usize>> {
        let budget = &mut self.write_budget;
        // A permit that is being waited for is for buffers of a certain size.
        if budget.gathering.is_none() && budget.waiting.is_none() && !self.socket.is_encrypted() {
            budget.gathering = Arc::clone(&self.service.gathering).try_acquire_owned().ok();
        }
        match budget.gathering {
            Some(_) => self.socket.poll_arrived(context, piece).map_ok(|()| piece),
            None => Poll::Ready(Ok(piece.min(PIECE_BYTES))),
        }
    }

    fn poll_write_permit(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<OwnedSemaphorePermit> {
        let permits = &self.service.write_buffers;
        let buffers = bytes.div_ceil(BUFFER_BYTES) as u32;
        if self.write_budget.waiting.is_none()
            && let Ok(permit) = Arc::clone(permits).try_acquire_many_owned(buffers)
        {
            return Poll::Ready(permit);
        }
        let waiting = self.write_budget.waiting.get_or_insert_with(|| {
            let permit = Arc::clone(permits).acquire_many_owned(buffers);
            Box::pin(async { permit.await.expect("the semaphore is never closed") })
        });
        let permit = ready!(waiting.as_mut().poll(context));
        self.write_budget.waiting = None;
        Poll::Ready(permit)
    }

    /// The session, if the client has logged in.
    pub(super) fn session(&self) -> Option<&Arc<ClientSession>> {
        match &self.stage {
            Stage::New => None,
            Stage::Authenticating(session) | Stage::Active(session) | Stage::Bound(session, _) => {
                Some(session)
            }
        }
    }

    /// Enters the session of an authenticated client, and lifts the limits of the login.
    pub(super) fn admit(&mut self, session: Arc<ClientSession>) {
        self.framer.set_body_bytes_max(usize::MAX);
        self.login_deadline = None;
        self.ended = Some(Box::pin({
            let session = Arc::clone(&session);
            async move { session.ended().await }
        }));
        self.stage = Stage::Active(session);
    }

    /// Makes this an additional connection of a session.
    pub(super) fn admit_bound(
        &mut self,
        session: Arc<ClientSession>,
        delegated: Receiver<Delegated>,
    ) {
        self.admit(Arc::clone(&session));
        self.stage = Stage::Bound(session, delegated);
    }

    /// Queues a response.
    pub(super) async fn answer(&mut self, stream: StreamId, response: &Response) -> io::Result<()> {
        self.count_error(error_of(response));
        self.push(&encoded(stream, response)).await
    }

    /// Queues an answer that was made concurrently.
    pub(super) async fn answer_delayed(&mut self, answer: DelayedAnswer) -> io::Result<()> {
        self.count_error(answer.error);
        self.push(&answer.bytes).await
    }

    fn count_error(&self, code: Option<ErrorCode>) {
        let Some(code) = code else { return };
        self.service.logical.request_counts.count_error(ClientProtocol::Root, kind_of(code));
        if let Some(session) = self.session() {
            Counters::add(&session.counters.errors, 1);
        }
    }

    /// Sends a response and fails, which closes the connection.
    pub(super) async fn refuse_and_close(
        &mut self,
        stream: StreamId,
        response: Response,
    ) -> io::Result<()> {
        self.answer(stream, &response).await?;
        self.flush().await?;
        self.socket.end().await;
        Err(io::Error::other("the client violated the protocol"))
    }

    /// Queues bytes, or sends them at once if they do not fit into the queue's buffer.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.answers.has_room(bytes.len()) {
            self.flush().await?;
        }
        if self.answers.buffer(&self.service.buffers).append(bytes) {
            return Ok(());
        }
        self.send(&mut [IoSlice::new(bytes)]).await
    }

    /// The queue's buffer, with room for this many bytes of answers: at most [`PIECE_BYTES`] and a header.
    pub(super) async fn room(&mut self, count: usize) -> io::Result<&mut PooledBuffer> {
        if !self.answers.has_room(count) {
            self.flush().await?;
        }
        Ok(self.answers.buffer(&self.service.buffers))
    }

    /// Sends the queued answers and then these slices.
    pub(super) async fn send(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.flush().await?;
        self.count_out(slices.iter().map(|slice| slice.len()).sum());
        self.socket.send(slices).await
    }

    /// Sends the queued answers.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let Some(buffer) = self.answers.take() else { return Ok(()) };
        self.count_out(buffer.filled().len());
        self.socket.send(&mut [IoSlice::new(buffer.filled())]).await
    }

    pub(super) fn count_out(&self, count: usize) {
        if let Some(session) = self.session() {
            session.count_sent(count as u64);
        }
    }

    /// Computes an answer concurrently with further requests. Waits if too many are in progress.
    pub(super) async fn delay(
        &mut self,
        answer: impl Future<Output = DelayedAnswer> + Send + 'static,
    ) -> io::Result<()> {
        while self.delayed.len() >= DELAYED_MAX {
            self.flush().await?;
            let delayed = poll_fn(|context| self.poll_delayed(context)).await?;
            self.answer_delayed(delayed).await?;
        }
        self.delayed.spawn(answer);
        Ok(())
    }

    /// Computes a response concurrently with further requests. With `seconds`, the client is asked to wait that long
    /// for an unsolicited response (kXR_waitresp).
    pub(super) async fn delay_response(
        &mut self,
        stream: StreamId,
        seconds: Option<u32>,
        response: impl Future<Output = Response> + Send + 'static,
    ) -> io::Result<()> {
        let Some(seconds) = seconds else {
            return self.delay(async move { DelayedAnswer::of(stream, &response.await) }).await;
        };
        self.answer(stream, &Response::WaitResp(seconds)).await?;
        self.delay(async move {
            let response = Box::new(response.await);
            let attention = Response::Attn(Attention::Response { stream, response });
            DelayedAnswer::of(StreamId::default(), &attention)
        })
        .await
    }

    /// Hands work to a bound connection of the session. If that does not exist, the answer is an error; no data are
    /// skipped, since those of a write arrive on the bound connection.
    pub(super) async fn delegate(
        &mut self,
        path: PathId,
        stream: StreamId,
        work: DelegatedWork,
    ) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let Some(sender) = self.service.streams.sender(&session.id, path) else {
            let what = format!("the session has no stream {}", path.0);
            return self.answer(stream, &failed(ErrorCode::ARG_INVALID, what)).await;
        };
        // The client may need the answers queued here before it reads more from the bound connection.
        self.flush().await?;
        if sender.send(Delegated { stream, work }).await.is_err() {
            let what = format!("stream {} of the session was closed", path.0);
            return self.answer(stream, &failed(ErrorCode::ARG_INVALID, what)).await;
        }
        Ok(())
    }

    /// Cancels delayed answers.
    pub(super) fn abort_delayed(&mut self) {
        self.delayed.abort_all();
    }
}
