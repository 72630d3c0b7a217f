//! Requests to other servers: which ones, with which headers, and their redirects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use femtobarn_http::{WebConnector, causes};
use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::order::{OtherFile, url_of};
use crate::config::CopyHosts;
use crate::physical::StorageError;
use crate::protocol::http::files::digests::WANT_DIGEST;
use crate::protocol::http::files::failure::HttpFailure;

/// The most concurrent copies.
const COPIES_MAX: usize = 64;
/// When a client may retry if all turns are in use.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Redirects of one request.
const REDIRECTS_MAX: usize = 8;

/// The servers with which this one copies files.
pub struct OtherServers {
    client: Client<WebConnector, Body>,
    hosts: CopyHosts,
    allows_plain: bool,
    turns: Arc<Semaphore>,
}

impl OtherServers {
    /// Allows these servers, also without TLS if `allows_plain`.
    ///
    /// # Errors
    /// A text, if no certificate authorities are trusted.
    pub fn new(hosts: CopyHosts, allows_plain: bool) -> Result<Self, String> {
        let rule = hosts.clone();
        let connections =
            femtobarn_http::connector(Arc::new(move |host, address| rule.admit(host, address)));
        let connections = connections.map_err(|error| format!("copy.hosts: {error}"))?;
        Ok(OtherServers {
            // XRootD's servers compare the names of headers by case.
            client: Client::builder(TokioExecutor::new())
                .http1_title_case_headers(true)
                .build(connections),
            hosts,
            allows_plain,
            turns: Arc::new(Semaphore::new(COPIES_MAX)),
        })
    }

    /// A turn to copy, which ends when it is dropped.
    pub(super) fn turn(&self) -> Result<OwnedSemaphorePermit, HttpFailure> {
        Arc::clone(&self.turns).try_acquire_owned().map_err(|_| {
            let what = format!("{COPIES_MAX} copies are running already");
            StorageError::NotBefore(RETRY_AFTER, what).into()
        })
    }

    /// Fails unless the name of a file's server is allowed.
    pub(super) fn check(&self, file: &OtherFile) -> Result<(), HttpFailure> {
        if !file.is_encrypted() && !self.allows_plain {
            let what = "a server with TLS copies only from and to https:// URLs";
            return Err(HttpFailure::Forbidden(what.to_owned()));
        }
        self.hosts.admit_name(file.host()).map_err(HttpFailure::Forbidden)
    }

    /// Sends a request without a body, and follows redirects.
    pub(super) async fn ask(
        &self,
        file: &OtherFile,
        method: Method,
        want_digest: bool,
    ) -> Result<Response<Incoming>, HttpFailure> {
        let mut visit = ServerVisit::of(file);
        loop {
            let mut request = visit.request(&method, Body::empty());
            if want_digest {
                let wanted = HeaderValue::from_static("adler32");
                request.headers_mut().insert(WANT_DIGEST, wanted);
            }
            let answer = self.send(request, &visit.file).await?;
            if !self.is_redirected(&mut visit, &answer)? {
                return Ok(answer);
            }
        }
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        request: Request<Body>,
        file: &OtherFile,
    ) -> Result<Response<Incoming>, HttpFailure> {
        let answer = self.client.request(request).await;
        answer.map_err(|error| HttpFailure::Elsewhere(format!("{file}: {}", causes(&error))))
    }

    /// Whether an answer redirects to another file, with which the visit continues.
    pub(super) fn is_redirected(
        &self,
        visit: &mut ServerVisit,
        answer: &Response<Incoming>,
    ) -> Result<bool, HttpFailure> {
        if !is_redirect(answer.status()) {
            return Ok(false);
        }
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let next = visit.file.redirected_to(location.unwrap_or_default())?;
        self.check(&next)?;
        visit.file = next;
        visit.redirects += 1;
        if visit.redirects > REDIRECTS_MAX {
            let what = format!("{} is redirected more than {REDIRECTS_MAX} times", visit.file);
            return Err(HttpFailure::Elsewhere(what));
        }
        Ok(true)
    }
}

/// A request that follows redirects from server to server.
pub(super) struct ServerVisit {
    pub file: OtherFile,
    redirects: usize,
}

impl ServerVisit {
    pub(super) fn of(file: &OtherFile) -> Self {
        ServerVisit { file: file.clone(), redirects: 0 }
    }

    pub(super) fn request(&self, method: &Method, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.file.url.clone();
        request.headers_mut().clone_from(&self.file.headers);
        request
    }
}

impl OtherFile {
    /// The file that a redirect names. Headers for the host of this file are not passed to another host.
    fn redirected_to(&self, location: &str) -> Result<OtherFile, HttpFailure> {
        let is_path = location.starts_with('/') && !location.starts_with("//");
        let url = match (is_path, self.url.scheme_str(), self.url.authority()) {
            (true, Some(scheme), Some(authority)) => {
                url_of(&format!("{scheme}://{authority}{location}"))?
            }
            _ => url_of(location)?,
        };
        let is_same_server =
            url.scheme() == self.url.scheme() && url.authority() == self.url.authority();
        let headers = if is_same_server { self.headers.clone() } else { Default::default() };
        let next = OtherFile { url, headers };
        let is_same_host = !self.is_encrypted() && next.host().eq_ignore_ascii_case(self.host());
        if next.is_encrypted() || is_same_host {
            return Ok(next);
        }
        Err(HttpFailure::Elsewhere(format!("{self} redirects to {next}, which has no TLS")))
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::AUTHORIZATION;

    use super::*;

    fn file(url: &str) -> OtherFile {
        let token = (AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        OtherFile { url: url_of(url).expect("a URL"), headers: HeaderMap::from_iter([token]) }
    }

    #[test]
    fn tokens_stay_with_the_server_that_they_are_for() {
        let first = file("https://x:8443/a");
        for (location, is_kept) in [
            ("/b", true),
            ("https://x:8443/b", true),
            ("https://x/b", false),
            ("https://y:8443/b", false),
        ] {
            let next = first.redirected_to(location).expect("a file");
            assert_eq!(next.headers.contains_key(AUTHORIZATION), is_kept, "{location}");
        }
        for wrong in ["", "b", "//y/b", "http://x:8443/b", "root://x//b"] {
            assert!(first.redirected_to(wrong).is_err(), "{wrong}");
        }
        let plain = file("http://x/a");
        assert!(plain.redirected_to("http://x:81/b").is_ok());
        assert!(plain.redirected_to("http://y/b").is_err());
    }
}
