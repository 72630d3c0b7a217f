//! Tests of the engine at its public seam.

#![allow(clippy::unwrap_used)]

mod commits;
mod links;
mod model;
mod sealing;
mod support;
mod types;
#[path = "../../../rntuple/tests/it/values.rs"]
#[allow(dead_code)]
mod values;
