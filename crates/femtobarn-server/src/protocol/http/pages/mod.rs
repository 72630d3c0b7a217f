//! The pages for people: static files, which request their data as programs do.
//!
//! They load nothing from other sites, and run only the scripts here. `inside_worker.js` also runs `inside.wasm`, the
//! program with which browsers look into files; a server that was built without it does not have that file. `build.rs`
//! compresses all files for clients that accept gzip.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
    X_CONTENT_TYPE_OPTIONS,
};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";
const PROGRAM: &str = "application/wasm";

/// The sources that a page may load and run.
const POLICY: &str = "default-src 'self'";
/// The policy of a page, and WebAssembly. A worker has the policy of its own file.
const POLICY_OF_WORKER: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'";

const WORKER: &str = "/pages/inside_worker.js";

/// A file of the pages.
#[derive(Clone, Copy)]
struct PageFile {
    path: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

/// A file beside this one, at its own path or below `/pages`.
macro_rules! page_file {
    ($name:literal, $media_type:expr) => {
        page_file!($name, $media_type, concat!("/pages/", $name))
    };
    ($name:literal, $media_type:expr, $path:expr) => {
        PageFile {
            path: $path,
            media_type: $media_type,
            plain: include_bytes!($name),
            gzip: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz")),
        }
    };
}

const STATUS: PageFile = page_file!("status.html", HTML, "/");
const INSIDE: PageFile = PageFile {
    path: "/pages/inside.wasm",
    media_type: PROGRAM,
    plain: include_bytes!(concat!(env!("OUT_DIR"), "/inside.wasm")),
    gzip: include_bytes!(concat!(env!("OUT_DIR"), "/inside.wasm.gz")),
};

/// The other files.
const FILES: [PageFile; 24] = [
    page_file!("catalogue.html", HTML, "/catalogue"),
    page_file!("status.js", SCRIPT),
    page_file!("catalogue.js", SCRIPT),
    page_file!("containers.js", SCRIPT),
    page_file!("history.js", SCRIPT),
    page_file!("classes.js", SCRIPT),
    page_file!("details.js", SCRIPT),
    page_file!("inside.js", SCRIPT),
    page_file!("inside_worker.js", SCRIPT, WORKER),
    page_file!("plot.js", SCRIPT),
    page_file!("objects.js", SCRIPT),
    page_file!("values.js", SCRIPT),
    page_file!("expression.js", SCRIPT),
    page_file!("evaluation.js", SCRIPT),
    page_file!("binning.js", SCRIPT),
    page_file!("axes.js", SCRIPT),
    page_file!("histogram.js", SCRIPT),
    page_file!("snippets.js", SCRIPT),
    page_file!("numbers.js", SCRIPT),
    page_file!("graph.js", SCRIPT),
    page_file!("elements.js", SCRIPT),
    page_file!("style.css", STYLE),
    page_file!("icon.svg", ICON),
    INSIDE,
];

/// The status page.
pub(super) async fn status(headers: HeaderMap) -> Response {
    STATUS.answer(&headers)
}

/// All other files of the pages.
pub(super) fn routes() -> Router {
    let present = FILES.into_iter().filter(|file| !file.plain.is_empty());
    present.fold(Router::new(), |routes, file| {
        routes.route(file.path, get(move |headers: HeaderMap| async move { file.answer(&headers) }))
    })
}

impl PageFile {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let policy = if self.path == WORKER { POLICY_OF_WORKER } else { POLICY };
        let headers_of_all = [
            (CONTENT_TYPE, self.media_type),
            (CONTENT_SECURITY_POLICY, policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (VARY, "accept-encoding"),
        ];
        if takes_gzip(headers) {
            return (headers_of_all, [(CONTENT_ENCODING, "gzip")], self.gzip).into_response();
        }
        (headers_of_all, self.plain).into_response()
    }
}

/// Whether a client accepts gzip, which it may refuse by a quality of 0 (RFC 9110, section 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|it| it.to_str().ok());
    codings.flat_map(|it| it.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameters.trim().strip_prefix("q=").and_then(|it| it.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && quality.unwrap_or(1.0) > 0.0
    })
}
