//! Who sends a request, and the answers to those who may not.

use axum::response::{IntoResponse, Json, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::auth::{Action, Authenticator, Identity, Refusal};
use crate::protocol::listener::Peer;

/// The identity of a request: by its bearer token, or anonymous.
///
/// # Errors
/// [`Refusal`] if the token is not accepted or was sent unencrypted, or if anonymous clients are not allowed.
pub(super) fn identity(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    peer: Peer,
) -> Result<Identity, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else { return authenticator.anonymous() };
    if !peer.is_encrypted {
        return Err(Refusal("a token must only be sent over TLS".to_owned()));
    }
    let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    match token {
        Some(token) => authenticator.token(token.trim()),
        None => Err(Refusal("the authorization is not a bearer token".to_owned())),
    }
}

/// The answer to a client without the right to an action at a path; none if it has it.
pub(super) fn refused_to(
    action: Action,
    authenticator: &Authenticator,
    headers: &HeaderMap,
    peer: Peer,
    path: &str,
) -> Option<Response> {
    match identity(authenticator, headers, peer) {
        Ok(identity) if identity.may(action, path.as_bytes()) => None,
        Ok(identity) => {
            let what = if action == Action::Read { "read" } else { "change" };
            Some(said(StatusCode::FORBIDDEN, &format!("{} may not {what} {path}", identity.name)))
        }
        Err(Refusal(what)) => Some(said(StatusCode::UNAUTHORIZED, &what)),
    }
}

pub(super) fn said(code: StatusCode, what: &str) -> Response {
    (code, Json(json!({ "error": what }))).into_response()
}
