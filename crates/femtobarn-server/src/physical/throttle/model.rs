//! The figures of a simulated disk, and the clock by which it works.

use std::ops::Range;
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;

/// The figures of a simulated disk and of the cache in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// Bytes a second, of reading and writing together; 0 for no limit.
    pub bytes_per_second: u64,
    /// Seeks a second; 0 for no limit.
    pub seeks_per_second: u32,
    /// Bytes of a block, the unit of reading and writing; at least 1.
    pub block_size: u32,
    /// Bytes of blocks that stay in memory after they were read or written.
    pub cache_bytes: u64,
    /// The backlog of work above which writers wait for the disk.
    pub write_behind: Duration,
    /// Calls that would have to wait longer than this are deferred; if `None`, all calls wait.
    pub defer_above: Option<Duration>,
}

/// A source of time that can also wait.
pub trait Clock: Send + Sync + 'static {
    /// The time since a fixed moment in the past.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// The clock of the machine.
pub struct MachineClock(Instant);

impl Default for MachineClock {
    fn default() -> Self {
        MachineClock(clock::now())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl DiskModel {
    /// The numbers of the blocks that a range touches.
    pub(super) fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        let size = u64::from(self.block_size);
        bytes.start / size..bytes.end.div_ceil(size)
    }

    /// The time for transferring blocks, without the seek.
    pub(super) fn transfer(&self, blocks: u64) -> Duration {
        match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => seconds(blocks as f64 * f64::from(self.block_size) / rate as f64),
        }
    }

    /// The time of one seek.
    pub(super) fn seek(&self) -> Duration {
        match self.seeks_per_second {
            0 => Duration::ZERO,
            rate => seconds(1.0 / f64::from(rate)),
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}
