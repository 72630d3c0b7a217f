//! The wall clock, which no other module of this crate reads.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 (UTC).
pub(crate) fn unix_nanoseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
