//! The WLCG Tape REST API, version 1: clients stage files from mass storage to the disk, and query their state.
//!
//! 1. A request belongs to the user who made it; for other users it does not exist.
//! 2. Requests survive a restart, and pin the files that they stage until these are released or their lifetimes are
//!    over: [`stage_requests`](crate::logical::stage_requests).

mod lifetime;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::header::{HOST, LOCATION};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::clients::{identity, said};
use super::files::FileSite;
use crate::auth::{Action, Asker, Identity, Refusal};
use crate::logical::Logical;
use crate::logical::stage_requests::{StageRequest, WantedFile};
use crate::physical::{Opaque, Storage, StoragePath, StorageResult};
use crate::protocol::answer_counting::kind_of_status;
use crate::protocol::listener::Peer;

/// Files of a request at most.
const FILES_MAX: usize = 10_000;
/// The path of the API.
const ROOT: &str = "/api/tape/v1";

/// The API of a server.
struct TapeSite {
    files: Arc<FileSite>,
}

type SharedTape = State<Arc<TapeSite>>;

/// The parts of every request that identify its client.
type TapeClient = (Extension<Peer>, HeaderMap);

/// Why a request is refused.
struct TapeRefusal(StatusCode, String);

impl IntoResponse for TapeRefusal {
    fn into_response(self) -> Response {
        said(self.0, &self.1)
    }
}

