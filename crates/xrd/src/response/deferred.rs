//! Responses that redirect a client, make it wait, or are unsolicited.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 2: kXR_redirect, kXR_wait, kXR_attn.

use bytes::Bytes;

use super::{RESPONSE_HEADER_BYTES, Response, ResponseHeader};
use crate::codes::{AttentionCode, StatusCode};
use crate::error::{Error, Result};
use crate::flags::ServerFlags;
use crate::ids::StreamId;
use crate::wire::{Reader, Writer, text_of};

/// The server to ask instead.
///
/// ```text
/// port i32 >= 0   host[?opaque[?token]]
/// port i32 < 0    a whole URL; the number's bits inverted are flags
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// A server.
    Host {
        /// Its port.
        port: u16,
        /// Its name or address; behind a `?`, opaque information for the path; behind a second one, opaque
        /// information for the login.
        host: String,
    },
    /// A URL; only for clients that logged in with [`crate::flags::Ability::FULL_URL`].
    Url {
        /// Flags, only for clients with [`crate::flags::Ability::REDIRECT_FLAGS`].
        flags: ServerFlags,
        /// The URL.
        url: String,
    },
}

impl Redirect {
    /// The host, the opaque information for the path, and that for the login. A URL is returned as the host.
    pub fn parts(&self) -> (&str, Option<&str>, Option<&str>) {
        let Redirect::Host { host, .. } = self else {
            return (self.text(), None, None);
        };
        let mut parts = host.splitn(3, '?');
        (parts.next().unwrap_or_default(), parts.next(), parts.next())
    }

    fn text(&self) -> &str {
        match self {
            Redirect::Host { host, .. } => host,
            Redirect::Url { url, .. } => url,
        }
    }

    pub(super) fn decode(body: &Bytes) -> Result<Self> {
        let mut reader = Reader::new("redirect", body, RESPONSE_HEADER_BYTES);
        let port = reader.i32()?;
        let text = text_of(reader.rest());
        if text.is_empty() {
            return Err(reader.malformed("must have a host"));
        }
        if port < 0 {
            let flags = ServerFlags(!port.cast_unsigned());
            return Ok(Redirect::Url { flags, url: text });
        }
        let port =
            u16::try_from(port).map_err(|_| reader.malformed(format!("invalid port {port}")))?;
        Ok(Redirect::Host { port, host: text })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        match self {
            Redirect::Host { port, .. } => body.u32(u32::from(*port)),
            Redirect::Url { flags, .. } => body.u32(!flags.0),
        };
        if matches!(self, Redirect::Url { flags, .. } if flags.0 >> 31 != 0) {
            body.fail(Error::invalid("a redirect cannot carry the topmost flag"));
        }
        if self.text().contains('\0') {
            body.fail(Error::invalid("the host of a redirect must not have a zero byte"));
        }
        body.raw(self.text().as_bytes());
        body.finish()
    }
}

/// A request to repeat the request later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The delay in seconds.
    pub seconds: u32,
    /// The reason, for users.
    pub message: String,
}

impl Wait {
    pub(super) fn decode(body: &Bytes) -> Result<Self> {
        let mut reader = Reader::new("wait", body, RESPONSE_HEADER_BYTES);
        Ok(Wait { seconds: reader.length()?, message: text_of(reader.rest()) })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.length(self.seconds).zero_ended(self.message.as_bytes());
        body.finish()
    }
}

/// An unsolicited message. Its header has stream 0.
///
/// ```text
/// code i32  zero[4]  header[8] of the delayed response  its body     asynresp
/// code i32  anything                                                 others
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attention {
    /// The delayed response to a request that was answered by waitresp.
    Response {
        /// The stream of the request.
        stream: StreamId,
        /// The response; neither an attn nor a status response.
        response: Box<Response>,
    },
    /// Anything else, such as a message for the user.
    Other {
        /// The kind of message.
        code: AttentionCode,
        /// The message.
        parameters: Bytes,
    },
}

impl Attention {
    pub(super) fn decode(body: &Bytes) -> Result<Self> {
        let mut reader = Reader::new("attn", body, RESPONSE_HEADER_BYTES);
        let code = AttentionCode(reader.u32()?);
        if code != AttentionCode::RESPONSE {
            return Ok(Attention::Other { code, parameters: body.slice(4..) });
        }
        reader.take(4)?;
        let header = ResponseHeader::decode(&reader.array()?)?;
        if matches!(header.status, StatusCode::ATTN | StatusCode::STATUS) {
            let reason = format!("a {} response cannot be delayed", header.status);
            return Err(reader.malformed(reason));
        }
        if header.length as usize != reader.remaining() {
            let (stated, there) = (header.length, reader.remaining());
            return Err(reader.malformed(format!("announced {stated} bytes, found {there}")));
        }
        let inner = body.slice(body.len() - reader.remaining()..);
        let response = Box::new(Response::decode(&header, &inner)?);
        Ok(Attention::Response { stream: header.stream, response })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        match self {
            Attention::Other { code, parameters } => body.u32(code.0).raw(parameters),
            Attention::Response { stream, response } => {
                if matches!(**response, Response::Attn(_) | Response::Status(_)) {
                    let status = response.status();
                    body.fail(Error::invalid(format!("a {status} response cannot be delayed")));
                    return body.finish();
                }
                let mut inner = Vec::new();
                response.encode(*stream, &mut inner)?;
                body.u32(AttentionCode::RESPONSE.0).zeros(4).raw(&inner)
            }
        };
        body.finish()
    }
}
