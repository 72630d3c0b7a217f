//! Counts requests over HTTP and gRPC, and failed ones, by their answers, so that each is counted once, whichever code
//! makes the answer.
//!
//! The kind of an error is that of the answer's status, unless the code that made the answer states another one in its
//! extensions. An answer that begins well counts as failed if its body breaks off, and a gRPC call if its trailers have
//! an error.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use femtobarn_catalog::ErrorKind;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tonic::Code;

use crate::logical::request_counts::{ClientProtocol, RequestCounts};

/// Counts all requests to these routes.
pub fn counted(routes: Router, counts: Arc<RequestCounts>) -> Router {
    routes.layer(from_fn_with_state(counts, count))
}

async fn count(State(counts): State<Arc<RequestCounts>>, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    let kind = answer.headers().get(CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    // The beginning of a direct connection, which carries calls.
    let is_call = is_grpc || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let (protocol, error) = if is_call {
        (ClientProtocol::Grpc, error_of_call(answer.headers()))
    } else {
        (ClientProtocol::Http, error_of_answer(&answer))
    };
    counts.count_request(protocol);
    if let Some(kind) = error {
        counts.count_error(protocol, kind);
    } else if answer.body().size_hint().exact().is_none() {
        return answer.map(|body| watched(body, counts, protocol));
    }
    answer
}

/// A body whose failure is counted.
fn watched(body: Body, counts: Arc<RequestCounts>, protocol: ClientProtocol) -> Body {
    let of_trailers = Arc::clone(&counts);
    let body = body.inspect_frame(move |frame| {
        if let Some(kind) = frame.trailers_ref().and_then(error_of_call) {
            of_trailers.count_error(protocol, kind);
        }
    });
    Body::new(body.inspect_err(move |_| counts.count_error(protocol, ErrorKind::Io)))
}

/// The kind of error of an HTTP answer; `None` if it is not an error, or asks the client to retry later.
fn error_of_answer(answer: &Response) -> Option<ErrorKind> {
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_final = is_error && !answer.headers().contains_key(RETRY_AFTER);
    let told = answer.extensions().get::<ErrorKind>().copied();
    is_final.then(|| told.unwrap_or_else(|| kind_of_status(status)))
}

/// The kind of error for the status of an answer.
pub(super) fn kind_of_status(status: StatusCode) -> ErrorKind {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Denied,
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => ErrorKind::Conflict,
        StatusCode::LOCKED | StatusCode::TOO_MANY_REQUESTS => ErrorKind::Busy,
        StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::NOT_IMPLEMENTED => ErrorKind::Unsupported,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            ErrorKind::Unavailable
        }
        StatusCode::INSUFFICIENT_STORAGE => ErrorKind::Full,
        status if status.is_server_error() => ErrorKind::Internal,
        _ => ErrorKind::Invalid,
    }
}

/// The kind of error in the headers or trailers of a call; `None` if it succeeded, continues, or was cancelled by its
/// client.
fn error_of_call(headers: &HeaderMap) -> Option<ErrorKind> {
    kind_of_code(Code::from_bytes(headers.get("grpc-status")?.as_bytes()))
}

/// The kind of error that a call ended with; `None` if it succeeded or was cancelled by its client.
pub(super) fn kind_of_code(code: Code) -> Option<ErrorKind> {
    Some(match code {
        Code::Ok | Code::Cancelled => return None,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::Exists,
        Code::Aborted => ErrorKind::Conflict,
        Code::DeadlineExceeded => ErrorKind::Busy,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::FailedPrecondition => ErrorKind::Closed,
        Code::ResourceExhausted => ErrorKind::Full,
        Code::Internal | Code::Unknown => ErrorKind::Internal,
    })
}
