//! The only place that reads the machine's clocks, for this crate and for those above it.
//!
//! [`now`] measures waits and never goes back. The other functions tell the time of day, which an operator or
//! NTP may set back at any moment: they label rows and messages, and never order two events.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, for deadlines and durations.
pub fn now() -> Instant {
    Instant::now()
}

/// The time of day, in the type of file timestamps.
pub fn utc() -> SystemTime {
    SystemTime::now()
}

/// Nanoseconds since 1970 (UTC); 0 if the clock is set to an earlier time.
pub fn utc_ns() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds since 1970 (UTC); 0 if the clock is set to an earlier time.
pub fn utc_us() -> i64 {
    i64::try_from(since_1970().as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 (UTC); 0 if the clock is set to an earlier time.
pub fn utc_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// Blocks this thread for `time`.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

fn since_1970() -> Duration {
    utc().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
