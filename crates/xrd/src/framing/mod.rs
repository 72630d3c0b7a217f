//! From a stream of bytes to messages: state machines without I/O.
//!
//! A caller feeds what came from a socket, in pieces of any size, and takes events until there are
//! no more:
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
//! 1. A framer takes off the front of its input what it needs, and all of it before it answers that
//!    there is no event: it holds at most one header and one body, within the limits of
//!    [`crate::limits`], and grows by what has come, never by what is announced.
//! 2. What is in one piece in the input is handed out without being copied. It keeps the input's
//!    memory: who keeps a message for long copies it.
//! 3. An error of a framer is for ever: the bytes cannot be told apart any more, so the connection
//!    is to be closed, and every later call has the same error. A message that is wrong in itself
//!    is no such error.

mod answers;
mod gather;
mod request;
mod response;

pub use answers::{AnswerJoiner, Joined, Pages};
pub use request::{ReceivedRequest, RequestEvent, RequestFramer};
pub use response::{ReceivedResponse, ResponseEvent, ResponseFramer};
