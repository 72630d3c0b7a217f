//! What the programs of the benchmarks share: `benches/run.py` runs them beside each other.
//!
//! A program does one piece of work and prints one JSON object, as benches/README.md says.

mod measure;

pub use measure::{Random, Stopwatch};

/// How a piece of work ends.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;
