//! Seconds that Python gives, as durations.

use std::time::Duration;

use pyo3::prelude::*;

use crate::error::exception;

/// How long a server is waited for at most: a year.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait for a server.
///
/// # Errors
/// `InvalidError` if that is no time.
pub(crate) fn server_timeout(seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // Clocks cannot tell what is beyond.
        Ok(time) if !time.is_zero() => Ok(time.min(TIMEOUT_MAX)),
        _ => Err(exception("invalid", format!("a server cannot be waited for {seconds} s"))),
    }
}

/// How long to wait for a lock.
///
/// # Errors
/// `InvalidError` if that is no time.
pub(crate) fn lock_wait_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| exception("invalid", format!("a lock cannot be waited for {seconds} s")))
}
