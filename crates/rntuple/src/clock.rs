//! The only module that reads the time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 if the system's clock is before that.
pub(crate) fn unix_seconds() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_secs() as i64
}
