//! How many clients were sent to read each file within the last minute.
//!
//! Clients are counted by the minute. The count of the minute before is weighted by its part within the last 60
//! seconds, as if its clients had arrived evenly. So a file without new readers counts 0 after two minutes, however
//! many it had.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xrd::Location;

/// How long a client counts.
const PERIOD: Duration = Duration::from_secs(60);
/// Files that are counted in a period; more are not.
const FILES_MAX: usize = 65_536;

/// The clients of each file.
pub(super) struct Demand {
    /// Two files of one hash count as one.
    hasher: RandomState,
    periods: Mutex<Periods>,
}

struct Periods {
    began: Instant,
    now: HashMap<u64, u32>,
    before: HashMap<u64, u32>,
}

impl Demand {
    /// No clients until `now`.
    pub(super) fn new(now: Instant) -> Self {
        let periods = Periods { began: now, now: HashMap::new(), before: HashMap::new() };
        Demand { hasher: RandomState::new(), periods: Mutex::new(periods) }
    }

    /// Counts a client of a file.
    pub(super) fn count(&self, file: &Location, now: Instant) {
        let file = self.hasher.hash_one(file.as_bytes());
        let mut periods = self.periods.lock();
        periods.advance(now);
        if let Some(clients) = periods.now.get_mut(&file) {
            *clients = clients.saturating_add(1);
        } else if periods.now.len() < FILES_MAX {
            periods.now.insert(file, 1);
        }
    }

    /// The clients of a file within the last minute.
    pub(super) fn clients(&self, file: &Location, now: Instant) -> u32 {
        let file = self.hasher.hash_one(file.as_bytes());
        let mut periods = self.periods.lock();
        periods.advance(now);
        let of = |period: &HashMap<u64, u32>| period.get(&file).copied().unwrap_or(0);
        let past = now.saturating_duration_since(periods.began).as_secs_f64();
        let share = 1.0 - past / PERIOD.as_secs_f64();
        of(&periods.now).saturating_add((f64::from(of(&periods.before)) * share) as u32)
    }
}

impl Periods {
    fn advance(&mut self, now: Instant) {
        let past = now.saturating_duration_since(self.began);
        if past < PERIOD {
            return;
        }
        let ended = std::mem::take(&mut self.now);
        self.before = if past < PERIOD * 2 { ended } else { HashMap::new() };
        self.began = if past < PERIOD * 2 { self.began + PERIOD } else { now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use femtobarn_catalog::clock;

    fn file(name: &str) -> Location {
        Location::new(name.to_owned()).expect("a path")
    }

    #[test]
    fn clients_count_for_a_minute() {
        let (start, seconds) = (clock::now(), Duration::from_secs);
        let demand = Demand::new(start);
        for number in 0..30 {
            demand.count(&file("/hot"), start + seconds(number));
        }
        demand.count(&file("/other"), start);
        let at = |after| demand.clients(&file("/hot"), start + seconds(after));
        assert_eq!([at(30), at(59), at(75), at(90), at(119)], [30, 30, 22, 15, 0]);
        assert_eq!(at(200), 0);
        assert_eq!(demand.clients(&file("/none"), start + seconds(200)), 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let now = clock::now();
        let demand = Demand::new(now);
        (0..FILES_MAX + 10).for_each(|number| demand.count(&file(&format!("/{number}")), now));
        assert_eq!(demand.periods.lock().now.len(), FILES_MAX);
        demand.count(&file("/0"), now);
        assert_eq!(demand.clients(&file("/0"), now), 2);
    }
}
