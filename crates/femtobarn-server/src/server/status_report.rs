//! Reports the [`ServerStatus`] of a running server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use femtobarn_archive::Recaller;
use femtobarn_catalog::{Holder, LockTarget, clock};

use super::alerts::alerts;
use super::state::{ExportDisks, ServerState};
use crate::logical::Logical;
use crate::logical::catalogue::{self, FederationService};
use crate::logical::cluster::ClusterLogin;
use crate::logical::latency::{Latencies, RequestKind};
use crate::logical::redirector::DataServer;
use crate::logical::request_counts::ClientProtocol;
use crate::logical::sessions::ClientSession;
use crate::physical::{CacheDisk, CachedOrigin, InPlaceCounts, Storage, StoragePath};
use crate::status::{
    CacheDiskStatus, CacheStatus, ClusterStatus, CopyServerStatus, DataServerStatus, DiskStatus,
    ExportStatus, FederationStatus, FileStatus, FollowerStatus, InPlaceStatus, LatencyStatus,
    LockStatus, ProtocolStatus, RecallStatus, ServerStatus, SessionStatus, StoreStatus, Totals,
};

/// Rows of each kind in a status.
const ROWS_MAX: usize = 1000;

/// The status of a server.
pub(super) fn status(state: &ServerState) -> ServerStatus {
    let logical = &state.logical;
    let all = logical.sessions.all();
    let traffic = logical.sessions.totals();
    let (locks, waits) = all_locks(&state.federations);
    let federations = state.federations.iter();
    let federations =
        federations.map(|service| federation_status(service, &locks, &waits)).collect();
    let remote: Vec<_> = state.federations.iter().flat_map(|service| service.sessions()).collect();
    let files = logical.files.counts();
    let protocols = protocols(logical, read(&traffic.requests));
    let totals = Totals {
        connections: state.counts.accepted(),
        open_connections: state.counts.open(),
        open_sessions: (all.len() + remote.len()) as u64,
        open_files: logical.files.count() as u64,
        requests: read(&traffic.requests),
        errors: protocols.iter().flat_map(|it| it.errors.values()).sum(),
        bytes_read: read(&traffic.bytes_out),
        bytes_written: read(&traffic.bytes_in),
        locks_held: locks.len() as u64,
        locks_waited: waits.len() as u64,
        deadlocks: state.federations.iter().map(|service| service.deadlocks()).sum(),
        commits: state.federations.iter().map(|service| service.publisher().published().0).sum(),
        syncs: read(&files.syncs),
        syncs_eliminated: read(&files.syncs_eliminated),
        files_reused: read(&files.reused),
    };
    let mut sessions: Vec<_> = all.iter().map(|session| session_status(session)).collect();
    sessions.extend(remote.iter().map(|session| remote_status(session)));
    if sessions.len() > ROWS_MAX {
        sessions
            .sort_by_key(|session| std::cmp::Reverse(session.bytes_read + session.bytes_written));
        sessions.truncate(ROWS_MAX);
    }
    let mut files = open_files(&all);
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes_read + file.bytes_written));
    files.truncate(ROWS_MAX);
    let status = ServerStatus {
        server: concat!("femtobarn ", env!("CARGO_PKG_VERSION")).to_owned(),
        up_seconds: state.started.elapsed().as_secs(),
        is_draining: state.is_draining.load(Ordering::Relaxed),
        totals,
        protocols,
        sessions,
        files,
        locks: locks.into_iter().take(ROWS_MAX).collect(),
        waits: waits.into_iter().take(ROWS_MAX).collect(),
        disks: state.disks.iter().flat_map(disk_statuses).collect(),
        caches: state.caches.iter().map(cache_status).collect(),
        recalls: state.recallers.iter().map(recall_status).collect(),
        stores: state.recallers.iter().flat_map(store_statuses).collect(),
        in_place: state.in_place.iter().map(in_place_status).collect(),
        followers: state.federations.iter().flat_map(|service| followers(service)).collect(),
        cluster: state.login.as_ref().map(cluster_status),
        data_servers: data_servers(logical),
        copy_servers: state.federations.iter().flat_map(|service| copy_servers(service)).collect(),
        memory_bytes: memory_bytes(),
        exports: state.exports.iter().filter_map(|name| export_status(logical, name)).collect(),
        federations,
        latencies: latencies(state),
        alerts: vec![],
    };
    ServerStatus { alerts: alerts(&status, state.connections_max), ..status }
}

/// The requests of all protocols; `of_root` is the number for `root://`, which its sessions count.
fn protocols(logical: &Logical, of_root: u64) -> Vec<ProtocolStatus> {
    let counts = &logical.request_counts;
    let status = |protocol: ClientProtocol| ProtocolStatus {
        name: protocol.name(),
        requests: match protocol {
            ClientProtocol::Root => of_root,
            other => counts.requests(other),
        },
        errors: counts.errors(protocol),
    };
    ClientProtocol::ALL.map(status).to_vec()
}

