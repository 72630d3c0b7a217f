//! The clocks of a host. The monotonic clock drifts; the time of day drifts with it, and can also be set.

use super::message::{HostTimes, NEVER};

/// The time of day when a simulation starts, in nanoseconds since 1970. It is earlier than the times of all files, so
/// that no file looks old.
const BEGINNING: u64 = 1_577_836_800 * 1_000_000_000;
const MILLION: u128 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostClock {
    /// Microseconds that the monotonic clock gains per second; negative if it loses.
    pub(super) drift: i64,
    /// The sum of all changes of the time of day, in nanoseconds; negative if it was set back.
    pub(super) set: i64,
}

impl HostClock {
    /// The clocks' readings at a time of the simulation.
    pub(super) fn at(&self, simulation: u64) -> HostTimes {
        let monotonic = (u128::from(simulation) * self.rate() / MILLION) as u64;
        let of_day = BEGINNING.saturating_add(monotonic).saturating_add_signed(self.set);
        HostTimes { simulation, monotonic, of_day }
    }

    /// The first time of the simulation at which the monotonic clock has reached a reading.
    pub(super) fn when(&self, monotonic: u64) -> u64 {
        if monotonic == NEVER {
            return NEVER;
        }
        let when = (u128::from(monotonic) * MILLION).div_ceil(self.rate());
        when.try_into().unwrap_or(NEVER)
    }

    fn rate(&self) -> u128 {
        MILLION.saturating_add_signed(self.drift.into())
    }
}

/// Whether the numbers of commits differ and no commit has an earlier time than a commit with a smaller number. Commits
/// are pairs of number and time, the newest first.
pub(super) fn are_in_order(newest_first: &[(u64, i64)]) -> bool {
    newest_first.windows(2).all(|pair| pair[0].0 > pair[1].0 && pair[0].1 >= pair[1].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_earlier_than_the_one_before_it_is_noticed() {
        assert!(are_in_order(&[(3, 20), (2, 20), (1, 10)]));
        assert!(!are_in_order(&[(3, 20), (2, 21), (1, 10)]));
        assert!(!are_in_order(&[(2, 20), (2, 20)]));
    }

    #[test]
    fn a_clock_shows_a_time_at_the_computed_moment_and_never_goes_back_when_read() {
        for drift in [-100_000, -137, 0, 41, 100_000] {
            let clock = HostClock { drift, set: -5_000_000_000 };
            for time in [0, 1, 999, 123_456_789_012] {
                assert!(clock.at(clock.when(time)).monotonic >= time);
                let read = clock.at(time).monotonic + 300;
                assert!(clock.at(time + clock.when(300)).monotonic >= read, "{drift} {time}");
            }
            let day = clock.at(7).of_day;
            assert_eq!(day, BEGINNING + clock.at(7).monotonic - 5_000_000_000);
        }
    }
}
