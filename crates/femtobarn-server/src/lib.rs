//! The server: three layers that can be replaced, behind one port.
//!
//! | layer | module | what it knows |
//! |---|---|---|
//! | protocol | [`protocol`] | bytes on a connection: `root://`, gRPC, HTTP |
//! | logical | [`logical`] | names, open files, sessions, who may do what |
//! | physical | [`physical`] | files: POSIX, memory, throttled and failing ones |
//!
//! A layer knows only the one below it.

pub mod auth;
pub mod config;
pub mod logical;
pub mod physical;
pub mod protocol;
pub mod status;
pub mod tls;
