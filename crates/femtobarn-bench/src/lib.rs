//! What the programs of the benchmarks share: `benches/run.py` runs them beside each other.
//!
//! A program does one piece of work and prints one JSON object, as benches/README.md says.

mod measure;
mod pool;
mod reads;

pub use measure::{Random, Stopwatch, wait_for_others};
pub use pool::{Appends, Pool};
pub use reads::{Reads, sum};

use std::time::{Duration, Instant};

/// How a piece of work ends.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Objects of a small transaction, and bytes of each.
pub const SMALL_OBJECTS: u64 = 10;
/// See [`SMALL_OBJECTS`].
pub const SMALL_BYTES: usize = 100;

/// Commits small transactions for some seconds, and reports how many; `commit` is given its number.
///
/// # Errors
/// What `commit` returns.
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
