//! Limits that follow from the number of descriptors that the process may have: connections take half of them at most,
//! and open files a quarter; the rest is for catalogues, caches and all other uses.

use nix::sys::resource::{Resource, getrlimit};

use crate::config::Limits;

/// The largest number of connections: the setting, or half of the descriptors if these are fewer.
pub(super) fn connections_max(limits: &Limits) -> usize {
    for_connections(descriptors_max(), limits)
}

/// The largest number of open files that hold a descriptor.
pub(super) fn held_files_max() -> usize {
    descriptors_max() / 4
}

fn for_connections(descriptors: usize, limits: &Limits) -> usize {
    limits.connections.min(descriptors / 2)
}

fn descriptors_max() -> usize {
    // Every process has such a limit; if it cannot be read, there is no limit.
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(most).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_half_of_the_descriptors_at_most() {
        let limits = |connections| Limits { connections, ..Limits::default() };
        for (descriptors, wanted, connections) in
            [(1024, 20_000, 512), (65_536, 20_000, 20_000), (1024, 10, 10)]
        {
            assert_eq!(for_connections(descriptors, &limits(wanted)), connections);
        }
        assert!(held_files_max() + connections_max(&limits(usize::MAX)) < descriptors_max());
    }
}
