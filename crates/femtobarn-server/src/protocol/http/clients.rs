//! The client of a request, and the answers to clients without the necessary rights.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;
use serde_json::json;

use crate::auth::{Action, Authenticator, Identity, Refusal, bearer};
use crate::protocol::listener::Peer;

/// The identity of a request: by its bearer token, or anonymous.
///
/// # Errors
/// [`Refusal`] if the token is not accepted or was sent unencrypted, or if anonymous clients are not allowed.
pub(super) fn identity(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    peer: &Peer,
) -> Result<Identity, Refusal> {
    if headers.contains_key(AUTHORIZATION) && !peer.is_encrypted {
        return Err(Refusal("a token must only be sent over TLS".to_owned()));
    }
    let values = headers.get_all(AUTHORIZATION).iter();
    authenticator
        .authorization(values.map(http::HeaderValue::as_bytes), peer.certificate.as_deref())
}

/// Waits for the keys with which the token of a request is checked, before the request is answered.
pub(super) async fn await_keys(
    State(authenticator): State<Authenticator>,
    request: Request,
    next: Next,
) -> Response {
    // Tokens on unencrypted connections are refused unread.
    if request.extensions().get::<Peer>().is_some_and(|peer| peer.is_encrypted) {
        let header = request.headers().get(AUTHORIZATION).and_then(|it| bearer(it.as_bytes()));
        match (header, token_of_query(request.uri().query().unwrap_or_default())) {
            (_, Some(token)) => authenticator.await_keys(&token).await,
            (Some(token), None) => authenticator.await_keys(token).await,
            (None, None) => {}
        }
    }
    next.run(request).await
}

/// The token of `authz=Bearer%20...`.
pub(super) fn token_of_query(query: &str) -> Option<String> {
    let (_, value) = xrd::opaque_pairs(query.as_bytes()).find(|(name, _)| *name == b"authz")?;
    let text = String::from_utf8(percent_decode(value).collect()).ok()?;
    Some(bearer(text.as_bytes()).unwrap_or(text.trim()).to_owned())
}

/// The answer to a client without the right to an action at a path; `None` if it has the right.
pub(super) fn refused_to(
    action: Action,
    authenticator: &Authenticator,
    headers: &HeaderMap,
    peer: &Peer,
    path: &str,
) -> Option<Response> {
    match identity(authenticator, headers, peer) {
        Ok(identity) if identity.may(action, path.as_bytes()) => None,
        Ok(identity) => {
            let what = if action == Action::Read { "read" } else { "change" };
            let what = identity.explained(format!("{} may not {what} {path}", identity.name));
            Some(said(StatusCode::FORBIDDEN, &what))
        }
        Err(Refusal(what)) => Some(said(StatusCode::UNAUTHORIZED, &what)),
    }
}

pub(super) fn said(code: StatusCode, what: &str) -> Response {
    (code, Json(json!({ "error": what }))).into_response()
}
