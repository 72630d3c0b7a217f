//! Fetches the keys of an issuer: its metadata at `/.well-known/openid-configuration` below its URL name the URL of the keys.
//!
//! 1. Both are read over https, from servers with certificates that this machine trusts. Redirects are not followed.
//! 2. The operator has chosen the issuer, so its host may have any address. The issuer chooses the place of its keys:
//!    at its own host, or at public addresses other than this machine's.
//!
//! Sources: OpenID Connect Discovery 1.0; RFC 7517 (keys).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use femtobarn_http::{WebConnector, causes};
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use super::cache::FetchedKeySet;
use super::key_set::parsed;
use crate::network::is_public_elsewhere;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The fetcher of one issuer's keys.
pub(super) struct KeyFetcher {
    issuer: String,
    metadata: Uri,
    host: String,
    client: Client<WebConnector, Empty<Bytes>>,
}

/// The metadata of an issuer.
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

impl KeyFetcher {
    /// Makes a fetcher; fetches nothing yet.
    ///
    /// # Errors
    /// A text that names the issuer, if its URL is not https, or this machine trusts no certificate authorities.
    pub(super) fn new(issuer: &str) -> Result<Self, String> {
        let cannot = |what: &str| {
            format!("auth.issuer: cannot fetch the keys of {issuer}: {what}; name a file (keys)")
        };
        let metadata = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let metadata = https(&metadata).map_err(|what| cannot(&what))?;
        let host = host_of(&metadata).to_owned();
        let own = host.clone();
        let connections =
            femtobarn_http::connector(Arc::new(move |host, address| admit(&own, host, address)));
        let connections = connections.map_err(|error| cannot(&error.to_string()))?;
        // Between two fetches a connection would be closed by the other side.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connections);
        Ok(KeyFetcher { issuer: issuer.to_owned(), metadata, host, client })
    }

    /// The issuer.
    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Fetches the keys.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) async fn fetch(&self) -> Result<FetchedKeySet, String> {
        let (_, text) = self.get(&self.metadata).await?;
        let metadata: IssuerMetadata =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", self.metadata))?;
        if metadata.issuer != self.issuer {
            return Err(format!("{} is of {:?}", self.metadata, metadata.issuer));
        }
        let place = https(&metadata.jwks_uri)?;
        // No name is looked up for an address.
        if let Ok(address) = host_of(&place).parse() {
            admit(&self.host, host_of(&place), address)?;
        }
        let (headers, text) = self.get(&place).await?;
        let keys = parsed(&text).map_err(|what| format!("the keys in {place}: {what}"))?;
        Ok(FetchedKeySet { keys, max_age: max_age(&headers) })
    }

    async fn get(&self, place: &Uri) -> Result<(HeaderMap, Bytes), String> {
        let request = Request::get(place).header(ACCEPT, "application/json").body(Empty::new());
        let request = request.map_err(|error| format!("{place}: {error}"))?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| format!("{place}: {}", causes(&error)))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("{place}: the answer is {}", answer.status()));
        }
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("{place}: {error}"))?;
        Ok((head.headers, body.to_bytes()))
    }
}

/// Fails unless keys may be fetched from a host at this address, for an issuer with another host.
fn admit(issuer: &str, host: &str, address: IpAddr) -> Result<(), String> {
    if host.eq_ignore_ascii_case(issuer) || is_public_elsewhere(address) {
        return Ok(());
    }
    Err(format!("{host} ({address}) is neither the issuer's host nor at a public address"))
}

/// A URL of https.
fn https(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    let is_plain =
        url.authority().is_some_and(|it| !it.as_str().contains('@')) && !host_of(&url).is_empty();
    if url.scheme_str() == Some("https") && is_plain {
        Ok(url)
    } else {
        Err(format!("{text:?} is not an https URL"))
    }
}

/// The host of a URL, without the brackets of an address.
fn host_of(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// How long an answer may be cached, if stated.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).into_iter().filter_map(|value| value.to_str().ok());
    let mut words = values.flat_map(|value| value.split(','));
    let seconds = words.find_map(|word| word.trim().strip_prefix("max-age=")?.parse().ok());
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn keys_come_from_the_issuers_host_or_public_addresses() {
        let at = |text: &str| text.parse().expect("an address");
        assert!(admit("iam.example", "IAM.example", at("10.0.0.1")).is_ok());
        assert!(admit("iam.example", "keys.example", at("188.184.1.1")).is_ok());
        for hidden in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"] {
            assert!(admit("iam.example", "keys.example", at(hidden)).is_err(), "{hidden}");
        }
    }

    #[test]
    fn urls_are_of_https() {
        assert!(https("https://iam.example:8443/x?y=1").is_ok());
        for wrong in [
            "http://iam.example/",
            "iam.example",
            "/x",
            "https://",
            "https://u:p@iam.example/",
            "file:///x",
        ] {
            assert!(https(wrong).is_err(), "{wrong}");
        }
        assert_eq!(host_of(&https("https://[::1]:8443/x").expect("a URL")), "::1");
    }

    #[test]
    fn the_age_of_keys_is_that_of_their_answer() {
        let age = |values: &[&'static str]| {
            let values = values.iter().map(|it| (CACHE_CONTROL, HeaderValue::from_static(it)));
            max_age(&HeaderMap::from_iter(values)).map(|age| age.as_secs())
        };
        assert_eq!(age(&["public, max-age=300"]), Some(300));
        assert_eq!(age(&["no-cache", "max-age=7"]), Some(7));
        assert_eq!((age(&[]), age(&["max-age=x"]), age(&["max-age=-1"])), (None, None, None));
    }
}
