//! Alerts for the operator, from the status at one moment; the status page shows them at its top.
//!
//! 1. Names, limits and texts are those of the alerts for Prometheus, `deploy/prometheus/femtobarn.rules.yml`; a test
//!    compares them.
//! 2. Alerts that need the past (rates, trends, restarts) exist only in Prometheus. A limit that must be exceeded for
//!    some time there is compared once here; only waits have an age.

use crate::status::{AlertStatus, CacheDiskStatus, ServerStatus};

/// An alert, and the limit from which it is raised.
struct Alert {
    name: &'static str,
    is_critical: bool,
    limit: f64,
    description: &'static str,
    action: &'static str,
}

/// The limit is the free share of a file system.
const DISK_FULL: Alert = Alert {
    name: "FemtobarnDiskFull",
    is_critical: true,
    limit: 0.02,
    description: "Less than 2 % are free. Transactions fail, or are about to; reads still work, and committed data \
                  are safe.",
    action: "Free space outside of the federation first, then evict databases that have copies (femtobarn \
             evict). Never delete files in the federation's folder by hand.",
};

/// The limit is the free share of a file system.
const DISK_NEARLY_FULL: Alert = Alert {
    name: "FemtobarnDiskNearlyFull",
    is_critical: false,
    limit: 0.1,
    description: "Transactions fail with the kind storage when the disk is full; committed data are safe. \
                  Vacuum and compaction need space themselves.",
    action: "Run femtobarn vacuum, with a retention if old snapshots are not needed; move sealed databases to \
             a store (femtobarn migrate and evict); or put new databases on another disk (place=).",
};

/// The limit is the share of the largest number of connections.
const CONNECTIONS_NEAR_LIMIT: Alert = Alert {
    name: "FemtobarnConnectionsNearLimit",
    is_critical: false,
    limit: 0.8,
    description: "Above limits.connections, 20,000 by default, further connections are closed at once, and \
                  the clients fail.",
    action: "Look at the status page for a user whose jobs leave connections open. If the load is real, raise \
             limits.connections and the unit's LimitNOFILE, or add followers or caches.",
};

/// The limit is the seconds for which a client waits.
const LOCK_WAITS: Alert = Alert {
    name: "FemtobarnLockWaits",
    is_critical: false,
    limit: 900.0,
    description: "For a quarter of an hour clients have waited for locks. A transaction holds a container for \
                  long, or more writers want one container than it can take one after the other.",
    action: "femtobarn waits and femtobarn locks with the federation's URL name the waiting sessions and the \
             holders. End a holder that hangs; let writers that share a container write shorter transactions, or \
             to containers of their own.",
};

/// The limit is the seconds for which files were requested from a store, and none arrived.
const RECALLS_STUCK: Alert = Alert {
    name: "FemtobarnRecallsStuck",
    is_critical: false,
    limit: 7200.0,
    description: "No file has been recalled from the store for two hours, although recalls wait for it. Their readers \
                  wait; files of other stores arrive.",
    action: "femtobarn queue with the server names the files and the tapes that are mounted. Look whether the \
             store answers, and whether the commands of storage.toml hang. If a single file takes hours in your \
             library, change the times.",
};

/// Disks of a cache that are not used any more.
const CACHE_DISK_FAILED: Alert = Alert {
    name: "FemtobarnCacheDiskFailed",
    is_critical: false,
    limit: 0.0,
    description: "The cache keeps its files on its other disks, and fetches the files of the failed disk again. Readers \
                  get every byte; the cache is smaller, and the origin has more load for a while.",
    action: "The log and the status page have the reason (dmesg, df, mount). Mend or replace the disk, and restart the \
             server, which uses it again.",
};

/// Commits that a copy does not have.
const FOLLOWER_BEHIND: Alert = Alert {
    name: "FemtobarnFollowerBehind",
    is_critical: false,
    limit: 100.0,
    description: "The copy is mostly less than a second old. A copy that lacks so many commits for a quarter of an \
                  hour is new, or cannot copy as fast as the leader commits. A promotion by force would lose \
                  these commits.",
    action: "Wait if the copy is new. Otherwise compare the rates of the network and the follower's disks with the \
             rate at which the leader writes.",
};

impl Alert {
    fn of(&self, summary: String) -> AlertStatus {
        let Alert { name, is_critical, description, action, .. } = *self;
        AlertStatus { name, is_critical, summary, description, action }
    }
}

/// The alerts of a server that accepts `connections_max` connections.
pub(super) fn alerts(status: &ServerStatus, connections_max: usize) -> Vec<AlertStatus> {
    let mut found: Vec<_> = disks(status).collect();
    let open = status.totals.open_connections;
    if open as f64 > CONNECTIONS_NEAR_LIMIT.limit * connections_max as f64 {
        let summary = format!("{open} of {connections_max} connections are open");
        found.push(CONNECTIONS_NEAR_LIMIT.of(summary));
    }
    found.extend(lock_waits(status));
    let stuck = status.stores.iter().filter(|it| it.stalled_seconds >= RECALLS_STUCK.limit);
    found.extend(stuck.map(|it| {
        let (name, federation, hours) = (&it.name, &it.federation, it.stalled_seconds / 3600.0);
        RECALLS_STUCK
            .of(format!("the store {name} of {federation} has recalled nothing for {hours:.1} h"))
    }));
    found.extend(status.caches.iter().flat_map(|cache| {
        let summary = |disk: &CacheDiskStatus| {
            format!("{} of the cache {} failed: {}", disk.folder, cache.name, disk.why_failed)
        };
        cache.failed_disks().map(move |disk| CACHE_DISK_FAILED.of(summary(disk)))
    }));
    let behind = status.followers.iter().filter(|it| it.behind as f64 > FOLLOWER_BEHIND.limit);
    found.extend(behind.map(|it| {
        let (name, behind, federation) = (&it.name, it.behind, &it.federation);
        FOLLOWER_BEHIND.of(format!("{name} is {behind} commits behind {federation}"))
    }));
    found.sort_by_key(|alert| !alert.is_critical);
    found
}

/// Disks with little free space. A cache is left out, since it is full in normal operation.
fn disks(status: &ServerStatus) -> impl Iterator<Item = AlertStatus> + '_ {
    let is_cache = |name: &str| status.caches.iter().any(|cache| cache.name == name);
    status.exports.iter().filter(move |export| !is_cache(&export.name)).filter_map(|export| {
        let name = &export.name;
        let free = export.free_bytes as f64 / export.total_bytes as f64;
        if free < DISK_FULL.limit {
            Some(DISK_FULL.of(format!("the disk of {name} is full")))
        } else if free < DISK_NEARLY_FULL.limit {
            let percent = (free * 100.0).round();
            let summary = format!("{percent} % of the disk of {name} are free");
            Some(DISK_NEARLY_FULL.of(summary))
        } else {
            None
        }
    })
}

/// Federations in which clients wait for locks for long.
fn lock_waits(status: &ServerStatus) -> impl Iterator<Item = AlertStatus> + '_ {
    status.federations.iter().filter_map(|federation| {
        let name = federation.name.trim_start_matches('/');
        let waits = status.waits.iter().filter(|wait| wait.federation == name);
        let late = waits.filter(|wait| wait.seconds as f64 >= LOCK_WAITS.limit).count();
        let summary = format!("{late} clients wait for locks in {}", federation.name);
        (late > 0).then(|| LOCK_WAITS.of(summary))
    })
}

#[cfg(test)]
mod tests;
