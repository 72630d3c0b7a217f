//! The catalogue and the locks of a federation over gRPC: the messages, what they mean in
//! `femtobarn-catalog`'s words, and a client that is a catalogue like the local one.
//!
//! # Map
//!
//! | module | noun |
//! |---|---|
//! | [`v1`] | the messages and the service, as `proto/` defines them |
//! | [`client`] | [`client::RemoteCatalogue`]: the catalogue of a federation at a server |
//! | [`convert`] | messages from rows, errors and locks, and back |
//!
//! Invariants:
//! 1. Messages that make no sense are errors, never panics.
//! 2. What is sent fits into [`MESSAGE_BYTES_MAX`]: long answers are parted.

pub mod client;
pub mod convert;

/// Bytes of the largest message that either side takes.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Rows of one kind in one answer.
pub const ANSWER_ROWS_MAX: usize = 1000;
/// Operations in one turn of a session.
pub const TURN_OPERATIONS_MAX: usize = 1000;

/// The messages and the service, as `proto/` defines them.
pub mod v1 {
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("femtobarn.catalogue.v1");
}
