//! The XRootD wire protocol, version 5 (5.2.0): typed messages and framing without I/O, for servers and clients,
//! and, with the feature `client`, a client.
//!
//! Physics experiments read and copy their files by `root://`. This crate encodes and decodes every request and
//! response, and splits a stream of bytes into messages. Outside of the client, it opens no socket, reads no clock
//! and starts no thread.
//!
//! A client's request and a server's answer:
//!
//! ```
//! use bytes::Bytes;
//! use xrd::request::{Open, Request};
//! use xrd::response::{Answer, OpenAnswer, Response};
//! use xrd::{FileHandle, Location, RequestEvent, RequestFramer, ResponseEvent, ResponseFramer};
//! use xrd::{StreamId, flags::OpenOptions};
//!
//! // The client sends a request.
//! let open = Open {
//!     mode: Default::default(),
//!     options: OpenOptions::READ | OpenOptions::RETURN_STAT,
//!     template_options: Default::default(),
//!     template: Default::default(),
//!     location: Location::new("/lhc.fed/run7.root?fb.csn=41")?,
//! };
//! let mut sent = Vec::new();
//! Request::from(open).encode(StreamId([0, 1]), &mut sent)?;
//!
//! // The server decodes it and answers.
//! let mut framer = RequestFramer::after_handshake();
//! let Some(RequestEvent::Request(received)) = framer.next(&mut Bytes::from(sent))? else { panic!() };
//! let Request::Open(open) = received.request? else { panic!() };
//! assert_eq!(open.location.path(), b"/lhc.fed/run7.root");
//! let answer = OpenAnswer { handle: FileHandle([0, 0, 0, 9]), compression: None, stat: None };
//! let mut sent = Vec::new();
//! Response::Ok(answer.encode()?.into()).encode(received.header.stream, &mut sent)?;
//!
//! // The client decodes the answer.
//! let mut framer = ResponseFramer::new();
//! let Some(ResponseEvent::Response(received)) = framer.next(&mut Bytes::from(sent))? else { panic!() };
//! let Response::Ok(body) = received.response? else { panic!() };
//! assert_eq!(OpenAnswer::decode(&body)?.handle, FileHandle([0, 0, 0, 9]));
//! # Ok::<(), xrd::Error>(())
//! ```
//!
//! # Map
//!
//! | module | contents |
//! |---|---|
//! | [`framing`] | [`RequestFramer`], [`ResponseFramer`]: bytes to messages; [`AnswerJoiner`]: partial responses to whole answers |
//! | [`request`] | [`Request`]: every request |
//! | [`response`] | [`Response`]: every response; [`response::Answer`]: the bodies of ok responses |
//! | [`handshake`] | the first bytes of a connection |
//! | [`page`], [`segment`] | data with checksums; lists of pieces of files |
//! | `location` | [`Location`]: a path and its opaque information |
//! | `ids`, `version`, [`codes`], [`flags`] | identifiers; [`ProtocolVersion`]; named numbers; sets of bits |
//! | `client` | a client for tasks and threads (feature `client`; TLS by the feature `tls`) |
//! | [`limits`], `wire`, `attribute`, `error` | every maximum; codecs of integers, texts and attributes; [`Error`] |
//!
//! # Protocol
//!
//! The layouts are those of "The XRootD Protocol Version 5.1.1" (2022, <https://xrootd.org>) and, for the additions
//! of 5.2.0, of its public binary definitions. Every module cites its section, and names are the protocol's. This
//! crate is not part of XRootD and does not extend the protocol.
//!
//! **Invariant:** any bytes yield messages or an [`Error`], never a panic, and never take more memory than [`limits`]
//! allows.
//!
//! **Invariant:** an encoded message decodes to the same message, and a decoded message can be encoded.
//!
//! # What it does not do
//!
//! - It is not a server, which needs its own I/O, TLS and clock.
//! - It does not check paths: `..`, relative paths and permissions are the server's concern.
//! - It does not compute or verify signatures and credentials; it transports them.
//! - It has no gpfile, which no implementation supports, and no request that 5.0 removed (getfile, putfile, admin,
//!   verifyw, decrypt).

mod attribute;
#[cfg(feature = "client")]
pub mod client;
pub mod codes;
mod error;
pub mod flags;
pub mod framing;
pub mod handshake;
mod ids;
pub mod limits;
mod location;
pub mod page;
pub mod request;
pub mod response;
pub mod segment;
mod version;
mod wire;

pub use codes::{ErrorCode, QueryCode, RequestCode, StatusCode};
pub use error::{Error, ErrorKind, Result};
pub use framing::{
    AnswerJoiner, Joined, Pages, ReceivedRequest, ReceivedResponse, RequestEvent, RequestFramer,
    ResponseEvent, ResponseFramer,
};
pub use handshake::{HANDSHAKE, HandshakeAnswer};
pub use ids::{FileHandle, PathId, SessionId, StreamId};
pub use location::{Location, opaque_pairs};
pub use request::Request;
pub use response::{Failure, Response};
pub use version::ProtocolVersion;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