/// The resident memory of this process in bytes; 0 if unknown.
fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = text.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kibibytes.map_or(0, |count| count * 1024)
}

/// The capacity of an export; `None` if its file system reports an error.
fn export_status(logical: &Logical, name: &str) -> Option<ExportStatus> {
    let path = StoragePath::new(name.as_bytes()).ok()?;
    let space = logical.exports.space(&path).ok()?;
    Some(ExportStatus { name: name.to_owned(), total_bytes: space.total, free_bytes: space.free })
}

fn federation_status(
    service: &FederationService,
    locks: &[LockStatus],
    waits: &[LockStatus],
) -> FederationStatus {
    let of_it = |locks: &[LockStatus]| {
        locks.iter().filter(|lock| lock.federation == service.name()).count() as u64
    };
    FederationStatus {
        name: format!("/{}", service.name()),
        head: service.catalog().head().unwrap_or_default().0,
        sessions: service.sessions().len() as u64,
        locks_held: of_it(locks),
        locks_waited: of_it(waits),
        deadlocks: service.deadlocks(),
        commits: service.publisher().published().0,
        messages: service.messages(),
    }
}

fn followers(service: &FederationService) -> Vec<FollowerStatus> {
    let head = service.catalog().head().unwrap_or_default();
    let status = |follower: catalogue::KnownFollower| FollowerStatus {
        federation: format!("/{}", service.name()),
        name: follower.name,
        at: follower.at.0,
        behind: head.0.saturating_sub(follower.at.0),
        silent_seconds: follower.heard.elapsed().as_secs_f64(),
    };
    service.followers().all().into_iter().map(status).collect()
}

fn copy_servers(service: &FederationService) -> Vec<CopyServerStatus> {
    let head = service.catalog().head().unwrap_or_default();
    let status = |server: catalogue::CopyServer| CopyServerStatus {
        federation: format!("/{}", service.name()),
        load: server.load(),
        address: server.address,
        at: server.at.0,
        behind: head.0.saturating_sub(server.at.0),
    };
    service.followers().servers().into_iter().map(status).collect()
}

fn data_servers(logical: &Logical) -> Vec<DataServerStatus> {
    let servers = logical.redirector.iter().flat_map(|redirector| redirector.servers());
    let status = |(server, is_cache): (&DataServer, bool)| DataServerStatus {
        address: server.endpoint().to_string(),
        is_up: server.is_up(),
        why_down: server.why_down(),
        load: server.load(),
        redirects: server.redirects(),
        is_cache,
    };
    servers.map(status).collect()
}

fn cluster_status(login: &ClusterLogin) -> ClusterStatus {
    let why_not = login.why_not();
    ClusterStatus { is_logged_in: why_not.is_none(), why_not: why_not.unwrap_or_default() }
}

pub(super) fn cache_status((name, cache): &(String, Arc<CachedOrigin>)) -> CacheStatus {
    let (counts, usage) = (cache.counts(), cache.usage());
    CacheStatus {
        name: name.clone(),
        used_bytes: usage.used,
        limit_bytes: usage.limit,
        disks: cache.disks().into_iter().map(cache_disk_status).collect(),
        read_bytes: read(&counts.read),
        fetched_bytes: read(&counts.fetched),
        evicted_bytes: read(&counts.evicted),
        damaged_pages: read(&counts.damaged),
        failures: read(&counts.failures),
    }
}

fn cache_disk_status(disk: CacheDisk) -> CacheDiskStatus {
    CacheDiskStatus {
        folder: disk.folder.display().to_string(),
        used_bytes: disk.usage.used,
        limit_bytes: disk.usage.limit,
        why_failed: disk.failure.unwrap_or_default(),
    }
}

pub(super) fn recall_status((name, recaller): &(String, Arc<Recaller>)) -> RecallStatus {
    let (counts, evictions) = (recaller.counts(), recaller.evictor().counts());
    RecallStatus {
        name: name.clone(),
        waiting: counts.waiting,
        waiting_bytes: counts.waiting_bytes,
        done: counts.done,
        bytes: counts.bytes,
        failed: counts.failed,
        estimate_errors_seconds: counts.estimate_errors_seconds,
        evictions_waiting: evictions.waiting,
        evictions_done: evictions.done,
        evictions_failed: evictions.failed,
    }
}

fn store_statuses((name, recaller): &(String, Arc<Recaller>)) -> impl Iterator<Item = StoreStatus> {
    recaller.stalls().into_iter().map(|(store, stalled)| StoreStatus {
        federation: name.clone(),
        name: store,
        stalled_seconds: stalled.as_secs_f64(),
    })
}

fn in_place_status((name, counts): &(String, Arc<InPlaceCounts>)) -> InPlaceStatus {
    InPlaceStatus {
        name: name.clone(),
        read_bytes: read(&counts.read),
        fetched_bytes: read(&counts.fetched),
        left_copies: read(&counts.left),
    }
}

