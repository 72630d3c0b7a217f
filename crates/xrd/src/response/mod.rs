//! Responses: each a type of its own, with its decoder beside its encoder.
//!
//! ```text
//! 0        2        4          8
//! | stream | status | length   | body[length] ..
//! ```
//!
//! 1. The body of an ok response has no type on the wire: the request determines whether it is a type that
//!    implements [`Answer`], or plain data.
//! 2. Texts are written with a zero byte at their end, except for lines of configuration; it may be missing when read.
//! 3. The data of a status response follow its body, and the header's length does not count them.
//!
//! `deferred` and `status` hold responses that are not ok; each other module the answers to one family of requests.
//! Source: "The XRootD Protocol" 5.1.1, section 2, "Responses", and section 4.

mod deferred;
mod dirlist;
mod fattr;
mod locate;
mod open;
pub mod query;
mod session;
mod stat;
mod status;

use bytes::Bytes;

use crate::codes::{ErrorCode, StatusCode};
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::wire::{Reader, Writer, text_of};

pub use deferred::{Attention, Redirect, Wait};
pub use dirlist::{DirectoryEntry, DirectoryList, EntryChecksum};
pub use fattr::{AttributeList, AttributeOutcome, AttributeOutcomes};
pub use locate::{Access, LocatedKind, LocatedServer, decode_locate_answer, encode_locate_answer};
pub use open::{CheckpointAnswer, FileCompression, OpenAnswer};
pub use session::{BindAnswer, LoginAnswer, ProtocolAnswer, SecurityLevel, Signing};
pub use stat::{SpaceLine, StatExtension, StatLine};
pub use status::{Corrections, Status, StatusKind};
pub(crate) use status::{STATUS_BODY_BYTES, status_data_bytes};

/// Bytes of a response's header.
pub const RESPONSE_HEADER_BYTES: usize = 8;

/// A response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The stream id of the request.
    pub stream: StreamId,
    /// The status.
    pub status: StatusCode,
    /// Bytes of the body; at most 2^31 - 1.
    pub length: u32,
}

impl ResponseHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the length is negative: message boundaries are lost, and so is the connection.
    pub fn decode(bytes: &[u8; RESPONSE_HEADER_BYTES]) -> Result<Self> {
        let mut reader = Reader::new("response header", bytes, 0);
        let stream = StreamId(reader.array()?);
        Ok(ResponseHeader { stream, status: StatusCode(reader.u16()?), length: reader.length()? })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; RESPONSE_HEADER_BYTES] {
        let mut bytes = [0; RESPONSE_HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.status.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The body of an ok response to one kind of request.
pub trait Answer: Sized {
    /// Decodes the body of an ok response, its parts joined.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the body is invalid; [`Error::TooLong`] if a list or text is too long.
    fn decode(body: &Bytes) -> Result<Self>;

    /// Encodes the body of an ok response.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::TooLong`] if the protocol cannot express the answer.
    fn encode(&self) -> Result<Vec<u8>>;
}

/// Any response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The whole answer or its last part: an encoded [`Answer`], or plain data.
    Ok(Bytes),
    /// A part of the answer; more follow on the same stream.
    OkSoFar(Bytes),
    /// An unsolicited message, or a delayed answer.
    Attn(Attention),
    /// Authentication continues, with this message of the security protocol.
    AuthMore(Bytes),
    /// The request failed.
    Error(Failure),
    /// Ask another server.
    Redirect(Redirect),
    /// Ask again later.
    Wait(Wait),
    /// The answer arrives as [`Attention::Response`], in about this many seconds. The text that some servers append is
    /// ignored.
    WaitResp(u32),
    /// An answer with a checksum; its data follow.
    Status(Status),
}

impl Response {
    /// The response's status.
    pub fn status(&self) -> StatusCode {
        match self {
            Response::Ok(_) => StatusCode::OK,
            Response::OkSoFar(_) => StatusCode::OK_SO_FAR,
            Response::Attn(_) => StatusCode::ATTN,
            Response::AuthMore(_) => StatusCode::AUTH_MORE,
            Response::Error(_) => StatusCode::ERROR,
            Response::Redirect(_) => StatusCode::REDIRECT,
            Response::Wait(_) => StatusCode::WAIT,
            Response::WaitResp(_) => StatusCode::WAIT_RESP,
            Response::Status(_) => StatusCode::STATUS,
        }
    }

    /// Decodes a response from its header and body, without the data of a status response.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the status is unknown or the body does not fit it.
    pub fn decode(header: &ResponseHeader, body: &Bytes) -> Result<Response> {
        Ok(match header.status {
            StatusCode::OK => Response::Ok(body.clone()),
            StatusCode::OK_SO_FAR => Response::OkSoFar(body.clone()),
            StatusCode::ATTN => Response::Attn(Attention::decode(body)?),
            StatusCode::AUTH_MORE => Response::AuthMore(body.clone()),
            StatusCode::ERROR => Response::Error(Failure::decode(body)?),
            StatusCode::REDIRECT => Response::Redirect(Redirect::decode(body)?),
            StatusCode::WAIT => Response::Wait(Wait::decode(body)?),
            StatusCode::WAIT_RESP => {
                Response::WaitResp(Reader::new("waitresp", body, RESPONSE_HEADER_BYTES).length()?)
            }
            StatusCode::STATUS => Response::Status(Status::decode(header.stream, body)?),
            other => {
                let reason = format!("unknown status {}", other.0);
                return Err(Error::malformed("response header", 2, reason));
            }
        })
    }

    /// Appends the encoded response to `out`. The caller sends the data of a status response behind it.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::TooLong`] if the protocol cannot express the response; `out` is then unchanged.
    pub fn encode(&self, stream: StreamId, out: &mut Vec<u8>) -> Result<()> {
        let body = self.encode_body(stream)?;
        let Some(length) = u32::try_from(body.len()).ok().filter(|&length| length >> 31 == 0)
        else {
            return Err(Error::too_many_bytes("response body", body.len(), i32::MAX as usize));
        };
        let header = ResponseHeader { stream, status: self.status(), length };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&body);
        Ok(())
    }

    fn encode_body(&self, stream: StreamId) -> Result<Bytes> {
        Ok(match self {
            Response::Ok(body) | Response::OkSoFar(body) | Response::AuthMore(body) => body.clone(),
            Response::Attn(attention) => attention.encode()?.into(),
            Response::Error(failure) => failure.encode()?.into(),
            Response::Redirect(redirect) => redirect.encode()?.into(),
            Response::Wait(wait) => wait.encode()?.into(),
            Response::WaitResp(seconds) => {
                let mut body = Writer::default();
                body.length(*seconds);
                body.finish()?.into()
            }
            Response::Status(status) => status.encode(stream)?.into(),
        })
    }
}

/// Why a request failed: code and text. Section 2, kXR_error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error code.
    pub code: ErrorCode,
    /// A text for users; ends at the first zero byte.
    pub message: String,
}

impl Failure {
    /// A failure of this code, with this text.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }

    fn decode(body: &Bytes) -> Result<Self> {
        let mut reader = Reader::new("error", body, RESPONSE_HEADER_BYTES);
        Ok(Failure { code: ErrorCode(reader.u32()?), message: text_of(reader.rest()) })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.u32(self.code.0).zero_ended(self.message.as_bytes());
        body.finish()
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}
