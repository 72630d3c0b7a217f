//! The client's side: responses, gathered, or with their data streamed as they arrive.
//!
//! ```text
//! header -> body -> [data of a status response] -> header
//!        -> streamed data ..---------------------> header
//! ```

use std::collections::HashSet;

use bytes::Bytes;

use super::gather::Gather;
use crate::codes::StatusCode;
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::limits::RESPONSE_BODY_BYTES_MAX;
use crate::response::{
    RESPONSE_HEADER_BYTES, Response, ResponseHeader, STATUS_BODY_BYTES, status_data_bytes,
};

/// An event in a server's stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseEvent {
    /// A response.
    Response(ReceivedResponse),
    /// Streamed data of the previous response.
    Data {
        /// The stream of their request.
        stream: StreamId,
        /// The data; never empty.
        bytes: Bytes,
        /// The missing bytes of data before the next response.
        remaining: u32,
    },
}

/// A received response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedResponse {
    /// The header.
    pub header: ResponseHeader,
    /// The response, or the error in it. If its data are streamed, ok and oksofar are empty.
    pub response: Result<Response>,
    /// The data of a status response; empty if they are streamed.
    pub data: Bytes,
    /// Bytes that follow as [`ResponseEvent::Data`].
    pub streamed_bytes: u32,
}

/// Splits a server's bytes into responses and data.
#[derive(Clone, Debug)]
pub struct ResponseFramer {
    state: State,
    body_bytes_max: usize,
    streamed_bytes: HashSet<StreamId>,
    streams_all: bool,
}

#[derive(Clone, Debug)]
enum State {
    Header(Gather),
    Body(ResponseHeader, Gather),
    StatusData(ResponseHeader, Result<Response>, Gather),
    Data(StreamId, u32),
    Lost(Error),
}

impl State {
    fn header() -> State {
        State::Header(Gather::new(RESPONSE_HEADER_BYTES))
    }

    fn handing_out(stream: StreamId, left: u32) -> State {
        match left {
            0 => State::header(),
            left => State::Data(stream, left),
        }
    }
}

impl Default for ResponseFramer {
    fn default() -> Self {
        ResponseFramer::new()
    }
}

impl ResponseFramer {
    /// A framer for a new connection. The answer to the handshake is its first response.
    pub fn new() -> Self {
        ResponseFramer {
            state: State::header(),
            body_bytes_max: RESPONSE_BODY_BYTES_MAX,
            streamed_bytes: HashSet::new(),
            streams_all: false,
        }
    }

    /// Limits the bytes of a gathered body and of gathered data.
    pub fn set_body_bytes_max(&mut self, limit: usize) {
        self.body_bytes_max = limit;
    }

    /// From the next response on: streams the data of ok, oksofar and status responses on this stream.
    #[cfg(any(test, feature = "testing"))]
    pub fn stream_data_of(&mut self, stream: StreamId) {
        self.streamed_bytes.insert(stream);
    }

    /// From the next response on: streams the data of ok, oksofar and status responses, on all streams. Delayed
    /// answers are gathered all the same.
    pub fn stream_all(&mut self) {
        self.streams_all = true;
    }

    /// The missing bytes of streamed data. Once all input is consumed, the caller may read them from the socket
    /// itself and report them by [`ResponseFramer::data_taken`].
    pub fn data_remaining(&self) -> u32 {
        match self.state {
            State::Data(_, left) => left,
            _ => 0,
        }
    }

    /// Counts data that the caller read itself, straight into its buffer.
    ///
    /// # Panics
    /// If they exceed [`ResponseFramer::data_remaining`].
    pub fn data_taken(&mut self, count: u32) {
        let remaining = self.data_remaining();
        assert!(count <= remaining, "{count} bytes of data taken, but only {remaining} are due");
        if let State::Data(stream, left) = self.state {
            self.state = State::handing_out(stream, left - count);
        }
    }

