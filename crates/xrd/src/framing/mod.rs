//! Splits a stream of bytes into messages: state machines without I/O.
//!
//! A caller passes received bytes, in pieces of any size, and takes events until there are no more:
//!
//! ```
//! use bytes::Bytes;
//! use xrd::{Request, RequestEvent, RequestFramer, StreamId, request::Ping};
//!
//! let mut bytes = xrd::HANDSHAKE.to_vec();
//! Request::from(Ping).encode(StreamId([0, 1]), &mut bytes)?;
//!
//! let mut framer = RequestFramer::new();
//! let mut input = Bytes::from(bytes);
//! assert_eq!(framer.next(&mut input)?, Some(RequestEvent::Handshake));
//! let Some(RequestEvent::Request(received)) = framer.next(&mut input)? else { panic!() };
//! assert_eq!(received.request, Ok(Request::Ping(Ping)));
//! assert_eq!(framer.next(&mut input)?, None);
//! # Ok::<(), xrd::Error>(())
//! ```
//!
//! 1. A framer consumes its whole input before it returns no event. It holds at most one header and one body,
//!    within [`crate::limits`], and allocates by the bytes that arrived, never by an announced length.
//! 2. A message that is contiguous in the input is returned without a copy. It shares the input's memory, so a
//!    caller that keeps it for long should copy it.
//! 3. An error of a framer is final: message boundaries are lost, every later call returns the same error, and the
//!    connection must be closed. An invalid message with known boundaries is not such an error.

mod answers;
mod gather;
mod request;
mod response;

pub use answers::{AnswerJoiner, Joined, Pages};
pub use request::{ReceivedRequest, RequestEvent, RequestFramer};
pub use response::{ReceivedResponse, ResponseEvent, ResponseFramer};
