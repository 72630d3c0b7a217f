//! What each host of a simulation has of its own: clocks, and perhaps a disk.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::clock::HostClock;
use super::host_disk::HostDisk;
use super::message::HostTimes;
use crate::fault::{FaultKind, OperationKind};
use crate::random::SplitMix;

/// Microseconds that a clock gains or loses in a second at most.
const DRIFT_MAX: u64 = 100_000;

/// Hosts, each of which is there once it is asked for.
pub struct SimulatedHosts {
    random: SplitMix,
    clocks: BTreeMap<Ipv4Addr, HostClock>,
    disks: BTreeMap<Ipv4Addr, HostDisk>,
}

impl SimulatedHosts {
    pub(super) fn new(random: SplitMix) -> Self {
        SimulatedHosts { random, clocks: BTreeMap::new(), disks: BTreeMap::new() }
    }

    /// Half of all clocks drift as much as cheap ones do, and half much more.
    fn clock(&mut self, host: Ipv4Addr) -> &mut HostClock {
        self.clocks.entry(host).or_insert_with(|| {
            let most = if self.random.one_in(2) { 200 } else { DRIFT_MAX };
            let drift = self.random.below(2 * most + 1) as i64 - most as i64;
            HostClock { drift, set: 0 }
        })
    }

    /// What the clocks of a host show at a time of the simulation.
    pub(super) fn times(&mut self, host: Ipv4Addr, simulation: u64) -> HostTimes {
        self.clock(host).at(simulation)
    }

    /// The time of the simulation at which the monotonic clock of a host shows a time.
    pub(super) fn when(&mut self, host: Ipv4Addr, monotonic: u64) -> u64 {
        self.clock(host).when(monotonic)
    }

    /// Sets the time of day of a host forwards, or back, by so many nanoseconds.
    pub fn set_clock(&mut self, host: Ipv4Addr, by: i64) {
        let clock = self.clock(host);
        clock.set = clock.set.saturating_add(by);
    }

    /// Gives a host a disk with an empty folder, on which programs record their operations in `trace`.
    pub fn add_disk(&mut self, host: Ipv4Addr, folder: PathBuf, trace: PathBuf) {
        let random = SplitMix(self.random.draw());
        self.disks.insert(host, HostDisk::new(folder, trace, random));
    }

    /// Begins a fault of the disk of a host. All but [`FaultKind::Full`] strike one operation, and are over then.
    pub fn begin_fault(&mut self, host: Ipv4Addr, kind: FaultKind) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.begin(kind);
        }
    }

    /// Ends a fault of the disk of a host.
    pub fn end_fault(&mut self, host: Ipv4Addr, kind: FaultKind) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.end(kind);
        }
    }

    /// Makes the syncs of a host's disk so many times slower than usual.
    pub fn slow_disk(&mut self, host: Ipv4Addr, times: u64) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.slow_down(times);
        }
    }

    /// How long an operation of a program on a host's disk takes, and how it ends.
    pub(super) fn operate(&mut self, host: Ipv4Addr, kind: OperationKind) -> (u64, i64) {
        self.disks.get_mut(&host).map_or((0, 0), |disk| disk.operate(kind))
    }

    /// How many operations of programs on a host's disk faults have struck.
    pub fn failures(&self, host: Ipv4Addr) -> u64 {
        self.disks.get(&host).map_or(0, HostDisk::failures)
    }

    /// The faults of one operation of a host's disk that have struck since the last call.
    pub fn take_struck(&mut self, host: Ipv4Addr) -> Vec<FaultKind> {
        self.disks.get_mut(&host).map_or(vec![], HostDisk::take_struck)
    }

    /// Changes what a host's disk has as a loss of power may. No process may run there.
    ///
    /// # Errors
    /// Those of the system; one that names a file if the trace cannot be true.
    pub fn lose_power(&mut self, host: Ipv4Addr) -> io::Result<()> {
        self.disks.get_mut(&host).map_or(Ok(()), HostDisk::lose_power)
    }
}
