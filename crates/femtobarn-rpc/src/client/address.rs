//! The address of a federation at a server: `root://host:port//name.fed`, or `roots://` for TLS.

use std::fmt;

use femtobarn_catalog::{Error, Result};

/// The port of XRootD servers.
const PORT: u16 = 1094;

/// A server, and the name of a federation there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The host; an IPv6 address is in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The federation's name at the server, without leading and trailing slashes.
    pub federation: String,
    /// Whether connections use TLS.
    pub is_encrypted: bool,
}

impl Address {
    /// Parses a URL: `root`, `xroot`, or with TLS `roots`, `xroots`; port 1094 if it has none. A user name and a query
    /// are ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not the URL of a federation.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = || Error::Invalid {
            what: format!(
                "invalid URL of a federation {:?}: must be like root://host:port//name.fed",
                shown(url)
            ),
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let is_encrypted = match scheme {
            "root" | "xroot" => false,
            "roots" | "xroots" => true,
            _ => return Err(wrong()),
        };
        let (server, path) = rest.split_once('/').ok_or_else(wrong)?;
        let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (server, PORT),
        };
        let path = path.split('?').next().unwrap_or_default();
        let federation = path.trim_matches('/').to_owned();
        if host.is_empty() || federation.is_empty() {
            return Err(wrong());
        }
        Ok(Address { host: host.to_owned(), port, federation, is_encrypted })
    }

    /// The URL for gRPC.
    pub(super) fn endpoint(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "roots" } else { "root" };
        write!(f, "{scheme}://{}:{}//{}", self.host, self.port, self.federation)
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
    fn url_is_parsed_and_written_in_its_normal_form() {
        for (url, plain) in [
            ("root://tau//lhc.fed", "root://tau:1094//lhc.fed"),
            ("root://tau:7/lhc.fed", "root://tau:7//lhc.fed"),
            ("roots://anna@tau:7//a/lhc.fed/?x=1", "roots://tau:7//a/lhc.fed"),
            ("root://[::1]:7//lhc.fed", "root://[::1]:7//lhc.fed"),
            ("root://[::1]//lhc.fed", "root://[::1]:1094//lhc.fed"),
        ] {
            assert_eq!(Address::parse(url).unwrap().to_string(), plain);
        }
        for url in ["", "lhc.fed", "http://tau/x", "root://tau", "root:///x", "root://tau:x//f"] {
            assert!(Address::parse(url).is_err(), "{url:?}");
        }
        let error = Address::parse("root://anna:s3cret@tau:x//f?authz=s3cret").unwrap_err();
        assert!(error.to_string().contains("\"root://tau:x//f\""), "{error}");
    }
}
