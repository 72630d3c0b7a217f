//! The catalogue and the locks of a federation over gRPC: the messages, their conversions from and to the types of
//! `femtobarn-catalog`, and a client that implements its trait `Catalogue`.
//!
//! # Map
//!
//! | module | contents |
//! |---|---|
//! | [`v1`] | the messages and the service, as `proto/` defines them |
//! | [`convert`] | messages from rows, errors and locks, and back |
//! | [`turns`] | connections that carry only the turns of a session |
//! | [`client`] | [`client::RemoteCatalogue`]: the catalogue of a federation at a server |
//!
//! Invariants:
//! 1. Malformed messages are errors, never panics.
//! 2. No message is longer than [`MESSAGE_BYTES_MAX`]: long answers are split.

pub mod client;
pub mod convert;
pub mod turns;

/// Bytes of the largest message that either side accepts.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Rows of one kind in one answer at most.
pub const ANSWER_ROWS_MAX: usize = 1000;
/// Operations in one turn of a session at most.
pub const TURN_OPERATIONS_MAX: usize = 1000;
/// The text of the failure `closed` for a request of a session that has ended.
pub const SESSION_OVER: &str = "the session is over; open it again";

/// The messages and the service, as `proto/` defines them.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::too_many_lines, clippy::match_bool)]
    tonic::include_proto!("femtobarn.catalogue.v1");
}
