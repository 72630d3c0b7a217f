//! The loop of a connection: it receives requests, hands each to its family, and cleans up when the client has
//! disconnected.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use xrd::request::{Chkpoint, Request};
use xrd::response::Response;
use xrd::segment::Segment;
use xrd::{
    ErrorCode, Failure, HandshakeAnswer, ProtocolVersion, ReceivedRequest, RequestCode,
    RequestEvent, StreamId,
};

use super::connection::{Event, RootConnection, Stage};
use super::handler::{RequestHandler, file_of};
use super::open::abandon;
use super::read::AHEAD_BYTES;
use super::redirects::RedirectableRequest;
use super::responses::failed;
use super::transfer::{Delegated, DelegatedWork};
use crate::protocol::buffers::PooledBuffer;

impl RootConnection {
    /// Serves the client until it disconnects.
    pub(super) async fn run(&mut self) -> io::Result<()> {
        loop {
            match poll_fn(|context| self.poll_event(context)).await? {
                Event::Received(buffer) if buffer.filled().is_empty() => return Ok(()),
                Event::Received(buffer) => {
                    let input = self.detach(buffer);
                    self.on_received(input).await?;
                    self.write_budget.release_buffers();
                }
                Event::Delayed(delayed) => self.answer_delayed(delayed).await?,
                Event::Delegated(Delegated { stream, work: DelegatedWork::Read(read) }) => {
                    self.perform(stream, read).await?;
                }
                Event::Delegated(Delegated {
                    stream,
                    work: DelegatedWork::Write(incoming, bytes),
                }) => {
                    self.framer.expect_data(stream, bytes);
                    self.incoming = Some(*incoming);
                }
                Event::Ended => return self.flush().await,
            }
            self.flush().await?;
        }
    }

    /// The received bytes. Requests are copied, so that their buffer is free while they are handled.
    fn detach(&self, buffer: PooledBuffer) -> Bytes {
        if self.incoming.is_some() {
            Bytes::from_owner(buffer)
        } else {
            Bytes::copy_from_slice(buffer.filled())
        }
    }

