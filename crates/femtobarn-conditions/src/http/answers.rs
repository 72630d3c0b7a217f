//! Responses: their bodies in the coding that a client takes, and how long caches may keep them.
//!
//! Every body has its SHA-256 in `Repr-Digest` (RFC 9530) and as its `ETag`, so a client that gets it from a cache can
//! check it.

use std::io::Write;
use std::sync::OnceLock;

use axum::body::Body;
use axum::response::{IntoResponse, Json, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use femtobarn::{Error, ErrorKind, Result};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

const REPR_DIGEST: &str = "repr-digest";
const JSON: &str = "application/json";
/// Seconds for which a head may be out of date.
const HEAD_SECONDS: u32 = 10;
/// Bodies of up to this many bytes are not worth a coding.
const PLAIN_BYTES_MAX: usize = 512;

/// A coding of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
    Zstd,
}

impl Coding {
    /// The best that a client takes.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let taken = headers.get_all(ACCEPT_ENCODING);
        let taken: Vec<&str> =
            taken.iter().filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(',')).collect();
        let takes = |name: &str| {
            taken.iter().any(|coding| {
                let (found, weight) = coding.split_once(';').unwrap_or((coding, ""));
                let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
                found.trim().eq_ignore_ascii_case(name) && weight != Some(Ok(0.0))
            })
        };
        match () {
            () if takes("zstd") => Coding::Zstd,
            () if takes("gzip") => Coding::Gzip,
            () => Coding::Plain,
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Coding::Plain => None,
            Coding::Gzip => Some("gzip"),
            Coding::Zstd => Some("zstd"),
        }
    }

    fn encode(self, plain: &Bytes) -> std::io::Result<Bytes> {
        match self {
            Coding::Plain => Ok(plain.clone()),
            Coding::Gzip => {
                let level = flate2::Compression::default();
                let mut gzip = flate2::write::GzEncoder::new(vec![], level);
                gzip.write_all(plain)?;
                Ok(gzip.finish()?.into())
            }
            Coding::Zstd => Ok(zstd::bulk::compress(plain, 0)?.into()),
        }
    }
}

/// A body in one coding.
struct CodedBody {
    bytes: Bytes,
    sha256: [u8; 32],
}

impl CodedBody {
    fn new(bytes: Bytes) -> Self {
        CodedBody { sha256: Sha256::digest(&bytes).into(), bytes }
    }
}

/// The body of a response, in every coding that was requested so far.
pub(super) struct Page {
    media_type: &'static str,
    plain: CodedBody,
    gzip: OnceLock<CodedBody>,
    zstd: OnceLock<CodedBody>,
}

impl Page {
    pub(super) fn json(value: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Error::Invalid { what: format!("no JSON: {error}") })?;
        Ok(Self::of_json(bytes))
    }

    /// The page with a text of JSON.
    pub(super) fn of_json(text: Vec<u8>) -> Self {
        Self::new(JSON, text.into())
    }

    fn new(media_type: &'static str, bytes: Bytes) -> Self {
        let plain = CodedBody::new(bytes);
        Page { media_type, plain, gzip: OnceLock::new(), zstd: OnceLock::new() }
    }

    /// Bytes that it takes in memory, at most.
    pub(super) fn weight(&self) -> u64 {
        // A coded body is seldom larger than the plain one.
        (size_of::<Self>() + 2 * self.plain.bytes.len()) as u64
    }

    /// Whether the body is available in a coding.
    pub(super) fn has(&self, coding: Coding) -> bool {
        match self.worthwhile(coding) {
            Coding::Plain => true,
            Coding::Gzip => self.gzip.get().is_some(),
            Coding::Zstd => self.zstd.get().is_some(),
        }
    }

    /// Encodes the body in a coding.
    pub(super) fn encode(&self, coding: Coding) {
        self.body(coding);
    }

    /// A response that never changes.
    pub(super) fn for_ever(&self, request: &HeaderMap) -> Response {
        self.answer(request, "max-age=31536000, immutable")
    }

    /// A response that is outdated soon.
    pub(super) fn short_lived(&self, request: &HeaderMap) -> Response {
        self.answer(request, &format!("max-age={HEAD_SECONDS}"))
    }

    fn worthwhile(&self, coding: Coding) -> Coding {
        if self.plain.bytes.len() > PLAIN_BYTES_MAX { coding } else { Coding::Plain }
    }

    fn body(&self, coding: Coding) -> (&CodedBody, Coding) {
        let coding = self.worthwhile(coding);
        let slot = match coding {
            Coding::Plain => return (&self.plain, coding),
            Coding::Gzip => &self.gzip,
            Coding::Zstd => &self.zstd,
        };
        let encode = || {
            let bytes = coding.encode(&self.plain.bytes);
            CodedBody::new(bytes.expect("an encoder that writes to memory does not fail"))
        };
        (slot.get_or_init(encode), coding)
    }

    fn answer(&self, request: &HeaderMap, lives: &str) -> Response {
        let (body, coding) = self.body(Coding::of(request));
        let mut answer = with_validators(request, &body.sha256, lives, || {
            let kind = [(CONTENT_TYPE, self.media_type)];
            (kind, body.bytes.clone()).into_response()
        });
        let headers = answer.headers_mut();
        headers.insert(VARY, ACCEPT_ENCODING.into());
        if let Some(name) = coding.name() {
            headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(name));
        }
        answer
    }
}

/// The response with this SHA-256 of its body; without the body if the client has it already.
pub(super) fn with_validators(
    request: &HeaderMap,
    sha256: &[u8],
    lives: &str,
    make: impl FnOnce() -> Response,
) -> Response {
    let digest = BASE64_STANDARD.encode(sha256);
    let tag = format!("\"{digest}\"");
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|it| it.to_str().ok());
    let has_it = known
        .flat_map(|it| it.split(','))
        .any(|it| matches!(it.trim(), it if it == "*" || it.trim_start_matches("W/") == tag));
    let answer = if has_it { StatusCode::NOT_MODIFIED.into_response() } else { make() };
    // A response that needs a token must not be kept in caches that serve other clients.
    let scope = if request.contains_key(AUTHORIZATION) { "private" } else { "public" };
    let headers = [
        (CACHE_CONTROL, format!("{scope}, {lives}")),
        (ETAG, tag),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (http::HeaderName::from_static(REPR_DIGEST), format!("sha-256=:{digest}:")),
    ];
    (headers, answer).into_response()
}

/// A file that is part of this program.
pub(super) fn fixed(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, media_type),
        (http::header::CONTENT_SECURITY_POLICY, "default-src 'self'"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Body::from(text)).into_response()
}

/// The response for an error.
pub(super) fn failed(error: &Error) -> Response {
    let headers = [(CACHE_CONTROL, "no-store")];
    (status_of(error), headers, Json(json!({ "error": error.to_string() }))).into_response()
}

/// The status code for an error. Clients of nopayloaddb repeat a request after 504, so that is not among them.
pub(super) fn status_of(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Denied => StatusCode::FORBIDDEN,
        ErrorKind::Exists | ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::Closed => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
