//! The only place of the client that reads a clock. The state machines take the time as an argument.

use std::time::Instant;

/// The monotonic clock, for deadlines and durations.
pub(super) fn now() -> Instant {
    Instant::now()
}
