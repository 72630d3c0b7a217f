//! The proof, one module for each way in which things go wrong.

#![allow(clippy::unwrap_used)]

mod crash;
mod failing;
mod flips;
mod history;
mod killing;

/// Says what was tried. The harness shows what tests print only where they fail; this is always seen.
fn tell(what: &str) {
    use std::io::Write;
    std::io::stderr().write_all(format!("proof: {what}\n").as_bytes()).unwrap();
}
