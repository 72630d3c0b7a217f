//! Tests of the server.

#![allow(clippy::unwrap_used)]

mod catalogue;
mod ending;
mod federation;
mod files;
mod killable;
mod metrics;
mod remote;
mod slow;
mod storages;
mod tokens;
mod xroot;
