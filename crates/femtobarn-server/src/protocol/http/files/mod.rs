//! Files over HTTP: every path below an export, as `root://` shows it.
//!
//! | module | contents |
//! |---|---|
//! | `location` | the path and the snapshot that a URL names |
//! | `ranges` | the header `Range` |
//! | `content`, `validators` | the bytes of an answer; entity tags and conditional requests |
//! | `read` | `GET` and `HEAD` |
//! | `listings` | folders: pages for people, and `PROPFIND` |
//! | `change` | `PUT`, `DELETE`, `MKCOL`, `MOVE` |
//! | `digests` | the header `Want-Digest` |
//! | `failure` | answers to requests that fail |
//!
//! 1. A path with a snapshot in it, `/lhc.fed/@41/run7.root`, always has the same bytes, and only such answers may be
//!    kept by caches for ever. The newest state of a federation may not be kept at all: caches join blocks of one name.
//! 2. Bytes are never compressed: clients ask for ranges of them.
//! 3. A file that is uploaded appears under its name when it is complete and durable.
//!
//! Sources: RFC 9110 (HTTP), RFC 4918 (WebDAV, class 1 without properties that clients set), RFC 3230 (`Want-Digest`).

mod change;
mod content;
mod digests;
mod failure;
mod listings;
mod location;
mod ranges;
mod read;
mod validators;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use self::failure::{HttpFailure, METHODS};
use self::location::UrlLocation;
use super::clients::identity;
use crate::auth::{Action, Authenticator, Identity};
use crate::logical::Logical;
use crate::physical::{StorageError, StoragePath, StorageResult};
use crate::protocol::buffers::BufferPool;
use crate::protocol::listener::Peer;

/// What scripts of other sites may send and see.
const CROSS_ORIGIN: [(HeaderName, &str); 4] = [
    (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
    (ACCESS_CONTROL_ALLOW_HEADERS, "range, authorization, if-range, if-none-match, want-digest"),
    (
        ACCESS_CONTROL_EXPOSE_HEADERS,
        "content-range, content-length, accept-ranges, etag, last-modified, digest",
    ),
    (ACCESS_CONTROL_MAX_AGE, "86400"),
];

/// The files of a server.
pub struct FileSite {
    /// The name space and the open files.
    pub logical: Arc<Logical>,
    /// Authentication of clients.
    pub authenticator: Authenticator,
    /// The exports that are federations, such as `/lhc.fed`.
    pub federations: Vec<String>,
    /// Memory for bytes in transit.
    pub buffers: Arc<BufferPool>,
    /// The sites whose pages may read files from scripts; `*` for all.
    pub origins: Vec<String>,
}

/// A request for a file, after its rights were checked.
struct FileRequest {
    site: Arc<FileSite>,
    location: UrlLocation,
    identity: Identity,
    headers: HeaderMap,
}

/// Answers a request for a file or a folder.
pub async fn answer(
    State(site): State<Arc<FileSite>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let (origin, uri) = (request.headers().get(ORIGIN).cloned(), request.uri().clone());
    let mut answer = match answered(&site, peer, request).await {
        Ok(answer) => answer,
        Err(HttpFailure::Storage(StorageError::Elsewhere { host, port, .. })) => {
            let scheme = if peer.is_encrypted { "https" } else { "http" };
            Redirect::temporary(&format!("{scheme}://{host}:{port}{uri}")).into_response()
        }
        Err(failure) => failure.into_response(),
    };
    if let Some(allowed) = origin.and_then(|origin| site.allowed_origin(&origin)) {
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        headers.insert(VARY, HeaderValue::from_static("origin"));
        for (name, value) in CROSS_ORIGIN {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    answer
}

async fn answered(
    site: &Arc<FileSite>,
    peer: Peer,
    request: Request,
) -> Result<Response, HttpFailure> {
    let method = request.method().clone();
    if method == Method::OPTIONS {
        let headers = [(ALLOW, METHODS), (HeaderName::from_static("dav"), "1")];
        return Ok((StatusCode::NO_CONTENT, headers).into_response());
    }
    let (parts, body) = request.into_parts();
    let location = UrlLocation::of(&parts.uri, &site.federations)?;
    let identity = match location.token() {
        Some(token) if peer.is_encrypted => site.authenticator.token(&token),
        _ => identity(&site.authenticator, &parts.headers, peer),
    };
    let identity = identity.map_err(|refusal| HttpFailure::Unauthorized(refusal.0))?;
    let asked = FileRequest { site: Arc::clone(site), location, identity, headers: parts.headers };
    match method.as_str() {
        "GET" => asked.get(false).await,
        "HEAD" => asked.get(true).await,
        "PROPFIND" => asked.propfind().await,
        "PUT" => asked.put(body).await,
        "DELETE" => asked.delete().await,
        "MKCOL" => asked.mkcol().await,
        "MOVE" => asked.rename().await,
        other => {
            Err(HttpFailure::NotAllowed(format!("method {other} is not understood; use {METHODS}")))
        }
    }
}

impl FileSite {
    /// The value of `Access-Control-Allow-Origin` for a site's pages; none if they may not read files.
    fn allowed_origin(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        let is_known = |known: &String| known.as_bytes() == origin.as_bytes();
        if self.origins.iter().any(|known| known == "*") {
            Some(HeaderValue::from_static("*"))
        } else {
            self.origins.iter().any(is_known).then(|| origin.clone())
        }
    }
}

impl FileRequest {
    /// Fails unless the client has a right to a path.
    fn check(&self, action: Action, path: &StoragePath) -> Result<(), HttpFailure> {
        if self.identity.may(action, path.as_bytes()) {
            return Ok(());
        }
        let what = match action {
            Action::Read => "read",
            Action::Create => "create",
            Action::Modify => "change",
            Action::Stage => "stage",
        };
        Err(HttpFailure::Forbidden(format!("{} may not {what} {path}", self.identity.name)))
    }

    /// Runs work that may block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, HttpFailure> {
        let logical = Arc::clone(&self.site.logical);
        let done = tokio::task::spawn_blocking(move || work(&logical)).await;
        Ok(done.map_err(|error| HttpFailure::Broken(error.to_string()))??)
    }

    /// The value of a header, if it is text.
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
