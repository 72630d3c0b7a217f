//! The error type of this crate.

use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::ErrorKind;

/// Why an operation on a store, or on a database's copies, failed. Every text has a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The catalogue or a lock refused the operation.
    #[error(transparent)]
    Catalogue(#[from] femtobarn_catalog::Error),
    /// The store cannot do it now, and announces that it can after this time.
    #[error("{what}; try again in {} s", .wait.as_secs())]
    NotBefore {
        /// The time from now.
        wait: Duration,
        /// The operation, and the reason for the wait.
        what: String,
    },
    /// The store does not answer, or reports that it cannot do the operation.
    #[error("{what}")]
    Unavailable {
        /// The store, the operation, and the reason.
        what: String,
    },
    /// The store reports that it does not have an object.
    #[error("{what}")]
    NoObject {
        /// The store and the object.
        what: String,
    },
    /// A store, a copy or a file does not exist.
    #[error("{what}")]
    NotFound {
        /// The missing store, copy or file.
        what: String,
    },
    /// The settings or an argument are wrong.
    #[error("{what}")]
    Invalid {
        /// The wrong setting or argument.
        what: String,
    },
    /// A process has the file open.
    #[error("{what}")]
    InUse {
        /// The database, and a remedy.
        what: String,
    },
    /// A rule, the store or the operating system forbids the operation.
    #[error("{what}")]
    Denied {
        /// The forbidden operation, and the reason.
        what: String,
    },
    /// The store or the disk is full.
    #[error("{what}")]
    Full {
        /// The store or the disk that is full.
        what: String,
    },
    /// The bytes of a copy differ from those written.
    #[error("{what}")]
    Corrupt {
        /// The copy, and how the difference was found.
        what: String,
    },
    /// The caller stopped the operation.
    #[error("{what} was stopped")]
    Stopped {
        /// The operation.
        what: String,
    },
    /// The operating system refused a read or a write.
    #[error("{what}: {source}")]
    Io {
        /// The operation and the file.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
}

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of the error, which decides what a caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Catalogue(error) => error.kind(),
            Error::NotBefore { .. } | Error::Unavailable { .. } => ErrorKind::Unavailable,
            Error::NotFound { .. } | Error::NoObject { .. } => ErrorKind::NotFound,
            Error::Invalid { .. } => ErrorKind::Invalid,
            Error::InUse { .. } => ErrorKind::Busy,
            Error::Denied { .. } => ErrorKind::Denied,
            Error::Full { .. } => ErrorKind::Full,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Stopped { .. } => ErrorKind::Closed,
            Error::Io { .. } => ErrorKind::Io,
        }
    }

    /// The failure of an operation on a file.
    pub(crate) fn io(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        use std::io::ErrorKind::{
            NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
        };
        let source = source.into();
        let text = format!("cannot {what} {}", path.display());
        match source.kind() {
            StorageFull | QuotaExceeded => Error::Full { what: format!("{text}: {source}") },
            PermissionDenied | ReadOnlyFilesystem => {
                Error::Denied { what: format!("{text}: {source}") }
            }
            NotFound => Error::NotFound { what: format!("{text}: {source}") },
            _ => Error::Io { what: text, source },
        }
    }

    /// Whether the copy itself is bad or missing, so that another one is needed.
    pub(crate) fn is_about_the_copy(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::NoObject { .. })
    }
}