    /// The next event; `None` if all input is consumed and more is needed.
    ///
    /// # Errors
    /// [`Error::Malformed`] if message boundaries are lost; [`Error::TooLong`] if a response exceeds the limit.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<ResponseEvent>> {
        let event = self.step(input);
        if let Err(error) = &event {
            self.state = State::Lost(error.clone());
        }
        event
    }

    fn step(&mut self, input: &mut Bytes) -> Result<Option<ResponseEvent>> {
        loop {
            match &mut self.state {
                State::Header(gather) => {
                    let Some(bytes) = gather.take_array(input) else { return Ok(None) };
                    if let Some(event) = self.begin(ResponseHeader::decode(&bytes)?)? {
                        return Ok(Some(event));
                    }
                }
                State::Body(header, gather) => {
                    let Some(body) = gather.take(input) else { return Ok(None) };
                    let header = *header;
                    if let Some(event) = self.gathered(header, &body)? {
                        return Ok(Some(event));
                    }
                }
                State::StatusData(header, response, gather) => {
                    let Some(data) = gather.take(input) else { return Ok(None) };
                    let event = received(*header, response.clone(), data, 0);
                    self.state = State::header();
                    return Ok(Some(event));
                }
                State::Data(..) if input.is_empty() => return Ok(None),
                State::Data(stream, left) => {
                    let bytes = input.split_to(input.len().min(*left as usize));
                    let (stream, remaining) = (*stream, *left - bytes.len() as u32);
                    self.state = State::handing_out(stream, remaining);
                    return Ok(Some(ResponseEvent::Data { stream, bytes, remaining }));
                }
                State::Lost(error) => return Err(error.clone()),
            }
        }
    }

    /// Handles a header. A response with streamed data is returned at once; others wait for their body.
    fn begin(&mut self, header: ResponseHeader) -> Result<Option<ResponseEvent>> {
        let plain = matches!(header.status, StatusCode::OK | StatusCode::OK_SO_FAR);
        if plain && self.streams(header.stream) {
            self.state = State::handing_out(header.stream, header.length);
            let response = Response::decode(&header, &Bytes::new());
            return Ok(Some(received(header, response, Bytes::new(), header.length)));
        }
        if header.status == StatusCode::STATUS && (header.length as usize) < STATUS_BODY_BYTES {
            let reason = format!("{} bytes are not a status", header.length);
            return Err(Error::malformed("response header", 4, reason));
        }
        self.state = State::Body(header, Gather::new(self.allowed(header.length)?));
        Ok(None)
    }

    /// Handles a body. The response is returned, unless data follow that are gathered.
    fn gathered(&mut self, header: ResponseHeader, body: &Bytes) -> Result<Option<ResponseEvent>> {
        let response = Response::decode(&header, body);
        if header.status != StatusCode::STATUS {
            self.state = State::header();
            return Ok(Some(received(header, response, Bytes::new(), 0)));
        }
        let data_bytes = status_data_bytes(body)?;
        if self.streams(header.stream) {
            self.state = State::handing_out(header.stream, data_bytes);
            return Ok(Some(received(header, response, Bytes::new(), data_bytes)));
        }
        let gather = Gather::new(self.allowed(data_bytes)?);
        self.state = State::StatusData(header, response, gather);
        Ok(None)
    }

    fn streams(&self, stream: StreamId) -> bool {
        self.streams_all || self.streamed_bytes.contains(&stream)
    }

    fn allowed(&self, length: u32) -> Result<usize> {
        match length as usize {
            length if length > self.body_bytes_max => {
                Err(Error::too_many_bytes("response", length, self.body_bytes_max))
            }
            length => Ok(length),
        }
    }
}

fn received(
    header: ResponseHeader,
    response: Result<Response>,
    data: Bytes,
    streamed_bytes: u32,
) -> ResponseEvent {
    ResponseEvent::Response(ReceivedResponse { header, response, data, streamed_bytes })
}
