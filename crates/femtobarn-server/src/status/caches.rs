//! Caches of other servers, their disks, and what leaves them next.

use serde::Serialize;

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
