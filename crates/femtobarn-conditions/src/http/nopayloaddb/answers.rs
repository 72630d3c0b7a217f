//! Answers: JSON, and errors as clients of nopayloaddb read them, with the reason in `detail`.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::{IntoResponse, Response};
use femtobarn::{Error, Result};
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::http::answers::status_of;

/// JSON text.
pub(super) struct JsonText(Vec<u8>);

impl JsonText {
    pub(super) fn of(value: &impl Serialize) -> Result<Self> {
        let text = serde_json::to_vec(value);
        text.map(JsonText).map_err(|error| invalid(format!("no JSON: {error}")))
    }

    /// The answer to a request that has no other result.
    pub(super) fn detail(text: &str) -> Result<Self> {
        Self::of(&json!({ "detail": text }))
    }
}

impl From<String> for JsonText {
    fn from(json: String) -> Self {
        JsonText(json.into_bytes())
    }
}

impl IntoResponse for JsonText {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// The answer for an error.
pub(super) fn failed(error: &Error) -> Response {
    detail_response(status_of(error), &error.to_string())
}

pub(super) async fn no_such_route(address: Uri) -> Response {
    detail_response(StatusCode::NOT_FOUND, &format!("there is no route {}", address.path()))
}

fn detail_response(code: StatusCode, detail: &str) -> Response {
    let body = json!({ "detail": detail }).to_string();
    (code, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The query of a request, if it has all required members.
pub(super) type QueryOf<T> = std::result::Result<Query<T>, QueryRejection>;

/// The query of a request.
///
/// # Errors
/// `Invalid`, with the missing or invalid member.
pub(super) fn checked<T>(query: QueryOf<T>) -> Result<T> {
    query.map(|Query(query)| query).map_err(|error| invalid(error.body_text()))
}

/// The body of a request.
pub(super) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| invalid(format!("the body of the request is malformed: {error}")))
}

pub(super) fn invalid(what: impl Into<String>) -> Error {
    Error::Invalid { what: what.into() }
}

pub(super) fn not_found(what: impl Into<String>) -> Error {
    Error::NotFound { what: what.into() }
}

pub(super) fn denied(what: impl Into<String>) -> Error {
    Error::Denied { what: what.into() }
}

pub(super) fn exists(what: impl Into<String>) -> Error {
    Error::Exists { what: what.into() }
}
