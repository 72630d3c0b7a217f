//! Conversions of unsigned 64-bit numbers to and from the signed ones of SQL and of the kernel's locks.
//!
//! Sizes, offsets and CSNs stay below 2^63.

/// Saturates at `i64::MAX`, on which look-ups at [`Csn::MAX`](crate::Csn::MAX) rely.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a negative number, which only a damaged catalogue has, as 0.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
