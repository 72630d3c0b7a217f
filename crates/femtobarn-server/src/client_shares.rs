//! Limits on resources that the clients of a server share, such as connections and open files, by client machine.
//!
//! 1. There are never more shares than the maximum.
//! 2. A machine gets another share only if it has less than its percentage of the sum of its own and the free ones. The
//!    default is half: then a greedy machine gets half, and each further one half of the remaining ones, so that many
//!    machines have to work together before none is left for another. A farm behind one address may need more.
//! 3. An IPv6 address counts together with its network of 64 bits, since one machine may have all of that.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// A number of equal resources that clients take and give back.
#[derive(Debug)]
pub struct ClientShares {
    max: usize,
    machine_percent: u8,
    taken: Mutex<TakenShares>,
}

#[derive(Debug, Default)]
struct TakenShares {
    all: usize,
    by_machine: HashMap<IpAddr, usize>,
}

/// One share, which is given back when it is dropped.
#[derive(Debug)]
pub struct ClientShare {
    shares: Arc<ClientShares>,
    machine: IpAddr,
}

impl ClientShares {
    /// Makes `max` free shares, of which a machine gets at most this percentage, 1 to 100.
    pub fn new(max: usize, machine_percent: u8) -> Arc<Self> {
        Arc::new(ClientShares { max, machine_percent, taken: Mutex::default() })
    }

    /// A share for a client with this address; `None` if its machine has its limit.
    pub fn take(self: &Arc<Self>, client: IpAddr) -> Option<ClientShare> {
        let machine = machine_of(client);
        let mut taken = self.taken.lock();
        let own = taken.by_machine.get(&machine).map_or(0, |own| *own);
        let free = self.max.saturating_sub(taken.all) as u128;
        let percent = u128::from(self.machine_percent.min(100));
        if own as u128 * (100 - percent) >= free * percent {
            return None;
        }
        taken.all += 1;
        taken.by_machine.insert(machine, own + 1);
        Some(ClientShare { shares: Arc::clone(self), machine })
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_machine.get_mut(&self.machine) {
            *own -= 1;
            if *own == 0 {
                taken.by_machine.remove(&self.machine);
            }
        }
    }
}

fn machine_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Takes shares for an address until there are none for it.
    fn all_for(shares: &Arc<ClientShares>, address: &str) -> Vec<ClientShare> {
        std::iter::from_fn(|| shares.take(at(address))).collect()
    }

    #[test]
    fn machines_that_take_all_that_they_can_leave_some_for_others() {
        let shares = ClientShares::new(1024, 50);
        let taken: Vec<_> =
            (1..=8).map(|last| all_for(&shares, &format!("10.0.0.{last}"))).collect();
        let counts: Vec<_> = taken.iter().map(Vec::len).collect();
        assert_eq!(counts, [512, 256, 128, 64, 32, 16, 8, 4]);
        let other = shares.take(at("10.0.0.99"));
        assert!(other.is_some());
        assert!(shares.take(at("10.0.0.1")).is_none());
        drop((taken, other));
        assert_eq!(all_for(&shares, "10.0.0.1").len(), 512);
        assert_eq!(shares.taken.lock().by_machine.len(), 0);
    }

    #[test]
    fn a_machine_has_as_many_as_its_percentage() {
        for (percent, counts) in [(100, [1000, 0, 0]), (90, [900, 90, 9]), (20, [200, 160, 128])] {
            let shares = ClientShares::new(1000, percent);
            let taken = [1, 2, 3].map(|last| all_for(&shares, &format!("10.0.0.{last}")));
            assert_eq!(taken.each_ref().map(Vec::len), counts, "{percent} %");
        }
    }

    #[test]
    fn a_network_of_ipv6_and_a_mapped_address_are_one_machine() {
        let shares = ClientShares::new(4, 50);
        let _taken = all_for(&shares, "2001:db8:1:2::1");
        assert!(shares.take(at("2001:db8:1:2:ffff::7")).is_none());
        assert!(shares.take(at("2001:db8:1:3::1")).is_some());
        assert_eq!(machine_of(at("::ffff:10.0.0.1")), at("10.0.0.1"));
    }
}
