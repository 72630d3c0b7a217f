//! The server's side: the handshake, requests, and the data that follow writes.
//!
//! ```text
//! handshake -> header -> body -> [list] -> data ..-> header
//!                     -> skipped body --------------> header
//! ```

use bytes::Bytes;

use super::gather::Gather;
use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::handshake::{HANDSHAKE, HANDSHAKE_BYTES};
use crate::ids::StreamId;
use crate::limits::{SKIPPED_BODY_BYTES_MAX, request_body_bytes_max};
use crate::request::{
    REQUEST_HEADER_BYTES, Request, RequestHeader, data_behind, inner_header, is_execute,
};

/// An event in a client's stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// The handshake, always the first event.
    Handshake,
    /// A request.
    Request(ReceivedRequest),
    /// Data of the previous request: a write, pgwrite or writev, also within a checkpoint. They follow invalid
    /// requests, too; a server that rejects the request ignores them. If the request names a bound stream, they
    /// arrive there ([`RequestFramer::expect_data`]).
    Data {
        /// The stream of their request.
        stream: StreamId,
        /// The data; never empty.
        bytes: Bytes,
        /// The missing bytes of data.
        remaining: u64,
    },
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The header, whose bytes a signature covers.
    pub header: RequestHeader,
    /// The body without data; empty if it was too long.
    pub body: Bytes,
    /// The request, or the reason to reject it.
    pub request: Result<Request>,
}

/// Splits a client's bytes into requests and data.
#[derive(Clone, Debug)]
pub struct RequestFramer {
    state: State,
    body_bytes_max: usize,
    stream: StreamId,
}

#[derive(Clone, Debug)]
enum State {
    Handshake(Gather),
    Header(Gather),
    Body(RequestHeader, Gather),
    Skip(usize),
    Data(u64),
    Lost(Error),
}

impl State {
    fn header() -> State {
        State::Header(Gather::new(REQUEST_HEADER_BYTES))
    }

    fn after_request(data_bytes: u64) -> State {
        match data_bytes {
            0 => State::header(),
            left => State::Data(left),
        }
    }
}

impl Default for RequestFramer {
    fn default() -> Self {
        RequestFramer::new()
    }
}

impl RequestFramer {
    /// A framer for a new connection.
    pub fn new() -> Self {
        let state = State::Handshake(Gather::new(HANDSHAKE_BYTES));
        RequestFramer { state, body_bytes_max: usize::MAX, stream: StreamId::default() }
    }

    /// A framer for a connection whose handshake was consumed already, for example to detect the protocol.
    pub fn after_handshake() -> Self {
        RequestFramer { state: State::header(), ..RequestFramer::new() }
    }

    /// Limits bodies of later requests further than [`request_body_bytes_max`], for clients that are not
    /// authenticated.
    pub fn set_body_bytes_max(&mut self, limit: usize) {
        self.body_bytes_max = limit;
    }

    /// The stream of the last header, for an error response before the connection is closed.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// The missing data bytes of the last request. Once all input is consumed, the caller may read them from the
    /// socket itself and report them by [`RequestFramer::data_taken`].
    pub fn data_remaining(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Interprets the next bytes as data of a request on another connection of the session.
    ///
    /// # Panics
    /// If a request or its data have arrived in part.
    pub fn expect_data(&mut self, stream: StreamId, count: u64) {
        let is_between = matches!(&self.state, State::Header(gather) if gather.is_empty());
        assert!(is_between, "data are expected within a request");
        self.stream = stream;
        self.state = State::after_request(count);
    }

    /// Counts data that the caller read itself, straight into a buffer or file.
    ///
    /// # Panics
    /// If they exceed [`RequestFramer::data_remaining`].
    pub fn data_taken(&mut self, count: u64) {
        let remaining = self.data_remaining();
        assert!(count <= remaining, "{count} bytes of data taken, but only {remaining} are due");
        if count > 0 {
            self.state = State::after_request(remaining - count);
        }
    }

    /// The next event; `None` if all input is consumed and more is needed.
    ///
    /// # Errors
    /// [`Error::Malformed`] or [`Error::TooLong`] if message boundaries are lost.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<RequestEvent>> {
        let event = self.step(input);
        if let Err(error) = &event {
            self.state = State::Lost(error.clone());
        }
        event
    }

