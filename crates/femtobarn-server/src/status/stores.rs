//! Databases in stores: what is read of them in place, and what comes back.

use serde::Serialize;

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
