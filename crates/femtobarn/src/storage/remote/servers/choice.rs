//! Chooses one of several servers: one that is drawn at random, or a second one if a request costs half there.
//!
//! Cost is the time of recent requests to a server, times the requests that it works on. Two draws keep clients from
//! all choosing the same server at once, and still spare a slow one; smaller differences are chance ([Mitzenmacher
//! 2001], "The Power of Two Choices in Randomized Load Balancing").

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use femtobarn_rpc::client::ReportedLoad;

/// The load of a server, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct ServerLoad {
    /// Moving average of the time of this process's reads, in microseconds; 0 before the first one.
    read_us: AtomicU64,
    /// The time of a read as the server reports it, in microseconds.
    reported_us: AtomicU64,
    /// Time of the newest question about the server's load, in microseconds.
    question_us: AtomicU64,
    /// Requests that the server worked on then.
    running: AtomicU64,
    /// Requests of this process that it has not answered yet.
    in_flight: AtomicU64,
    /// Reads since the load was asked for.
    reads: AtomicU64,
}

/// A request that is in flight until this is dropped.
#[derive(Debug)]
pub(super) struct RequestInFlight<'a> {
    load: &'a ServerLoad,
    since: Instant,
}

impl ServerLoad {
    pub(super) fn begin(&self) -> RequestInFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestInFlight { load: self, since: clock::now() }
    }

    /// Records the load that a server reported.
    pub(super) fn observe(&self, reported: ReportedLoad, time: Duration) {
        self.running.store(reported.running, Ordering::Relaxed);
        self.reported_us.store(micros(reported.read_time), Ordering::Relaxed);
        self.question_us.store(micros(time), Ordering::Relaxed);
        // A server that was slow and is not read from any more is tried again after a while.
        if self.reads.swap(0, Ordering::Relaxed) == 0 {
            let average = self.read_us.load(Ordering::Relaxed);
            self.read_us.store(average / 2, Ordering::Relaxed);
        }
    }

    fn observe_read(&self, time: Duration) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (average, now) = (self.read_us.load(Ordering::Relaxed), micros(time));
        let average = if average == 0 { now } else { average - average / 8 + now / 8 };
        self.read_us.store(average, Ordering::Relaxed);
    }

    /// The time that a request is expected to take, up to a factor that all servers share.
    pub(super) fn cost(&self) -> u64 {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let time = 1 + of(&self.read_us).max(of(&self.reported_us)) + of(&self.question_us);
        time.saturating_mul(1 + of(&self.running) + of(&self.in_flight))
    }
}

impl RequestInFlight<'_> {
    /// Records that the request was a read and was answered.
    pub(super) fn end_read(self) {
        self.load.observe_read(self.since.elapsed());
    }
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 8)
}

/// Draws two candidates by a random number, and returns the first, or the second if its cost is at most half of the
/// first's; `None` if there is no candidate.
pub(super) fn better_of_two<T: Copy>(candidates: &[(T, u64)], random: u64) -> Option<T> {
    let count = candidates.len() as u64;
    let first = *candidates.get((random % count.max(1)) as usize)?;
    if count == 1 {
        return Some(first.0);
    }
    let other = (random % count + 1 + (random >> 32) % (count - 1)) % count;
    let other = candidates[other as usize];
    Some(if other.1.saturating_mul(2) <= first.1 { other.0 } else { first.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_candidates_are_compared() {
        assert_eq!(better_of_two::<u8>(&[], 7), None);
        assert_eq!(better_of_two(&[(1, 50)], 7), Some(1));
        let candidates = [(1, 100), (2, 10), (3, 40)];
        let mut chosen = [0; 4];
        for high in 0..2 {
            for low in 0..3 {
                let drawn = better_of_two(&candidates, high << 32 | low).unwrap();
                chosen[drawn] += 1;
            }
        }
        assert_eq!(
            chosen,
            [0, 0, 4, 2],
            "the worst is never chosen, the best whenever it is drawn"
        );
        let alike = [(1, 15), (2, 10), (3, 12)];
        let first: Vec<_> = (0..3).filter_map(|low| better_of_two(&alike, low)).collect();
        assert_eq!(first, [1, 2, 3], "small differences do not count");
    }

    #[test]
    fn slow_and_busy_servers_cost_more() {
        let servers: [ServerLoad; 4] = Default::default();
        let [idle, busy, reported, slow] = &servers;
        let (none, question) = (ReportedLoad::default(), Duration::from_micros(100));
        [idle, slow].iter().for_each(|load| load.observe(none, question));
        busy.observe(ReportedLoad { running: 30, ..none }, question);
        reported.observe(ReportedLoad { read_time: Duration::from_millis(50), ..none }, question);
        slow.observe_read(Duration::from_millis(200));
        let costs = [idle, busy, reported, slow].map(ServerLoad::cost);
        assert!(costs.windows(2).all(|pair| pair[0] < pair[1]), "{costs:?}");
        let request = idle.begin();
        assert!(idle.cost() > costs[0]);
        drop(request);
        assert_eq!(idle.cost(), costs[0]);
    }

    #[test]
    fn slowness_is_forgotten_while_there_are_no_reads() {
        let load = ServerLoad::default();
        load.observe_read(Duration::from_secs(1));
        let observe = || load.observe(ReportedLoad::default(), Duration::ZERO);
        observe();
        assert_eq!(load.cost(), 1_000_001, "it was read from");
        observe();
        assert_eq!(load.cost(), 500_001);
        (0..20).for_each(|_| observe());
        assert_eq!(load.cost(), 1);
    }
}
