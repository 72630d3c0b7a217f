//! SQL integers are signed; sizes, offsets and CSNs are not, and stay below 2^63.

/// For SQL. What does not fit is the largest there is, which a look-up "as of now" relies on.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// From SQL. A negative number is damage, and reads as 0.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
