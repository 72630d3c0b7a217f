//! Tests of the server.

#![allow(clippy::unwrap_used)]

mod storages;
