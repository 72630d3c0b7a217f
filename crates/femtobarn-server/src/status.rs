//! What the server is doing, as numbers: for `/metrics`, `femtobarn top` and the page.

use serde::Serialize;

/// What the server is doing now, and has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerStatus {
    /// The server's own name and version.
    pub server: String,
    /// Seconds since it started.
    pub up_seconds: u64,
    /// Whether it takes no more sessions, because it is about to stop.
    pub is_draining: bool,
    /// Sums since the start, and what is now.
    pub totals: Totals,
    /// Sessions of root:// clients and of remote federations, the oldest first; the busiest thousand.
    pub sessions: Vec<SessionStatus>,
    /// Open files, the most read and written first; at most a thousand.
    pub files: Vec<FileStatus>,
    /// Locks that are held; at most a thousand.
    pub locks: Vec<LockStatus>,
    /// Who waits for a lock, the longest first; at most a thousand.
    pub waits: Vec<LockStatus>,
    /// The disks of throttled exports.
    pub disks: Vec<DiskStatus>,
    /// Bytes of memory that the server's process has.
    pub memory_bytes: u64,
    /// What is served.
    pub exports: Vec<ExportStatus>,
    /// Those of them that are federations.
    pub federations: Vec<FederationStatus>,
    /// How long requests took, for each kind of each export.
    pub latencies: Vec<LatencyStatus>,
}

/// What is served under one name, and the file system that it is on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// Bytes that the file system has in all.
    pub total_bytes: u64,
    /// Bytes of these that can be written.
    pub free_bytes: u64,
}

/// A federation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FederationStatus {
    /// Its export's name.
    pub name: String,
    /// The newest commit.
    pub head: u64,
    /// Sessions of remote clients that are open.
    pub sessions: u64,
    /// Locks that are held.
    pub locks_held: u64,
    /// Locks that somebody waits for.
    pub locks_waited: u64,
    /// Deadlocks that were found.
    pub deadlocks: u64,
    /// Commits of remote clients.
    pub commits: u64,
}

/// How long requests of one kind took for one export, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencyStatus {
    /// The export's name.
    pub export: String,
    /// `open`, `read`, `write`, `commit` or `lock_wait`.
    pub kind: &'static str,
    /// How many took as long as each bucket says, and no shorter one; the last has all that took longer.
    pub buckets: Vec<u64>,
    /// Seconds that they took together, without those that were answered from memory at once.
    pub sum_seconds: f64,
}

/// Sums since the start, and what is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that are open.
    pub open_connections: u64,
    /// Sessions that are open.
    pub open_sessions: u64,
    /// Files that are open.
    pub open_files: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that were refused.
    pub errors: u64,
    /// Bytes read by clients.
    pub bytes_read: u64,
    /// Bytes written by clients.
    pub bytes_written: u64,
    /// Syncs that clients asked for.
    pub syncs: u64,
    /// Of these, those that were not needed.
    pub syncs_eliminated: u64,
    /// Times that a file was asked for and open already.
    pub files_reused: u64,
    /// Locks that are held.
    pub locks_held: u64,
    /// Locks that somebody waits for.
    pub locks_waited: u64,
    /// Deadlocks that were found.
    pub deadlocks: u64,
    /// Commits by remote federations.
    pub commits: u64,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionStatus {
    /// Names it.
    pub id: String,
    /// `root` or `catalogue`.
    pub protocol: String,
    /// Who.
    pub user: String,
    /// From where.
    pub host: String,
    /// With which program, as it says.
    pub program: String,
    /// Seconds since it began.
    pub age_seconds: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes that it read.
    pub bytes_read: u64,
    /// Bytes that it wrote.
    pub bytes_written: u64,
    /// Files that it has open.
    pub open_files: u64,
}

/// An open file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileStatus {
    /// Its path as clients know it.
    pub path: String,
    /// Whether somebody may write to it.
    pub is_writable: bool,
    /// How many have it open.
    pub users: u64,
    /// Bytes read from it since it was opened.
    pub bytes_read: u64,
    /// Bytes written to it since it was opened.
    pub bytes_written: u64,
}

/// A disk of a throttled export: what it has done up to now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskStatus {
    /// The export's name, and the folder's if that is a disk of its own: `/lhc.fed/disk0`.
    pub name: String,
    /// Seconds for which it was busy.
    pub busy_seconds: f64,
    /// Of these, seconds with seeks.
    pub seek_seconds: f64,
    /// Seeks.
    pub seeks: u64,
    /// Bytes of the blocks that it read.
    pub bytes_read: u64,
    /// Bytes of the blocks that it wrote.
    pub bytes_written: u64,
    /// Seconds that it takes to do all that it still has to.
    pub queue_seconds: f64,
}

/// A lock that is held or waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockStatus {
    /// The federation.
    pub federation: String,
    /// What is locked.
    pub target: String,
    /// By whom, or who waits.
    pub by: String,
    /// Seconds for which it has been held or waited for.
    pub seconds: u64,
}
