//! The error type of this crate. [`Error::kind`] shows the caller how to react.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::holder::Holder;
use crate::ids::{Csn, ParseOidError};

/// The kinds of [`Error`], by the caller's possible reaction.
///
/// Exhaustive, so that the compiler demands an exception in Python for every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Another transaction committed first: run this one again from the new state.
    Conflict,
    /// A name, an id or a whole federation does not exist.
    NotFound,
    /// A name is taken.
    Exists,
    /// Another process holds a lock: wait, or try again later.
    Busy,
    /// The server does not answer: try again later.
    Unavailable,
    /// The server or the operating system does not permit this: obtain the right, or a new token.
    Denied,
    /// An argument is wrong: correct the call.
    Invalid,
    /// The catalogue's bytes are damaged.
    Corrupt,
    /// The catalogue uses something that this version does not implement.
    Unsupported,
    /// A handle is closed, or a database accepts no more changes: open it again, or use another one.
    Closed,
    /// The disk is full.
    Full,
    /// The operating system refused a read or a write.
    Io,
    /// A bug in this crate.
    Internal,
}

impl ErrorKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [ErrorKind; 13] = [
        ErrorKind::Conflict,
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::Busy,
        ErrorKind::Unavailable,
        ErrorKind::Denied,
        ErrorKind::Invalid,
        ErrorKind::Corrupt,
        ErrorKind::Unsupported,
        ErrorKind::Closed,
        ErrorKind::Full,
        ErrorKind::Io,
        ErrorKind::Internal,
    ];

    /// The name for users: that of Python's exception.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Conflict => "conflict",
            ErrorKind::NotFound => "not-found",
            ErrorKind::Exists => "exists",
            ErrorKind::Busy => "busy",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Denied => "denied",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Closed => "closed",
            ErrorKind::Full | ErrorKind::Io => "storage",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Why an operation on the catalogue or on its locks failed.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another transaction committed a new version of a container first.
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
        /// The committed version.
        head: Option<Csn>,
    },
    /// Another transaction renamed, dropped or changed an object first that this one changes.
    #[error("{what}; run the transaction again")]
    Changed {
        /// The object, how it was changed and by which commit.
        what: String,
    },
    /// A name or an id does not exist.
    #[error("{what} {name:?} does not exist{}", hint(.near_misses))]
    NotFound {
        /// The kind of object, such as `container`.
        what: &'static str,
        /// The name that was looked up.
        name: String,
        /// Existing names that are similar, the most similar first.
        near_misses: Vec<String>,
    },
    /// A folder holds no federation.
    #[error("no federation at {folder}: {reason}", folder = .folder.display())]
    NoFederation {
        /// The folder.
        folder: PathBuf,
        /// The missing file, and advice for the user.
        reason: String,
    },
    /// A name is taken.
    #[error("{what} {name:?} exists already; {advice}")]
    Exists {
        /// The kind of object, such as `container`.
        what: &'static str,
        /// The name.
        name: String,
        /// Advice for the user.
        advice: String,
    },
    /// Another process holds a lock.
    #[error(
        "{what} is locked by {}; gave up after {} ms",
        HolderText(.holder), .waited.as_millis()
    )]
    Busy {
        /// The locked object, such as `container 7 of database 3`.
        what: String,
        /// The holder of the lock, if known.
        holder: Option<Box<Holder>>,
        /// How long this caller waited.
        waited: Duration,
    },
    /// Waiting for a lock would close a cycle of waiting transactions.
    #[error("deadlock: {}; run the transaction again", .cycle.join(", and "))]
    Deadlock {
        /// One text for each transaction of the cycle: the transaction, and the lock that it waits for.
        cycle: Vec<String>,
    },
    /// The catalogue is moving to another place; a caller that gets this error waits for the move.
    #[error("the catalogue is moving to another place; try again")]
    Moving,
    /// The server of the federation cannot be reached.
    #[error("{what}")]
    Unavailable {
        /// The server, the attempt, and advice for the user.
        what: String,
    },
    /// The home of a database is another server.
    #[error("{what}")]
    Elsewhere {
        /// The database, and its home.
        what: String,
        /// The name of that server.
        server: String,
        /// The URL of the federation there.
        url: String,
    },
    /// The caller has no right to do this.
    #[error("{what}")]
    Denied {
        /// The caller, the object, the missing right, and advice for the user.
        what: String,
    },
    /// An argument is wrong.
    #[error("{what}")]
    Invalid {
        /// The problem, and advice for the user.
        what: String,
    },
    /// The catalogue's bytes are damaged.
    #[error("catalogue {path} is damaged: {reason}", path = .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The catalogue uses something that this version does not implement.
    #[error("{what}")]
    Unsupported {
        /// The feature, and which versions implement it.
        what: String,
    },
    /// A handle is closed, or a database accepts no more changes.
    #[error("{what}")]
    Closed {
        /// The object, and advice for the user.
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
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A bug in this crate.
    #[error("internal error: {what}; please report it")]
    Internal {
        /// The condition that should never occur.
        what: String,
    },
}

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of this error: the caller's possible reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Conflict { .. } | Error::Changed { .. } | Error::Deadlock { .. } => {
                ErrorKind::Conflict
            }
            Error::Moving | Error::Unavailable { .. } | Error::Elsewhere { .. } => {
                ErrorKind::Unavailable
            }
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

    /// An error of the operating system during the operation `what` on `path`.
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
}

impl From<ParseOidError> for Error {
    fn from(error: ParseOidError) -> Self {
        Error::invalid(error.to_string())
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