/// Request times: of files for each export, of transactions for each federation.
fn latencies(state: &ServerState) -> Vec<LatencyStatus> {
    let row = |export: &str, kind: RequestKind, latencies: &Latencies| {
        let histogram = latencies.histogram(kind);
        LatencyStatus {
            export: export.to_owned(),
            kind: kind.name(),
            buckets: histogram.buckets.to_vec(),
            sum_seconds: histogram.sum_us as f64 / 1e6,
        }
    };
    let exports = state.exports.iter().filter_map(|name| {
        let path = StoragePath::new(name.as_bytes()).ok()?;
        Some((name.as_str(), state.logical.exports.latencies(&path)))
    });
    let of_files = exports.flat_map(|(name, latencies)| {
        [RequestKind::Open, RequestKind::Read, RequestKind::Write]
            .map(|kind| row(name, kind, &latencies))
    });
    let of_transactions = state.federations.iter().flat_map(|service| {
        let name = format!("/{}", service.name());
        [RequestKind::Commit, RequestKind::LockWait]
            .map(|kind| row(&name, kind, service.latencies()))
    });
    of_files.chain(of_transactions).collect()
}

fn disk_statuses(disks: &ExportDisks) -> impl Iterator<Item = DiskStatus> {
    disks.throttle.accounts().map(|(folder, account)| DiskStatus {
        name: if folder.is_empty() {
            disks.export.clone()
        } else {
            format!("{}/{folder}", disks.export.trim_end_matches('/'))
        },
        busy_seconds: account.busy.as_secs_f64(),
        seek_seconds: account.seeking.as_secs_f64(),
        seeks: account.seeks,
        bytes_read: account.bytes_read,
        bytes_written: account.bytes_written,
        queue_seconds: account.queue.as_secs_f64(),
    })
}

fn session_status(session: &ClientSession) -> SessionStatus {
    let since = clock::utc().duration_since(session.since).unwrap_or_default();
    let name = session.identity().filter(|i| i.how != "anonymous").map(|i| i.name.clone());
    SessionStatus {
        id: session.number.to_string(),
        protocol: "root".to_owned(),
        user: name.unwrap_or_else(|| session.client.user.clone()),
        host: session.host.ip().to_string(),
        program: session.client.program.clone(),
        age_seconds: since.as_secs(),
        open_files: session.handles.count() as u64,
        requests: read(&session.counters.requests),
        bytes_read: read(&session.counters.bytes_out),
        bytes_written: read(&session.counters.bytes_in),
    }
}

fn remote_status(session: &catalogue::CatalogueSession) -> SessionStatus {
    let client = session.client();
    SessionStatus {
        // Not the session's own id, with which other clients could take it over.
        id: format!("c{}", session.number()),
        protocol: "catalogue".to_owned(),
        user: client.user,
        host: client.host,
        program: match client.application.as_str() {
            "" => format!("process {}", client.pid),
            application => format!("{application}, process {}", client.pid),
        },
        age_seconds: seconds_since(client.since_ms),
        ..SessionStatus::default()
    }
}

/// The held locks, and the waits for locks. A federation whose locks cannot be read is left out.
fn all_locks(federations: &[Arc<FederationService>]) -> (Vec<LockStatus>, Vec<LockStatus>) {
    let (mut held, mut waited) = (vec![], vec![]);
    for service in federations {
        let row = |target: LockTarget, by: Option<&Holder>| LockStatus {
            federation: service.name().to_owned(),
            target: service.describe(&target),
            // The kernel does not report local processes that share a lock.
            by: by.map_or_else(|| "a process on the server's machine".to_owned(), Holder::name),
            seconds: by.map_or(0, |by| seconds_since(by.since_ms)),
        };
        let locks = service.held().unwrap_or_default();
        held.extend(locks.iter().map(|lock| row(lock.target, lock.holder.as_ref())));
        let waits = service.waiting().unwrap_or_default();
        waited.extend(waits.iter().map(|waiter| row(waiter.target, Some(&waiter.by))));
    }
    (held, waited)
}

fn seconds_since(unix_ms: u64) -> u64 {
    let now = clock::utc().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().saturating_sub(unix_ms / 1000)
}

/// The open files of sessions: each path once for reading and once for writing.
fn open_files(sessions: &[Arc<ClientSession>]) -> Vec<FileStatus> {
    let mut files = BTreeMap::new();
    for open in sessions.iter().flat_map(|session| session.handles.all()) {
        let path = String::from_utf8_lossy(open.path.as_bytes()).into_owned();
        let file = files.entry((path, open.is_writable)).or_insert_with(FileStatus::default);
        file.users += 1;
        file.bytes_read += read(&open.bytes_read);
        file.bytes_written += read(&open.bytes_written);
    }
    let named = files.into_iter();
    named.map(|((path, is_writable), file)| FileStatus { path, is_writable, ..file }).collect()
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
