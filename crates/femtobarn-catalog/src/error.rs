//! The one error type of this crate.
//!
//! Every error answers [`Error::kind`], chosen by what the caller should do next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use rusqlite::ErrorCode;

use crate::ids::Csn;
use crate::locks::Holder;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Another transaction was first: run this one again from the new state.
    Conflict,
    /// A name, an id or a whole federation does not exist.
    NotFound,
    /// A name is taken.
    Exists,
    /// Somebody else holds a lock: wait, or come back later.
    Busy,
    /// The server does not answer: come back later.
    Unavailable,
    /// The server or the operating system does not let the caller do this: get the right to, or a new token.
    Denied,
    /// The caller asked for something that makes no sense.
    Invalid,
    /// The catalogue's bytes are damaged.
    Corrupt,
    /// The catalogue uses something that this version does not implement.
    Unsupported,
    /// What was asked for takes no more changes, or is gone: open it again, or open another.
    Closed,
    /// The disk is full.
    Full,
    /// The operating system refused a read or a write.
    Io,
    /// A bug in this crate.
    Internal,
}

/// Why an operation on the catalogue or on its locks failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction committed a container first.
    #[error(
        "container {container:?} is at {} but this transaction started from {}; \
         run the transaction again",
        Base(.head), Base(.base)
    )]
    Conflict {
        /// The container, as `database/container`.
        container: String,
        /// The version that this transaction started from.
        base: Option<Csn>,
        /// The version that is committed.
        head: Option<Csn>,
    },
    /// Another transaction renamed, dropped or filled first what this one wants to change.
    #[error("{what}; run the transaction again")]
    Changed {
        /// What was changed, how and by which commit.
        what: String,
    },
    /// A name or an id does not exist.
    #[error("{what} {name:?} does not exist{}", hint(.near_misses))]
    NotFound {
        /// What kind of thing, such as `container`.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// Names that do exist and are like it, the likest first.
        near_misses: Vec<String>,
    },
    /// A folder holds no federation.
    #[error("no federation at {folder}: {reason}", folder = .folder.display())]
    NoFederation {
        /// The folder.
        folder: PathBuf,
        /// What is missing and what to do.
        reason: String,
    },
    /// A name is taken.
    #[error("{what} {name:?} exists already; {advice}")]
    Exists {
        /// What kind of thing, such as `container`.
        what: &'static str,
        /// The name.
        name: String,
        /// What to do.
        advice: String,
    },
    /// Somebody else holds a lock.
    #[error(
        "{what} is locked by {}; gave up after {} ms",
        HolderText(.holder), .waited.as_millis()
    )]
    Busy {
        /// What is locked, such as `container 7 of database 3`.
        what: String,
        /// Who holds it, if it could be found out.
        holder: Option<Box<Holder>>,
        /// How long this caller waited.
        waited: Duration,
    },
    /// Waiting for a lock would never end.
    #[error("deadlock: {}; run the transaction again", .cycle.join(", and "))]
    Deadlock {
        /// Who waits for what that is held by whom, from one to the next and back to the first.
        cycle: Vec<String>,
    },
    /// The server of the federation cannot be reached.
    #[error("{what}")]
    Unavailable {
        /// Which, what was tried, and what to do about it.
        what: String,
    },
    /// The caller has not the right to do this.
    #[error("{what}")]
    Denied {
        /// Who may not do what to which thing, and what to do about it.
        what: String,
    },
    /// The caller asked for something that makes no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong and what to do about it.
        what: String,
    },
    /// The catalogue's bytes are damaged.
    #[error("catalogue {path} is damaged: {reason}", path = .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The catalogue uses something that this version does not implement.
    #[error("{what}")]
    Unsupported {
        /// What it is, and which versions know it.
        what: String,
    },
    /// What was asked for takes no more changes, or is gone.
    #[error("{what}")]
    Closed {
        /// What it is and what to do about it.
        what: String,
    },
    /// The disk is full.
    #[error("no space left on the disk of {path}; nothing was committed, free some and commit again",
        path = .path.display())]
    Full {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The operating system refused a read or a write.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The reason given.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A bug in this crate.
    #[error("internal error: {what}; please report it")]
    Internal {
        /// What should never have happened.
        what: String,
    },
}

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What a caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Conflict { .. } | Error::Changed { .. } | Error::Deadlock { .. } => {
                ErrorKind::Conflict
            }
            Error::Unavailable { .. } => ErrorKind::Unavailable,
            Error::Denied { .. } => ErrorKind::Denied,
            Error::NotFound { .. } | Error::NoFederation { .. } => ErrorKind::NotFound,
            Error::Exists { .. } => ErrorKind::Exists,
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Invalid { .. } => ErrorKind::Invalid,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Closed { .. } => ErrorKind::Closed,
            Error::Full { .. } => ErrorKind::Full,
            Error::Io { .. } => ErrorKind::Io,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::Invalid { what: what.into() }
    }

    pub(crate) fn denied(what: impl Into<String>) -> Self {
        Error::Denied { what: what.into() }
    }

    pub(crate) fn closed(what: impl Into<String>) -> Self {
        Error::Closed { what: what.into() }
    }

    pub(crate) fn changed(what: impl Into<String>) -> Self {
        Error::Changed { what: what.into() }
    }

    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Error::Internal { what: what.into() }
    }

    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Error::Corrupt { path: path.to_owned(), reason: reason.into() }
    }

    /// An operating system's error about `path`, while doing `what`.
    pub(crate) fn io(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Error::Full { path: path.to_owned() }
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                Error::denied(format!("{what} {}: {source}", path.display()))
            }
            _ => Error::Io { what: format!("{what} {}", path.display()), source: Arc::new(source) },
        }
    }

    /// SQLite's error about the catalogue at `path`.
    pub(crate) fn sql(path: &Path, source: rusqlite::Error) -> Self {
        let what = || format!("catalogue {}", path.display());
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Error::corrupt(path, source.to_string())
            }
            Some(ErrorCode::DiskFull) => Error::Full { path: path.to_owned() },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::Busy { what: what(), holder: None, waited: crate::local::BUSY_WAIT }
            }
            Some(ErrorCode::ReadOnly) => {
                Error::denied(format!("{} is read-only here; nothing was committed", what()))
            }
            Some(ErrorCode::PermissionDenied) => Error::denied(format!("{}: {source}", what())),
            Some(ErrorCode::CannotOpen)
                if access(path, AccessFlags::R_OK) == Err(Errno::EACCES) =>
            {
                Error::denied(format!("{} may not be read: {}", what(), Errno::EACCES.desc()))
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                Error::Io { what: what(), source: Arc::new(source) }
            }
            _ => Error::internal(format!("{}: {source}", what())),
        }
    }
}

/// What running SQL comes to.
pub(crate) type Attempt<T> = std::result::Result<T, Failure>;

/// What goes wrong while SQL runs: SQLite's own error, which still lacks the path of the
/// catalogue, or one of ours.
#[derive(Debug)]
pub(crate) enum Failure {
    Sql(rusqlite::Error),
    Said(Error),
}

impl Failure {
    pub(crate) fn at(self, path: &Path) -> Error {
        match self {
            Failure::Sql(source) => Error::sql(path, source),
            Failure::Said(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(source: rusqlite::Error) -> Self {
        Failure::Sql(source)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Said(error)
    }
}

struct Base<'a>(&'a Option<Csn>);

impl fmt::Display for Base<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(csn) => write!(f, "commit {csn}"),
            None => f.write_str("no version"),
        }
    }
}

struct HolderText<'a>(&'a Option<Box<Holder>>);

impl fmt::Display for HolderText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) => holder.fmt(f),
            None => f.write_str("another process"),
        }
    }
}

fn hint(near_misses: &[String]) -> String {
    match near_misses {
        [] => String::new(),
        [name] => format!("; did you mean {name:?}?"),
        names => format!("; did you mean one of {}?", quoted(names)),
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
