//! A server's host and port, as URLs and redirects name them.

use std::fmt;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host name or address; an IPv6 address is without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl Endpoint {
    /// Parses `host`, `host:port`, `[address]` or `[address]:port`.
    pub(super) fn parse(text: &str, port: u16) -> Option<Self> {
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

    /// The server that a redirect names. Unlike in URLs, an IPv6 address may lack brackets.
    pub(super) fn of_redirect(host: &str, port: u16) -> Option<Self> {
        match host.matches(':').count() {
            0 | 1 => Endpoint::parse(host, port).map(|endpoint| Endpoint { port, ..endpoint }),
            _ if host.starts_with('[') => Endpoint::parse(host, port),
            _ => Some(Endpoint { host: host.to_owned(), port }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_name_hosts_with_and_without_brackets_and_ports() {
        for (host, shown) in
            [("a", "a:5"), ("::1", "[::1]:5"), ("[::1]", "[::1]:5"), ("a:9", "a:5")]
        {
            assert_eq!(Endpoint::of_redirect(host, 5).unwrap().to_string(), shown);
        }
    }
}
