//! What recalls take, as far as those before tell.

use std::time::Duration;

/// How much a new measurement counts.
const WEIGHT: f64 = 0.2;
/// What is assumed before the first recall: a mount, and half the rate of a tape drive.
const FIRST_SECONDS: f64 = 60.0;
const FIRST_BYTES_PER_SECOND: f64 = 150e6;

/// Averages over the last recalls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecallRates {
    /// Of all, in seconds, and the bytes that they moved.
    average: Option<(f64, f64)>,
}

impl RecallRates {
    /// Notes what a recall took.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) {
        let measured = (took.as_secs_f64(), bytes as f64);
        let mix = |old: f64, new: f64| old + WEIGHT * (new - old);
        let average = self
            .average
            .map_or(measured, |average| (mix(average.0, measured.0), mix(average.1, measured.1)));
        self.average = Some(average);
    }

    /// What `recalls` with `bytes` take together with a number of streams.
    pub(super) fn estimate(&self, recalls: usize, bytes: u64, streams: usize) -> Duration {
        let seconds = match self.average {
            // Half of the time is taken to belong to the file, half to its bytes.
            Some((seconds, average)) if average > 0.0 => {
                0.5 * seconds * recalls as f64 + 0.5 * seconds * (bytes as f64 / average)
            }
            Some((seconds, _)) => seconds * recalls as f64,
            None => FIRST_SECONDS + bytes as f64 / FIRST_BYTES_PER_SECOND,
        };
        Duration::try_from_secs_f64(seconds / streams.max(1) as f64).unwrap_or(Duration::MAX)
    }
}
