//! Addresses of clients: a single one, or a network such as `10.0.0.0/8`.

use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;

/// An address, or all addresses with the same leading bits.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address belongs to the network. An IPv4-mapped IPv6 address is treated as its IPv4 address.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("invalid address {text:?}: write it as \"10.0.0.7\" or \"10.0.0.0/8\"");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Network { address, bits })
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The clients that may read the metrics, in addition to those that may read `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsReaders {
    /// All clients.
    pub is_open: bool,
    /// Clients with these addresses.
    pub from: Vec<Network>,
}

impl MetricsReaders {
    /// Whether clients with this address may read the metrics.
    pub fn has(&self, address: IpAddr) -> bool {
        self.is_open || self.from.iter().any(|network| network.has(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_with_its_leading_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
        ] {
            let known: Network = network.parse().unwrap();
            assert!(known.has(inside.parse().unwrap()), "{inside} is in {network}");
            assert!(!known.has(outside.parse().unwrap()), "{outside} is not in {network}");
        }
        for wrong in ["", "tau", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::1/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong:?}");
        }
    }
}
