//! The WLCG Tape REST API, version 1: files are brought from mass storage to the disk, and clients look where they are.
//!
//! 1. A request belongs to the user who made it; others are told that there is none.
//! 2. Requests are in memory: after a restart of the server clients make them again. Files that were being staged
//!    then are nearline, as before.
//! 3. A staged file is not pinned. Releasing it changes nothing: the rules of its federation say when it leaves the disk.

mod requests;

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use femtobarn_catalog::clock;
use http::header::{HOST, LOCATION};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use self::requests::{FoundFile, StageRequest, StageRequests};
use super::clients::{identity, said};
use super::files::FileSite;
use crate::auth::{Action, Identity, Refusal};
use crate::logical::Logical;
use crate::physical::{Opaque, Storage, StorageError, StoragePath};
use crate::protocol::listener::Peer;

/// Files of a request at most.
const FILES_MAX: usize = 10_000;
/// Where the API is.
const ROOT: &str = "/api/tape/v1";

/// The API of a server.
struct TapeSite {
    files: Arc<FileSite>,
    requests: Mutex<StageRequests>,
}

type SharedTape = State<Arc<TapeSite>>;

/// What every request is known by.
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
    files: Vec<WantedFile>,
}

#[derive(Deserialize)]
struct WantedFile {
    path: String,
}

#[derive(Deserialize)]
struct PathsBody {
    paths: Vec<String>,
}

/// The routes of the API.
pub(super) fn routes(files: Arc<FileSite>) -> Router {
    let site = Arc::new(TapeSite { files, requests: Mutex::default() });
    let mut routes = Router::new().route("/.well-known/wlcg-tape-rest-api", get(well_known));
    // gfal2 ends these with a slash.
    for end in ["", "/"] {
        routes = routes
            .route(&format!("{ROOT}/stage{end}"), post(stage))
            .route(&format!("{ROOT}/archiveinfo{end}"), post(archive_info));
    }
    routes
        .route(&format!("{ROOT}/stage/{{id}}"), get(status).delete(forget))
        .route(&format!("{ROOT}/stage/{{id}}/cancel"), post(cancel))
        .route(&format!("{ROOT}/release/{{id}}"), post(release))
        .with_state(site)
}

async fn well_known((Extension(peer), headers): TapeClient) -> Response {
    let uri = url(peer, &headers, "");
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
    let names: Vec<String> = body.files.into_iter().map(|file| file.path).collect();
    let (user, paths) = site.asked(peer, &headers, names, &[Action::Stage])?;
    let found = site.find_out(&user.name, paths).await?;
    let id = site.requests.lock().add(&user.name, found, seconds());
    let location = url(peer, &headers, &format!("/stage/{id}"));
    let answer = Json(json!({ "requestId": id }));
    Ok((StatusCode::CREATED, [(LOCATION, location)], answer).into_response())
}

async fn status(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
) -> Result<Json<StageRequest>, TapeRefusal> {
    let user = site.user(peer, &headers)?.name;
    let waiting = site.with_request(&user, &id, |request| request.waiting())?;
    let paths = waiting.into_iter().filter_map(|name| Some((path_of(&name)?, name)));
    let found = site.find_out(&user, paths.collect()).await?;
    site.with_request(&user, &id, |request| {
        request.note(found, seconds());
        Json(request.clone())
    })
}

async fn cancel(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
    Json(body): Json<PathsBody>,
) -> Result<(), TapeRefusal> {
    let (user, paths) = (site.user(peer, &headers)?.name, body.paths.into_iter().collect());
    let cancelled = site.with_request(&user, &id, |request| request.cancel(&paths, seconds()))?;
    if cancelled { Ok(()) } else { Err(other(&id)) }
}

async fn release(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
    Json(body): Json<PathsBody>,
) -> Result<(), TapeRefusal> {
    let (user, paths) = (site.user(peer, &headers)?.name, body.paths.into_iter().collect());
    let are_its = site.with_request(&user, &id, |request| request.has_all(&paths))?;
    if are_its { Ok(()) } else { Err(other(&id)) }
}

