//! Tests of the server.

#![allow(clippy::unwrap_used)]

mod federation;
mod storages;
mod xroot;
