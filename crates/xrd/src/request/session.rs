//! Requests that start, secure and end sessions: protocol, login, auth, bind, endsess, ping, set, sigver.

use bytes::Bytes;

use super::body::{Body, no_body};
use super::header::REQUEST_HEADER_BYTES;
use crate::codes::{Expect, RequestCode};
use crate::error::{Error, Result};
use crate::flags::{Ability, AbilityMore, ProtocolOptions, SignatureFlags};
use crate::ids::SessionId;
use crate::version::ProtocolVersion;
use crate::wire::{Reader, Writer};

/// Negotiates the protocol's version and TLS; sent with the handshake. Section 3, kXR_protocol.
///
/// Answer: [`crate::response::ProtocolAnswer`]. If both sides agree on TLS, it starts immediately after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The client's version of the protocol.
    pub version: ProtocolVersion,
    /// Options.
    pub options: ProtocolOptions,
    /// The purpose of the connection; the upper four bits are reserved.
    pub expect: Expect,
}

impl Body for Protocol {
    const CODE: RequestCode = RequestCode::PROTOCOL;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        no_body("protocol", body)?;
        Ok(Protocol {
            version: ProtocolVersion(parameters.u32()?),
            options: ProtocolOptions(parameters.u8()?),
            expect: Expect(parameters.u8()? & 0x0f),
        })
    }

    fn encode(&self, parameters: &mut Writer, _body: &mut Writer) {
        parameters.u32(self.version.0).u8(self.options.0).u8(self.expect.0 & 0x0f);
    }
}

/// Starts a session. Section 3, kXR_login.
///
/// Answer: [`crate::response::LoginAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The client's process id.
    pub process: i32,
    /// The user's name, at most eight bytes, padded with zeros; not authenticated.
    pub user: [u8; 8],
    /// More abilities of the client.
    pub ability_more: AbilityMore,
    /// Abilities of the client.
    pub ability: Ability,
    /// The client's generation, 5 for those with TLS, and whether it accepts delayed answers.
    pub capability: Capability,
    /// `?xrd.cc=..&xrd.tz=..&xrd.appname=..` and more, as received; may be empty.
    pub opaque: Bytes,
}

/// The client's generation and whether it takes delayed answers (`capver`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capability(pub u8);

impl Capability {
    const ASYNC: u8 = 0x80;

    /// Of a client of this generation (0 to 63).
    pub fn new(generation: u8, takes_delayed_answers: bool) -> Self {
        Capability(generation & 0x3f | if takes_delayed_answers { Self::ASYNC } else { 0 })
    }

    /// 3 for clients since 2011, 4 for those that sign requests, 5 for those with TLS.
    pub fn generation(self) -> u8 {
        self.0 & 0x3f
    }

    /// Whether the server may answer by waitresp and attn.
    pub fn takes_delayed_answers(self) -> bool {
        self.0 & Self::ASYNC != 0
    }
}

impl Login {
    /// The user's name without the zeros behind it.
    pub fn user_name(&self) -> &[u8] {
        let end = self.user.iter().position(|&byte| byte == 0).unwrap_or(self.user.len());
        &self.user[..end]
    }
}

impl Body for Login {
    const CODE: RequestCode = RequestCode::LOGIN;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        Ok(Login {
            process: parameters.i32()?,
            user: parameters.array()?,
            ability_more: AbilityMore(parameters.u8()?),
            ability: Ability(parameters.u8()?),
            capability: Capability(parameters.u8()?),
            opaque: body.clone(),
        })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.i32(self.process).raw(&self.user);
        parameters.u8(self.ability_more.0).u8(self.ability.0).u8(self.capability.0);
        body.raw(&self.opaque);
    }
}

/// Authenticates the client by one of the server's security protocols. Section 3, kXR_auth.
///
/// Answer: empty, or authmore with the security protocol's next message.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// The security protocol, such as `ztn\0` or `unix`.
    pub protocol: [u8; 4],
    /// The security protocol's data; `Debug` hides them.
    pub credentials: Bytes,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Auth({}, {} bytes)",
            self.protocol.escape_ascii(),
            self.credentials.len()
        )
    }
}

impl Body for Auth {
    const CODE: RequestCode = RequestCode::AUTH;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(12)?;
        Ok(Auth { protocol: parameters.array()?, credentials: body.clone() })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.zeros(12).raw(&self.protocol);
        body.raw(&self.credentials);
    }
}

macro_rules! session_requests {
    ($($(#[$doc:meta])* $name:ident = $code:ident $what:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The session.
            pub session: SessionId,
        }

        impl Body for $name {
            const CODE: RequestCode = RequestCode::$code;

            fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
                no_body($what, body)?;
                Ok($name { session: SessionId(parameters.array()?) })
            }

            fn encode(&self, parameters: &mut Writer, _body: &mut Writer) {
                parameters.raw(&self.session.0);
            }
        }
    )+};
}

session_requests! {
    /// Adds this connection to a session as one of its streams, in place of a login. Section
    /// 3, kXR_bind.
    ///
    /// Answer: one byte, the stream's [`crate::PathId`], 1 to 15.
    Bind = BIND "bind",
    /// Ends a session, for example the one before a reconnection. Section 3,
    /// kXR_endsess.
    ///
    /// Answer: empty, also if the session is unknown.
    Endsess = ENDSESS "endsess",
}

/// Checks that the server answers. Section 3, kXR_ping.
///
/// Answer: empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping;

impl Body for Ping {
    const CODE: RequestCode = RequestCode::PING;

    fn decode(_parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        no_body("ping", body).map(|()| Ping)
    }

    fn encode(&self, _parameters: &mut Writer, _body: &mut Writer) {}
}

/// Passes information to the server: `appid name`, `monitor info text`, `cache evict path`. Section 3,
/// kXR_set.
///
/// Answer: empty, or four bytes, the dictionary id, to `monitor info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Reserved for security; zero.
    pub modifier: u8,
    /// The information.
    pub text: Bytes,
}

impl Body for Set {
    const CODE: RequestCode = RequestCode::SET;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(15)?;
        Ok(Set { modifier: parameters.u8()?, text: body.clone() })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.zeros(15).u8(self.modifier);
        body.raw(&self.text);
    }
}

/// Signs the request that follows on the same connection. Section 3, kXR_sigver.
///
/// It has no answer; a wrong signature is an error of the signed request. The hash covers the sequence number, the
/// signed request's header as sent, and its body unless [`SignatureFlags::NO_DATA`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sigver {
    /// The code of the signed request.
    pub expects: RequestCode,
    /// The version of signing; zero.
    pub version: u8,
    /// The coverage of the hash.
    pub flags: SignatureFlags,
    /// Greater than the sequence number of every earlier signature of the session.
    pub sequence: u64,
    /// 1 for SHA-256 in the lower four bits; 0x80 if it is encrypted by an RSA key.
    pub crypto: u8,
    /// The signature.
    pub signature: Bytes,
}

impl Body for Sigver {
    const CODE: RequestCode = RequestCode::SIGVER;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        if body.is_empty() {
            return Err(Error::malformed("sigver", REQUEST_HEADER_BYTES, "must have a signature"));
        }
        Ok(Sigver {
            expects: RequestCode(parameters.u16()?),
            version: parameters.u8()?,
            flags: SignatureFlags(parameters.u8()?),
            sequence: parameters.u64()?,
            crypto: parameters.u8()?,
            signature: body.clone(),
        })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u16(self.expects.0).u8(self.version).u8(self.flags.0);
        parameters.u64(self.sequence).u8(self.crypto);
        body.raw(&self.signature);
    }
}
