//! The first bytes of a connection, by which both sides recognise the protocol.
//!
//! ```text
//! client  0 0 0 4 2012                                  five numbers of 32 bits
//! server  stream 0, status ok, length 8, version, role  as any response
//! ```
//!
//! Clients since version 4 send the handshake and a protocol request in one piece of 44 bytes, and expect two
//! responses. Source: "The XRootD Protocol" 5.1.1, section 2, "Handshaking".

use crate::codes::StatusCode;
use crate::error::Result;
use crate::ids::StreamId;
use crate::response::{RESPONSE_HEADER_BYTES, ResponseHeader};
use crate::version::ProtocolVersion;
use crate::wire::Reader;

/// Bytes of the client's handshake.
pub const HANDSHAKE_BYTES: usize = 20;

/// Bytes of the server's answer to the handshake, with its header.
pub const HANDSHAKE_ANSWER_BYTES: usize = RESPONSE_HEADER_BYTES + 8;

/// The client's handshake.
pub const HANDSHAKE: [u8; HANDSHAKE_BYTES] =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

/// The server's answer to the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeAnswer {
    /// The protocol's version.
    pub version: ProtocolVersion,
    /// Whether the server has files; a manager redirects to servers that have.
    pub data_server: bool,
}

impl HandshakeAnswer {
    /// The answer's bytes, with their header.
    pub fn encode(&self) -> [u8; HANDSHAKE_ANSWER_BYTES] {
        let mut bytes = [0; HANDSHAKE_ANSWER_BYTES];
        let header =
            ResponseHeader { stream: StreamId::default(), status: StatusCode::OK, length: 8 };
        bytes[..8].copy_from_slice(&header.encode());
        bytes[8..12].copy_from_slice(&self.version.0.to_be_bytes());
        bytes[12..].copy_from_slice(&u32::from(self.data_server).to_be_bytes());
        bytes
    }

    /// Decodes the body of the first response.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`] if it does not have eight bytes.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("handshake answer", body, RESPONSE_HEADER_BYTES);
        let version = ProtocolVersion(reader.u32()?);
        let data_server = reader.u32()? == 1;
        reader.end()?;
        Ok(HandshakeAnswer { version, data_server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_bytes_of_the_reference() {
        let answer = HandshakeAnswer { version: ProtocolVersion::CURRENT, data_server: true };
        let bytes = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1];
        assert_eq!(answer.encode(), bytes);
        assert_eq!(HandshakeAnswer::decode(&bytes[8..]), Ok(answer));
    }
}
