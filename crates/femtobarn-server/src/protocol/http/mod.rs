//! HTTP: a status page with its data, metrics and health.
//!
//! | path | answers |
//! |---|---|
//! | `/` | the status page |
//! | `/catalogue` | the page with the contents of the federations |
//! | `/healthz` | `ok`, or 503 while the server is stopping |
//! | `/metrics` | metrics for Prometheus, restricted by `http.metrics` of the configuration |
//! | `/api/status` | [`ServerStatus`] as JSON |
//! | `/api/caches` | [`CacheContents`] of each cache of another server |
//! | `/api/recalls` | [`RecallQueueStatus`] of each federation with stores |
//! | `/api/federations`, `/api/containers/NAME`, ... | the contents of the federations: `catalogue` |
//! | `/.well-known/wlcg-tape-rest-api`, `/api/tape/v1/...` | the WLCG Tape REST API: `tape` |
//! | `/PREFIX/NAME/...` | pages of a federation from the embedding program: its mounts |
//! | every other path | files and folders, to read and to change: [`files`] |
//!
//! The server's own pages only read. Contents of catalogues and the status are for clients that may read the path; a
//! request without a token has the rights of anonymous clients. `pages` has the pages, `metrics` the text format of the
//! status, `mounts` the rights to pages of the embedding program; `clients` identifies the client of a request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Extension, Router};
use femtobarn_catalog::LocalCatalogue;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::auth::{Action, Authenticator};
use crate::config::MetricsReaders;
use crate::protocol::http::clients::{refused_to, said};
use crate::protocol::http::files::FileSite;
use crate::protocol::listener::Peer;
use crate::status::{CacheContents, RecallQueueStatus, ServerStatus};

mod catalogue;
mod clients;
pub mod files;
mod metrics;
pub mod mounts;
mod pages;
mod tape;

/// A turn that one thread at a time has for a read, so that a file system that does not answer blocks only one thread.
#[derive(Clone)]
pub struct Turn {
    free: Arc<Semaphore>,
    wait_max: Duration,
}

impl Turn {
    /// A turn that a request waits for at most `wait_max`; the same limit holds for the read itself.
    pub fn new(wait_max: Duration) -> Self {
        Turn { free: Arc::new(Semaphore::new(1)), wait_max }
    }
}

/// The server that the pages describe.
pub struct Site {
    /// Reads the server's status. It may wait for a file system.
    pub status: Box<dyn Fn() -> ServerStatus + Send + Sync>,
    /// Reads the queues of files that federations bring back from their stores.
    pub recalls: Box<dyn Fn() -> Vec<RecallQueueStatus> + Send + Sync>,
    /// The turn to read the status or these queues.
    pub status_turn: Turn,
    /// Reads the contents of caches of other servers. May look at all their files.
    pub caches: Box<dyn Fn() -> io::Result<Vec<CacheContents>> + Send + Sync>,
    /// The turn to read these contents, which takes longer than the status.
    pub caches_turn: Turn,
    /// Whether the server is stopping.
    pub is_draining: Box<dyn Fn() -> bool + Send + Sync>,
    /// The clients that may read the metrics.
    pub metrics: MetricsReaders,
    /// The served federations, by the names of their exports.
    pub federations: Vec<(String, Arc<LocalCatalogue>)>,
    /// Authentication of clients.
    pub authenticator: Authenticator,
}

type SharedSite = State<Arc<Site>>;

/// The pages of a site, and `/` as the folder of its exports for methods other than `GET`.
pub fn routes(site: Arc<Site>, files: Arc<FileSite>) -> Router {
    let tape_files = Arc::clone(&files);
    Router::new()
        .route("/", get(pages::status).fallback_service(files::answer.with_state(files)))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/caches", get(caches))
        .route("/api/recalls", get(recalls))
        .with_state(Arc::clone(&site))
        .merge(catalogue::routes(site))
        .merge(pages::routes())
        .merge(tape::routes(tape_files))
}

/// All routes of a server: these, and files at every other path. A request waits until its token can be verified, if
/// keys have to be fetched for that.
pub fn with_files(routes: Router, files: Arc<FileSite>) -> Router {
    let authenticator = files.authenticator.clone();
    let routes = routes.fallback_service(files::answer.with_state(files));
    routes.layer(from_fn_with_state(authenticator, clients::await_keys))
}

async fn health(State(site): SharedSite) -> Response {
    if (site.is_draining)() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

async fn metrics(
    State(site): SharedSite,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    let refusal = match (site.metrics.has(peer.address.ip()), headers.contains_key(AUTHORIZATION)) {
        (true, _) => None,
        (false, true) => refused(&site, &headers, &peer, "/"),
        (false, false) => Some(said(
            StatusCode::UNAUTHORIZED,
            "metrics need a bearer token, or an address of http.metrics_from",
        )),
    };
    if let Some(answer) = refusal {
        return answer;
    }
    match read(&site, &site.status_turn, |site| Ok((site.status)())).await {
        Ok(status) => {
            ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&status)).into_response()
        }
        Err(answer) => answer,
    }
}

/// Reads the status, or a part of it. If a file system does not answer, further requests fail after a while, and do not
/// use up the threads that catalogues need.
async fn read<T: Send + 'static>(
    site: &Arc<Site>,
    turn: &Turn,
    what: impl FnOnce(&Site) -> io::Result<T> + Send + 'static,
) -> Result<T, Response> {
    let wait_max = turn.wait_max;
    let turn = Arc::clone(&turn.free).acquire_owned();
    let Ok(Ok(turn)) = tokio::time::timeout(wait_max, turn).await else {
        let what = "timed out behind another status request; a file system may not answer";
        return Err(said(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let site = Arc::clone(site);
    let status = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        what(&site)
    });
    let status = tokio::time::timeout(wait_max, status).await;
    let late = |_| said(StatusCode::SERVICE_UNAVAILABLE, "a file system does not answer");
    let told = status.map_err(late)?.unwrap_or_else(|error| Err(io::Error::other(error)));
    told.map_err(|error| said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}

async fn status(site: SharedSite, peer: Extension<Peer>, headers: HeaderMap) -> Response {
    let turn = site.status_turn.clone();
    told(site, peer, headers, &turn, |site| Ok((site.status)())).await
}

async fn recalls(site: SharedSite, peer: Extension<Peer>, headers: HeaderMap) -> Response {
    let turn = site.status_turn.clone();
    told(site, peer, headers, &turn, |site| Ok((site.recalls)())).await
}

async fn caches(site: SharedSite, peer: Extension<Peer>, headers: HeaderMap) -> Response {
    let turn = site.caches_turn.clone();
    told(site, peer, headers, &turn, |site| (site.caches)()).await
}

/// The status, or a part of it, for clients that may read the whole server.
async fn told<T: Serialize + Send + 'static>(
    State(site): SharedSite,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    turn: &Turn,
    what: impl FnOnce(&Site) -> io::Result<T> + Send + 'static,
) -> Response {
    if let Some(answer) = refused(&site, &headers, &peer, "/") {
        return answer;
    }
    match read(&site, turn, what).await {
        Ok(status) => Json(status).into_response(),
        Err(answer) => answer,
    }
}

/// The answer to a client that may not read a path; `None` if it may.
fn refused(site: &Site, headers: &HeaderMap, peer: &Peer, path: &str) -> Option<Response> {
    refused_to(Action::Read, &site.authenticator, headers, peer, path)
}
