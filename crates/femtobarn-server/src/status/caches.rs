//! Caches of other servers, their disks, and the next files to be evicted.

use serde::Serialize;

/// A cache of another server. All fields but the usage of its disks are sums since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheStatus {
    /// The name of the export.
    pub name: String,
    /// Bytes that the cache takes of its disks.
    pub used_bytes: u64,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// The folders, each on a disk of its own if there are several.
    pub disks: Vec<CacheDiskStatus>,
    /// Bytes that were read through the cache.
    pub read_bytes: u64,
    /// Bytes that came from the origin.
    pub fetched_bytes: u64,
    /// Bytes of files that left to make room.
    pub evicted_bytes: u64,
    /// Pages that were found damaged on the disk, and fetched again.
    pub damaged_pages: u64,
    /// How many times a disk refused to store or to return pages.
    pub failures: u64,
}

impl CacheStatus {
    /// The folders that are not used any more.
    pub fn failed_disks(&self) -> impl Iterator<Item = &CacheDiskStatus> {
        self.disks.iter().filter(|disk| !disk.why_failed.is_empty())
    }
}

/// A folder of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheDiskStatus {
    /// The path on the server.
    pub folder: String,
    /// Bytes that the cache takes of it.
    pub used_bytes: u64,
    /// The limit in bytes of this folder.
    pub limit_bytes: u64,
    /// Why the folder is not used until the server is restarted; empty while it is used.
    pub why_failed: String,
}

/// A cache, and the next files to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheContents {
    /// The sums of the cache.
    #[serde(flatten)]
    pub sums: CacheStatus,
    /// Files that are kept.
    pub files: u64,
    /// Seconds after which unused files are evicted; `None` if files are evicted only to free space.
    pub idle_seconds: Option<u64>,
    /// The next files to be evicted, as of the last seconds; at most twenty. Open ones are last: they stay until they
    /// are closed.
    pub leaving: Vec<LeavingFileStatus>,
}

/// A file in the order of eviction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LeavingFileStatus {
    /// The origin, and the path there: `host:1094/store/run7.root`. Empty if it is not known any more.
    pub file: String,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Seconds since the file was closed or first read.
    pub unused_seconds: u64,
    /// Whether the file is open.
    pub is_open: bool,
}