    fn step(&mut self, input: &mut Bytes) -> Result<Option<RequestEvent>> {
        loop {
            match &mut self.state {
                State::Handshake(gather) => {
                    let Some(bytes) = gather.take(input) else { return Ok(None) };
                    check_handshake(&bytes)?;
                    self.state = State::header();
                    return Ok(Some(RequestEvent::Handshake));
                }
                State::Header(gather) => {
                    let Some(bytes) = gather.take_array(input) else { return Ok(None) };
                    let header = RequestHeader::decode(&bytes)?;
                    self.stream = header.stream;
                    if let Some(event) = self.begin(header)? {
                        return Ok(Some(event));
                    }
                }
                State::Body(header, gather) => {
                    let Some(body) = gather.take(input) else { return Ok(None) };
                    let header = *header;
                    if let Some(event) = self.gathered(header, body)? {
                        return Ok(Some(event));
                    }
                }
                State::Skip(left) => {
                    let skipped = input.split_to(input.len().min(*left)).len();
                    *left -= skipped;
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = State::header();
                }
                State::Data(_) if input.is_empty() => return Ok(None),
                State::Data(left) => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let bytes = input.split_to(input.len().min(most));
                    let (stream, remaining) = (self.stream, *left - bytes.len() as u64);
                    self.state = State::after_request(remaining);
                    return Ok(Some(RequestEvent::Data { stream, bytes, remaining }));
                }
                State::Lost(error) => return Err(error.clone()),
            }
        }
    }

    /// Handles a header. A write is returned at once; other requests wait for their body.
    fn begin(&mut self, header: RequestHeader) -> Result<Option<RequestEvent>> {
        if matches!(header.code, RequestCode::WRITE | RequestCode::PG_WRITE) {
            self.state = State::after_request(data_behind(&header));
            let request = Request::decode(&header, &Bytes::new());
            return Ok(Some(received(header, Bytes::new(), request)));
        }
        let (length, limit) = (header.length as usize, self.limit(header.code));
        if length <= limit {
            self.state = State::Body(header, Gather::new(length));
            return Ok(None);
        }
        let error = Error::too_many_bytes("request body", length, limit);
        if data_follow(header.code) || length > SKIPPED_BODY_BYTES_MAX {
            return Err(error);
        }
        self.state = State::Skip(length);
        Ok(Some(received(header, Bytes::new(), Err(error))))
    }

    /// Handles a body. The request is returned, unless its list is missing.
    fn gathered(&mut self, header: RequestHeader, body: Bytes) -> Result<Option<RequestEvent>> {
        if let Some(list) = self.missing_list(&header, &body)? {
            self.state = State::Body(header, Gather::after(&body, list));
            return Ok(None);
        }
        let request = Request::decode(&header, &body);
        let data_bytes = match &request {
            Ok(request) => request.data_bytes(),
            // The number of data bytes that follow is unknown.
            Err(error) if data_follow(header.code) => return Err(error.clone()),
            Err(_) => 0,
        };
        self.state = State::after_request(data_bytes);
        Ok(Some(received(header, body, request)))
    }

    /// The bytes of the list of a writev in a checkpoint, if only the inner header has arrived.
    fn missing_list(&self, header: &RequestHeader, body: &[u8]) -> Result<Option<usize>> {
        if !is_execute(header) || body.len() != REQUEST_HEADER_BYTES {
            return Ok(None);
        }
        let inner = inner_header(body)?;
        if inner.code != RequestCode::WRITE_V || inner.length == 0 {
            return Ok(None);
        }
        let (length, limit) = (inner.length as usize, self.limit(inner.code));
        if length <= limit {
            Ok(Some(length))
        } else {
            Err(Error::too_many_bytes("request body", length, limit))
        }
    }

    fn limit(&self, code: RequestCode) -> usize {
        request_body_bytes_max(code).min(self.body_bytes_max)
    }
}

/// Whether data may follow whose length only the body states.
fn data_follow(code: RequestCode) -> bool {
    matches!(code, RequestCode::WRITE_V | RequestCode::CHKPOINT)
}

fn received(header: RequestHeader, body: Bytes, request: Result<Request>) -> RequestEvent {
    RequestEvent::Request(ReceivedRequest { header, body, request })
}

fn check_handshake(bytes: &[u8]) -> Result<()> {
    match bytes.iter().zip(&HANDSHAKE).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(offset) => {
            let reason = "not an XRootD handshake";
            Err(Error::malformed("handshake", offset, reason))
        }
    }
}
