//! Databases in stores: reads in place, and recalls.

use serde::Serialize;

/// Reads of a federation's databases in its stores, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InPlaceStatus {
    /// The name of its export.
    pub name: String,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that were requested from stores.
    pub fetched_bytes: u64,
    /// How many times a copy was abandoned because it could not be read.
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
    /// The store's name.
    pub name: String,
    /// Seconds for which files were requested from the store, and none arrived; 0 if none is requested.
    pub stalled_seconds: f64,
}

/// The files that a federation brings back from its stores: sums, and the first of these files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecallQueueStatus {
    /// The sums.
    #[serde(flatten)]
    pub sums: RecallStatus,
    /// The tapes that are mounted.
    pub mounted: Vec<MountedTape>,
    /// The files that are being brought back, then those that wait, roughly in the order of their turns; at most a
    /// hundred.
    pub recalls: Vec<QueuedRecallStatus>,
    /// The files that are about to be evicted, as clients have requested; at most a hundred.
    pub leaving: Vec<PendingEvictionStatus>,
}

/// A file that is about to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PendingEvictionStatus {
    /// The path at the server.
    pub path: String,
    /// Whether its stores are being asked for its copies.
    pub is_running: bool,
    /// Seconds since the request.
    pub age_seconds: u64,
}

/// A tape in a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MountedTape {
    /// The name of its store.
    pub store: String,
    /// The name of the tape.
    pub tape: String,
}

/// A file that is brought back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueuedRecallStatus {
    /// The path.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The store of the copy.
    pub store: String,
    /// The tape of the copy, and the position on it, as far as known.
    pub tape: Option<String>,
    /// See `tape`.
    pub position: Option<u64>,
    /// The user who requested it first; empty for clients that have opened it.
    pub user: String,
    /// Whether it is being brought back, and does not wait any more.
    pub is_running: bool,
    /// Seconds since the request.
    pub age_seconds: u64,
    /// Seconds that it will still take, by the estimate at the request.
    pub remaining_seconds: u64,
}
