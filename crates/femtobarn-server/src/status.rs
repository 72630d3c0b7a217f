//! The status of a server, for `/metrics`, `femtobarn top` and the status page.

use std::collections::BTreeMap;

use serde::Serialize;

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
    /// What is read in stores of federations whose readers may.
    pub in_place: Vec<InPlaceStatus>,
    /// The servers of copies to which readers are redirected, as they answered within the last seconds.
    pub copy_servers: Vec<CopyServerStatus>,
    /// The servers to which a server without data redirects.
    pub data_servers: Vec<DataServerStatus>,
    /// The login of a data server of an XRootD cluster; none if it is none.
    pub cluster: Option<ClusterStatus>,
    /// The copies of federations at other servers that have asked for new commits within a minute.
    pub followers: Vec<FollowerStatus>,
    /// The resident memory of the server's process, in bytes.
    pub memory_bytes: u64,
    /// All exports.
    pub exports: Vec<ExportStatus>,
    /// The exports that are federations.
    pub federations: Vec<FederationStatus>,
    /// Request times, by export and kind.
    pub latencies: Vec<LatencyStatus>,
    /// What an operator should do something about, the critical ones first.
    pub alerts: Vec<AlertStatus>,
}

/// Something that an operator should do something about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AlertStatus {
    /// The name of the same alert of Prometheus, in `deploy/prometheus/femtobarn.rules.yml`.
    pub name: &'static str,
    /// Whether clients fail, or are about to.
    pub is_critical: bool,
    /// What there is.
    pub summary: String,
    /// What it means.
    pub description: &'static str,
    /// What to do.
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

/// What is read of a federation's databases in its stores, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InPlaceStatus {
    /// The name of its export.
    pub name: String,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that stores were asked for.
    pub fetched_bytes: u64,
    /// How often a copy was left because it could not be read.
    pub left_copies: u64,
}

/// The recalls of a federation's databases from its stores, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecallStatus {
    /// The name of the federation's export.
    pub name: String,
    /// Recalls that wait or are being carried out.
    pub waiting: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Recalls that brought a file back.
    pub done: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Recalls that failed.
    pub failed: u64,
    /// The sum of the differences between the estimated and the real times of `done`, in seconds.
    pub estimate_errors_seconds: f64,
    /// Evictions for clients that wait or are being carried out.
    pub evictions_waiting: u64,
    /// Evictions for clients after which the file was not on the disk.
    pub evictions_done: u64,
    /// Evictions for clients that were refused or failed.
    pub evictions_failed: u64,
}

/// A store of a federation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoreStatus {
    /// The name of the federation's export.
    pub federation: String,
    /// Its own name.
    pub name: String,
    /// Seconds for which files have been wanted of it, and none came back; 0 if none is wanted.
    pub stalled_seconds: f64,
}

/// The files that a federation brings back from its stores: their sums, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecallQueueStatus {
    /// The sums.
    #[serde(flatten)]
    pub sums: RecallStatus,
    /// The tapes that are mounted.
    pub mounted: Vec<MountedTape>,
    /// The files that come, and then those that wait, about in the order in which their turns come; at most a hundred.
    pub recalls: Vec<QueuedRecallStatus>,
    /// The files that are about to leave the disk, as clients have asked for; at most a hundred.
    pub leaving: Vec<PendingEvictionStatus>,
}

/// A file that is about to leave the disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PendingEvictionStatus {
    /// Its path at the server.
    pub path: String,
    /// Whether its stores are being asked for its copies.
    pub is_running: bool,
    /// Seconds since that was asked for.
    pub age_seconds: u64,
}

/// A tape in a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MountedTape {
    /// The name of its store.
    pub store: String,
    /// Its own name.
    pub tape: String,
}

/// A file that is brought back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueuedRecallStatus {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// The store that has it.
    pub store: String,
    /// The tape there, and the place on it, as far as they are known.
    pub tape: Option<String>,
    /// See `tape`.
    pub position: Option<u64>,
    /// Who asked for it first; empty for clients that have opened it.
    pub user: String,
    /// Whether it comes, and does not wait any more.
    pub is_running: bool,
    /// Seconds since it was asked for.
    pub age_seconds: u64,
    /// Seconds that it still takes, by the estimate that was made then.
    pub remaining_seconds: u64,
}

