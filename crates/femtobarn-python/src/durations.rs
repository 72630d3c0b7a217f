//! Durations from seconds that Python passes.

use std::time::Duration;

use pyo3::prelude::*;

use crate::error::exception;

/// The longest wait for a server: a year.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long to wait for a server; at most a year.
///
/// # Errors
/// `InvalidError` unless `seconds` is positive and finite.
pub(crate) fn server_timeout(seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // Clocks overflow beyond this.
        Ok(time) if !time.is_zero() => Ok(time.min(TIMEOUT_MAX)),
        _ => Err(exception("invalid", format!("invalid timeout of {seconds} s: must be positive"))),
    }
}

/// How long to wait for a lock.
///
/// # Errors
/// `InvalidError` if `seconds` is negative or not finite.
pub(crate) fn lock_wait_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        exception("invalid", format!("invalid wait for a lock of {seconds} s: must be 0 or more"))
    })
}
