//! The pages for people: static files, which ask for their data as programs do.
//!
//! They load nothing from other sites, and run no script but those here.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";

/// The files other than `/`.
const FILES: [(&str, &str, &str); 11] = [
    ("/catalogue", HTML, include_str!("catalogue.html")),
    ("/pages/status.js", SCRIPT, include_str!("status.js")),
    ("/pages/catalogue.js", SCRIPT, include_str!("catalogue.js")),
    ("/pages/containers.js", SCRIPT, include_str!("containers.js")),
    ("/pages/history.js", SCRIPT, include_str!("history.js")),
    ("/pages/classes.js", SCRIPT, include_str!("classes.js")),
    ("/pages/details.js", SCRIPT, include_str!("details.js")),
    ("/pages/graph.js", SCRIPT, include_str!("graph.js")),
    ("/pages/elements.js", SCRIPT, include_str!("elements.js")),
    ("/pages/style.css", STYLE, include_str!("style.css")),
    ("/pages/icon.svg", ICON, include_str!("icon.svg")),
];

/// The page of what the server does.
pub(super) async fn status() -> Response {
    file(HTML, include_str!("status.html"))
}

/// All other files of the pages.
pub(super) fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), |routes, (path, kind, text)| {
        routes.route(path, get(move || async move { file(kind, text) }))
    })
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, "default-src 'self'"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}
