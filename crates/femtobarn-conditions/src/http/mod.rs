//! Conditions over HTTP, for programs without XRootD and for caches such as squid.
//!
//! | path | answers | may be cached |
//! |---|---|---|
//! | `/`, `/page` | the page for people | |
//! | `/openapi.json` | the description of these routes | |
//! | `/tags` | all global tags | 10 seconds |
//! | `/heads` | all series: the version of each | 10 seconds; as of `?csn=` for ever |
//! | `/heads/TAG` | the series that a global tag names: the version of each | the same |
//! | `/series/VERSION/PATH` | a series: its class and the windows of its clock | for ever |
//! | `/windows/VERSION/NUMBER/PATH` | the intervals of all channels in a window | for ever |
//! | `/conditions/VERSION/FIRST-LAST/PATH` | the values of some entries | for ever |
//! | `/payloads/VERSION/ENTRY/PATH` | the bytes of one payload | for ever |
//! | `/nopayloaddb/api/cdb_rest/...` | requests of clients of nopayloaddb, which may also write | |
//!
//! `answers` makes responses, `pages` keeps those that never change, `versions` finds the series of a version, `heads`,
//! `series` and `payloads` have the contents, `json` writes values, `nopayloaddb` has its own answers,
//! `expiring_cache` drops values, and thereby snapshots, that are no longer requested.
//!
//! 1. A version names the commit that made it by its number and by its transaction's UUID. Two histories of a
//!    federation, as after restoring an older copy, never have a version in common.
//! 2. No address has a moment of an event in it, so all jobs ask for the same few pages.
//! 3. Requests for a page that is being made wait for it. No page is made twice at the same time.

use std::sync::Arc;

use axum::Router;
use axum::extract::{OriginalUri, Path, Query, Request, State};
use axum::response::{Redirect, Response};
use axum::routing::get;
use femtobarn::{Csn, Federation, Result};
use http::{HeaderMap, Uri};
use serde::Deserialize;

mod answers;
mod expiring_cache;
mod heads;
mod json;
mod nopayloaddb;
mod pages;
mod payloads;
mod series;
mod versions;

use answers::{Coding, failed, fixed};
use pages::LastingPages;
use versions::Versions;

use crate::series_tables::SeriesTables;

/// Bytes of pages that are kept.
const PAGES_BYTES_MAX: u64 = 64 << 20;

/// The conditions of a federation, and the server's caches of them.
struct ConditionsSite {
    federation: Federation,
    tables: Arc<SeriesTables>,
    versions: Versions,
    pages: LastingPages,
}

type SharedConditions = State<Arc<ConditionsSite>>;

/// The routes to the conditions of a federation. They do not check the rights of clients.
pub fn routes(federation: Federation) -> Router {
    let tables = Arc::new(SeriesTables::new(federation.clone()));
    let of_nopayloaddb = nopayloaddb::routes(tables.clone());
    let site = Arc::new(ConditionsSite {
        versions: Versions::new(federation.clone()),
        pages: LastingPages::new(PAGES_BYTES_MAX),
        tables,
        federation,
    });
    Router::new()
        .route("/", get(to_page))
        .route("/page", get(|| async { fixed("text/html; charset=utf-8", PAGE) }))
        .route("/page.css", get(|| async { fixed("text/css; charset=utf-8", STYLE) }))
        .route("/page.js", get(|| async { fixed(SCRIPT_TYPE, SCRIPT) }))
        .route("/clocks.js", get(|| async { fixed(SCRIPT_TYPE, CLOCKS) }))
        .route("/timeline.js", get(|| async { fixed(SCRIPT_TYPE, TIMELINE) }))
        .route("/openapi.json", get(|| async { fixed("application/json", OPENAPI) }))
        .route("/tags", get(tags))
        .route("/heads", get(newest_head))
        .route("/heads/{tag}", get(head))
        .route("/series/{version}/{*path}", get(series_page))
        .route("/windows/{version}/{number}/{*path}", get(window_page))
        .route("/conditions/{version}/{entries}/{*path}", get(conditions_page))
        .route("/payloads/{version}/{entry}/{*path}", get(payload))
        .with_state(site)
        .nest("/nopayloaddb", of_nopayloaddb)
}

