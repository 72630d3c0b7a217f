//! Tests of the engine at its public seam.

#![allow(clippy::unwrap_used)]

mod commits;
mod sealing;
mod support;
