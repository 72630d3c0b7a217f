//! Tests of the server.

#![allow(clippy::unwrap_used)]

mod audit;
mod catalogue;
mod client_certificates;
mod ending;
mod federation;
mod floods;
mod found_tokens;
mod killable;
mod metrics;
mod redirector;
mod refusals;
mod remote;
mod shared_files;
mod storages;
mod throttled_server;
mod token_cases;
mod token_rights;
mod tokens;
mod xroot;
