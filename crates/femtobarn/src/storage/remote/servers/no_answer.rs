//! Errors that do not answer a question, so that another server may be asked.

use femtobarn_catalog::{Error, ErrorKind};

use crate::storage::remote::server_file::may_answer_later;

/// An error of a request to one of several servers.
pub(super) trait RequestError: std::fmt::Display {
    /// Whether another server may answer.
    fn is_no_answer(&self) -> bool;

    /// Whether the server may answer later.
    fn is_temporary(&self) -> bool;

    /// The error if no server answers.
    fn unavailable(what: String) -> Self;
}

impl RequestError for Error {
    fn is_no_answer(&self) -> bool {
        match self.kind() {
            ErrorKind::Unavailable
            | ErrorKind::Denied
            | ErrorKind::Corrupt
            | ErrorKind::Unsupported
            | ErrorKind::Full
            | ErrorKind::Io
            | ErrorKind::Internal => true,
            ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Exists
            | ErrorKind::Busy
            | ErrorKind::Invalid
            | ErrorKind::Closed => false,
        }
    }

    fn is_temporary(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    fn unavailable(what: String) -> Self {
        Error::Unavailable { what }
    }
}

/// For files: whatever error one server reports of its copy, another may have the bytes.
impl RequestError for std::io::Error {
    fn is_no_answer(&self) -> bool {
        true
    }

    fn is_temporary(&self) -> bool {
        may_answer_later(self)
    }

    fn unavailable(what: String) -> Self {
        std::io::Error::new(std::io::ErrorKind::ConnectionRefused, what)
    }
}