    async fn on_received(&mut self, mut input: Bytes) -> io::Result<()> {
        self.expects_data = false;
        if let Some(session) = self.session() {
            session.count_received(input.len() as u64);
        }
        let mut is_announced = false;
        loop {
            match self.framer.next(&mut input) {
                Ok(None) => return Ok(()),
                Ok(Some(RequestEvent::Handshake)) => {
                    let data_server = self.service.logical.redirector.is_none();
                    let answer = HandshakeAnswer { version: ProtocolVersion::CURRENT, data_server };
                    self.push(&answer.encode()).await?;
                }
                Ok(Some(RequestEvent::Request(request))) => {
                    if !is_announced && self.reads_elsewhere(&request) {
                        self.announce_arrived(input.clone());
                        is_announced = true;
                    }
                    self.on_request(request).await?;
                }
                Ok(Some(RequestEvent::Data { bytes, remaining, .. })) => {
                    self.on_data(bytes, remaining).await?;
                    if remaining == 0 {
                        // Requests after the data need neither its buffer nor its permits.
                        self.write_budget.release();
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
                return Err(io::Error::other("bytes arrived before the stream was bound"));
            }
        }
    }

    /// Whether a request reads a file on another machine.
    fn reads_elsewhere(&self, received: &ReceivedRequest) -> bool {
        let Some(session) = self.session() else { return false };
        let first = segments_of(received).first();
        first.is_some_and(|first| file_of(session, first.handle).is_ok_and(|file| file.is_remote))
    }

    /// Announces the ranges, in files on other machines, of reads that have arrived together with another one. They are
    /// answered one after the other, but wait together.
    fn announce_arrived(&self, mut input: Bytes) {
        let Some(session) = self.session() else { return };
        let (mut framer, mut left) = (self.framer.clone(), AHEAD_BYTES);
        while left > 0
            && let Ok(Some(RequestEvent::Request(received))) = framer.next(&mut input)
        {
            for segment in segments_of(&received) {
                let length = u64::from(segment.length).min(left);
                if let Ok(file) = file_of(session, segment.handle)
                    && let Some(interface) = file.file.ready().filter(|_| file.is_remote)
                {
                    interface.will_need(segment.offset, length);
                    left -= length;
                }
            }
        }
    }

    async fn begin_tls(&mut self, left: &Bytes) -> io::Result<()> {
        self.begins_tls = false;
        if !left.is_empty() {
            // An attacker on the network may have injected them, so that they are taken for encrypted ones.
            return Err(io::Error::other("bytes arrived before TLS was agreed on"));
        }
        self.flush().await?;
        match self.service.tls.clone() {
            Some(config) => Box::pin(self.socket.encrypt(config)).await,
            None => Ok(()),
        }
    }

    async fn on_request(&mut self, received: ReceivedRequest) -> io::Result<()> {
        let stream = received.header.stream;
        self.incoming = None;
        let request = match received.request {
            Ok(request) => request,
            Err(error) => {
                let response = refusal(received.header.code, &error);
                if received.header.data_elsewhere() {
                    // Otherwise the data on the bound stream would be taken for those of its next write.
                    return Box::pin(self.refuse_and_close(stream, response)).await;
                }
                return self.answer(stream, &response).await;
            }
        };
        let Stage::Active(session) = &self.stage else {
            return Box::pin(self.login_request(stream, request)).await;
        };
        session.count_request();
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
        let Some(handler) = self.handler() else { return Ok(()) };
        if let Some(redirector) = self.service.logical.redirector.clone()
            && let Some(redirectable) = RedirectableRequest::of(&request)
        {
            let responding = async move { handler.redirected(&redirector, redirectable).await };
            let mut responding = Box::pin(responding);
            // If the answers of servers are known already, the client is answered at once, together with other requests
            // that have arrived.
            return match (&mut responding).now_or_never() {
                Some(response) => self.answer(stream, &response).await,
                None => self.delay_response(stream, None, responding).await,
            };
        }
        let response = match request {
            Request::Query(query) => return self.query_request(stream, handler, query).await,
            Request::Dirlist(list) => return self.dirlist_request(stream, handler, list).await,
            Request::Sync(sync) => return self.sync_request(stream, handler, sync).await,
            Request::Protocol(protocol) => self.negotiate(protocol),
            Request::Endsess(end) => self.end_session(end),
            Request::Auth(auth) => self.authenticate_again(auth).await,
            Request::Bind(_) | Request::Login(_) => {
                failed(ErrorCode::INVALID_REQUEST, "this connection already has a session")
            }
            // No request has to be signed, so signatures are ignored.
            Request::Sigver(_) => return Ok(()),
            other => handler.respond(other).await,
        };
        self.answer(stream, &response).await
    }

    fn handler(&self) -> Option<RequestHandler> {
        let session = Arc::clone(self.session()?);
        let service = Arc::clone(&self.service);
        let is_encrypted = self.socket.is_encrypted();
        Some(RequestHandler { service, session, local: self.local, is_encrypted })
    }

    /// Cleans up after the client has disconnected.
    pub(super) async fn leave(mut self) {
        self.abort_delayed();
        if let Stage::Authenticating(session) | Stage::Active(session) = self.stage {
            self.service.streams.forget(&session.id);
            session.end();
            self.service.logical.sessions.remove(&session);
            abandon(Arc::clone(&self.service.logical), session).await;
        }
    }
}

/// The ranges that a request reads.
fn segments_of(received: &ReceivedRequest) -> &[Segment] {
    match &received.request {
        Ok(Request::Read(read)) => std::slice::from_ref(&read.segment),
        Ok(Request::PgRead(read)) => std::slice::from_ref(&read.segment),
        Ok(Request::ReadV(read)) => &read.segments,
        _ => &[],
    }
}

/// The response to a request that cannot be decoded.
fn refusal(code: RequestCode, error: &xrd::Error) -> Response {
    match code {
        RequestCode::GPFILE => failed(ErrorCode::UNSUPPORTED, "gpfile is not supported"),
        code if code.name().is_none() => {
            failed(ErrorCode::INVALID_REQUEST, format!("unknown request code {}", code.0))
        }
        _ => Response::Error(Failure::from(error)),
    }
}
