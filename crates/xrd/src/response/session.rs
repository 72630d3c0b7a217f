//! Answers to protocol, login and bind.
//!
//! ```text
//! protocol  version u32  flags u32  [B zero length u16 text[length]]  [S zero ver opt level n pair[2] * n]
//! login     session[16]  [security text]
//! bind      path u8
//! ```
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_protocol, kXR_login, kXR_bind.

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES};
use crate::error::{Error, Result};
use crate::flags::ServerFlags;
use crate::ids::{PathId, SessionId};
use crate::version::ProtocolVersion;
use crate::wire::{Reader, Writer, shared, text_of};

/// The server's features and requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolAnswer {
    /// The server's version of the protocol.
    pub version: ProtocolVersion,
    /// Role, features and requirements.
    pub flags: ServerFlags,
    /// The interfaces to bind streams to, padded with zeros; only if the client requested them.
    pub bind_interfaces: Option<Bytes>,
    /// The signing requirements; only if the client requested them.
    pub signing: Option<Signing>,
}

/// Which requests must be signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signing {
    /// The version of signing; zero.
    pub version: u8,
    /// 1: data are signed, too. 2: also if the client cannot sign.
    pub options: u8,
    /// The security level.
    pub level: SecurityLevel,
    /// Exceptions from the level: the index of a request (its code minus 3000), and 0 for not signed, 1 for signed if
    /// it modifies data, 2 for signed.
    pub exceptions: Vec<(u8, u8)>,
}

/// The security level: signs 0 no requests, 1 destructive ones, 2 modifying ones, 3 nearly all, 4 all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecurityLevel(pub u8);

impl Answer for ProtocolAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("protocol answer", body, RESPONSE_HEADER_BYTES);
        let mut answer = ProtocolAnswer {
            version: ProtocolVersion(reader.u32()?),
            flags: ServerFlags(reader.u32()?),
            ..Default::default()
        };
        while reader.remaining() > 0 {
            match reader.u8()? {
                b'B' => answer.bind_interfaces = Some(decode_interfaces(reader, body)?),
                b'S' => answer.signing = Some(Signing::decode(reader)?),
                // Additions of later versions have no known length.
                _ => break,
            }
        }
        Ok(answer)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.u32(self.version.0).u32(self.flags.0);
        if let Some(interfaces) = &self.bind_interfaces {
            let length = u16::try_from(interfaces.len()).unwrap_or_else(|_| {
                let limit = usize::from(u16::MAX);
                body.fail(Error::too_many_bytes("list of interfaces", interfaces.len(), limit));
                0
            });
            body.u8(b'B').u8(0).u16(length).raw(interfaces);
        }
        if let Some(signing) = &self.signing {
            signing.encode(&mut body);
        }
        body.finish()
    }
}

fn decode_interfaces(reader: &mut Reader<'_>, body: &Bytes) -> Result<Bytes> {
    reader.u8()?;
    let length = usize::from(reader.u16()?);
    reader.take(length).map(|interfaces| shared(body, interfaces))
}

impl Signing {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u8()?;
        let (version, options, level) = (reader.u8()?, reader.u8()?, SecurityLevel(reader.u8()?));
        let count = reader.u8()?;
        let exceptions =
            (0..count).map(|_| Ok((reader.u8()?, reader.u8()?))).collect::<Result<_>>()?;
        Ok(Signing { version, options, level, exceptions })
    }

    fn encode(&self, body: &mut Writer) {
        let count = u8::try_from(self.exceptions.len()).unwrap_or_else(|_| {
            body.fail(Error::too_many_items("list of signing", self.exceptions.len(), 255));
            0
        });
        body.u8(b'S').u8(0).u8(self.version).u8(self.options).u8(self.level.0).u8(count);
        for (index, requirement) in &self.exceptions {
            body.u8(*index).u8(*requirement);
        }
    }
}

/// The session, and the security protocols for authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAnswer {
    /// The session's id.
    pub session: SessionId,
    /// The security protocols that the server accepts, the preferred one first: `&P=ztn,0:4096:&P=unix`.
    /// Empty if no authentication is needed.
    pub security: String,
}

impl LoginAnswer {
    /// Each security protocol with its parameters: `("ztn", "0:4096:")`.
    pub fn security_protocols(&self) -> impl Iterator<Item = (&str, &str)> {
        self.security
            .split("&P=")
            .filter(|protocol| !protocol.is_empty())
            .map(|protocol| protocol.split_once(',').unwrap_or((protocol, "")))
    }
}

impl Answer for LoginAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("login answer", body, RESPONSE_HEADER_BYTES);
        Ok(LoginAnswer { session: SessionId(reader.array()?), security: text_of(reader.rest()) })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.raw(&self.session.0);
        if !self.security.is_empty() {
            body.zero_ended(self.security.as_bytes());
        }
        body.finish()
    }
}

/// The connection's stream within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAnswer {
    /// 1 to 15.
    pub path: PathId,
}

impl Answer for BindAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("bind answer", body, RESPONSE_HEADER_BYTES);
        let path = PathId(reader.u8()?);
        reader.end().map(|()| BindAnswer { path })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        Ok(vec![self.path.0])
    }
}
