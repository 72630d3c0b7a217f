//! Settings of federations and transactions.

use std::path::PathBuf;
use std::time::Duration;

/// Resources and limits of a federation that a process opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Bytes of the page cache, which holds decoded pages: 256 MiB by default. Each [`Cursor`](crate::Cursor)
    /// may hold half as much itself, mostly of the same pages. Memory for arrays is not included; up to 256 MiB
    /// of it is retained for reuse.
    pub cache_bytes: u64,
    /// Bytes of what a process retains of metadata: open versions of containers, and timelines of conditions; 384 MiB by
    /// default, of which timelines may take two thirds and versions one.
    pub metadata_bytes: u64,
    /// Threads that read a large array, field by field; by default one for each core. With 1 no thread is ever
    /// started.
    pub threads: usize,
    /// Connections for prefetching from a server, besides the first connection: 2 by default. More of them help over a
    /// long-distance network.
    pub streams: usize,
    /// Bytes of the largest prefetch buffer: 2 MiB by default, 64 MiB at most. A sequence of reads holds up to
    /// two and a half buffers, a federation eight. With 0 nothing is prefetched from a server.
    pub read_ahead_bytes: u64,
    /// How long requests wait for a server that was reached before and does not answer, for example while it restarts:
    /// a minute by default. The first connection is not retried.
    pub timeout: Duration,
    /// Folder of the disk cache for bytes read from a server, shared by processes; without it there is no disk
    /// cache.
    pub disk_cache: Option<PathBuf>,
    /// Bytes of the disk cache for each federation: 16 GiB by default.
    pub disk_cache_bytes: u64,
    /// Addresses of memcached servers, as `host:port`, that are asked for bytes after the disk cache and before the
    /// federation's server; none by default. Jobs that share them should use the same names.
    pub memcached: Vec<String>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        OpenOptions {
            cache_bytes: 256 << 20,
            metadata_bytes: 384 << 20,
            threads,
            streams: 2,
            read_ahead_bytes: 2 << 20,
            timeout: Duration::from_secs(60),
            disk_cache: None,
            disk_cache_bytes: 16 << 30,
            memcached: vec![],
        }
    }
}

impl OpenOptions {
    /// Whether bytes read from a server are kept in caches.
    pub(crate) fn has_caches(&self) -> bool {
        self.disk_cache.is_some() || !self.memcached.is_empty()
    }
}

/// How transactions are isolated from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The transaction reads one snapshot, and commits only if no other transaction has changed since then anything
    /// that it changed.
    #[default]
    Snapshot,
    /// Like `Snapshot`, and it also commits only if no other transaction has changed anything that it read: the result
    /// is that of running the transactions one after the other.
    Serializable,
}

/// Settings of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// The message of the commit, shown in the history.
    pub message: String,
    /// How long to wait for the lock of a container that another transaction writes; 10 s by default.
    pub lock_wait: Duration,
    /// The isolation; [`Isolation::Snapshot`] by default.
    pub isolation: Isolation,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            message: String::new(),
            lock_wait: Duration::from_secs(10),
            isolation: Isolation::default(),
        }
    }
}
