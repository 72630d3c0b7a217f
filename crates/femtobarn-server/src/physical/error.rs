//! Errors of storages.

use std::fmt::Display;
use std::time::Duration;

use nix::errno::Errno;

/// The result of a storage's method.
pub type StorageResult<T> = Result<T, StorageError>;

/// Why a storage failed or refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageError {
    /// The operation failed. The number decides the protocol's error code, the text is for people.
    Refused(Errno, String),
    /// The operation can be tried again after this time.
    NotBefore(Duration, String),
    /// Another server answers the request.
    Elsewhere {
        /// The host of the server.
        host: String,
        /// The port of the server.
        port: u16,
        /// Opaque information that the client has to send there.
        opaque: String,
        /// Whether it requires TLS.
        is_encrypted: bool,
    },
}

impl StorageError {
    /// A failed operation.
    pub fn refused(errno: Errno, what: impl Into<String>) -> Self {
        StorageError::Refused(errno, what.into())
    }

    /// An operation that the operating system refused. `what` completes "cannot .. PATH": a verb, with an object if
    /// necessary.
    pub fn cannot(what: &str, path: &impl Display, errno: Errno) -> Self {
        // In lower case, as in XRootD's servers: clients recognise errors by texts such as `directory not empty`.
        let why = errno.desc().to_lowercase();
        StorageError::Refused(errno, format!("cannot {what} {path}: {why}"))
    }

    /// The text for people.
    pub fn into_text(self) -> String {
        match self {
            StorageError::Refused(_, what) | StorageError::NotBefore(_, what) => what,
            StorageError::Elsewhere { host, .. } => format!("served by {host}"),
        }
    }
}
