//! The error type of the engine.
//!
//! Every error answers [`Error::kind`], chosen by what the caller should do next.

use std::path::Path;

use femtobarn_catalog::DatabaseId;
pub use femtobarn_catalog::ErrorKind;

/// Why an operation on a federation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The catalogue or a lock refused the operation.
    #[error(transparent)]
    Catalogue(#[from] femtobarn_catalog::Error),
    /// A file could not be read or written, or its content is damaged.
    #[error("{what}: {source}")]
    Storage {
        /// The file, database or container.
        what: String,
        /// Why it failed.
        source: rntuple::Error,
    },
    /// The operating system or a server refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The operation and the file.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A store, or the copies of a database in it, refused the operation.
    #[error(transparent)]
    Archive(#[from] femtobarn_archive::Error),
    /// An argument is not valid.
    #[error("{what}")]
    Invalid {
        /// The invalid argument, and a remedy.
        what: String,
    },
    /// A name or an object does not exist.
    #[error("{what}")]
    NotFound {
        /// The missing name or object, and a remedy.
        what: String,
    },
    /// A name or a file exists already.
    #[error("{what}")]
    Exists {
        /// The existing name or file, and a remedy.
        what: String,
    },
    /// Another transaction changed a container that this one builds on.
    #[error("{what}")]
    Conflict {
        /// The change, and a remedy.
        what: String,
    },
    /// The database takes no more changes, or the transaction has ended.
    #[error("{what}")]
    Closed {
        /// The closed database or transaction, and a remedy.
        what: String,
    },
    /// A rule forbids the change.
    #[error("{what}")]
    Denied {
        /// The rule, and a remedy.
        what: String,
    },
    /// A database's file is not on the disk, but in a store.
    #[error("{what}")]
    Nearline {
        /// The database.
        database: DatabaseId,
        /// The store that holds the file, and how to stage it.
        what: String,
    },
    /// Bytes of a database file are damaged.
    #[error("{what}")]
    Corrupt {
        /// The damaged bytes, and the kind of the damage.
        what: String,
    },
}

impl From<femtobarn_format::Error> for Error {
    fn from(error: femtobarn_format::Error) -> Self {
        match error {
            femtobarn_format::Error::Catalogue(error) => Error::Catalogue(error),
            femtobarn_format::Error::Storage { what, source } => Error::Storage { what, source },
            femtobarn_format::Error::Invalid { what } => Error::Invalid { what },
            femtobarn_format::Error::Corrupt { what } => Error::Corrupt { what },
            other => Error::Invalid { what: other.to_string() },
        }
    }
}

/// The result of the engine's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of the error, which decides what a caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Catalogue(error) => error.kind(),
            Error::Storage { source, .. } => match source {
                rntuple::Error::Io { source, .. } => io_kind(source),
                other => storage_kind(other.kind()),
            },
            Error::Io { source, .. } => io_kind(source),
            Error::Invalid { .. } => ErrorKind::Invalid,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Exists { .. } => ErrorKind::Exists,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::Closed { .. } => ErrorKind::Closed,
            Error::Denied { .. } => ErrorKind::Denied,
            Error::Nearline { .. } => ErrorKind::Unavailable,
            Error::Archive(error) => error.kind(),
            Error::Corrupt { .. } => ErrorKind::Corrupt,
        }
    }

    /// Whether damaged bytes can be the cause.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind() == ErrorKind::Corrupt
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// The failure of an operation on a file: [`Error::Io`], or [`Error::Conflict`] if `source` wraps one, as errors of
    /// remote files do.
    pub(crate) fn io(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        let (what, source) = (format!("cannot {what} {}", path.display()), source.into());
        match source.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::Conflict { what: why }) => {
                Error::Conflict { what: format!("{what}: {why}") }
            }
            _ => Error::Io { what, source },
        }
    }

    /// Adds the name of the file, database or container to an error of `rntuple`.
    pub(crate) fn storage(what: impl Into<String>) -> impl FnOnce(rntuple::Error) -> Self {
        let what = what.into();
        move |source| Error::Storage { what, source }
    }

    /// Wraps this error for a function that returns `rntuple::Error`. Once that function's result has become
    /// [`Error::Storage`], [`Error::kind`] finds the original kind.
    pub(crate) fn into_rntuple(self, what: &str) -> rntuple::Error {
        let source = match self {
            Error::Io { source, what } => {
                std::io::Error::new(source.kind(), format!("{what}: {source}"))
            }
            other => std::io::Error::other(other),
        };
        rntuple::Error::Io { what: what.to_owned(), source }
    }
}

fn storage_kind(kind: rntuple::ErrorKind) -> ErrorKind {
    match kind {
        rntuple::ErrorKind::Corrupt => ErrorKind::Corrupt,
        rntuple::ErrorKind::Unsupported => ErrorKind::Unsupported,
        rntuple::ErrorKind::Invalid => ErrorKind::Invalid,
        rntuple::ErrorKind::NotFound => ErrorKind::NotFound,
        rntuple::ErrorKind::Io => ErrorKind::Io,
    }
}

fn io_kind(error: &std::io::Error) -> ErrorKind {
    // An error of the engine that passed through a function of `rntuple`.
    if let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return own.kind();
    }
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::Denied
        }
        std::io::ErrorKind::ConnectionRefused
        | std::io::ErrorKind::ConnectionReset
        | std::io::ErrorKind::HostUnreachable
        | std::io::ErrorKind::TimedOut => ErrorKind::Unavailable,
        _ => ErrorKind::Io,
    }
}
