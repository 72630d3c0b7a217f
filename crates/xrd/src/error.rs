//! The error type of this crate.
//!
//! An [`Error`] about bytes from the wire names the message, the offset in it, and the reason.

use crate::codes::ErrorCode;

/// The kind of an [`Error`], which decides what a caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The other side sent an invalid message.
    Malformed,
    /// The other side sent, or the caller built, more than a limit allows.
    TooLong,
    /// The caller built a message that the protocol cannot express.
    Invalid,
}

/// Why bytes cannot be decoded, or a message cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not a valid message.
    #[error("{what} at byte {offset}: {reason}")]
    Malformed {
        /// The message or part that was decoded, such as `open request`.
        what: &'static str,
        /// The offset in bytes from the start of the message, its header included.
        offset: usize,
        /// The error at that offset.
        reason: String,
    },
    /// A part of a message is longer than a limit allows.
    #[error("{what} has {length} {unit}, but at most {limit} are allowed")]
    TooLong {
        /// The part that is too long, such as `request body`.
        what: &'static str,
        /// Its length.
        length: u64,
        /// The maximum; see [`crate::limits`].
        limit: u64,
        /// The unit of both: `bytes` or `items`.
        unit: &'static str,
    },
    /// The caller built a message that the protocol cannot express.
    #[error("{what}")]
    Invalid {
        /// The reason, and a remedy.
        what: String,
    },
}

impl Error {
    /// The kind of this error, which decides what a caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Malformed { .. } => ErrorKind::Malformed,
            Error::TooLong { .. } => ErrorKind::TooLong,
            Error::Invalid { .. } => ErrorKind::Invalid,
        }
    }

    /// The error code of a server's response to the message.
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
