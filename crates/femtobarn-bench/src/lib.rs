//! Shared parts of the benchmark programs, which `benches/run.py` runs.
//!
//! A program does one piece of work and prints one JSON object, which benches/README.md specifies.

mod measure;
mod pool;
mod reads;

pub use measure::{Random, Stopwatch, wait_for_others};
pub use pool::{Appends, Pool};
pub use reads::{Reads, sum};

use std::time::{Duration, Instant};

/// The result of a piece of work.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The number of objects in a small transaction.
pub const SMALL_OBJECTS: u64 = 10;
/// The size of each of them in bytes.
pub const SMALL_BYTES: usize = 100;

/// Commits small transactions for some seconds, and reports how many; `commit` is given its number.
///
/// # Errors
/// The errors that `commit` returns.
pub fn commits(seconds: f64, mut commit: impl FnMut(u64) -> Outcome) -> Outcome {
    let watch = Stopwatch::start();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut count = 0;
    while Instant::now() < end {
        commit(count)?;
        count += 1;
    }
    watch.report(count, count * SMALL_OBJECTS * SMALL_BYTES as u64, 0);
    Ok(())
}
