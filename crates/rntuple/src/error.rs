//! The one error type of this crate.
//!
//! Damaged bytes never cause a panic: they yield [`Error::Corrupt`] or [`Error::Unsupported`], which
//! name the structure that was read and its offset.

use std::io;

/// The kind of an [`Error`], which decides what a caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The bytes are damaged, truncated or not of the expected format.
    Corrupt,
    /// The bytes are sound, but use something that this library does not implement.
    Unsupported,
    /// The caller asked for something impossible, such as an array of the wrong type.
    Invalid,
    /// The name, field or entry does not exist.
    NotFound,
    /// The operating system refused a read or a write.
    Io,
}

/// Why an operation on an RNTuple or its file failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are damaged, truncated or not of the expected format.
    #[error("{what} at byte {offset}: {reason}")]
    Corrupt {
        /// The item that was being read, such as `page list envelope`.
        what: &'static str,
        /// Byte offset in the file, or within the envelope while one is decoded.
        offset: u64,
        /// The damage found.
        reason: String,
    },
    /// The bytes are sound, but use something that this library does not implement.
    #[error("{what} is not supported")]
    Unsupported {
        /// The feature, such as `feature flag 3` or `compression algorithm "CS"`.
        what: String,
    },
    /// The caller asked for something impossible.
    #[error("{what}")]
    Invalid {
        /// The wrong argument, and a remedy.
        what: String,
    },
    /// The name, field or entry does not exist.
    #[error("{what} {name:?} does not exist{}", hint(.candidates))]
    NotFound {
        /// The kind of the missing item, such as `field` or `RNTuple`.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// Existing names, for a hint.
        candidates: Vec<String>,
    },
    /// The operating system refused a read or a write.
    #[error("{what}: {source}")]
    Io {
        /// The operation, such as `read`.
        what: String,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl Error {
    /// The kind of this error, which decides what a caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Invalid { .. } => ErrorKind::Invalid,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// Whether damaged bytes can be the cause: they may also claim unsupported features.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
    }

    pub(crate) fn corrupt(what: &'static str, offset: u64, reason: impl Into<String>) -> Self {
        Error::Corrupt { what, offset, reason: reason.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Error::Unsupported { what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }
}

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

fn hint(candidates: &[String]) -> String {
    match candidates {
        [] => String::new(),
        names => format!("; there is {}", names.join(", ")),
    }
}
