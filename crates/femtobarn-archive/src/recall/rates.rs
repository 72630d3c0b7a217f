//! The time that recalls take, by the previous ones: the first of a tape, with its mount, and those that follow.

use std::time::Duration;

/// The weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// Assumed before the first recall: a mount if there are tapes, and half the rate of a tape drive.
const FIRST_SECONDS: f64 = 60.0;
const FIRST_BYTES_PER_SECOND: f64 = 150e6;

/// Averages over the last recalls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecallRates {
    after_mount: Option<Average>,
    following: Option<Average>,
}

/// Seconds, and the bytes that were moved in them.
#[derive(Clone, Copy, Debug)]
struct Average {
    seconds: f64,
    bytes: f64,
}

impl RecallRates {
    /// Records the time of a recall.
    pub(super) fn note(&mut self, bytes: u64, took: Duration, is_after_mount: bool) {
        let average = if is_after_mount { &mut self.after_mount } else { &mut self.following };
        let measured = Average { seconds: took.as_secs_f64(), bytes: bytes as f64 };
        let mix = |old: f64, new: f64| old + WEIGHT * (new - old);
        *average = Some(average.map_or(measured, |old| Average {
            seconds: mix(old.seconds, measured.seconds),
            bytes: mix(old.bytes, measured.bytes),
        }));
    }

    /// The time that `recalls` with `bytes` in all and `mounts` (objects without tapes count, too) take over a number
    /// of streams. Before the first measurement it depends on whether the last one `is_on_tape`.
    pub(super) fn estimate(
        &self,
        (recalls, bytes): (usize, u64),
        (mounts, is_on_tape): (usize, bool),
        streams: usize,
    ) -> Duration {
        let seconds = match (self.after_mount, self.following) {
            (Some(first), Some(next)) => {
                let mount = (first.seconds - next.seconds).max(0.0);
                mount * mounts as f64 + next.of(recalls, bytes)
            }
            (Some(average), None) | (None, Some(average)) => average.of(recalls, bytes),
            (None, None) => {
                let mount = if is_on_tape { FIRST_SECONDS } else { 0.0 };
                mount + bytes as f64 / FIRST_BYTES_PER_SECOND
            }
        };
        Duration::try_from_secs_f64(seconds / streams.max(1) as f64).unwrap_or(Duration::MAX)
    }
}

impl Average {
    /// Half of the time is attributed to the number of files, half to their bytes.
    fn of(&self, recalls: usize, bytes: u64) -> f64 {
        let files = recalls as f64;
        let sizes = if self.bytes > 0.0 { bytes as f64 / self.bytes } else { files };
        0.5 * self.seconds * (files + sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_tape_are_not_estimated_with_a_mount_each() {
        let mut rates = RecallRates::default();
        let seconds =
            |rates: &RecallRates, mounts| rates.estimate((10, 1000), (mounts, true), 1).as_secs();
        rates.note(100, Duration::from_secs(100), true);
        assert_eq!(seconds(&rates, 10), 1000, "all that is known");
        rates.note(100, Duration::from_secs(5), false);
        assert_eq!(seconds(&rates, 10), 1000);
        assert_eq!(seconds(&rates, 2), 240);
        assert_eq!(rates.estimate((10, 1000), (2, true), 4).as_secs(), 60);
    }

    #[test]
    fn only_the_first_recall_of_a_tape_is_estimated_with_a_mount() {
        let first = |is_on_tape| {
            RecallRates::default().estimate((1, 300_000_000), (1, is_on_tape), 1).as_secs()
        };
        assert_eq!(first(true), 62);
        assert_eq!(first(false), 2);
    }
}
