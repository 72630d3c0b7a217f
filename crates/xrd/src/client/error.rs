//! The client's errors: each says which server and path it is about, and what was wrong.

use std::time::Duration;

use super::url::Endpoint;
use crate::codes::ErrorCode;

/// The result of the client's operations.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused it.
    #[error("{server} refuses {path}: {message} ({code})")]
    Refused {
        /// The server.
        server: Endpoint,
        /// The file or folder, or what else was asked.
        path: String,
        /// The reason that programs understand.
        code: ErrorCode,
        /// The server's text.
        message: String,
    },
    /// There is no connection to the server, or none that can be trusted.
    #[error("{server} cannot be reached for {path}: {reason}")]
    Unreachable {
        /// The server.
        server: Endpoint,
        /// What was to be done there.
        path: String,
        /// What the network says.
        reason: String,
    },
    /// The connection was lost, and the operation must not be done twice: whether it was done is not
    /// known.
    #[error("{server} was lost, {reason}; it is not known what became of {path}")]
    Lost {
        /// The server.
        server: Endpoint,
        /// The file or folder.
        path: String,
        /// How the connection was lost.
        reason: String,
    },
    /// No answer came in time.
    #[error("{server} did not answer for {path} within {} s", .after.as_secs())]
    TimedOut {
        /// The server.
        server: Endpoint,
        /// The file or folder.
        path: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The server does not speak the protocol.
    #[error("{server} does not keep to the protocol for {path}: {source}")]
    Protocol {
        /// The server.
        server: Endpoint,
        /// The file or folder.
        path: String,
        /// What it sent.
        source: crate::Error,
    },
    /// The server does not take what this client can prove.
    #[error("{server} does not let {user} log in: {reason}")]
    Login {
        /// The server.
        server: Endpoint,
        /// Who asked.
        user: String,
        /// What was tried.
        reason: String,
    },
    /// Data came damaged, and once more when they were read again.
    #[error("{server} sends damaged data of {path}: {length} bytes from {offset} on")]
    Damaged {
        /// The server.
        server: Endpoint,
        /// The file.
        path: String,
        /// Where they start in the file, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// The operation makes no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
}

impl ClientError {
    /// The server's code, if it was the server that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// As an error of input and output, with the kind that fits.
    pub fn into_io(self) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match &self {
            ClientError::Refused { code, .. } => kind_of(*code),
            ClientError::Unreachable { .. } => ErrorKind::ConnectionRefused,
            ClientError::Lost { .. } => ErrorKind::ConnectionReset,
            ClientError::TimedOut { .. } => ErrorKind::TimedOut,
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
        ErrorCode::REQUEST_TIMED_OUT | ErrorCode::TIMER_EXPIRED => ErrorKind::TimedOut,
        _ => ErrorKind::Other,
    }
}