#[derive(Deserialize)]
struct StageBody {
    files: Vec<FileBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileBody {
    path: String,
    disk_lifetime: Option<String>,
}

#[derive(Deserialize)]
struct PathsBody {
    paths: Vec<String>,
}

/// The routes of the API.
pub(super) fn routes(files: Arc<FileSite>) -> Router {
    let logical = Arc::clone(&files.logical);
    files.blocking.spawn_blocking(move || logical.stage_requests.resume(&logical.exports));
    let site = Arc::new(TapeSite { files });
    let mut routes = Router::new().route("/.well-known/wlcg-tape-rest-api", get(well_known));
    // gfal2 appends a slash to these paths.
    for end in ["", "/"] {
        routes = routes
            .route(&format!("{ROOT}/stage{end}"), post(stage))
            .route(&format!("{ROOT}/archiveinfo{end}"), post(archive_info));
    }
    routes
        .route(&format!("{ROOT}/stage/{{id}}"), get(status).delete(delete))
        .route(&format!("{ROOT}/stage/{{id}}/cancel"), post(cancel))
        .route(&format!("{ROOT}/release/{{id}}"), post(release))
        .with_state(site)
}

async fn well_known((Extension(peer), headers): TapeClient) -> Response {
    let uri = url(&peer, &headers, "");
    Json(json!({
        "sitename": host_of(&headers),
        "description": "databases of Femtobarn, and files",
        "endpoints": [{ "uri": uri, "version": "v1", "metadata": {} }],
    }))
    .into_response()
}

async fn stage(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Json(body): Json<StageBody>,
) -> Result<Response, TapeRefusal> {
    let mut lifetimes = HashMap::new();
    for file in &body.files {
        let wanted = match &file.disk_lifetime {
            None => lifetime::USUAL_SECONDS,
            Some(text) => lifetime::seconds_of(text).ok_or_else(|| {
                let what = format!("invalid diskLifetime {text:?}: write it like P1D or PT3600S");
                TapeRefusal(StatusCode::BAD_REQUEST, what)
            })?,
        };
        lifetimes.insert(file.path.clone(), wanted);
    }
    let names: Vec<_> = body.files.into_iter().map(|file| file.path).collect();
    let staged = site.begin_stage(&peer, &headers, names.clone(), &lifetimes);
    let id = site.recorded(&peer, &headers, ("stage", names), staged).await?;
    let location = url(&peer, &headers, &format!("/stage/{id}"));
    let answer = Json(json!({ "requestId": id }));
    Ok((StatusCode::CREATED, [(LOCATION, location)], answer).into_response())
}
async fn status(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
) -> Result<Json<StageRequest>, TapeRefusal> {
    let (user, asked) = (site.user(&peer, &headers)?.owner(), id.clone());
    let found =
        site.asking(move |logical| logical.stage_requests.look(&logical.exports, &user, &asked));
    found.await?.map(Json).ok_or_else(|| unknown(&id))
}

async fn cancel(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
    Json(body): Json<PathsBody>,
) -> Result<(), TapeRefusal> {
    let (user, asked) = (site.user(&peer, &headers)?.owner(), id.clone());
    let cancelling = async {
        let paths = places(&id, &body.paths)?;
        let cancelled = site.asking(move |logical| {
            logical.stage_requests.cancel(&logical.exports, (&user, &asked), &paths)
        });
        done(&id, cancelled.await?)
    };
    site.recorded(&peer, &headers, ("cancel-stage", body.paths.clone()), cancelling).await
}

async fn release(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
    Json(body): Json<PathsBody>,
) -> Result<(), TapeRefusal> {
    let (user, asked) = (site.user(&peer, &headers)?.owner(), id.clone());
    let releasing = async {
        let paths = places(&id, &body.paths)?;
        let released = site.asking(move |logical| {
            logical.stage_requests.release(&logical.exports, (&user, &asked), &paths)
        });
        done(&id, released.await?)
    };
    site.recorded(&peer, &headers, ("release", body.paths.clone()), releasing).await
}

async fn delete(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
) -> Result<(), TapeRefusal> {
    let (user, asked) = (site.user(&peer, &headers)?.owner(), id.clone());
    let deleting = async {
        let deleted = site
            .asking(move |logical| logical.stage_requests.delete(&logical.exports, &user, &asked));
        if deleted.await? { Ok(()) } else { Err(unknown(&id)) }
    };
    site.recorded(&peer, &headers, ("cancel-stage", vec![format!("{ROOT}/stage/{id}")]), deleting)
        .await
}

async fn archive_info(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Json(body): Json<PathsBody>,
) -> Result<Json<Vec<Value>>, TapeRefusal> {
    let (_, paths) = site.asked(&peer, &headers, body.paths, Action::Poll)?;
    let told = site.blocking(move |logical| {
        let told = paths.into_iter().map(|(path, name)| locality(logical, &path, &name));
        told.collect()
    });
    Ok(Json(told.await?))
}

/// The locality of a file, in the words of the API.
fn locality(logical: &Logical, path: &StoragePath, name: &str) -> Value {
    match logical.exports.metadata(path, Opaque::default()) {
        Ok(found) => {
            let locality = match (found.is_online, found.is_backed_up) {
                (true, true) => "DISK_AND_TAPE",
                (true, false) => "DISK",
                (false, _) => "TAPE",
            };
            json!({ "path": name, "locality": locality })
        }
        Err(error) => json!({ "path": name, "error": error.into_text() }),
    }
}

impl TapeSite {
    fn user(&self, peer: &Peer, headers: &HeaderMap) -> Result<Identity, TapeRefusal> {
        identity(&self.files.authenticator, headers, peer)
            .map_err(|Refusal(what)| TapeRefusal(StatusCode::UNAUTHORIZED, what))
    }

    /// The user, and the paths of the files on which the user has the right to an action.
    fn asked(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        names: Vec<String>,
        action: Action,
    ) -> Result<(Identity, Vec<(StoragePath, String)>), TapeRefusal> {
        let user = self.user(peer, headers)?;
        if names.is_empty() || names.len() > FILES_MAX {
            let what = format!("name 1 to {FILES_MAX} files");
            return Err(TapeRefusal(StatusCode::BAD_REQUEST, what));
        }
        let (mut paths, mut seen) = (vec![], HashSet::new());
        for name in names {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(path) = path_of(&name) else {
                let what = format!("invalid path {name:?}");
                return Err(TapeRefusal(StatusCode::BAD_REQUEST, what));
            };
            if !user.may(action, path.as_bytes()) {
                let what = format!("{} has no right to {}", user.name, path);
                return Err(TapeRefusal(StatusCode::FORBIDDEN, what));
            }
            paths.push((path, name));
        }
        Ok((user, paths))
    }

