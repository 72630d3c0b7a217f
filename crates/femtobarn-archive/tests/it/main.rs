//! The stores against their rules, and databases that move between them and the disk, with failures at every step.

#![allow(clippy::unwrap_used)] // Tests may, but clippy knows only the functions marked as such.

mod archive;
mod bad_stores;
mod commands;
mod generations;
mod recalls;
mod rules;
mod s3;
mod sealed;
mod settings;
mod store_rules;
mod xrootd;
mod xrootd_tape;
