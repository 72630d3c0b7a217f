//! Answers joined from their parts, and delayed answers from what announces them.
//!
//! 1. PartialAnswer of answers on different streams may come in any order; those of one stream come in
//!    theirs.
//! 2. Whatever ends a request without an answer (an error, a redirect, a wait) drops its parts.
//! 3. All parts that are held take at most the limit together.

use std::collections::HashMap;

use bytes::Bytes;

use super::response::ReceivedResponse;
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::limits::JOINED_BYTES_MAX;
use crate::response::{Attention, Response, Status, StatusKind};

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A response; an ok one has all parts of the answer.
    Response(Response),
    /// All parts of the answer to a pgread, or the one of a pgwrite.
    Pages(Vec<Pages>),
}

/// One part of the answer to a pgread or pgwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Where its data start.
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
    /// For a new connection.
    pub fn new() -> Self {
        AnswerJoiner { parts: HashMap::new(), bytes: 0, bytes_max: JOINED_BYTES_MAX }
    }

    /// Makes all parts that are held together have at most so many bytes.
    pub fn set_bytes_max(&mut self, limit: usize) {
        self.bytes_max = limit;
    }

    /// Takes a response; tells what its request came to, if it is not a part of more to come. What
    /// nobody asked for is told with the stream 0.
    ///
    /// # Errors
    /// What was wrong with the response, or [`Error::TooLong`] if the parts are too many; then
    /// those of its stream are dropped.
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

    /// Drops the parts of a request that nobody waits for any more.
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

    /// The parts of a stream, which will get so many bytes more.
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