    /// Begins to stage files, of which each has a lifetime, and returns the id of the request.
    async fn begin_stage(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        names: Vec<String>,
        lifetimes: &HashMap<String, u64>,
    ) -> Result<String, TapeRefusal> {
        let (user, paths) = self.asked(peer, headers, names, Action::Stage)?;
        let mut seen = HashSet::new();
        let wanted = paths.into_iter().filter(|(path, _)| seen.insert(path.clone()));
        let wanted = wanted.map(|(_, name)| {
            let lifetime = lifetimes.get(&name).copied().unwrap_or(lifetime::USUAL_SECONDS);
            WantedFile { path: name, lifetime }
        });
        let wanted: Vec<_> = wanted.collect();
        let begun = self.asking(move |logical| {
            logical.stage_requests.begin(&logical.exports, &user.owner(), wanted)
        });
        begun.await
    }

    /// Makes a change and records it in the audit log.
    async fn recorded<T>(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        (what, paths): (&'static str, Vec<String>),
        changing: impl Future<Output = Result<T, TapeRefusal>>,
    ) -> Result<T, TapeRefusal> {
        let authenticator = &self.files.authenticator;
        let user = authenticator.audit.as_ref().and_then(|_| self.user(peer, headers).ok());
        let asker =
            Asker { identity: user.as_ref(), address: Some(peer.address.ip()), protocol: "http" };
        let unrecorded = |Refusal(why)| TapeRefusal(StatusCode::INTERNAL_SERVER_ERROR, why);
        let change = authenticator.audited(asker, what, paths).map_err(unrecorded)?;
        let changed = changing.await;
        let error = changed.as_ref().err().map(|refusal| kind_of_status(refusal.0));
        change.end(error).map_err(unrecorded)?;
        changed
    }

    /// Runs an operation on the requests of clients.
    async fn asking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, TapeRefusal> {
        self.blocking(work)
            .await?
            .map_err(|error| TapeRefusal(StatusCode::SERVICE_UNAVAILABLE, error.into_text()))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> T + Send + 'static,
    ) -> Result<T, TapeRefusal> {
        let logical = Arc::clone(&self.files.logical);
        let done = self.files.blocking.spawn_blocking(move || work(&logical)).await;
        done.map_err(|error| TapeRefusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

fn path_of(name: &str) -> Option<StoragePath> {
    StoragePath::new(name.as_bytes()).ok()
}

fn unknown(id: &str) -> TapeRefusal {
    TapeRefusal(StatusCode::NOT_FOUND, format!("there is no request {id}"))
}

fn other(id: &str) -> TapeRefusal {
    TapeRefusal(StatusCode::BAD_REQUEST, format!("a path does not belong to request {id}"))
}

/// The files that a client names of a request.
fn places(id: &str, names: &[String]) -> Result<HashSet<StoragePath>, TapeRefusal> {
    names.iter().map(|name| path_of(name).ok_or_else(|| other(id))).collect()
}

/// The answer to a change of files of a request.
fn done(id: &str, are_its: Option<bool>) -> Result<(), TapeRefusal> {
    match are_its {
        Some(true) => Ok(()),
        Some(false) => Err(other(id)),
        None => Err(unknown(id)),
    }
}

/// The address of a part of the API, as the client addressed this server.
fn url(peer: &Peer, headers: &HeaderMap, below: &str) -> String {
    let scheme = if peer.is_encrypted { "https" } else { "http" };
    format!("{scheme}://{}{ROOT}{below}", host_of(headers))
}

fn host_of(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost")
}