const OPENAPI: &str = include_str!("openapi.json");
const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const CLOCKS: &str = include_str!("page/clocks.js");
const TIMELINE: &str = include_str!("page/timeline.js");
const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadQuery {
    csn: Option<u64>,
    /// Paths of series, or prefixes of paths that end with a slash; all series without it.
    series: Option<String>,
}

/// Sends a browser to the page, whose relative addresses need the slash before its name.
async fn to_page(OriginalUri(address): OriginalUri) -> Redirect {
    Redirect::to(&format!("{}/page", address.path().trim_end_matches('/')))
}

async fn tags(State(site): SharedConditions, request: Request) -> Response {
    let headers = request.headers().clone();
    let made = blocking(move || heads::tags(&site.federation)).await;
    made.map_or_else(|error| failed(&error), |page| page.short_lived(&headers))
}

async fn newest_head(
    site: SharedConditions,
    query: Query<HeadQuery>,
    headers: HeaderMap,
) -> Response {
    head_of(site, None, query, headers).await
}

async fn head(
    site: SharedConditions,
    Path(tag): Path<String>,
    query: Query<HeadQuery>,
    headers: HeaderMap,
) -> Response {
    head_of(site, Some(tag), query, headers).await
}

async fn head_of(
    State(site): SharedConditions,
    tag: Option<String>,
    Query(HeadQuery { csn, series }): Query<HeadQuery>,
    headers: HeaderMap,
) -> Response {
    // The newest head is that of the newest commit, which never changes.
    let federation = site.federation.clone();
    let newest = async { blocking(move || federation.head()).await };
    let as_of = match csn {
        Some(csn) => Csn(csn),
        None => match newest.await {
            Ok(newest) => newest,
            Err(error) => return failed(&error),
        },
    };
    let address = format!("/heads/{tag:?}?csn={as_of}&series={series:?}");
    let from = site.clone();
    let make = move || heads::head(&from.tables, tag, as_of, series.as_deref());
    match site.pages.find(&address, Coding::of(&headers), make).await {
        Ok(page) if csn.is_some() => page.for_ever(&headers),
        Ok(page) => page.short_lived(&headers),
        Err(error) => failed(&error),
    }
}

async fn series_page(
    State(site): SharedConditions,
    address: Uri,
    Path((version, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let from = site.clone();
    let make = move || series::description(&*from.versions.find(&path, &version)?, &version, &path);
    site.pages.answer(&address, &headers, make).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowQuery {
    /// Whether to add a hash of each condition's values.
    #[serde(default)]
    digests: bool,
}

async fn window_page(
    State(site): SharedConditions,
    address: Uri,
    Path((version, number, path)): Path<(String, usize, String)>,
    Query(WindowQuery { digests }): Query<WindowQuery>,
    headers: HeaderMap,
) -> Response {
    let from = site.clone();
    let make = move || series::window(&*from.versions.find(&path, &version)?, number, digests);
    site.pages.answer(&address, &headers, make).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValuesQuery {
    /// Names of fields, separated by commas; all fields without it.
    fields: Option<String>,
}

async fn conditions_page(
    State(site): SharedConditions,
    address: Uri,
    Path((version, entries, path)): Path<(String, String, String)>,
    Query(ValuesQuery { fields }): Query<ValuesQuery>,
    headers: HeaderMap,
) -> Response {
    let from = site.clone();
    let make = move || {
        let found = from.versions.find(&path, &version)?;
        series::conditions(&found, &entries, fields.as_deref())
    };
    site.pages.answer(&address, &headers, make).await
}

async fn payload(
    State(site): SharedConditions,
    Path((version, entry, path)): Path<(String, u64, String)>,
    headers: HeaderMap,
) -> Response {
    let made = blocking(move || payloads::payload(&*site.versions.find(&path, &version)?, entry));
    made.await.map_or_else(|error| failed(&error), |payload| payload.answer(&headers))
}

/// Runs an operation that may wait for a disk on a thread where it delays no other connection.
async fn blocking<T: Send + 'static>(
    make: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(make).await {
        Ok(made) => made,
        Err(panic) if panic.is_panic() => std::panic::resume_unwind(panic.into_panic()),
        Err(_) => Err(femtobarn::Error::Closed { what: "the server is stopping".to_owned() }),
    }
}
