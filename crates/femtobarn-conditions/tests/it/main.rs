//! Tests of conditions at the crate's public seam.

#![allow(clippy::unwrap_used)]

mod branches;
mod global_tags;
mod jobs;
mod support;
mod windows;
