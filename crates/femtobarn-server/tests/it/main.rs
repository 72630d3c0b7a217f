//! Tests of the server.

#![allow(clippy::unwrap_used)]

mod federation;
mod remote;
mod storages;
mod xroot;