/// A cache of another server. All but what it takes of its disks are sums since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheStatus {
    /// The name of the export.
    pub name: String,
    /// Bytes that it takes of its disks.
    pub used_bytes: u64,
    /// Bytes that it may take.
    pub limit_bytes: u64,
    /// Its folders, each on a disk of its own if there are several.
    pub disks: Vec<CacheDiskStatus>,
    /// Bytes that were read through it.
    pub read_bytes: u64,
    /// Bytes that came from the origin.
    pub fetched_bytes: u64,
    /// Bytes of files that left to make room.
    pub evicted_bytes: u64,
    /// Pages that were found damaged on the disk, and fetched again.
    pub damaged_pages: u64,
    /// How often a disk refused to keep pages, or to give them.
    pub failures: u64,
}

impl CacheStatus {
    /// Its folders that are not used any more.
    pub fn failed_disks(&self) -> impl Iterator<Item = &CacheDiskStatus> {
        self.disks.iter().filter(|disk| !disk.why_failed.is_empty())
    }
}

/// A folder of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheDiskStatus {
    /// Its path on the server.
    pub folder: String,
    /// Bytes that the cache takes of it.
    pub used_bytes: u64,
    /// Bytes that the cache may take of it.
    pub limit_bytes: u64,
    /// Why it is not used until the server starts again; empty while it is.
    pub why_failed: String,
}

/// A cache, and which of its files leave next.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheContents {
    /// Its sums.
    #[serde(flatten)]
    pub sums: CacheStatus,
    /// Files that are kept.
    pub files: u64,
    /// Seconds after which files leave that nobody had open; none if they leave only to make room.
    pub idle_seconds: Option<u64>,
    /// The files that leave first, as they were within the last seconds; at most twenty. Those that are open come last:
    /// they stay until they were closed.
    pub leaving: Vec<LeavingFileStatus>,
}

/// A file that leaves a cache when its turn comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeavingFileStatus {
    /// The origin, and the path there: `host:1094/store/run7.root`. Empty if that is not known any more.
    pub file: String,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Seconds since it was closed or first read.
    pub unused_seconds: u64,
    /// Whether it is open.
    pub is_open: bool,
}

/// The login of a data server of an XRootD cluster at its `cmsd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// Whether the cluster sends clients here.
    pub is_logged_in: bool,
    /// Why it does not.
    pub why_not: String,
}

/// A copy of a federation that follows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowerStatus {
    /// The name of the federation's export.
    pub federation: String,
    /// Where the copy is served, or its name.
    pub name: String,
    /// Its newest commit when it asked last.
    pub at: u64,
    /// Commits that it did not have then.
    pub behind: u64,
    /// Seconds since then.
    pub silent_seconds: f64,
}

/// A server that has a copy of a federation, and to which readers are redirected.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopyServerStatus {
    /// The name of the federation's export.
    pub federation: String,
    /// Its address, `host:port`.
    pub address: String,
    /// The newest commit that it shows.
    pub at: u64,
    /// Commits that it does not show.
    pub behind: u64,
    /// Requests that it works on, and clients that were redirected there since it said so.
    pub load: u64,
}

/// A server to which a server without data redirects.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DataServerStatus {
    /// Its address, `host:port`.
    pub address: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Why it does not.
    pub why_down: String,
    /// Requests that it works on, if it says so, and clients that were redirected there since it answered last.
    pub load: u64,
    /// Clients that were redirected there since the start.
    pub redirects: u64,
    /// Whether it keeps what is read from it of another server's files.
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
    /// Those that were refused or failed, by the kinds of errors as Python names them.
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
    /// The client's program, as it says.
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
    /// Whether it is open for writing.
    pub is_writable: bool,
    /// The number of sessions that have it open.
    pub users: u64,
    /// Bytes read from it since it was opened.
    pub bytes_read: u64,
    /// Bytes written to it since it was opened.
    pub bytes_written: u64,
}

/// The work of a simulated disk of a throttled export.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskStatus {
    /// The export's name, followed by the folder's if the disk is a folder: `/lhc.fed/disk0`.
    pub name: String,
    /// Seconds for which the disk was busy.
    pub busy_seconds: f64,
    /// The part of these that was spent on seeks.
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
