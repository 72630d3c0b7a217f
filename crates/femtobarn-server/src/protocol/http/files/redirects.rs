//! Requests for files, if this server has no data: they are redirected to servers that have it.
//!
//! 1. The answer is 307, so the client sends the same request there; the URL is `https://` if the request came by TLS.
//!    No part of a body is stored here.
//! 2. A client needs some right to each path here. The server with the path decides which actions it may perform.
//! 3. The path and the query are passed on unchanged. A token in a header is not: it would become part of a URL.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, RANGE};
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use xrd::client::Endpoint;

use super::FileRequest;
use super::failure::HttpFailure;
use super::location::UrlLocation;
use crate::logical::redirector::{AccessKind, ClientQuestion, RedirectedClient, Redirector};

/// The name by which a client knows this server, for the server that it is redirected to.
pub(super) const VIA: &str = "fb.via";

impl FileRequest {
    /// Redirects the client to a server that can carry out its request. `query` is that of the request.
    pub(super) async fn redirect(
        &self,
        redirector: &Redirector,
        method: &Method,
        query: Option<&str>,
    ) -> Result<Response, HttpFailure> {
        self.check_visible(&self.location.path)?;
        let mut query = query.unwrap_or_default().to_owned();
        let server = match method.as_str() {
            "GET" | "HEAD" => self.reader(redirector, self.reading(method), &query).await?,
            "PROPFIND" => self.reader(redirector, AccessKind::Look, &query).await?,
            "PUT" | "MKCOL" => self.server(redirector, AccessKind::Create).await?,
            "DELETE" => self.server(redirector, AccessKind::Change).await?,
            // With a source this is a copy to the path, otherwise from it.
            "COPY" if self.headers.contains_key("source") => {
                self.server(redirector, AccessKind::Create).await?
            }
            "COPY" => self.reader(redirector, AccessKind::Read, &query).await?,
            "MOVE" => {
                if let Some(host) = &self.host {
                    let separator = if query.is_empty() { "" } else { "&" };
                    let host = percent_encode(host.as_bytes(), NON_ALPHANUMERIC);
                    query.push_str(&format!("{separator}{VIA}={host}"));
                }
                self.mover(redirector).await?
            }
            _ => return Err(self.not_understood(method)),
        };
        let path = self.location.url_path();
        Ok(moved_to(&server.to_string(), self.is_encrypted, path, &query))
    }

    fn asked<'a>(&self, location: &'a UrlLocation) -> ClientQuestion<'a> {
        let client = RedirectedClient { address: self.client, is_server: false, comes_again: true };
        ClientQuestion { path: &location.path, opaque: location.opaque(), anew: false, client }
    }

    /// A client requests each part of a file here; the request for the first part counts as the beginning of a read.
    fn reading(&self, method: &Method) -> AccessKind {
        let is_first = self.header(&RANGE).is_none_or(|range| range.starts_with("bytes=0-"));
        if is_first && method == Method::GET { AccessKind::Read } else { AccessKind::ReadOn }
    }

    async fn server(
        &self,
        redirector: &Redirector,
        wish: AccessKind,
    ) -> Result<Endpoint, HttpFailure> {
        Ok(redirector.find(&[self.asked(&self.location)], wish).await?)
    }

    /// A server from which the path can be read, or the same path with a snapshot in it: only the servers know which
    /// folders are federations.
    async fn reader(
        &self,
        redirector: &Redirector,
        wish: AccessKind,
        query: &str,
    ) -> Result<Endpoint, HttpFailure> {
        let failure = match self.server(redirector, wish).await {
            Ok(server) => return Ok(server),
            Err(failure) => failure,
        };
        let path = self.location.path.as_bytes();
        let marks = path.windows(2).enumerate().rev().filter(|(_, two)| *two == b"/@");
        // Below a snapshot there are only databases, whose names may begin with `@`, too.
        for (mark, _) in marks.take(2) {
            let federation = String::from_utf8_lossy(&path[..mark]).into_owned();
            let location = UrlLocation::of_path(self.location.url_path(), query, &[federation])?;
            if let Ok(server) = redirector.find(&[self.asked(&location)], wish).await {
                return Ok(server);
            }
        }
        Err(failure)
    }

    /// The server at which the path can be moved to the `Destination`.
    async fn mover(&self, redirector: &Redirector) -> Result<Endpoint, HttpFailure> {
        let to = self.destination()?;
        self.check_visible(&to.path)?;
        let to = ClientQuestion { anew: true, ..self.asked(&to) };
        Ok(redirector.find_to_move(self.asked(&self.location), to).await?)
    }
}

/// The answer that sends a client to another server with the same request.
pub(super) fn moved_to(server: &str, is_encrypted: bool, path: &str, query: &str) -> Response {
    let scheme = if is_encrypted { "https" } else { "http" };
    let separator = if query.is_empty() { "" } else { "?" };
    let location = format!("{scheme}://{server}{path}{separator}{query}");
    let headers = [(LOCATION, location), (CACHE_CONTROL, "no-store".to_owned())];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}
