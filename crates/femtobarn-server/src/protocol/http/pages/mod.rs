//! The pages for people: static files, which ask for their data as programs do.
//!
//! They load nothing from other sites, and run no script but those here. `inside_worker.js` also runs `inside.wasm`, the program
//! with which browsers look into files; a server that was built without it does not have that file.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";
const PROGRAM: &str = "application/wasm";

/// What a page may load and run.
const POLICY: &str = "default-src 'self'";
/// The same, and WebAssembly. A worker has the policy of its own file.
const POLICY_OF_WORKER: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'";

const WORKER: &str = "/pages/inside_worker.js";
const INSIDE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.wasm"));

/// The files other than `/`.
const FILES: [(&str, &str, &str); 16] = [
    ("/catalogue", HTML, include_str!("catalogue.html")),
    ("/pages/status.js", SCRIPT, include_str!("status.js")),
    ("/pages/catalogue.js", SCRIPT, include_str!("catalogue.js")),
    ("/pages/containers.js", SCRIPT, include_str!("containers.js")),
    ("/pages/history.js", SCRIPT, include_str!("history.js")),
    ("/pages/classes.js", SCRIPT, include_str!("classes.js")),
    ("/pages/details.js", SCRIPT, include_str!("details.js")),
    ("/pages/inside.js", SCRIPT, include_str!("inside.js")),
    (WORKER, SCRIPT, include_str!("inside_worker.js")),
    ("/pages/binning.js", SCRIPT, include_str!("binning.js")),
    ("/pages/histogram.js", SCRIPT, include_str!("histogram.js")),
    ("/pages/numbers.js", SCRIPT, include_str!("numbers.js")),
    ("/pages/graph.js", SCRIPT, include_str!("graph.js")),
    ("/pages/elements.js", SCRIPT, include_str!("elements.js")),
    ("/pages/style.css", STYLE, include_str!("style.css")),
    ("/pages/icon.svg", ICON, include_str!("icon.svg")),
];

/// The page of what the server does.
pub(super) async fn status() -> Response {
    file(HTML, POLICY, include_str!("status.html").as_bytes())
}

/// All other files of the pages.
pub(super) fn routes() -> Router {
    let routes = FILES.into_iter().fold(Router::new(), |routes, (path, kind, text)| {
        let policy = if path == WORKER { POLICY_OF_WORKER } else { POLICY };
        routes.route(path, get(move || async move { file(kind, policy, text.as_bytes()) }))
    });
    if INSIDE.is_empty() {
        return routes;
    }
    routes.route("/pages/inside.wasm", get(|| async { file(PROGRAM, POLICY, INSIDE) }))
}

fn file(kind: &'static str, policy: &'static str, bytes: &'static [u8]) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, bytes).into_response()
}
