//! The hosts of a simulation: each has its own clocks, and may have a disk.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::clock::HostClock;
use super::host_disk::HostDisk;
use super::message::HostTimes;
use crate::fault::{FaultKind, OperationKind};
use crate::random::SplitMix;

/// The largest drift of a clock, in microseconds per second.
const DRIFT_MAX: u64 = 100_000;

/// The hosts. A host's clocks are created when they are first read or set.
pub struct SimulatedHosts {
    random: SplitMix,
    clocks: BTreeMap<Ipv4Addr, HostClock>,
    disks: BTreeMap<Ipv4Addr, HostDisk>,
}

impl SimulatedHosts {
    pub(super) fn new(random: SplitMix) -> Self {
        SimulatedHosts { random, clocks: BTreeMap::new(), disks: BTreeMap::new() }
    }

    /// Half of all clocks drift by at most 200 microseconds per second, as cheap clocks do; the others by up to
    /// [`DRIFT_MAX`].
    fn clock(&mut self, host: Ipv4Addr) -> &mut HostClock {
        self.clocks.entry(host).or_insert_with(|| {
            let most = if self.random.one_in(2) { 200 } else { DRIFT_MAX };
            let drift = self.random.below(2 * most + 1) as i64 - most as i64;
            HostClock { drift, set: 0 }
        })
    }

    /// The readings of a host's clocks at a time of the simulation.
    pub(super) fn times(&mut self, host: Ipv4Addr, simulation: u64) -> HostTimes {
        self.clock(host).at(simulation)
    }

    /// The first time of the simulation at which a host's monotonic clock has reached a reading.
    pub(super) fn when(&mut self, host: Ipv4Addr, monotonic: u64) -> u64 {
        self.clock(host).when(monotonic)
    }

    /// Changes a host's time of day by `by` nanoseconds; a negative number sets it back.
    pub fn set_clock(&mut self, host: Ipv4Addr, by: i64) {
        let clock = self.clock(host);
        clock.set = clock.set.saturating_add(by);
    }

    /// Adds a disk with an empty folder to a host. Programs record their operations on it in `trace`.
    pub fn add_disk(&mut self, host: Ipv4Addr, folder: PathBuf, trace: PathBuf) {
        let random = SplitMix(self.random.draw());
        self.disks.insert(host, HostDisk::new(folder, trace, random));
    }

    /// Begins a fault of a host's disk. [`FaultKind::Full`] lasts until it is ended; any other fault strikes one
    /// operation and ends with it.
    pub fn begin_fault(&mut self, host: Ipv4Addr, kind: FaultKind) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.begin(kind);
        }
    }

    /// Ends a fault of a host's disk.
    pub fn end_fault(&mut self, host: Ipv4Addr, kind: FaultKind) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.end(kind);
        }
    }

    /// Makes the syncs of a host's disk slower than usual, by the factor `times`.
    pub fn slow_disk(&mut self, host: Ipv4Addr, times: u64) {
        if let Some(disk) = self.disks.get_mut(&host) {
            disk.slow_down(times);
        }
    }

    /// The duration and the result of a program's operation on a host's disk.
    pub(super) fn operate(&mut self, host: Ipv4Addr, kind: OperationKind) -> (u64, i64) {
        self.disks.get_mut(&host).map_or((0, 0), |disk| disk.operate(kind))
    }

    /// The number of operations on a host's disk that failed because of a fault.
    pub fn failures(&self, host: Ipv4Addr) -> u64 {
        self.disks.get(&host).map_or(0, HostDisk::failures)
    }

    /// The faults of a host's disk, except [`FaultKind::Full`], that have struck since the last call.
    pub fn take_struck(&mut self, host: Ipv4Addr) -> Vec<FaultKind> {
        self.disks.get_mut(&host).map_or(vec![], HostDisk::take_struck)
    }

    /// Changes the contents of a host's disk as a loss of power can. No process may run on that host.
    ///
    /// # Errors
    /// Errors of the system; an error that names a file if the trace has an operation that is impossible.
    pub fn lose_power(&mut self, host: Ipv4Addr) -> io::Result<()> {
        self.disks.get_mut(&host).map_or(Ok(()), HostDisk::lose_power)
    }
}
