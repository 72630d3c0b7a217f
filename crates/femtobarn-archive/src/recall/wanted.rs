//! [`WantedBy`]: the user who wants a database on the disk, and how urgently.

use std::time::{Duration, Instant, SystemTime};

use femtobarn_catalog::clock;

use super::queue::PRIORITY_MAX;

/// A recall counts as late if its estimated time, multiplied by this, exceeds the time to its deadline: estimates are
/// averages, and other requests may come in between.
const RESERVE: u32 = 2;

/// The user who wants a file, and how urgently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedBy<'a> {
    /// The user's name.
    pub user: &'a str,
    /// From 0 to 3: the order among that user's files, the highest first.
    pub priority: u8,
    /// The time by which the file is wanted.
    pub deadline: Option<Deadline>,
}

/// The time by which a file is wanted on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This long after it was first asked for.
    Within(Duration),
    /// At this time.
    At(SystemTime),
}

impl WantedBy<'_> {
    /// The priority of a recall that was asked for at `asked` and will take about `rest` in its turn: the highest one
    /// if it would miss its deadline otherwise. An estimate that has run out counts as late.
    pub(super) fn priority_for(&self, asked: Instant, rest: Duration) -> u8 {
        let left = self.deadline.map(|deadline| deadline.left(asked));
        let is_late =
            left.is_some_and(|left| rest.is_zero() || left < rest.saturating_mul(RESERVE));
        if is_late { PRIORITY_MAX } else { self.priority }
    }
}

impl Deadline {
    /// The time left for a request that was made at `asked`.
    fn left(self, asked: Instant) -> Duration {
        match self {
            Deadline::Within(time) => time.saturating_sub(asked.elapsed()),
            Deadline::At(time) => time.duration_since(clock::utc()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recalls_that_would_miss_their_deadline_are_hastened() {
        let wanted = |deadline| WantedBy { user: "ann", priority: 1, deadline };
        let (now, minute) = (clock::now(), Duration::from_secs(60));
        let within = |seconds| wanted(Some(Deadline::Within(Duration::from_secs(seconds))));
        assert_eq!(wanted(None).priority_for(now, Duration::MAX), 1);
        assert_eq!(within(130).priority_for(now, minute), 1);
        assert_eq!(within(110).priority_for(now, minute), PRIORITY_MAX, "estimates are averages");
        assert_eq!(within(u64::MAX).priority_for(now, minute), 1);
        let earlier = now.checked_sub(minute).expect("the machine runs for a minute");
        assert_eq!(within(130).priority_for(earlier, minute), PRIORITY_MAX);
        let at = |time: SystemTime| wanted(Some(Deadline::At(time)));
        assert_eq!(at(clock::utc() + 3 * minute).priority_for(earlier, minute), 1);
        assert_eq!(within(130).priority_for(now, Duration::ZERO), PRIORITY_MAX);
        assert_eq!(
            at(SystemTime::UNIX_EPOCH).priority_for(now, Duration::from_secs(1)),
            PRIORITY_MAX
        );
    }
}
