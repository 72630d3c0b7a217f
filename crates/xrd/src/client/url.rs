//! Where files are: `root://[user@]host[:port]//path[?opaque]`, or `roots://` for TLS.

use std::fmt;

use super::error::{ClientError, Result};
use crate::location::Location;

/// The port of servers that name none.
const DEFAULT_PORT: u16 = 1094;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its name or address; that of IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

impl Endpoint {
    /// A server from `host`, `host:port`, `[address]` or `[address]:port`.
    fn parse(text: &str, port: u16) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) => digits.parse().ok()?,
            None if rest.is_empty() => port,
            None => return None,
        };
        (!host.is_empty()).then(|| Endpoint { host: host.to_owned(), port })
    }

    /// What a redirect names: a bare address of IPv6 stands for itself.
    pub(super) fn of_redirect(host: &str, port: u16) -> Option<Self> {
        match host.matches(':').count() {
            0 | 1 => Endpoint::parse(host, port).map(|endpoint| Endpoint { port, ..endpoint }),
            _ if host.starts_with('[') => Endpoint::parse(host, port),
            _ => Some(Endpoint { host: host.to_owned(), port }),
        }
    }
}

/// The address of a file or folder on a server.
///
/// ```
/// use xrd::client::Url;
///
/// let url = Url::parse("roots://ann@data.example:2094//lhc.fed/run7.root?fb.csn=41")?;
/// assert!(url.wants_tls);
/// assert_eq!(url.user.as_deref(), Some("ann"));
/// assert_eq!(url.server.to_string(), "data.example:2094");
/// assert_eq!(url.location.as_bytes(), b"/lhc.fed/run7.root?fb.csn=41");
/// # Ok::<(), xrd::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether nothing may be told to the server before TLS hides it.
    pub wants_tls: bool,
    /// Who asks.
    pub user: Option<String>,
    /// The server.
    pub server: Endpoint,
    /// The file and its opaque information; `/` where none is named.
    pub location: Location,
}

impl Url {
    /// A URL from its text. The path is absolute, whether one slash or two come before it.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if it is no `root://` or `roots://` URL.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |reason: &str| ClientError::Invalid { what: format!("{text}: {reason}") };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid("it is not a URL"))?;
        let wants_tls = match scheme {
            "root" | "xroot" => false,
            "roots" | "xroots" => true,
            _ => return Err(invalid("it does not begin with root:// or roots://")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (user.split(':').next(), server),
            None => (None, authority),
        };
        let server = Endpoint::parse(server, DEFAULT_PORT)
            .ok_or_else(|| invalid("the host is missing, or the port is not a number"))?;
        let path = path.trim_start_matches('/');
        let location =
            Location::new(format!("/{path}")).map_err(|error| invalid(&error.to_string()))?;
        let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        Ok(Url { wants_tls, user, server, location })
    }
}

impl fmt::Display for Url {
    /// Without the opaque information, which may hold tokens.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.wants_tls { "roots" } else { "root" };
        let path = self.location.path().escape_ascii();
        write!(formatter, "{scheme}://{}/{path}", self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_and_addressed() {
        for (text, server, path) in [
            ("root://host", "host:1094", "/"),
            ("root://host//a/b", "host:1094", "/a/b"),
            ("root://host/a", "host:1094", "/a"),
            ("xroot://[::1]:12//a", "[::1]:12", "/a"),
            ("root://u:secret@10.0.0.1:7/?x=1", "10.0.0.1:7", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(url.server.to_string(), server, "{text}");
            assert_eq!(url.location.path(), path.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in ["", "/a", "http://a", "root://", "root://a:b", "root://[::1", "root://a:70000"]
        {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirects_name_hosts_in_many_ways() {
        for (host, shown) in
            [("a", "a:5"), ("::1", "[::1]:5"), ("[::1]", "[::1]:5"), ("a:9", "a:5")]
        {
            assert_eq!(Endpoint::of_redirect(host, 5).unwrap().to_string(), shown);
        }
    }
}
