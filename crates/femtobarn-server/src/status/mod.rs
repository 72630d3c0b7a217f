//! The status of a server, for `/metrics`, `femtobarn top` and the status page: of the server itself here, of the
//! stores of its federations in `stores`, of its caches of other servers in `caches`.

mod caches;
mod stores;

use std::collections::BTreeMap;

use serde::Serialize;

pub use caches::{CacheContents, CacheDiskStatus, CacheStatus, LeavingFileStatus};
pub use stores::{
    InPlaceStatus, MountedTape, PendingEvictionStatus, QueuedRecallStatus, RecallQueueStatus,
    RecallStatus, StoreStatus,
};

/// The status of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerStatus {
    /// The server's name and version.
    pub server: String,
    /// Seconds since the server started.
    pub up_seconds: u64,
    /// Whether the server is stopping, and accepts no more connections.
    pub is_draining: bool,
    /// Sums since the start, and current numbers.
    pub totals: Totals,
    /// Requests and errors of each protocol.
    pub protocols: Vec<ProtocolStatus>,
    /// Sessions of `root://` clients and of remote federations, the oldest first; if there are more than a thousand,
    /// the busiest.
    pub sessions: Vec<SessionStatus>,
    /// Open files, those with the most traffic first; at most a thousand.
    pub files: Vec<FileStatus>,
    /// Held locks; at most a thousand.
    pub locks: Vec<LockStatus>,
    /// Waits for locks, the longest first; at most a thousand.
    pub waits: Vec<LockStatus>,
    /// The simulated disks of throttled exports.
    pub disks: Vec<DiskStatus>,
    /// The caches of other servers.
    pub caches: Vec<CacheStatus>,
    /// The recalls of federations that have stores.
    pub recalls: Vec<RecallStatus>,
    /// The stores of federations.
    pub stores: Vec<StoreStatus>,
    /// Reads in stores, for federations that allow these.
    pub in_place: Vec<InPlaceStatus>,
    /// The servers of copies to which readers are redirected, as they answered within the last seconds.
    pub copy_servers: Vec<CopyServerStatus>,
    /// The servers to which a server without data redirects.
    pub data_servers: Vec<DataServerStatus>,
    /// The login of a data server of an XRootD cluster; `None` if this server is not one.
    pub cluster: Option<ClusterStatus>,
    /// The followers of federations that have asked for new commits within a minute.
    pub followers: Vec<FollowerStatus>,
    /// The resident memory of the server's process, in bytes.
    pub memory_bytes: u64,
    /// All exports.
    pub exports: Vec<ExportStatus>,
    /// The exports that are federations.
    pub federations: Vec<FederationStatus>,
    /// Request times, by export and kind.
    pub latencies: Vec<LatencyStatus>,
    /// Alerts for the operator, the critical ones first.
    pub alerts: Vec<AlertStatus>,
}

/// Something that an operator should do something about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AlertStatus {
    /// The name of the same alert of Prometheus, in `deploy/prometheus/femtobarn.rules.yml`.
    pub name: &'static str,
    /// Whether clients fail, or are about to.
    pub is_critical: bool,
    /// The finding.
    pub summary: String,
    /// The meaning of the finding.
    pub description: &'static str,
    /// Advice for the operator.
    pub action: &'static str,
}

/// An export, and the capacity of its file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExportStatus {
    /// The name.
    pub name: String,
    /// Bytes of the file system.
    pub total_bytes: u64,
    /// Bytes that can be written.
    pub free_bytes: u64,
}

/// A federation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FederationStatus {
    /// The name of its export.
    pub name: String,
    /// The number of the newest commit.
    pub head: u64,
    /// Open sessions of remote clients.
    pub sessions: u64,
    /// Held locks.
    pub locks_held: u64,
    /// Waits for locks.
    pub locks_waited: u64,
    /// Detected deadlocks.
    pub deadlocks: u64,
    /// Commits of remote clients.
    pub commits: u64,
    /// Messages of remote clients to the catalogue.
    pub messages: u64,
}

/// The login of a data server of an XRootD cluster at its `cmsd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// Whether the cluster sends clients here.
    pub is_logged_in: bool,
    /// Why the server is not logged in; empty if it is.
    pub why_not: String,
}

/// A follower of a federation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowerStatus {
    /// The name of the federation's export.
    pub federation: String,
    /// The URL at which the copy is served, or its name.
    pub name: String,
    /// The newest commit of the copy at its last question.
    pub at: u64,
    /// Commits that the copy lacked then.
    pub behind: u64,
    /// Seconds since then.
    pub silent_seconds: f64,
}

