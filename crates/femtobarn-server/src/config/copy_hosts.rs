//! The servers with which this one copies files for its clients.
//!
//! **Invariant:** an address of this machine, or one that is not public, such as one of a private network, is allowed
//! only by its network, never by a name: the owner of a name chooses its addresses.

use std::net::IpAddr;

use serde::Deserialize;

use crate::network::{Network, is_public_elsewhere};

/// A server by its name, or all servers of a network.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
enum CopyHost {
    /// `se.example.org`; `.example.org` for all names that end so; empty for all.
    Name(String),
    Network(Network),
}

/// The servers with which this one copies files; empty if it copies none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct CopyHosts(Vec<CopyHost>);

impl CopyHosts {
    /// Whether no server is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails unless the server's name is allowed; its address may still be refused.
    ///
    /// # Errors
    /// A text for the client.
    pub fn admit_name(&self, host: &str) -> Result<(), String> {
        match host.parse() {
            Ok(address) => self.admit(host, address),
            Err(_) if self.has_name(host) => Ok(()),
            Err(_) => Err(refusal(host)),
        }
    }

    fn has_name(&self, host: &str) -> bool {
        self.0.iter().any(|known| match known {
            CopyHost::Name(name) => is_named(host, name),
            CopyHost::Network(_) => true,
        })
    }

    fn has(&self, host: &str, address: IpAddr) -> bool {
        self.0.iter().any(|known| match known {
            CopyHost::Name(name) => is_named(host, name) && is_public_elsewhere(address),
            CopyHost::Network(network) => network.has(address),
        })
    }

    /// Fails unless a server with this name is allowed at this address. Only the log shows the address: clients must
    /// not learn the addresses behind names.
    ///
    /// # Errors
    /// A text for the client.
    pub fn admit(&self, host: &str, address: IpAddr) -> Result<(), String> {
        if self.has(host, address) {
            return Ok(());
        }
        tracing::warn!(host, %address, "copy.hosts does not allow a server that a client named");
        Err(refusal(host))
    }
}

fn refusal(host: &str) -> String {
    format!("copy.hosts does not allow {host}")
}

fn is_named(host: &str, name: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if name.is_empty() || name.starts_with('.') { host.ends_with(name) } else { host == name }
}

impl TryFrom<String> for CopyHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Ok(network) = text.parse() {
            return Ok(CopyHost::Network(network));
        }
        let name = text.strip_prefix('*').unwrap_or(&text).to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_whole = text.starts_with('*') == (name.is_empty() || name.starts_with('.'));
        if text.is_empty() || !is_whole || !name.bytes().all(is_name) {
            return Err(format!(
                "invalid server {text:?}: write it as \"se.example.org\", \"*.example.org\", \"*\" or \"10.0.0.0/8\""
            ));
        }
        Ok(CopyHost::Name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(texts: &[&str]) -> CopyHosts {
        let parsed = texts.iter().map(|text| (*text).to_owned().try_into());
        CopyHosts(parsed.collect::<Result<_, _>>().expect("servers"))
    }

    #[test]
    fn names_allow_public_addresses_alone() {
        let named = hosts(&["*.cern.ch", "se.example.org"]);
        let public: IpAddr = "188.184.1.1".parse().unwrap();
        assert!(named.has("eos.CERN.ch", public) && named.has("se.example.org.", public));
        for other in ["cern.ch", "notcern.ch", "eos.cern.ch.evil.org", "a.se.example.org"] {
            assert!(!named.has(other, public) && !named.has_name(other), "{other}");
        }
        for hidden in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.31.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::127.0.0.1",
            "4000::1",
            "3fff::1",
        ] {
            let hidden: IpAddr = hidden.parse().unwrap();
            assert!(
                !named.has("eos.cern.ch", hidden) && !hosts(&["*"]).has("x", hidden),
                "{hidden}"
            );
        }
        assert!(hosts(&["*"]).has("x", "2001:1458:201::1".parse().unwrap()));
    }

    #[test]
    fn networks_allow_their_addresses_under_every_name() {
        let near = hosts(&["10.0.0.0/8", "::1"]);
        assert!(near.has("disk1", "10.0.0.7".parse().unwrap()) && near.has_name("disk1"));
        assert!(near.has("x", "::1".parse().unwrap()));
        assert!(!near.has("disk1", "188.184.1.1".parse().unwrap()));
        assert!(!hosts(&[]).has_name("x"));
    }

    #[test]
    fn texts_that_are_neither_names_nor_networks_are_refused() {
        for wrong in ["", "*cern.ch", "a*b", "https://x", "x:1094", ".cern.ch", "10.0.0.0/33"] {
            assert!(CopyHost::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }
}
