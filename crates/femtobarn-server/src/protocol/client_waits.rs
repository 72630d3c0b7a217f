//! What a connection of HTTP waits for from its client, and for how long.
//!
//! | the client owes | from | until |
//! |---|---|---|
//! | a request | the beginning of the connection, or the end of its last request | the head of one has arrived |
//! | bytes of a request | the server wants them, and has none | some arrive |
//! | room for an answer | bytes of the answer are there | the connection takes some |
//!
//! 1. A connection is ended when one wait exceeds its limit, even if other requests on it (HTTP/2) go on: nothing else
//!    frees the memory of an answer whose client opens no window.
//! 2. The connection gets an answer in pieces, and has room for another one when it has sent the last one or two. Those at
//!    the end of an answer belong to the wait for the next request.
//! 3. A wait for the server, for a disk or a lock, has no limit here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The key of the wait for a request.
const REQUEST: u64 = 0;
/// Bytes of an answer that a connection gets at once.
const PIECE_BYTES: usize = 256 << 10;
/// Longer limits are shortened to this, 10 years, which the clock can count.
const LIMIT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long a connection waits for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// For the first request.
    pub(super) first_request: Duration,
    /// For bytes of a request, or for room for those of an answer.
    pub(super) bytes: Duration,
    /// For another request, and for the end of the last answer; `None` if it waits for ever. HTTP/1.1 does not wait as long
    /// for a request, once it has sent its answer.
    pub(super) next_request: Option<Duration>,
}

/// The waits of a connection.
pub(super) struct ClientWaits {
    limits: WaitLimits,
    open: Mutex<OpenWaits>,
}

struct OpenWaits {
    ends: HashMap<u64, Instant>,
    /// Requests that are not answered completely.
    requests: usize,
    last_key: u64,
}

impl ClientWaits {
    /// The waits of a connection that begins now.
    pub(super) fn new(mut limits: WaitLimits) -> Arc<Self> {
        limits.bytes = limits.bytes.min(LIMIT_MAX);
        limits.next_request = limits.next_request.map(|limit| limit.min(LIMIT_MAX));
        let ends = HashMap::from([(REQUEST, Instant::now() + limits.first_request)]);
        let open = Mutex::new(OpenWaits { ends, requests: 0, last_key: REQUEST });
        Arc::new(ClientWaits { limits, open })
    }

    /// Completes when a wait exceeds its limit, with the error that ends the connection.
    pub(super) async fn exceeded(&self) -> io::Error {
        // A wait that begins later ends later than this.
        let shortest =
            self.limits.next_request.map_or(self.limits.bytes, |it| it.min(self.limits.bytes));
        loop {
            let now = Instant::now();
            let earliest = self.open.lock().ends.iter().map(|(key, end)| (*end, *key)).min();
            match earliest {
                Some((end, key)) if end <= now => {
                    let what = match key {
                        REQUEST => "the client sends no request",
                        _ => "the client neither sends its request nor takes the answer",
                    };
                    return io::Error::new(io::ErrorKind::TimedOut, what);
                }
                earliest => {
                    let next = now + shortest;
                    sleep_until(earliest.map_or(next, |(end, _)| end.min(next))).await;
                }
            }
        }
    }

    fn begin(&self) -> u64 {
        let mut open = self.open.lock();
        open.last_key += 1;
        let key = open.last_key;
        open.ends.insert(key, Instant::now() + self.limits.bytes);
        key
    }

    fn end(&self, key: u64) {
        self.open.lock().ends.remove(&key);
    }
}

/// A request that is not answered completely.
struct OpenRequest(Arc<ClientWaits>);

impl OpenRequest {
    fn new(waits: &Arc<ClientWaits>) -> Self {
        let mut open = waits.open.lock();
        open.requests += 1;
        open.ends.remove(&REQUEST);
        OpenRequest(Arc::clone(waits))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        open.requests -= 1;
        if open.requests == 0
            && let Some(limit) = self.0.limits.next_request
        {
            open.ends.insert(REQUEST, Instant::now() + limit);
        }
    }
}

/// One wait, which may begin and end again and again.
struct ClientWait {
    waits: Arc<ClientWaits>,
    key: Option<u64>,
}

impl ClientWait {
    fn new(waits: &Arc<ClientWaits>) -> Self {
        ClientWait { waits: Arc::clone(waits), key: None }
    }

    fn begin(&mut self) {
        if self.key.is_none() {
            self.key = Some(self.waits.begin());
        }
    }

    fn end(&mut self) {
        if let Some(key) = self.key.take() {
            self.waits.end(key);
        }
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.end();
    }
}

/// The routes as the service of one connection.
pub(super) fn service(
    routes: Router,
    waits: Arc<ClientWaits>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<AnswerBody>,
    Error = Infallible,
    Future: Send + 'static,
> {
    let routes = TowerToHyperService::new(routes);
    service_fn(move |request: Request<Incoming>| {
        let open = OpenRequest::new(&waits);
        let wait = ClientWait::new(&waits);
        let answered = routes.call(request.map(|body| RequestBody { body, wait }));
        async move { Ok(answered.await?.map(|body| AnswerBody::new(body, open))) }
    })
}

/// The body of a request, whose client owes bytes while the server wants some.
struct RequestBody {
    body: Incoming,
    wait: ClientWait,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() {
            self.wait.begin();
        } else {
            self.wait.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, whose client owes room until the connection asks for more.
pub(super) struct AnswerBody {
    body: axum::body::Body,
    /// Bytes of the body that the connection has not got yet.
    rest: Bytes,
    wait: ClientWait,
    _open: OpenRequest,
}

impl AnswerBody {
    fn new(body: axum::body::Body, open: OpenRequest) -> Self {
        let mut wait = ClientWait::new(&open.0);
        if !body.is_end_stream() {
            wait.begin();
        }
        AnswerBody { body, rest: Bytes::new(), wait, _open: open }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.wait.end();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(trailers) => {
                        self.wait.begin();
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        // The last bytes are owed, too: the connection drops the body when it has room for them.
        self.wait.begin();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.saturating_add(body.lower()));
        if let Some(most) = body.upper() {
            hint.set_upper(rest.saturating_add(most));
        }
        hint
    }
}