/// A server that has a copy of a federation, and to which readers are redirected.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopyServerStatus {
    /// The name of the federation's export.
    pub federation: String,
    /// The address, `host:port`.
    pub address: String,
    /// The newest commit that the server shows.
    pub at: u64,
    /// Commits that the server does not show yet.
    pub behind: u64,
    /// The requests in progress that the server reported, and clients that were redirected there since.
    pub load: u64,
}

/// A server to which a server without data redirects.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DataServerStatus {
    /// The address, `host:port`.
    pub address: String,
    /// Whether the server answers.
    pub is_up: bool,
    /// Why the server is down; empty if it is up.
    pub why_down: String,
    /// The requests in progress that the server reported, if it does, and clients that were redirected there since its
    /// last answer.
    pub load: u64,
    /// Clients that were redirected there since the start.
    pub redirects: u64,
    /// Whether the server is a cache of another server's files.
    pub is_cache: bool,
}

/// The request times of one kind and export, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyStatus {
    /// The export's name.
    pub export: String,
    /// `open`, `read`, `write`, `commit` or `lock_wait`.
    pub kind: &'static str,
    /// Requests in each bucket of [`BOUNDS_US`](crate::logical::latency::BOUNDS_US), not cumulative; the last has all
    /// that took longer.
    pub buckets: Vec<u64>,
    /// The sum in seconds, without requests that were answered from memory.
    pub sum_seconds: f64,
}

/// Sums since the start, and current numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Accepted connections.
    pub connections: u64,
    /// Open connections.
    pub open_connections: u64,
    /// Open sessions.
    pub open_sessions: u64,
    /// Open files.
    pub open_files: u64,
    /// Requests of `root://` clients.
    pub requests: u64,
    /// Requests that were refused or failed, of all protocols.
    pub errors: u64,
    /// Bytes read by clients.
    pub bytes_read: u64,
    /// Bytes written by clients.
    pub bytes_written: u64,
    /// Syncs that clients requested.
    pub syncs: u64,
    /// Syncs that were skipped.
    pub syncs_eliminated: u64,
    /// Opens that shared an open file.
    pub files_reused: u64,
    /// Held locks.
    pub locks_held: u64,
    /// Waits for locks.
    pub locks_waited: u64,
    /// Detected deadlocks.
    pub deadlocks: u64,
    /// Commits of remote clients.
    pub commits: u64,
}

/// The requests of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProtocolStatus {
    /// `root`, `http` or `grpc`.
    pub name: &'static str,
    /// Requests; calls of gRPC.
    pub requests: u64,
    /// The requests that were refused or failed, by the kinds of errors as Python names them.
    pub errors: BTreeMap<&'static str, u64>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionStatus {
    /// The public id.
    pub id: String,
    /// `root` or `catalogue`.
    pub protocol: String,
    /// The user's name.
    pub user: String,
    /// The client's host.
    pub host: String,
    /// The client's program, as the client names it.
    pub program: String,
    /// Seconds since the session began.
    pub age_seconds: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes that the client read.
    pub bytes_read: u64,
    /// Bytes that the client wrote.
    pub bytes_written: u64,
    /// Open files.
    pub open_files: u64,
}

/// An open file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileStatus {
    /// The path that clients use.
    pub path: String,
    /// Whether the file is open for writing.
    pub is_writable: bool,
    /// The number of sessions that have the file open.
    pub users: u64,
    /// Bytes read from the file since it was opened.
    pub bytes_read: u64,
    /// Bytes written to the file since it was opened.
    pub bytes_written: u64,
}

/// The work of a simulated disk of a throttled export.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskStatus {
    /// The export's name, followed by the folder's if the disk is a folder: `/lhc.fed/disk0`.
    pub name: String,
    /// Seconds for which the disk was busy.
    pub busy_seconds: f64,
    /// The part of the busy seconds that was spent on seeks.
    pub seek_seconds: f64,
    /// Seeks.
    pub seeks: u64,
    /// Bytes of the blocks that were read.
    pub bytes_read: u64,
    /// Bytes of the blocks that were written.
    pub bytes_written: u64,
    /// Seconds that the queued operations will take.
    pub queue_seconds: f64,
}

/// A held lock, or a wait for one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockStatus {
    /// The federation's name.
    pub federation: String,
    /// The locked database or container.
    pub target: String,
    /// The holder, or the client that waits.
    pub by: String,
    /// Seconds since the lock was granted, or requested.
    pub seconds: u64,
}