async fn forget(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Path(id): Path<String>,
) -> Result<(), TapeRefusal> {
    let user = site.user(peer, &headers)?.name;
    if site.requests.lock().remove(&user, &id) { Ok(()) } else { Err(unknown(&id)) }
}

async fn archive_info(
    State(site): SharedTape,
    (Extension(peer), headers): TapeClient,
    Json(body): Json<PathsBody>,
) -> Result<Json<Vec<Value>>, TapeRefusal> {
    let rights = [Action::Read, Action::Stage];
    let (_, paths) = site.asked(peer, &headers, body.paths, &rights)?;
    let told = site.blocking(move |logical| {
        let told = paths.into_iter().map(|(path, name)| locality(logical, &path, &name));
        told.collect()
    });
    Ok(Json(told.await?))
}

/// Where a file is, in the words of the API.
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
        Err(error) => json!({ "path": name, "error": text_of(error) }),
    }
}

impl TapeSite {
    fn user(&self, peer: Peer, headers: &HeaderMap) -> Result<Identity, TapeRefusal> {
        identity(&self.files.authenticator, headers, peer)
            .map_err(|Refusal(what)| TapeRefusal(StatusCode::UNAUTHORIZED, what))
    }

    /// The user, and the paths of files for which he has one of the rights.
    fn asked(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        names: Vec<String>,
        one_of: &[Action],
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
            if !one_of.iter().any(|action| user.may(*action, path.as_bytes())) {
                let what = format!("{} has no right to {}", user.name, path);
                return Err(TapeRefusal(StatusCode::FORBIDDEN, what));
            }
            paths.push((path, name));
        }
        Ok((user, paths))
    }

    /// Asks for files on behalf of a user, and notes which are on the disk.
    async fn find_out(
        &self,
        user: &str,
        paths: Vec<(StoragePath, String)>,
    ) -> Result<Vec<(String, FoundFile)>, TapeRefusal> {
        let user = user.to_owned();
        let find = move |logical: &Logical| {
            let found = paths.into_iter().map(|(path, name)| {
                let found = match logical.exports.stage(&path, &user, Opaque::default()) {
                    Ok(None) => FoundFile::OnDisk,
                    Ok(Some(_)) | Err(StorageError::NotBefore(..)) => FoundFile::Waiting,
                    Err(error) => FoundFile::Failed(text_of(error)),
                };
                (name, found)
            });
            found.collect()
        };
        self.blocking(find).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Logical) -> T + Send + 'static,
    ) -> Result<T, TapeRefusal> {
        let logical = Arc::clone(&self.files.logical);
        let done = self.files.blocking.spawn_blocking(move || work(&logical)).await;
        done.map_err(|error| TapeRefusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    fn with_request<T>(
        &self,
        user: &str,
        id: &str,
        work: impl FnOnce(&mut StageRequest) -> T,
    ) -> Result<T, TapeRefusal> {
        self.requests.lock().find(user, id).map(work).ok_or_else(|| unknown(id))
    }
}

fn path_of(name: &str) -> Option<StoragePath> {
    StoragePath::new(name.as_bytes()).ok()
}

fn text_of(error: StorageError) -> String {
    match error {
        StorageError::Refused(_, what) | StorageError::NotBefore(_, what) => what,
        StorageError::Elsewhere { host, .. } => format!("served by {host}"),
    }
}

fn unknown(id: &str) -> TapeRefusal {
    TapeRefusal(StatusCode::NOT_FOUND, format!("there is no request {id}"))
}

fn other(id: &str) -> TapeRefusal {
    TapeRefusal(StatusCode::BAD_REQUEST, format!("a path is not of request {id}"))
}

/// The address of a part of the API, as the client addressed this server.
fn url(peer: Peer, headers: &HeaderMap, below: &str) -> String {
    let scheme = if peer.is_encrypted { "https" } else { "http" };
    format!("{scheme}://{}{ROOT}{below}", host_of(headers))
}

fn host_of(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost")
}

/// Seconds since 1970.
fn seconds() -> u64 {
    clock::utc_ms() / 1000
}
