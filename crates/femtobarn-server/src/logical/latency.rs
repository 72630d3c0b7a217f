//! How long requests took: histograms that all threads add to.
//!
//! 1. Adding takes no lock: one relaxed addition, two where time was taken, to counts that each thread has mostly for
//!    itself.
//! 2. What is answered from memory at once is not timed; it counts in the first bucket, which it fits by far.
//! 3. A look at the counts is no snapshot: each is read by itself.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opening a file.
    Open,
    /// Reading from one, until the bytes are there; not the wait for a bound connection that is to send them.
    Read,
    /// Writing to one, from the request until the answer.
    Write,
    /// Publishing a transaction.
    Commit,
    /// From asking for a lock until it is held, or given up; not where it is refused at once.
    LockWait,
}

impl Kind {
    /// All, in the order of their counts.
    pub const ALL: [Kind; 5] = [Kind::Open, Kind::Read, Kind::Write, Kind::Commit, Kind::LockWait];

    /// As metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Open => "open",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Commit => "commit",
            Kind::LockWait => "lock_wait",
        }
    }
}

/// Microseconds up to which each bucket counts; one more has what took longer.
pub const BOUNDS_US: [u64; 10] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Threads that add to counts of their own; where there are more, some share.
const SHARDS: usize = 16;

/// How long requests of each kind took.
#[derive(Debug, Default)]
pub struct Latencies {
    shards: [Shard; SHARDS],
}

/// Two cache lines at least, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    kinds: [Counts; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// The counts of one kind, of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many took as long as each bucket says, and no shorter bucket.
    pub buckets: [u64; BUCKETS],
    /// Microseconds that those took that were timed.
    pub sum_us: u64,
}

/// A request that is timed until this is dropped.
#[derive(Debug)]
pub struct Timed {
    latencies: Arc<Latencies>,
    kind: Kind,
    since: Instant,
}

impl Latencies {
    /// Counts what was done at once.
    pub fn at_once(&self, kind: Kind) {
        self.counts(kind).buckets[0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what took some time.
    pub fn took(&self, kind: Kind, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let counts = self.counts(kind);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Times a request from now on.
    #[must_use = "it is timed until this is dropped"]
    pub fn timed(self: &Arc<Self>, kind: Kind) -> Timed {
        Timed { latencies: Arc::clone(self), kind, since: Instant::now() }
    }

    /// The counts of a kind.
    pub fn histogram(&self, kind: Kind) -> Histogram {
        let mut all = Histogram::default();
        for shard in &self.shards {
            let counts = &shard.kinds[kind as usize];
            for (sum, count) in all.buckets.iter_mut().zip(&counts.buckets) {
                *sum += count.load(Ordering::Relaxed);
            }
            all.sum_us = all.sum_us.wrapping_add(counts.sum_us.load(Ordering::Relaxed));
        }
        all
    }

    fn counts(&self, kind: Kind) -> &Counts {
        &self.shards[shard()].kinds[kind as usize]
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.latencies.took(self.kind, self.since.elapsed());
    }
}

/// The shard of this thread.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    SHARD.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_the_first_bucket_that_holds_them() {
        let latencies = Arc::new(Latencies::default());
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| {
                    latencies.at_once(Kind::Read);
                    latencies.took(Kind::Read, Duration::from_micros(100));
                    latencies.took(Kind::Read, Duration::from_micros(101));
                    latencies.took(Kind::Read, Duration::from_secs(100));
                });
            }
        });
        let threads = 2 * SHARDS as u64;
        let read = latencies.histogram(Kind::Read);
        assert_eq!(read.buckets[..3], [2 * threads, threads, 0]);
        assert_eq!((read.buckets[BUCKETS - 1], read.sum_us), (threads, threads * 100_000_201));
        drop(latencies.timed(Kind::Commit));
        assert_eq!(latencies.histogram(Kind::Commit).buckets.iter().sum::<u64>(), 1);
        assert_eq!(latencies.histogram(Kind::Open), Histogram::default());
    }

    #[test]
    fn kinds_are_counted_apart() {
        assert!(Kind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
