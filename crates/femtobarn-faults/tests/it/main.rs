//! One module for each kind of failure.

#![allow(clippy::unwrap_used)]

mod crash;
mod faults;
mod flips;
mod history;
mod kills;
mod simulation;

/// Prints statistics of a test to standard error directly, since the harness hides the output of tests that pass.
fn print_progress(text: &str) {
    use std::io::Write;
    std::io::stderr().write_all(format!("proof: {text}\n").as_bytes()).unwrap();
}
