//! A gate that makes a storage as slow as a disk of another age: so many bytes and seeks a second.
//!
//! The disk does one thing after the other. A call takes the time of its blocks, and of a seek if it
//! does not go on where the last one ended. Calls wait for their end here, in a thread that may block; or,
//! if that takes longer than is said, they are told not to come before the disk is free.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::gate::{Call, CallKind, Gate, Gated};
use super::{Answer, Storage, Trouble};

/// A storage as slow as is said.
pub type ThrottledStorage = Gated<Throttle>;

/// How slow a storage is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// Bytes a second, of reading and writing together; 0 for as many as there are.
    pub bytes_per_second: u64,
    /// Seeks a second; 0 for as many as there are.
    pub seeks_per_second: u32,
    /// Bytes that are read or written at once, whatever is asked for; at least 1.
    pub block_size: u32,
    /// Calls that would have to wait longer than this are deferred; none are without it.
    pub defer_above: Option<Duration>,
}

/// What tells the time and waits.
pub trait Clock: Send + Sync + 'static {
    /// The time since some moment in the past.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// The clock of the machine.
pub struct MachineClock(Instant);

/// The gate.
pub struct Throttle {
    slowness: Slowness,
    clock: Arc<dyn Clock>,
    disk: Mutex<Disk>,
}

/// The disk that is played.
#[derive(Default)]
struct Disk {
    /// When it has done all that it was asked to.
    free_at: Duration,
    /// The file and the byte where its last work ended.
    head: Option<(u64, u64)>,
}

impl ThrottledStorage {
    /// Makes a storage as slow as is said.
    pub fn throttled(inner: Arc<dyn Storage>, slowness: Slowness, clock: Arc<dyn Clock>) -> Self {
        Gated::new(inner, Throttle { slowness, clock, disk: Mutex::default() })
    }
}

impl Default for MachineClock {
    fn default() -> Self {
        MachineClock(Instant::now())
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

impl Gate for Throttle {
    fn pass(&self, call: Call<'_>) -> Answer<usize> {
        if matches!(call.kind, CallKind::Read | CallKind::Write) && call.size > 0 {
            let wait = self.book(call)?;
            if !wait.is_zero() {
                self.clock.sleep(wait);
            }
        }
        Ok(call.size)
    }
}

impl Throttle {
    /// Has the disk do the work of a call, and tells how long that takes from now on.
    fn book(&self, call: Call<'_>) -> Answer<Duration> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let start = disk.free_at.max(now);
        let file = file_number(call);
        let end = call.offset.saturating_add(call.size as u64);
        let is_next = disk.head == Some((file, call.offset));
        let done = start + self.slowness.time_of(call.offset, end, !is_next);
        let (queued, wait) = (start - now, done - now);
        // What takes long on a disk that has nothing else to do would never be done otherwise.
        if !queued.is_zero() && self.slowness.defer_above.is_some_and(|most| wait > most) {
            let what = format!("the disk of {} has too much to do", call.path);
            return Err(Trouble::NotBefore(queued, what));
        }
        *disk = Disk { free_at: done, head: Some((file, end)) };
        Ok(wait)
    }
}

impl Slowness {
    /// How long it takes to read or write a range.
    fn time_of(&self, start: u64, end: u64, seeks: bool) -> Duration {
        let block = u64::from(self.block_size.max(1));
        let first = start / block * block;
        let bytes = end.checked_next_multiple_of(block).unwrap_or(u64::MAX) - first;
        let transfer = match self.bytes_per_second {
            0 => 0.0,
            rate => bytes as f64 / rate as f64,
        };
        let seek = match self.seeks_per_second {
            rate if rate > 0 && seeks => 1.0 / f64::from(rate),
            _ => 0.0,
        };
        Duration::try_from_secs_f64(transfer + seek).unwrap_or(Duration::MAX / 4)
    }
}

/// Tells files apart well enough for a seek more or less.
fn file_number(call: Call<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.path.hash(&mut hasher);
    hasher.finish()
}
