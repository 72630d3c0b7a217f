//! The client's errors. Each names the server and the path that it concerns.

use std::time::Duration;

use super::endpoint::Endpoint;
use crate::codes::ErrorCode;

/// The result of the client's operations.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused the request.
    #[error("{server} refuses {path}: {message} ({code})")]
    Refused {
        /// The server.
        server: Endpoint,
        /// The file or directory; for other requests, their argument.
        path: String,
        /// The protocol's error code.
        code: ErrorCode,
        /// The server's text.
        message: String,
    },
    /// There is no connection to the server, or its certificate is not trusted.
    #[error("{server} cannot be reached for {path}: {reason}")]
    Unreachable {
        /// The server.
        server: Endpoint,
        /// The file or directory.
        path: String,
        /// The network's or TLS's error.
        reason: String,
    },
    /// The connection was lost during an operation that must not be repeated. The server may have executed it.
    #[error("connection to {server} lost, {reason}: {path} may or may not have changed")]
    Lost {
        /// The server.
        server: Endpoint,
        /// The file or directory.
        path: String,
        /// How the connection was lost.
        reason: String,
    },
    /// No answer arrived in time.
    #[error("{server} did not answer for {path} within {} s", .after.as_secs())]
    TimedOut {
        /// The server.
        server: Endpoint,
        /// The file or directory.
        path: String,
        /// The time without an answer.
        after: Duration,
    },
    /// The server asks to wait for longer than the operation may take.
    #[error("{server} delays {path} for {} s, longer than is allowed", .wait.as_secs())]
    MustWait {
        /// The server.
        server: Endpoint,
        /// The file or directory.
        path: String,
        /// The time that it asks for.
        wait: Duration,
    },
    /// The server violates the protocol.
    #[error("{server} violates the protocol for {path}: {source}")]
    Protocol {
        /// The server.
        server: Endpoint,
        /// The file or directory.
        path: String,
        /// The message that the server sent, and the error in it.
        source: crate::Error,
    },
    /// The server accepts none of the credentials that this client has.
    #[error("{server} does not let {user} log in: {reason}")]
    Login {
        /// The server.
        server: Endpoint,
        /// The user's name.
        user: String,
        /// The security protocols that were tried, and why each failed.
        reason: String,
    },
    /// A page's checksum was wrong twice: when it was read, and when it was read again.
    #[error("{server} sends damaged data of {path}: {length} bytes at {offset}")]
    Damaged {
        /// The server.
        server: Endpoint,
        /// The file.
        path: String,
        /// The first damaged byte in the file.
        offset: u64,
        /// The number of bytes.
        length: usize,
    },
    /// The caller's argument is invalid.
    #[error("{what}")]
    Invalid {
        /// The argument, and the reason.
        what: String,
    },
}

impl ClientError {
    /// The server's error code, for [`ClientError::Refused`].
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// This error as a [`std::io::Error`] of the closest kind.
    pub fn into_io(self) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match &self {
            ClientError::Refused { code, .. } => kind_of(*code),
            ClientError::Unreachable { .. } => ErrorKind::ConnectionRefused,
            ClientError::Lost { .. } => ErrorKind::ConnectionReset,
            ClientError::TimedOut { .. } | ClientError::MustWait { .. } => ErrorKind::TimedOut,
            ClientError::Protocol { .. } | ClientError::Damaged { .. } => ErrorKind::InvalidData,
            ClientError::Login { .. } => ErrorKind::PermissionDenied,
            ClientError::Invalid { .. } => ErrorKind::InvalidInput,
        };
        std::io::Error::new(kind, self)
    }
}

fn kind_of(code: ErrorCode) -> std::io::ErrorKind {
    use std::io::ErrorKind;
    match code {
        ErrorCode::NOT_FOUND => ErrorKind::NotFound,
        ErrorCode::IT_EXISTS => ErrorKind::AlreadyExists,
        ErrorCode::NOT_AUTHORIZED | ErrorCode::AUTH_FAILED | ErrorCode::TLS_REQUIRED => {
            ErrorKind::PermissionDenied
        }
        ErrorCode::NO_SPACE => ErrorKind::StorageFull,
        ErrorCode::OVER_QUOTA => ErrorKind::QuotaExceeded,
        ErrorCode::FS_READ_ONLY => ErrorKind::ReadOnlyFilesystem,
        ErrorCode::IS_DIRECTORY => ErrorKind::IsADirectory,
        ErrorCode::UNSUPPORTED => ErrorKind::Unsupported,
        ErrorCode::ARG_INVALID | ErrorCode::ARG_MISSING | ErrorCode::ARG_TOO_LONG => {
            ErrorKind::InvalidInput
        }
        ErrorCode::FILE_LOCKED | ErrorCode::CONFLICT => ErrorKind::ResourceBusy,
        ErrorCode::NO_SERVER => ErrorKind::HostUnreachable,
        ErrorCode::REQUEST_TIMED_OUT | ErrorCode::TIMER_EXPIRED => ErrorKind::TimedOut,
        _ => ErrorKind::Other,
    }
}
