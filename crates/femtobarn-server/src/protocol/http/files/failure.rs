//! Answers to requests for files that fail.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use femtobarn_catalog::ErrorKind;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use nix::errno::Errno;

use crate::auth::Refusal;
use crate::physical::StorageError;
use crate::protocol::answer_counting::kind_of_status;
use crate::protocol::http::clients::said;

/// The methods for databases.
pub(super) const READING_METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND";

/// The methods that are understood.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, MKCOL, MOVE";

/// The methods, including copies from and to other servers.
pub(super) const METHODS_AND_COPY: &str =
    "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, MKCOL, MOVE, COPY";

/// Why a request for a file failed or was refused; the text is for its user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HttpFailure {
    /// The request cannot be understood.
    Malformed(String),
    /// The client's token is not accepted.
    Unauthorized(String),
    /// The client lacks the right.
    Forbidden(String),
    /// The path does not allow the method; the methods that it allows.
    NotAllowed(String, &'static str),
    /// The state of the path does not allow the request.
    Conflict(String),
    /// A condition of the request is not met.
    Precondition(String),
    /// No part of the file is in the requested ranges; the size of the file.
    OutOfRange(u64),
    /// The request is for another server, or the other server failed.
    Elsewhere(String),
    /// A header that is not supported.
    NotImplemented(String),
    /// The storage failed.
    Storage(StorageError),
    /// The server failed.
    Broken(String),
}

impl From<StorageError> for HttpFailure {
    fn from(error: StorageError) -> Self {
        HttpFailure::Storage(error)
    }
}

impl From<Refusal> for HttpFailure {
    /// A change that cannot be recorded.
    fn from(refusal: Refusal) -> Self {
        HttpFailure::Broken(refusal.0)
    }
}

impl HttpFailure {
    /// The text for the user.
    pub(super) fn text(&self) -> String {
        match self {
            HttpFailure::Malformed(what)
            | HttpFailure::Unauthorized(what)
            | HttpFailure::Forbidden(what)
            | HttpFailure::NotAllowed(what, _)
            | HttpFailure::Conflict(what)
            | HttpFailure::Precondition(what)
            | HttpFailure::Elsewhere(what)
            | HttpFailure::NotImplemented(what)
            | HttpFailure::Broken(what)
            | HttpFailure::Storage(
                StorageError::Refused(_, what) | StorageError::NotBefore(_, what),
            ) => what.clone(),
            HttpFailure::OutOfRange(size) => {
                format!("no part of the {size} bytes of the file is in the ranges")
            }
            HttpFailure::Storage(StorageError::Elsewhere { host, port, .. }) => {
                format!("another server has it: {host}:{port}")
            }
        }
    }

    /// The kind of error, for its count: that of the status, except that a failing disk counts differently from a bug.
    pub(super) fn kind(&self) -> ErrorKind {
        match (self, self.status()) {
            (HttpFailure::Storage(_), StatusCode::INTERNAL_SERVER_ERROR) => ErrorKind::Io,
            (_, status) => kind_of_status(status),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            HttpFailure::Malformed(_) => StatusCode::BAD_REQUEST,
            HttpFailure::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            HttpFailure::Forbidden(_) => StatusCode::FORBIDDEN,
            HttpFailure::NotAllowed(..) => StatusCode::METHOD_NOT_ALLOWED,
            HttpFailure::Conflict(_) => StatusCode::CONFLICT,
            HttpFailure::Precondition(_) => StatusCode::PRECONDITION_FAILED,
            HttpFailure::OutOfRange(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            HttpFailure::Elsewhere(_) => StatusCode::BAD_GATEWAY,
            HttpFailure::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
            HttpFailure::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
            HttpFailure::Storage(StorageError::Refused(errno, _)) => status_of(*errno),
            HttpFailure::Storage(StorageError::NotBefore(..)) => StatusCode::SERVICE_UNAVAILABLE,
            HttpFailure::Storage(StorageError::Elsewhere { .. }) => StatusCode::MISDIRECTED_REQUEST,
        }
    }
}

impl IntoResponse for HttpFailure {
    fn into_response(self) -> Response {
        let (answer, kind) = (said(self.status(), &self.text()), self.kind());
        let mut answer = match self {
            HttpFailure::Unauthorized(_) => {
                ([(WWW_AUTHENTICATE, "Bearer")], answer).into_response()
            }
            HttpFailure::NotAllowed(_, methods) => ([(ALLOW, methods)], answer).into_response(),
            HttpFailure::OutOfRange(size) => {
                ([(CONTENT_RANGE, format!("bytes */{size}"))], answer).into_response()
            }
            HttpFailure::Storage(StorageError::NotBefore(time, _)) => {
                let seconds = time.max(Duration::from_secs(1)).as_secs().to_string();
                ([(RETRY_AFTER, seconds)], answer).into_response()
            }
            _ => answer,
        };
        // Caches would keep, for one, that a commit does not exist yet.
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer.extensions_mut().insert(kind);
        answer
    }
}

/// The status of an error of a storage.
fn status_of(errno: Errno) -> StatusCode {
    match errno {
        Errno::ENOENT | Errno::ENODATA => StatusCode::NOT_FOUND,
        Errno::EACCES | Errno::EPERM | Errno::EROFS => StatusCode::FORBIDDEN,
        Errno::EINVAL | Errno::ENAMETOOLONG => StatusCode::BAD_REQUEST,
        Errno::EEXIST
        | Errno::EISDIR
        | Errno::ENOTDIR
        | Errno::ENOTEMPTY
        | Errno::ESTALE
        | Errno::EBUSY
        | Errno::ETXTBSY
        | Errno::EXDEV
        | Errno::ELOOP => StatusCode::CONFLICT,
        Errno::ENOSPC | Errno::EDQUOT => StatusCode::INSUFFICIENT_STORAGE,
        Errno::EFBIG => StatusCode::PAYLOAD_TOO_LARGE,
        // Too many files are open, or no server can be reached.
        Errno::EMFILE | Errno::ENFILE | Errno::EHOSTUNREACH => StatusCode::SERVICE_UNAVAILABLE,
        Errno::ENOTSUP | Errno::ENOSYS => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
