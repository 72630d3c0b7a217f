//! Files over HTTP: every path below an export, as `root://` shows it.
//!
//! | module | contents |
//! |---|---|
//! | `location` | the path and the snapshot that a URL names |
//! | `ranges` | the header `Range` |
//! | `content`, `validators` | the bytes of an answer; entity tags and conditional requests |
//! | `read` | `GET` and `HEAD` |
//! | `listings`, `propfind` | folders: pages for people, JSON; properties |
//! | `change`, `upload` | `PUT`, `DELETE`, `MKCOL`, `MOVE`; files that are being stored |
//! | `copy` | `COPY` from and to other servers |
//! | `redirects` | requests for files that other servers have, if this one has no data |
//! | `digests` | the header `Want-Digest` |
//! | `failure` | answers to failed requests |
//!
//! 1. A path with a commit in it, `/lhc.fed/@41/run7.root`, always has the same bytes, and only such answers may be
//!    kept by caches for ever. The newest state of a federation must not be cached at all: caches join blocks of one
//!    name.
//! 2. Bytes are never compressed: clients request ranges of them.
//! 3. A file that is uploaded appears under its name when it is complete and durable.
//! 4. Work that may block has separate threads, so that a wait for a disk does not delay catalogues.
//! 5. A client that neither receives nor sends bytes for five minutes is given up.
//!
//! Sources: RFC 9110 (HTTP), RFC 4918 (WebDAV, class 1 without properties that clients set), RFC 3230 (`Want-Digest`).

mod change;
mod content;
pub mod copy;
mod digests;
mod failure;
mod listings;
mod location;
mod propfind;
mod ranges;
mod read;
mod redirects;
mod upload;
mod validators;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use tokio::runtime::Handle;

use self::copy::OtherServers;
use self::failure::{HttpFailure, METHODS, METHODS_AND_COPY};
use self::location::UrlLocation;
use super::clients::identity;
use crate::auth::{Action, Asker, AuditedChange, Authenticator, Identity, Refusal};
use crate::logical::Logical;
use crate::physical::{StorageError, StoragePath, StorageResult};
use crate::protocol::buffers::BufferPool;
use crate::protocol::listener::Peer;

/// The longest wait for a client's next bytes.
const STALL_MAX: Duration = Duration::from_secs(300);

/// The headers that scripts of other sites may send and see.
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
    /// The sites whose pages may read files from scripts; `*` for all.
    pub origins: Vec<String>,
    /// The servers with which files are copied; if `None`, `COPY` is refused.
    pub others: Option<Arc<OtherServers>>,
    /// Memory for bytes in transit.
    pub buffers: Arc<BufferPool>,
    /// The threads for work that may block.
    pub blocking: Handle,
    /// Bytes of files that were sent and received.
    pub transferred: Arc<AtomicU64>,
}

/// A request for a file of an identified client. Each method checks the rights that it needs.
struct FileRequest {
    site: Arc<FileSite>,
    location: UrlLocation,
    /// The host to which the request was sent.
    host: Option<String>,
    is_encrypted: bool,
    /// The client's address.
    client: IpAddr,
    identity: Identity,
    headers: HeaderMap,
}

/// Answers a request for a file or a folder.
pub async fn answer(
    State(site): State<Arc<FileSite>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut answer = match answered(&site, &peer, request).await {
        Ok(answer) => answer,
        Err(failure) => failure.into_response(),
    };
    site.add_cross_origin(origin, answer.headers_mut());
    answer
}

async fn answered(
    site: &Arc<FileSite>,
    peer: &Peer,
    request: Request,
) -> Result<Response, HttpFailure> {
    if request.method() == Method::OPTIONS {
        let headers = [(ALLOW, site.methods()), (HeaderName::from_static("dav"), "1")];
        return Ok((StatusCode::NO_CONTENT, headers).into_response());
    }
    let location = UrlLocation::of(request.uri(), &site.federations)?;
    let identity = match location.token() {
        Some(token) if peer.is_encrypted => {
            site.authenticator.token(token, peer.certificate.as_deref())
        }
        Some(_) => Err(Refusal("a token must only be sent over TLS".to_owned())),
        None => identity(&site.authenticator, request.headers(), peer),
    };
    let change = site.audited(&request, &location, identity.as_ref().ok(), peer)?;
    let answer = match identity {
        Ok(identity) => answered_to(site, (peer, identity), location, request).await,
        Err(refusal) => Err(HttpFailure::Unauthorized(refusal.0)),
    };
    match &answer {
        Ok(there) if there.status().is_redirection() => change.forget(),
        // The rest is recorded at its end.
        Ok(begun) if begun.status() == StatusCode::ACCEPTED => change.end_as("begun")?,
        Ok(_) => change.end(None)?,
        Err(failure) => change.end(Some(failure.kind()))?,
    }
    answer
}

