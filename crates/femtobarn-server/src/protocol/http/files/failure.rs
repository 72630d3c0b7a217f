//! Answers to requests for files that fail.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use nix::errno::Errno;

use crate::physical::StorageError;
use crate::protocol::http::clients::said;

/// The methods for databases.
pub(super) const READING_METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND";

/// The methods that are understood.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, MKCOL, MOVE";

/// Why a request for a file was not done; the text is for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HttpFailure {
    /// The request cannot be understood.
    Malformed(String),
    /// The client's token is not accepted.
    Unauthorized(String),
    /// The client has no right to it.
    Forbidden(String),
    /// The path does not allow the method, but these.
    NotAllowed(String, &'static str),
    /// The state of the path does not allow it.
    Conflict(String),
    /// A condition of the request is not met.
    Precondition(String),
    /// No part of the file is in the requested ranges; the size of the file.
    OutOfRange(u64),
    /// The request is for another server.
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

impl IntoResponse for HttpFailure {
    fn into_response(self) -> Response {
        let mut answer = match self {
            HttpFailure::Malformed(what) => said(StatusCode::BAD_REQUEST, &what),
            HttpFailure::Unauthorized(what) => {
                let answer = said(StatusCode::UNAUTHORIZED, &what);
                ([(WWW_AUTHENTICATE, "Bearer")], answer).into_response()
            }
            HttpFailure::Forbidden(what) => said(StatusCode::FORBIDDEN, &what),
            HttpFailure::NotAllowed(what, methods) => {
                let answer = said(StatusCode::METHOD_NOT_ALLOWED, &what);
                ([(ALLOW, methods)], answer).into_response()
            }
            HttpFailure::Conflict(what) => said(StatusCode::CONFLICT, &what),
            HttpFailure::Precondition(what) => said(StatusCode::PRECONDITION_FAILED, &what),
            HttpFailure::OutOfRange(size) => {
                let what = format!("no part of the {size} bytes of the file is in the ranges");
                let answer = said(StatusCode::RANGE_NOT_SATISFIABLE, &what);
                let range = format!("bytes */{size}");
                ([(CONTENT_RANGE, range)], answer).into_response()
            }
            HttpFailure::Elsewhere(what) => said(StatusCode::BAD_GATEWAY, &what),
            HttpFailure::NotImplemented(what) => said(StatusCode::NOT_IMPLEMENTED, &what),
            HttpFailure::Broken(what) => said(StatusCode::INTERNAL_SERVER_ERROR, &what),
            HttpFailure::Storage(StorageError::Refused(errno, what)) => {
                said(status_of(errno), &what)
            }
            HttpFailure::Storage(StorageError::NotBefore(time, what)) => {
                let seconds = time.max(Duration::from_secs(1)).as_secs().to_string();
                let answer = said(StatusCode::SERVICE_UNAVAILABLE, &what);
                ([(RETRY_AFTER, seconds)], answer).into_response()
            }
            HttpFailure::Storage(StorageError::Elsewhere { host, port, .. }) => {
                let what = format!("another server has it: {host}:{port}");
                said(StatusCode::MISDIRECTED_REQUEST, &what)
            }
        };
        // Caches would keep, for one, that a commit does not exist yet.
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
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
        Errno::ENOTSUP | Errno::ENOSYS => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
