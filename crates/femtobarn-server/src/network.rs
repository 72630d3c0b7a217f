//! Addresses: a single one, or a network such as `10.0.0.0/8`; and which addresses are public and not this machine's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;
use std::sync::LazyLock;

use nix::errno::Errno;
use serde::Deserialize;

/// Addresses that are not public (the registries of IANA for special purposes), or that represent other addresses.
const NOT_PUBLIC: [&str; 17] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
];

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

/// Whether an address is public, and not one of this machine: the owner of a name may choose such an address for it.
pub(crate) fn is_public_elsewhere(address: IpAddr) -> bool {
    is_public(address) && !is_own(address)
}

fn is_public(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<Vec<Network>> =
        LazyLock::new(|| NOT_PUBLIC.iter().filter_map(|text| text.parse().ok()).collect());
    // IANA assigns global addresses only from 2000::/3.
    let is_global = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => address.segments()[0] >> 13 == 1,
    };
    is_global && !NETWORKS.iter().any(|network| network.has(address))
}

/// Whether this machine has an address.
fn is_own(address: IpAddr) -> bool {
    // If that cannot be determined, the address counts as this machine's.
    let is_nobodys = |error: std::io::Error| {
        let errno = error.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT))
    };
    let can_bind = |address: IpAddr| !UdpSocket::bind((address, 0)).is_err_and(is_nobodys);
    // Machines with `ip_nonlocal_bind` can bind addresses that no machine has. But only their own addresses are reached
    // from the same address.
    let nobodys = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    can_bind(address) && (!can_bind(nobodys) || is_reached_from_itself(address))
}

/// Whether this machine sends to an address from that address. Nothing is sent.
fn is_reached_from_itself(address: IpAddr) -> bool {
    let any = if address.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
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

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(NOT_PUBLIC.iter().all(|text| text.parse::<Network>().is_ok()));
        let own: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(is_own(own) && is_reached_from_itself(own));
        let nobodys: IpAddr = "192.0.2.7".parse().unwrap();
        assert!(!is_own(nobodys) && !is_reached_from_itself(nobodys));
    }
}
