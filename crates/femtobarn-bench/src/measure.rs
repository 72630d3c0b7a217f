//! Wall time, CPU time and random numbers, the same for all sides of a comparison.

use std::io::{BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::Outcome;

/// If `BENCH_TOGETHER` is set, prints `ready` and waits for a line on standard input, so that several processes start
/// together.
///
/// # Panics
/// If standard input or output fails.
pub fn wait_for_others() {
    if std::env::var_os("BENCH_TOGETHER").is_some() {
        println!("ready");
        std::io::stdout().flush().expect("the driver listens");
        std::io::stdin().lock().read_line(&mut String::new()).expect("the driver speaks");
    }
}

/// The timed part of a benchmark: from its start to its report.
pub struct Stopwatch {
    wall: Instant,
    cpu: f64,
}

impl Stopwatch {
    /// Starts now, or together with [others](wait_for_others).
    pub fn start() -> Self {
        wait_for_others();
        Stopwatch { wall: Instant::now(), cpu: cpu_seconds() }
    }

    /// Prints the work since the start. `check` is a sum over the data, equal for all sides.
    pub fn report(&self, items: u64, bytes: u64, check: u64) {
        print(self.elapsed(), items, bytes, check, "");
    }

    /// Prints the writes since the start, and the disk space that they need: blocks of all files at `path`.
    ///
    /// # Errors
    /// The errors of listing the folder.
    pub fn report_on_disk(&self, items: u64, bytes: u64, path: &Path) -> Outcome {
        // The clock is read first: listing the files is not part of the measured work.
        let elapsed = self.elapsed();
        print(elapsed, items, bytes, 0, &format!(", \"disk_bytes\": {}", disk_bytes(path)?));
        Ok(())
    }

    /// Wall and CPU seconds since the start.
    fn elapsed(&self) -> (f64, f64) {
        (self.wall.elapsed().as_secs_f64(), cpu_seconds() - self.cpu)
    }
}

fn print((wall, cpu): (f64, f64), items: u64, bytes: u64, check: u64, more: &str) {
    println!(
        "{{\"items\": {items}, \"bytes\": {bytes}, \"wall_s\": {wall:.6}, \"cpu_s\": {cpu:.6}, \
         \"check\": {check}{more}}}"
    );
}

fn disk_bytes(path: &Path) -> Outcome<u64> {
    let metadata = path.metadata()?;
    if !metadata.is_dir() {
        return Ok(metadata.blocks() * 512);
    }
    let mut bytes = 0;
    for entry in path.read_dir()? {
        bytes += disk_bytes(&entry?.path())?;
    }
    Ok(bytes)
}

fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6
}

/// splitmix64 from seed 1: the sequence that all sides use.
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Random(1)
    }
}

impl Random {
    /// A sequence of its own for each number.
    pub fn of(number: u64) -> Self {
        Random(number.wrapping_mul(0x9e6c_63d0_876a_f6a5))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(bound)) >> 64) as u64
    }
}