/// Answers an identified client.
async fn answered_to(
    site: &Arc<FileSite>,
    (peer, identity): (&Peer, Identity),
    location: UrlLocation,
    request: Request,
) -> Result<Response, HttpFailure> {
    let (parts, body) = request.into_parts();
    let (method, query) = (parts.method, parts.uri.query().map(str::to_owned));
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or(parts.uri.authority().map(|authority| authority.as_str()));
    let asked = FileRequest {
        site: Arc::clone(site),
        location,
        host: host.map(str::to_owned),
        is_encrypted: peer.is_encrypted,
        client: peer.address.ip(),
        identity,
        headers: parts.headers,
    };
    if let Some(redirector) = &site.logical.redirector {
        let answer = asked.redirect(redirector, &method, query.as_deref()).await;
        asked.discard(&mut body.into_data_stream()).await;
        return answer;
    }
    let (is_encrypted, path) = (asked.is_encrypted, asked.location.url_path().to_owned());
    match asked.carry_out(&method, body).await {
        Err(HttpFailure::Storage(StorageError::Elsewhere {
            host,
            port,
            is_encrypted: is_required,
            ..
        })) => {
            let (server, query) = (format!("{host}:{port}"), query.unwrap_or_default());
            Ok(redirects::moved_to(&server, is_encrypted || is_required, &path, &query))
        }
        answered => answered,
    }
}

impl FileRequest {
    async fn carry_out(self, method: &Method, body: Body) -> Result<Response, HttpFailure> {
        match method.as_str() {
            "GET" => self.get(false).await,
            "HEAD" => self.get(true).await,
            "PROPFIND" => self.propfind().await,
            "PUT" => self.put(body).await,
            "DELETE" => self.delete().await,
            "MKCOL" => self.mkcol().await,
            "MOVE" => self.rename().await,
            "COPY" => self.copy().await,
            _ => Err(self.not_understood(method)),
        }
    }
}

impl FileSite {
    /// Runs work that may block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, HttpFailure> {
        let logical = Arc::clone(&self.logical);
        let done = self.blocking.spawn_blocking(move || work(&logical)).await;
        Ok(done.map_err(|error| HttpFailure::Broken(error.to_string()))??)
    }

    /// Begins the change that a request is, to be recorded.
    fn audited(
        &self,
        request: &Request,
        location: &UrlLocation,
        identity: Option<&Identity>,
        peer: &Peer,
    ) -> Result<AuditedChange, HttpFailure> {
        let (headers, what) = (request.headers(), request.method().as_str());
        let what = match what {
            "PUT" => "upload",
            "DELETE" => "remove",
            "MKCOL" => "make-folder",
            "MOVE" => "rename",
            "COPY" if headers.contains_key("source") => "copy",
            _ => return Ok(AuditedChange::unrecorded()),
        };
        let asker = Asker { identity, address: Some(peer.address.ip()), protocol: "http" };
        let change = self.authenticator.audited(asker, what, [location.path.to_string()])?;
        let other = headers.get("source").or_else(|| headers.get("destination"));
        let other = other.and_then(|it| it.to_str().ok()?.parse().ok());
        Ok(change.to(other.map(|url: Uri| without_query(&url))))
    }

    /// The methods that are understood.
    fn methods(&self) -> &'static str {
        let copies = self.others.is_some() || self.logical.redirector.is_some();
        if copies { METHODS_AND_COPY } else { METHODS }
    }

    /// Adds the headers that let scripts of other sites read an answer. Caches return an answer to clients with other
    /// origins, too, so it does not depend on the origin of the request unless `Vary` says so.
    fn add_cross_origin(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        let allowed = if self.origins.iter().any(|known| known == "*") {
            HeaderValue::from_static("*")
        } else {
            if !self.origins.is_empty() {
                headers.append(VARY, HeaderValue::from_static("origin"));
            }
            let is_known = |origin: &HeaderValue| {
                self.origins.iter().any(|it| it.as_bytes() == origin.as_bytes())
            };
            let Some(origin) = origin.filter(is_known) else { return };
            origin
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        for (name, value) in CROSS_ORIGIN {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// A URL without its possible secrets: a password, and its query.
fn without_query(url: &Uri) -> String {
    let host = url.authority().map(|it| it.as_str().rsplit('@').next().unwrap_or_default());
    match (url.scheme_str(), host) {
        (Some(scheme), Some(host)) => format!("{scheme}://{host}{}", url.path()),
        _ => url.path().to_owned(),
    }
}

impl FileRequest {
    /// Fails unless the client has a right to a path.
    fn check(&self, action: Action, path: &StoragePath) -> Result<(), HttpFailure> {
        if self.identity.may(action, path.as_bytes()) {
            return Ok(());
        }
        let what = format!("{} may not {action} {path}", self.identity.name);
        Err(HttpFailure::Forbidden(self.identity.explained(what)))
    }

    /// Fails unless the client has any right to the path, and so may know that it exists.
    fn check_visible(&self, path: &StoragePath) -> Result<(), HttpFailure> {
        if self.identity.may(Action::Poll, path.as_bytes()) {
            return Ok(());
        }
        self.check(Action::Read, path)
    }

    fn not_understood(&self, method: &Method) -> HttpFailure {
        let methods = self.site.methods();
        let what = format!("method {method} is not understood; use {methods}");
        HttpFailure::NotAllowed(what, methods)
    }

    /// Runs work that may block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, HttpFailure> {
        self.site.call(work).await
    }

    /// The value of a header, if it is text.
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
