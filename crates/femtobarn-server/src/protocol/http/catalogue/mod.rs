//! The catalogues of the served federations, as JSON for the page `/catalogue`.
//!
//! | path | answers |
//! |---|---|
//! | `/api/federations` | the names of the federations that the client may read |
//! | `/api/federations/NAME?csn=` | [`overview`]: identity, commit, sums, classes, tags |
//! | `/api/containers/NAME?csn=&search=&class=&state=&sort=&descending=&offset=&limit=` | [`listing`]: a page of containers |
//! | `/api/container/NAME?csn=&database=&container=` | [`details`]: one container with its class, its history and its links |
//! | `/api/links/NAME?csn=&database=&container=&to=1.3,0.2` | [`links`]: the containers that links of one container refer to |
//! | `/api/commits/NAME?until=&search=&limit=` | [`history`]: commits, the newest first |
//! | `/api/commits/NAME?of=` | the changes of one commit |
//! | `/api/growth/NAME` | objects and bytes over time |
//!
//! 1. Every answer is for clients that may read the federation.
//! 2. A look-up reads the whole catalogue, so at most [`LOOKS_MAX`] run at the same time, and the containers of a
//!    snapshot are cached: turning pages, sorting and searching read no catalogue.

mod details;
mod history;
mod links;
mod listing;
mod overview;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Extension, Router};
use femtobarn_catalog::{ContainerSummary, Csn, ErrorKind, LocalCatalogue, PinGuard, Result};
use http::{HeaderMap, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::Site;
use super::clients::{refused_to, said};
use crate::auth::Action;
use crate::protocol::listener::Peer;

/// The most concurrent look-ups, in all federations.
const LOOKS_MAX: usize = 2;
/// The longest wait of a request for its look-up to begin.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(30);
/// Containers of snapshots that are kept, some 150 bytes each.
const CONTAINERS_KEPT: u64 = 1_000_000;
/// Snapshots that the cache is sized for; this is not a limit.
const SNAPSHOTS_EXPECTED: usize = 8;

/// The catalogues, and the cached containers of snapshots.
struct Catalogues {
    site: Arc<Site>,
    /// The containers of snapshots, by the name of the federation and the commit.
    kept: Cache<(String, Csn), Arc<Vec<ContainerSummary>>, ByContainers>,
    looks: Arc<Semaphore>,
}

/// Weighs a cached snapshot by its number of containers.
#[derive(Clone)]
struct ByContainers;

impl Weighter<(String, Csn), Arc<Vec<ContainerSummary>>> for ByContainers {
    fn weight(&self, _: &(String, Csn), containers: &Arc<Vec<ContainerSummary>>) -> u64 {
        containers.len() as u64 + 1
    }
}

/// A federation as of a commit, for one request.
struct Looked {
    containers: Arc<Vec<ContainerSummary>>,
    head: Csn,
    at: Csn,
    /// Keeps vacuum from removing rows of the snapshot meanwhile.
    _pin: PinGuard,
}

/// The routes.
pub(super) fn routes(site: Arc<Site>) -> Router {
    let looks = Arc::new(Semaphore::new(LOOKS_MAX));
    let kept = Cache::with_weighter(SNAPSHOTS_EXPECTED, CONTAINERS_KEPT, ByContainers);
    let catalogues = Arc::new(Catalogues { site, kept, looks });
    Router::new()
        .route("/api/federations", get(federations))
        .route("/api/federations/{*name}", get(answer::<overview::OverviewQuery>))
        .route("/api/containers/{*name}", get(answer::<listing::ListingQuery>))
        .route("/api/container/{*name}", get(answer::<details::DetailsQuery>))
        .route("/api/links/{*name}", get(answer::<links::LinksQuery>))
        .route("/api/commits/{*name}", get(answer::<history::CommitsQuery>))
        .route("/api/growth/{*name}", get(answer::<history::GrowthQuery>))
        .with_state(catalogues)
}

/// A request to a catalogue.
trait Question: DeserializeOwned + Send + 'static {
    type Shown: Serialize + Send + 'static;

    /// Reads the answer. May take a second.
    ///
    /// # Errors
    /// The errors of the catalogue: `NotFound` if the snapshot no longer exists or there is no such container or
    /// commit; `Invalid` if the search is too long.
    fn look(
        &self,
        catalogues: &Catalogues,
        name: &str,
        catalog: &LocalCatalogue,
    ) -> Result<Self::Shown>;
}

async fn federations(
    State(catalogues): State<Arc<Catalogues>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    let site = &catalogues.site;
    let names = site.federations.iter().map(|(name, _)| name);
    let is_readable = |name: &&String| {
        refused_to(Action::Read, &site.authenticator, &headers, &peer, name).is_none()
    };
    Json(names.filter(is_readable).collect::<Vec<_>>()).into_response()
}

async fn answer<Q: Question>(
    State(catalogues): State<Arc<Catalogues>>,
    Path(name): Path<String>,
    Query(question): Query<Q>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    let (site, name) = (&catalogues.site, format!("/{name}"));
    if let Some(answer) = refused_to(Action::Read, &site.authenticator, &headers, &peer, &name) {
        return answer;
    }
    let Some((_, catalog)) = site.federations.iter().find(|(known, _)| *known == name) else {
        return said(StatusCode::NOT_FOUND, &format!("no federation is served as {name:?}"));
    };
    let catalog = Arc::clone(catalog);
    let turn = Arc::clone(&catalogues.looks).acquire_owned();
    let Ok(Ok(turn)) = tokio::time::timeout(LOOK_WAIT_MAX, turn).await else {
        let what = "too many clients are browsing catalogues; try again later";
        return said(StatusCode::SERVICE_UNAVAILABLE, what);
    };
    let shared = Arc::clone(&catalogues);
    let look = move || {
        // A look-up continues after its client has disconnected, and so keeps its turn.
        let _turn = turn;
        question.look(&shared, &name, &catalog)
    };
    match tokio::task::spawn_blocking(look).await {
        Ok(Ok(told)) => Json(told).into_response(),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            said(StatusCode::NOT_FOUND, &error.to_string())
        }
        Ok(Err(error)) if error.kind() == ErrorKind::Invalid => {
            said(StatusCode::BAD_REQUEST, &error.to_string())
        }
        Ok(Err(error)) => said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

impl Catalogues {
    /// A federation as of a commit, by default the newest.
    ///
    /// # Errors
    /// `NotFound` if the snapshot no longer exists; otherwise those of reading the catalogue.
    fn at(&self, name: &str, catalog: &LocalCatalogue, csn: Option<u64>) -> Result<Looked> {
        let head = catalog.head()?;
        let at = csn.map_or(head, |csn| Csn(csn.min(head.0)));
        // Fails for a snapshot that vacuum may have removed, and that may be incomplete.
        let pin = catalog.pin(at)?;
        let read = || catalog.listed_containers(at).map(Arc::new);
        let containers = self.kept.get_or_insert_with(&(name.to_owned(), at), read)?;
        Ok(Looked { containers, head, at, _pin: pin })
    }
}
