//! Joins partial responses to whole answers, and matches delayed answers to their requests.
//!
//! 1. Partial responses of different streams may interleave; those of one stream arrive in order.
//! 2. A response that ends a request without an answer (error, redirect, wait) discards its earlier parts.
//! 3. All stored parts together take at most the limit.

use std::collections::HashMap;

use bytes::Bytes;

use super::response::ReceivedResponse;
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::limits::JOINED_BYTES_MAX;
use crate::response::{Attention, Response, Status, StatusKind};

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A response; [`Response::Ok`] has the whole answer.
    Response(Response),
    /// All parts of the answer to a pgread, or the single one of a pgwrite.
    Pages(Vec<Pages>),
}

/// One part of the answer to a pgread or pgwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The status, with the offset of the data.
    pub status: Status,
    /// [Pages](crate::page), or [`crate::response::Corrections`].
    pub data: Bytes,
}

/// Joins the answers of one connection.
///
/// ```
/// use bytes::Bytes;
/// use xrd::{AnswerJoiner, Joined, Response, ResponseEvent, ResponseFramer, StreamId};
///
/// let (stream, mut bytes) = (StreamId([0, 7]), Vec::new());
/// Response::OkSoFar("one ".into()).encode(stream, &mut bytes)?;
/// Response::Ok("answer".into()).encode(stream, &mut bytes)?;
///
/// let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
/// let mut input = Bytes::from(bytes);
/// let mut joined = Vec::new();
/// while let Some(ResponseEvent::Response(received)) = framer.next(&mut input)? {
///     joined.extend(answers.push(received)?);
/// }
/// assert_eq!(joined, [(stream, Joined::Response(Response::Ok("one answer".into())))]);
/// # Ok::<(), xrd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnswerJoiner {
    parts: HashMap<StreamId, PartialAnswer>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Clone, Debug, Default)]
struct PartialAnswer {
    plain: Vec<u8>,
    pages: Vec<Pages>,
    bytes: usize,
}

impl Default for AnswerJoiner {
    fn default() -> Self {
        AnswerJoiner::new()
    }
}

impl AnswerJoiner {
    /// A joiner for a new connection.
    pub fn new() -> Self {
        AnswerJoiner { parts: HashMap::new(), bytes: 0, bytes_max: JOINED_BYTES_MAX }
    }

    /// Limits the bytes of all stored parts together.
    pub fn set_bytes_max(&mut self, limit: usize) {
        self.bytes_max = limit;
    }

    /// Takes a response. Returns the result of its request, unless more parts follow. An unsolicited message has
    /// stream 0.
    ///
    /// # Errors
    /// The error of the response, or [`Error::TooLong`] if the stored parts exceed the limit; the parts of its
    /// stream are then discarded.
    pub fn push(&mut self, received: ReceivedResponse) -> Result<Option<(StreamId, Joined)>> {
        let stream = received.header.stream;
        let response = received.response.inspect_err(|_| self.forget(stream))?;
        match response {
            Response::Status(status) => {
                let pages = Pages { status, data: received.data };
                Ok(self.push_pages(stream, pages)?.map(|joined| (stream, joined)))
            }
            Response::Attn(Attention::Response { stream, response }) => {
                Ok(self.push_plain(stream, *response)?.map(|joined| (stream, joined)))
            }
            other => Ok(self.push_plain(stream, other)?.map(|joined| (stream, joined))),
        }
    }

    /// Discards the parts of an abandoned request.
    pub fn forget(&mut self, stream: StreamId) {
        self.take(stream);
    }

    fn push_plain(&mut self, stream: StreamId, response: Response) -> Result<Option<Joined>> {
        match response {
            Response::OkSoFar(part) => {
                self.hold(stream, part.len())?.plain.extend_from_slice(&part);
                Ok(None)
            }
            Response::Ok(part) => {
                let joined = self.join(stream, part)?;
                Ok(Some(Joined::Response(Response::Ok(joined))))
            }
            Response::Attn(_) | Response::WaitResp(_) => Ok(Some(Joined::Response(response))),
            ended => {
                self.forget(stream);
                Ok(Some(Joined::Response(ended)))
            }
        }
    }

    fn join(&mut self, stream: StreamId, last: Bytes) -> Result<Bytes> {
        if !self.parts.contains_key(&stream) {
            return Ok(last);
        }
        self.hold(stream, last.len())?.plain.extend_from_slice(&last);
        Ok(self.take(stream).plain.into())
    }

    fn push_pages(&mut self, stream: StreamId, pages: Pages) -> Result<Option<Joined>> {
        let kind = pages.status.kind;
        if kind == StatusKind::PROGRESS {
            return Ok(None);
        }
        let bytes = pages.data.len() + size_of::<Pages>();
        self.hold(stream, bytes)?.pages.push(pages);
        Ok((kind == StatusKind::FINAL).then(|| Joined::Pages(self.take(stream).pages)))
    }

    /// The parts of a stream, to which the caller adds `bytes` bytes.
    fn hold(&mut self, stream: StreamId, bytes: usize) -> Result<&mut PartialAnswer> {
        let together = self.bytes + bytes;
        if together > self.bytes_max {
            self.forget(stream);
            return Err(Error::too_many_bytes("joined answers", together, self.bytes_max));
        }
        self.bytes = together;
        let parts = self.parts.entry(stream).or_default();
        parts.bytes += bytes;
        Ok(parts)
    }

    fn take(&mut self, stream: StreamId) -> PartialAnswer {
        let parts = self.parts.remove(&stream).unwrap_or_default();
        self.bytes -= parts.bytes;
        parts
    }
}
