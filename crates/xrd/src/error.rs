//! The one error type of this crate.
//!
//! Bytes from the wire never cause a panic: they yield an [`Error`] that says what was being read,
//! at which byte of the message, and what is wrong with it.

use crate::codes::ErrorCode;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The other side sent bytes that are no message of the protocol.
    Malformed,
    /// The other side sent, or the caller built, more than a limit allows.
    TooLong,
    /// The caller asked for a message that the protocol cannot express.
    Invalid,
}

/// Why bytes are not a message, or a message cannot become bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no message of the protocol.
    #[error("{what} at byte {offset}: {reason}")]
    Malformed {
        /// What was being read, such as `open request`.
        what: &'static str,
        /// Where, in bytes from the start of the message with its header.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// A part of a message is longer than a limit allows.
    #[error("{what} has {length} {unit}, but at most {limit} are allowed")]
    TooLong {
        /// What is too long, such as `request body`.
        what: &'static str,
        /// How long it is.
        length: u64,
        /// How long it may be; see [`crate::limits`].
        limit: u64,
        /// What is counted: `bytes` or `items`.
        unit: &'static str,
    },
    /// The caller asked for a message that the protocol cannot express.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what to do about it.
        what: String,
    },
}

impl Error {
    /// What a caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Malformed { .. } => ErrorKind::Malformed,
            Error::TooLong { .. } => ErrorKind::TooLong,
            Error::Invalid { .. } => ErrorKind::Invalid,
        }
    }

    /// The code by which a server tells a client of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::TooLong { .. } => ErrorCode::ARG_TOO_LONG,
            Error::Malformed { .. } | Error::Invalid { .. } => ErrorCode::ARG_INVALID,
        }
    }

    pub(crate) fn malformed(what: &'static str, offset: usize, reason: impl Into<String>) -> Self {
        Error::Malformed { what, offset, reason: reason.into() }
    }

    pub(crate) fn too_many_bytes(what: &'static str, length: usize, limit: usize) -> Self {
        Error::TooLong { what, length: length as u64, limit: limit as u64, unit: "bytes" }
    }

    pub(crate) fn too_many_items(what: &'static str, length: usize, limit: usize) -> Self {
        Error::TooLong { what, length: length as u64, limit: limit as u64, unit: "items" }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }
}

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
