//! Requests of one client for files and folders, one after the other, with random methods, paths, headers and bodies.
//!
//! Each is answered, and with the bytes that the answer announces. Afterwards no file is open and no buffer is in use.

#![no_main]

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::{Extension, Router};
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{MemoryStorage, StoragePath};
use femtobarn_server::protocol::http::files::FileSite;
use femtobarn_server::protocol::http::with_files;
use femtobarn_server::protocol::listener::Peer;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::BodyExt;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tower_service::Service;

const REQUESTS_MAX: usize = 16;
const HEADERS_MAX: usize = 6;
/// Bytes of all files together.
const STORAGE_BYTES: u64 = 1 << 20;
const METHODS: [&str; 10] =
    ["GET", "HEAD", "PUT", "PROPFIND", "DELETE", "MKCOL", "MOVE", "COPY", "OPTIONS", "POST"];
const PATHS: [&str; 8] = ["/", "/a", "/b", "/dir/", "/dir/a", "/a/x", "/a?authz=x", "/%2e%2e/a"];
const HEADERS: [&str; 24] = [
    "range",
    "range",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "depth",
    "destination",
    "source",
    "overwrite",
    "want-digest",
    "digest",
    "repr-digest",
    "content-range",
    "content-length",
    "content-encoding",
    "authorization",
    "credential",
    "requirechecksumverification",
    "origin",
    "expect",
    "host",
];
const VALUES: [&str; 20] = [
    "bytes=0-9",
    "bytes=-5",
    "bytes=0-0,2-3,-1",
    "bytes=5-",
    "*",
    "0",
    "1",
    "infinity",
    "/b",
    "http://here.example/dir/a",
    "T",
    "F",
    "adler32",
    "md5;q=0.1, crc32c",
    "adler32=00000001",
    "bytes 0-3/10",
    "none",
    "Bearer x",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "\"0-0\"",
];
const SIZES: [usize; 6] = [0, 1, 10, 1000, 70_000, 300_000];

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().build().expect("the system allows a runtime"),
    );
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let mut requests = vec![];
    while requests.len() < REQUESTS_MAX && !input.is_empty() {
        match request(&mut input) {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    RUNTIME.with_borrow(|runtime| runtime.block_on(ask(requests)));
});

/// A value from a list, or any text.
fn text(input: &mut Unstructured<'_>, known: &[&str]) -> Result<Vec<u8>> {
    match input.ratio(3, 4)? {
        true => Ok(input.choose(known)?.as_bytes().to_vec()),
        false => Ok(input.arbitrary::<Vec<u8>>()?),
    }
}

/// A request, unless its parts are none of HTTP.
fn request(input: &mut Unstructured<'_>) -> Result<Option<Request<Body>>> {
    let method = *input.choose(&METHODS)?;
    let Ok(uri) = Uri::try_from(text(input, &PATHS)?) else { return Ok(None) };
    let mut request = Request::builder().method(method).uri(uri);
    for _ in 0..input.int_in_range(0..=HEADERS_MAX)? {
        let name = HeaderName::from_static(input.choose(&HEADERS)?);
        if let Ok(value) = HeaderValue::from_bytes(&text(input, &VALUES)?) {
            request = request.header(name, value);
        }
    }
    let body = match method {
        "PUT" | "POST" | "PROPFIND" => Body::from(vec![7; *input.choose(&SIZES)?]),
        _ => Body::empty(),
    };
    Ok(request.body(body).ok())
}

async fn ask(requests: Vec<Request<Body>>) {
    let mut exports = Exports::default();
    let top = StoragePath::new(b"/").expect("this is a path");
    let storage = Arc::new(MemoryStorage::new(STORAGE_BYTES));
    let options = ExportOptions { is_quick: true, is_read_only: false };
    exports.add(&top, storage, options).expect("nothing else is exported");
    let logical = Arc::new(Logical::new(Settings::default(), exports));
    let site = Arc::new(FileSite {
        logical: Arc::clone(&logical),
        authenticator: Authenticator::open(),
        federations: vec!["/fed".to_owned()],
        origins: vec!["https://page.example".to_owned()],
        others: None,
        buffers: Arc::default(),
        blocking: tokio::runtime::Handle::current(),
        transferred: Arc::default(),
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1094));
    let peer = Peer { address, is_encrypted: true, certificate: None };
    let mut router = with_files(Router::new(), Arc::clone(&site)).layer(Extension(peer));
    for request in requests {
        let is_head = request.method() == "HEAD";
        let answer = router.call(request).await.expect("a router always answers");
        let announced = answer.headers().get(CONTENT_LENGTH).cloned();
        // An answer may break off, but has no bytes but those that it announces.
        if let Ok(body) = answer.into_body().collect().await
            && let Some(announced) = announced
            && !is_head
        {
            let length = body.to_bytes().len();
            assert_eq!(announced.to_str().ok(), Some(length.to_string().as_str()));
        }
    }
    while logical.files.count() > 0 || site.buffers.used() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
