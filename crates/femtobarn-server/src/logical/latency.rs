//! Histograms of request times, which all threads add to.
//!
//! 1. Adding takes no lock: one relaxed addition, or four for a timed request, to counters that few threads share.
//! 2. Requests answered from memory are not timed, since they fit the first bucket by far. They are counted in it.
//! 3. A reading is not a snapshot: each counter is read separately.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;

/// A kind of request that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Opening a file.
    Open,
    /// Reading from a file, until the bytes are in memory; without the wait for a bound connection that sends them.
    Read,
    /// Writing to a file, from the request to the answer.
    Write,
    /// Publishing a transaction.
    Commit,
    /// Waiting for a lock, from the request until it is granted or given up. Locks that are refused at once do not
    /// count.
    LockWait,
}

impl RequestKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [RequestKind; 5] = [
        RequestKind::Open,
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Commit,
        RequestKind::LockWait,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Open => "open",
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Commit => "commit",
            RequestKind::LockWait => "lock_wait",
        }
    }
}

/// The upper bounds of the buckets in microseconds. One more bucket counts everything above.
pub const BOUNDS_US: [u64; 10] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Sets of counters. If there are more threads, some share a set.
const SHARDS: usize = 16;

/// Histograms of all kinds of requests.
#[derive(Debug, Default)]
pub struct Latencies {
    shards: [Shard; SHARDS],
    recent: RecentReads,
}

/// The time of recent reads. Threads that end a read at the same time may overwrite each other's; an average of many
/// tolerates that.
#[derive(Debug)]
struct RecentReads {
    began: Instant,
    /// Moving average in microseconds.
    average_us: AtomicU64,
    /// When the last one ended, in seconds since `began`.
    last_s: AtomicU64,
}

impl Default for RecentReads {
    fn default() -> Self {
        RecentReads {
            began: clock::now(),
            average_us: AtomicU64::new(0),
            last_s: AtomicU64::new(0),
        }
    }
}

impl RecentReads {
    fn add(&self, us: u64) {
        let average = self.average_us();
        let average = if average == 0 { us } else { average - average / 16 + us / 16 };
        self.average_us.store(average, Ordering::Relaxed);
        self.last_s.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// The average, halved for each second without a read after the first.
    fn average_us(&self) -> u64 {
        let last = self.last_s.load(Ordering::Relaxed);
        let idle = self.began.elapsed().as_secs().saturating_sub(last + 1);
        self.average_us.load(Ordering::Relaxed) >> idle.min(63)
    }
}

/// Aligned to two cache lines, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    kinds: [KindCounts; RequestKind::ALL.len()],
    /// Timers that threads of this shard started, minus those that they dropped.
    running: AtomicI64,
}

#[derive(Debug, Default)]
struct KindCounts {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// The histogram of one kind, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The requests in each bucket: longer than the bound of the bucket before.
    pub buckets: [u64; BUCKETS],
    /// The sum of all timed requests, in microseconds.
    pub sum_us: u64,
}

/// Times a request until it is dropped.
#[derive(Debug)]
pub struct LatencyTimer {
    latencies: Arc<Latencies>,
    kind: RequestKind,
    since: Instant,
}

impl Latencies {
    /// Counts a request that was answered from memory, without timing it.
    pub fn record_immediate(&self, kind: RequestKind) {
        self.counts(kind).buckets[0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that took this time.
    pub fn record(&self, kind: RequestKind, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let counts = self.counts(kind);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Times a request from now on.
    #[must_use = "the request is timed until this is dropped"]
    pub fn start_timer(self: &Arc<Self>, kind: RequestKind) -> LatencyTimer {
        self.shards[shard()].running.fetch_add(1, Ordering::Relaxed);
        LatencyTimer { latencies: Arc::clone(self), kind, since: clock::now() }
    }

    /// The number of requests that are timed now.
    pub fn running(&self) -> u64 {
        let counts = self.shards.iter().map(|shard| shard.running.load(Ordering::Relaxed));
        // The sum can be negative: of a timer that starts and ends while the counters are read, only the end may be
        // seen.
        counts.sum::<i64>().try_into().unwrap_or(0)
    }

    /// Microseconds of a recent timed read; 0 without recent reads.
    pub fn recent_read_us(&self) -> u64 {
        self.recent.average_us()
    }

    /// The histogram of a kind.
    pub fn histogram(&self, kind: RequestKind) -> Histogram {
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

    fn counts(&self, kind: RequestKind) -> &KindCounts {
        &self.shards[shard()].kinds[kind as usize]
    }
}

impl Drop for LatencyTimer {
    fn drop(&mut self) {
        self.latencies.shards[shard()].running.fetch_sub(1, Ordering::Relaxed);
        let time = self.since.elapsed();
        if self.kind == RequestKind::Read {
            self.latencies.recent.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        self.latencies.record(self.kind, time);
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
                    latencies.record_immediate(RequestKind::Read);
                    latencies.record(RequestKind::Read, Duration::from_micros(100));
                    latencies.record(RequestKind::Read, Duration::from_micros(101));
                    latencies.record(RequestKind::Read, Duration::from_secs(100));
                });
            }
        });
        let threads = 2 * SHARDS as u64;
        let read = latencies.histogram(RequestKind::Read);
        assert_eq!(read.buckets[..3], [2 * threads, threads, 0]);
        assert_eq!((read.buckets[BUCKETS - 1], read.sum_us), (threads, threads * 100_000_201));
        drop(latencies.start_timer(RequestKind::Commit));
        assert_eq!(latencies.histogram(RequestKind::Commit).buckets.iter().sum::<u64>(), 1);
        assert_eq!(latencies.histogram(RequestKind::Open), Histogram::default());
    }

    #[test]
    fn requests_run_until_their_timers_are_dropped_by_any_thread() {
        let latencies = Arc::new(Latencies::default());
        let timers: Vec<_> = (0..3).map(|_| latencies.start_timer(RequestKind::Read)).collect();
        assert_eq!(latencies.running(), 3);
        std::thread::spawn(move || drop(timers)).join().unwrap();
        assert_eq!(latencies.running(), 0);
    }

    #[test]
    fn the_time_of_reads_is_averaged_and_forgotten() {
        let recent = RecentReads::default();
        assert_eq!(recent.average_us(), 0);
        (0..100).for_each(|_| recent.add(1_600));
        assert_eq!(recent.average_us(), 1_600);
        (0..100).for_each(|_| recent.add(160));
        assert!((160..200).contains(&recent.average_us()), "{}", recent.average_us());
        let before = Instant::now().checked_sub(Duration::from_secs(70)).unwrap();
        assert_eq!(RecentReads { began: before, ..recent }.average_us(), 0, "a minute ago");
    }

    #[test]
    fn kinds_are_counted_apart() {
        assert!(RequestKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
