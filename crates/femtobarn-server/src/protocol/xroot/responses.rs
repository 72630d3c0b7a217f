//! Responses: answers, and errors of storages as XRootD's error codes.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 5 (error codes), section 2 (kXR_wait, kXR_redirect).

use femtobarn_catalog::ErrorKind;
use nix::errno::Errno;
use xrd::ErrorCode;
use xrd::flags::ServerFlags;
use xrd::response::{Answer, Attention, Failure, Redirect, Response, Wait};

use crate::physical::StorageError;

/// The response to a request that failed with this error.
pub(super) fn response_of(error: StorageError) -> Response {
    match error {
        StorageError::Refused(errno, text) => failed(code_of(errno), text),
        StorageError::NotBefore(time, message) => {
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1);
            Response::Wait(Wait { seconds, message: without_zeros(message) })
        }
        StorageError::Elsewhere { host, port, opaque, is_encrypted } => {
            let more = if opaque.is_empty() { opaque } else { format!("?{opaque}") };
            Response::Redirect(if is_encrypted {
                // Without the scheme the client would use that of its present connection.
                let url = without_zeros(format!("roots://{host}:{port}/{more}"));
                Redirect::Url { flags: ServerFlags::default(), url }
            } else {
                Redirect::Host { port, host: without_zeros(host + &more) }
            })
        }
    }
}

/// An ok response with this answer.
pub(super) fn ok(answer: &impl Answer) -> Response {
    match answer.encode() {
        Ok(body) => Response::Ok(body.into()),
        Err(error) => failed(ErrorCode::SERVER_ERROR, error.to_string()),
    }
}

/// An ok response without an answer.
pub(super) fn done() -> Result<Response, Response> {
    Ok(Response::Ok(Default::default()))
}

/// An error response with this code.
pub(super) fn failed(code: ErrorCode, text: impl Into<String>) -> Response {
    Response::Error(Failure::new(code, without_zeros(text.into())))
}

/// The error code in a response, immediate or delayed.
pub(super) fn error_of(response: &Response) -> Option<ErrorCode> {
    match response {
        Response::Error(failure) => Some(failure.code),
        Response::Attn(Attention::Response { response, .. }) => error_of(response),
        _ => None,
    }
}

/// The kind of error of a code.
pub(super) fn kind_of(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::NOT_FOUND | ErrorCode::ATTRIBUTE_NOT_FOUND => ErrorKind::NotFound,
        ErrorCode::IT_EXISTS => ErrorKind::Exists,
        ErrorCode::NOT_AUTHORIZED
        | ErrorCode::AUTH_FAILED
        | ErrorCode::TLS_REQUIRED
        | ErrorCode::FS_READ_ONLY => ErrorKind::Denied,
        ErrorCode::FILE_LOCKED | ErrorCode::IN_PROGRESS | ErrorCode::OVERLOADED => ErrorKind::Busy,
        ErrorCode::CONFLICT => ErrorKind::Conflict,
        ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA => ErrorKind::Full,
        ErrorCode::FS_ERROR | ErrorCode::IO_ERROR => ErrorKind::Io,
        ErrorCode::CHECKSUM_ERROR | ErrorCode::TOO_MANY_ERRORS => ErrorKind::Corrupt,
        ErrorCode::FILE_NOT_OPEN => ErrorKind::Closed,
        ErrorCode::UNSUPPORTED => ErrorKind::Unsupported,
        ErrorCode::NO_SERVER | ErrorCode::REQUEST_TIMED_OUT | ErrorCode::CANCELLED => {
            ErrorKind::Unavailable
        }
        ErrorCode::SERVER_ERROR | ErrorCode::NO_MEMORY => ErrorKind::Internal,
        _ => ErrorKind::Invalid,
    }
}

/// Texts may contain names that clients sent, in which a zero byte would end the text early.
fn without_zeros(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\\0") } else { text }
}

/// The protocol's code for an error number of the operating system.
pub(super) fn code_of(errno: Errno) -> ErrorCode {
    match errno {
        Errno::ENOENT => ErrorCode::NOT_FOUND,
        Errno::EACCES | Errno::EPERM => ErrorCode::NOT_AUTHORIZED,
        Errno::EINVAL | Errno::EDOM => ErrorCode::ARG_INVALID,
        Errno::ENAMETOOLONG | Errno::E2BIG => ErrorCode::ARG_TOO_LONG,
        Errno::EISDIR => ErrorCode::IS_DIRECTORY,
        Errno::EEXIST | Errno::ENOTEMPTY => ErrorCode::IT_EXISTS,
        Errno::ENOSPC | Errno::EFBIG => ErrorCode::NO_SPACE,
        Errno::EDQUOT => ErrorCode::OVER_QUOTA,
        Errno::EROFS => ErrorCode::FS_READ_ONLY,
        Errno::EIO | Errno::ESTALE => ErrorCode::IO_ERROR,
        Errno::ENOMEM | Errno::ENOBUFS => ErrorCode::NO_MEMORY,
        Errno::EBADF => ErrorCode::FILE_NOT_OPEN,
        Errno::EBUSY | Errno::ETXTBSY => ErrorCode::IN_PROGRESS,
        Errno::ENOLCK => ErrorCode::FILE_LOCKED,
        Errno::EMFILE | Errno::ENFILE => ErrorCode::OVERLOADED,
        Errno::ENOTSUP | Errno::ENOSYS | Errno::EXDEV => ErrorCode::UNSUPPORTED,
        Errno::ENODATA => ErrorCode::ATTRIBUTE_NOT_FOUND,
        Errno::EHOSTUNREACH => ErrorCode::NO_SERVER,
        Errno::ETIMEDOUT => ErrorCode::REQUEST_TIMED_OUT,
        Errno::ECANCELED => ErrorCode::CANCELLED,
        _ => ErrorCode::FS_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fraction_of_a_second_is_rounded_up() {
        let error = StorageError::NotBefore(Duration::from_millis(1500), "tape".to_owned());
        let wait = Wait { seconds: 2, message: "tape".to_owned() };
        assert_eq!(response_of(error), Response::Wait(wait));
    }

    #[test]
    fn a_server_that_requires_tls_is_named_with_its_scheme() {
        let answer = |is_encrypted| {
            let (host, opaque) = ("[::1]".to_owned(), "a=1".to_owned());
            response_of(StorageError::Elsewhere { host, port: 7, opaque, is_encrypted })
        };
        let host = Redirect::Host { port: 7, host: "[::1]?a=1".to_owned() };
        assert_eq!(answer(false), Response::Redirect(host));
        let (flags, url) = (ServerFlags::default(), "roots://[::1]:7/?a=1".to_owned());
        assert_eq!(answer(true), Response::Redirect(Redirect::Url { flags, url }));
    }

    #[test]
    fn zero_bytes_in_texts_are_escaped() {
        let response = response_of(StorageError::refused(Errno::EINVAL, "a\0b"));
        let failure = Failure::new(ErrorCode::ARG_INVALID, "a\\0b");
        assert_eq!(response, Response::Error(failure));
    }
}
