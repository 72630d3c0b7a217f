//! Tests of the crate's public interface.

#![allow(clippy::unwrap_used)]

mod captured;
mod captured_answers;
#[cfg(feature = "client")]
mod client;
mod framing;
mod hostile;
mod known_bytes;
mod real_client;
mod real_server;
mod round_trips;
mod samples;
