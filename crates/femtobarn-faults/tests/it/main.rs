//! The proof, one module for each way in which things go wrong.

#![allow(clippy::unwrap_used)]

mod crash;
mod failing;
mod flips;
mod history;
mod killing;
