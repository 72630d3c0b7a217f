//! Addresses of files: `root://[user@]host[:port]//path[?opaque]`, or `roots://` for TLS.

use std::fmt;

use super::endpoint::Endpoint;
use super::error::{ClientError, Result};
use crate::location::Location;

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 1094;

/// The address of a file or directory on a server.
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
    /// Whether the client must start TLS before it logs in.
    pub wants_tls: bool,
    /// The user's name.
    pub user: Option<String>,
    /// The server.
    pub server: Endpoint,
    /// The path and its opaque information; `/` if the URL has no path.
    pub location: Location,
}

impl Url {
    /// Parses a URL. The path is absolute, whether it starts with one slash or two.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the text is not a `root://` or `roots://` URL.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid =
            |reason: &str| ClientError::Invalid { what: format!("{}: {reason}", shown(text)) };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid("not a URL"))?;
        let wants_tls = match scheme {
            "root" | "xroot" => false,
            "roots" | "xroots" => true,
            _ => return Err(invalid("must begin with root:// or roots://")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (user.split(':').next(), server),
            None => (None, authority),
        };
        let server = Endpoint::parse(server, DEFAULT_PORT)
            .ok_or_else(|| invalid("must have a host, and a port that is a number up to 65535"))?;
        let path = path.trim_start_matches('/');
        let location =
            Location::new(format!("/{path}")).map_err(|error| invalid(&error.to_string()))?;
        let user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        Ok(Url { wants_tls, user, server, location })
    }
}

impl fmt::Display for Url {
    /// Leaves out the opaque information, which may hold tokens.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.wants_tls { "roots" } else { "root" };
        let path = self.location.path().escape_ascii();
        write!(formatter, "{scheme}://{}/{path}", self.server)
    }
}

/// A text that may be a URL, for errors: without a user and a password, and without a query, which may have a token.
fn shown(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    format!("{scheme}://{server}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_host_names_addresses_ports_and_users() {
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
    fn parse_rejects_other_schemes_missing_hosts_and_invalid_ports() {
        for text in ["", "/a", "http://a", "root://", "root://a:b", "root://[::1", "root://a:70000"]
        {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_show_neither_passwords_nor_opaque_information() {
        for (text, shown) in [
            ("root://anna:s3cret@tau:x//a@b?authz=s3cret", "root://tau:x//a@b: must have"),
            ("rot://s3cret@tau", "rot://tau: must begin"),
            ("tau//a?authz=s3cret", "tau//a: not a URL"),
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(shown) && !error.contains("s3cret"), "{error}");
        }
    }
}
