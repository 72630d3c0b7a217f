//! The client's request for a copy, from the headers of `COPY`.

use std::fmt;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, EXPECT, HOST,
    RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, Uri};

use crate::protocol::http::files::failure::HttpFailure;

/// The prefix of headers for the other server.
const PASSED_ON: &str = "transferheader";

/// Headers that belong to a connection and to the bytes on it.
const NOT_PASSED_ON: [HeaderName; 13] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    EXPECT,
    HOST,
    HeaderName::from_static("keep-alive"),
    RANGE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Prefixes of headers that are not passed on either: those for proxies, and conditions.
const KINDS_NOT_PASSED_ON: [&str; 2] = ["proxy-", "if-"];

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the other server to this one.
    Pull,
    /// To the other server.
    Push,
}

/// Whether the checksums of both servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DigestDemand {
    /// The checksums are compared, and a server without one fails the copy.
    Demanded,
    /// The checksums are compared, if the other server has one.
    IfTold,
    /// The checksums are not compared.
    Unwanted,
}

/// A requested copy.
#[derive(Clone, Debug)]
pub(super) struct CopyOrder {
    pub direction: Direction,
    pub other: OtherFile,
    pub verification: DigestDemand,
    /// Whether a file that exists at the destination must stay.
    pub keeps_existing: bool,
}

/// A file of another server.
#[derive(Clone, Debug)]
pub(super) struct OtherFile {
    pub url: Uri,
    /// The headers for that server.
    pub headers: HeaderMap,
}

impl CopyOrder {
    /// Parses the headers of a request.
    ///
    /// # Errors
    /// [`HttpFailure::Malformed`], which names the header.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, HttpFailure> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
        let (direction, url) = match (text("source"), text("destination")) {
            (Some(source), None) => (Direction::Pull, source),
            (None, Some(destination)) => (Direction::Push, destination),
            _ => return Err(malformed("give either Source or Destination, the URL of a file")),
        };
        if let Some(other) = text("credential")
            && !other.eq_ignore_ascii_case("none")
        {
            return Err(malformed(&format!(
                "Credential: {other} is not supported; use none, and a token in TransferHeaderAuthorization"
            )));
        }
        let verification = match text("requirechecksumverification") {
            None => DigestDemand::IfTold,
            Some(value) if value.eq_ignore_ascii_case("true") => DigestDemand::Demanded,
            Some(value) if value.eq_ignore_ascii_case("false") => DigestDemand::Unwanted,
            Some(_) => {
                return Err(malformed("RequireChecksumVerification is neither true nor false"));
            }
        };
        let other = OtherFile { url: url_of(url)?, headers: passed_on(headers)? };
        // Any of the headers may be a secret.
        if !other.headers.is_empty() && !other.is_encrypted() {
            return Err(malformed("headers of TransferHeader are sent only to https:// URLs"));
        }
        let keeps_existing = text("overwrite").is_some_and(|value| value.eq_ignore_ascii_case("F"));
        Ok(CopyOrder { direction, other, verification, keeps_existing })
    }
}

/// For logs: the query of a URL may have a token in it.
impl fmt::Display for CopyOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Pull => "pull of",
            Direction::Push => "push to",
        };
        write!(formatter, "{direction} {}", self.other)
    }
}

impl OtherFile {
    pub(super) fn is_encrypted(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS)
    }

    /// The host without the brackets of an address.
    pub(super) fn host(&self) -> &str {
        let host = self.url.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
    }
}

/// For people: without the query.
impl fmt::Display for OtherFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.scheme_str().unwrap_or_default();
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        write!(formatter, "{scheme}://{authority}{}", self.url.path())
    }
}

/// The URL of a file at another server. Clients also write `davs://` for `https://`.
///
/// # Errors
/// [`HttpFailure::Malformed`] if it is not a URL of these, or has a user's name and password.
pub(super) fn url_of(text: &str) -> Result<Uri, HttpFailure> {
    let text = match text.split_once("://") {
        Some(("davs", rest)) => format!("https://{rest}"),
        Some(("dav", rest)) => format!("http://{rest}"),
        _ => text.to_owned(),
    };
    let url: Uri = text.parse().map_err(|_| malformed("the URL of the other file is not valid"))?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if !is_web || has_user || url.host().is_none_or(str::is_empty) {
        return Err(malformed(
            "the URL of the other file must be like https://host/path, without a user name",
        ));
    }
    Ok(url)
}

/// The headers for the other server.
fn passed_on(headers: &HeaderMap) -> Result<HeaderMap, HttpFailure> {
    let mut passed_on = HeaderMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(PASSED_ON) else { continue };
        let name = HeaderName::from_bytes(name.as_bytes());
        match name {
            Ok(name) if may_pass(&name) => passed_on.append(name, value.clone()),
            _ => return Err(malformed("a TransferHeader names a header that cannot be passed on")),
        };
    }
    Ok(passed_on)
}

fn may_pass(name: &HeaderName) -> bool {
    let is_of_kind = |kind: &&str| name.as_str().starts_with(*kind);
    !NOT_PASSED_ON.contains(name) && !KINDS_NOT_PASSED_ON.iter().any(is_of_kind)
}

fn malformed(what: &str) -> HttpFailure {
    HttpFailure::Malformed(what.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    use super::*;

    fn order(headers: &[(&'static str, &str)]) -> Result<CopyOrder, HttpFailure> {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        });
        CopyOrder::of(&headers.collect())
    }

    #[test]
    fn an_order_names_the_other_file_and_the_headers_for_it() {
        let found = order(&[
            ("source", "davs://se.example.org:8443/a?authz=secret"),
            ("transferheaderauthorization", "Bearer secret"),
            ("credential", "none"),
            ("requirechecksumverification", "TRUE"),
        ]);
        let found = found.expect("an order");
        assert_eq!(
            (found.direction, found.verification),
            (Direction::Pull, DigestDemand::Demanded)
        );
        assert_eq!(found.other.url, "https://se.example.org:8443/a?authz=secret");
        assert_eq!(found.other.headers[AUTHORIZATION], "Bearer secret");
        assert_eq!(found.to_string(), "pull of https://se.example.org:8443/a");
        let found = order(&[("destination", "http://[::1]:80/a"), ("overwrite", "f")]);
        let found = found.expect("an order");
        assert_eq!((found.other.host(), found.keeps_existing), ("::1", true));
        assert_eq!(found.verification, DigestDemand::IfTold);
    }

    #[test]
    fn other_orders_are_refused() {
        let source = ("source", "https://x/a");
        for wrong in [
            &[][..],
            &[source, ("destination", "https://y/a")],
            &[("source", "/a")],
            &[("source", "root://x//a")],
            &[("source", "file:///etc/passwd")],
            &[("source", "https://user:word@x/a")],
            &[source, ("credential", "gridsite")],
            &[source, ("requirechecksumverification", "maybe")],
            &[source, ("transferheaderhost", "y")],
            &[source, ("transferheader", "y")],
            &[source, ("transferheaderproxy-authorization", "y")],
            &[source, ("transferheaderif-range", "y")],
            &[source, ("transferheaderaccept-encoding", "gzip")],
            &[("source", "http://x/a"), ("transferheaderauthorization", "Bearer x")],
            &[("source", "http://x/a"), ("transferheaderx-token", "x")],
        ] {
            assert!(order(wrong).is_err(), "{wrong:?}");
        }
    }
}
