//! The header that every request starts with.

use crate::codes::RequestCode;
use crate::error::Result;
use crate::ids::StreamId;
use crate::wire::Reader;

/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 24;

/// Bytes of the parameters in a header.
pub(super) const PARAMETER_BYTES: usize = 16;

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The stream id, which the request's responses repeat.
    pub stream: StreamId,
    /// The kind of request.
    pub code: RequestCode,
    /// Parameters, whose meaning depends on the code.
    pub parameters: [u8; PARAMETER_BYTES],
    /// Bytes of the body; at most 2^31 - 1.
    pub length: u32,
}

impl RequestHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`] if the length is negative: message boundaries are lost, and so is the connection.
    pub fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self> {
        let mut reader = Reader::new("request header", bytes, 0);
        let stream = StreamId(reader.array()?);
        let code = RequestCode(reader.u16()?);
        Ok(RequestHeader { stream, code, parameters: reader.array()?, length: reader.length()? })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.code.0.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.parameters);
        bytes[20..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}
