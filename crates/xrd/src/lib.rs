//! The XRootD wire protocol, version 5 (5.2.0), as typed messages and framing, without I/O, and, as the
//! feature `client`, a client.
//!
//! `root://` is how physics experiments read and copy their files. This crate knows its bytes, for
//! servers and clients alike: what every request and response looks like, and how a stream of
//! bytes becomes messages. But for the client, it opens no socket, reads no clock and starts no thread.
//!
//! A server and a client, each with its two ends of a pipe:
//!
//! ```
//! use bytes::Bytes;
//! use xrd::request::{Open, Request};
//! use xrd::response::{Answer, OpenAnswer, Response};
//! use xrd::{FileHandle, Location, RequestEvent, RequestFramer, ResponseEvent, ResponseFramer};
//! use xrd::{StreamId, flags::OpenOptions};
//!
//! // The client asks ...
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
//! // ... the server hears it and answers ...
//! let mut framer = RequestFramer::after_handshake();
//! let Some(RequestEvent::Request(received)) = framer.next(&mut Bytes::from(sent))? else { panic!() };
//! let Request::Open(heard) = received.request? else { panic!() };
//! assert_eq!(heard.location.path(), b"/lhc.fed/run7.root");
//! let answer = OpenAnswer { handle: FileHandle([0, 0, 0, 9]), compression: None, stat: None };
//! let mut sent = Vec::new();
//! Response::Ok(answer.encode()?.into()).encode(received.header.stream, &mut sent)?;
//!
//! // ... and the client hears that.
//! let mut framer = ResponseFramer::new();
//! let Some(ResponseEvent::Response(received)) = framer.next(&mut Bytes::from(sent))? else { panic!() };
//! let Response::Ok(body) = received.response? else { panic!() };
//! assert_eq!(OpenAnswer::decode(&body)?.handle, FileHandle([0, 0, 0, 9]));
//! # Ok::<(), xrd::Error>(())
//! ```
//!
//! # Map
//!
//! | module | noun |
//! |---|---|
//! | [`framing`] | [`RequestFramer`], [`ResponseFramer`]: bytes to messages; [`AnswerJoiner`]: parts to answers |
//! | [`request`] | [`Request`]: every request |
//! | [`response`] | [`Response`]: every response; [`response::Answer`]: what ok ones hold |
//! | [`handshake`] | the first bytes of a connection; [`ProtocolVersion`] |
//! | [`fattr`] | extended attributes: request and answers |
//! | [`page`], [`segment`] | data with checksums; pieces of files in lists |
//! | `location` | [`Location`]: a path and its opaque information |
//! | `ids`, [`codes`], [`flags`] | what names things; numbers with names; sets of bits |
//! | `client` | a client for tasks and threads (feature `client`; TLS by the feature `tls`) |
//! | [`limits`], `wire`, `error` | every maximum; codecs of integers and texts; [`Error`] |
//!
//! # Protocol
//!
//! The layouts are those of "The XRootD Protocol Version 5.1.1" (2022, <https://xrootd.org>) and,
//! for what 5.2.0 added, of its public binary definitions. Every module cites the section it is
//! from, and names are the protocol's. This crate is no part of XRootD and changes nothing of its
//! protocol.
//!
//! **Invariant:** bytes of any content yield messages or an [`Error`], never a panic, and never take
//! more memory than [`limits`] allows.
//!
//! **Invariant:** what is encoded decodes to the same again, and what decodes can be encoded.
//!
//! # What it does not do
//!
//! - A server: its I/O, TLS and time are its own.
//! - Judge names: `..`, relative paths and who may see what are the server's affair.
//! - Compute or check signatures and credentials: it carries them.
//! - gpfile, which no implementation has, and what 5.0 dropped (getfile, putfile, admin, verifyw,
//!   decrypt).

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

/// Its example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
