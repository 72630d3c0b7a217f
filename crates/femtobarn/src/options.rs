//! Settings of federations and transactions.

use std::path::PathBuf;
use std::time::Duration;

/// What a process gives to a federation that it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Bytes of decoded pages that are kept for reading objects: 256 MiB by default. It bounds the
    /// memory of readers: each [`Cursor`](crate::Cursor) may hold half as much of its own, mostly of
    /// the same pages. What arrays are read into is beside it; up to 256 MiB of that is kept to be
    /// used again.
    pub cache_bytes: u64,
    /// Threads that read a large array, field by field; as many as there are cores by default. With
    /// 1 no thread is ever started.
    pub threads: usize,
    /// Connections to a server, beside the first one, over which what will be needed is read ahead: 2 by
    /// default. More are of use where the way to the server is long.
    pub streams: usize,
    /// Bytes that are read ahead from a server at once, in one burst: 2 MiB by default, 64 MiB at most. A sequence of reads
    /// holds up to two and a half bursts, a federation eight. With 0 nothing is read ahead: what is needed is
    /// asked for then.
    pub read_ahead_bytes: u64,
    /// How long a server that was reached once is waited for while it does not answer, as while it restarts: a
    /// minute by default. What cannot be connected to at first is not waited for.
    pub timeout: Duration,
    /// Where what was read from a server is kept, also for other processes; nowhere by default.
    pub disk_cache: Option<PathBuf>,
    /// Bytes that are kept there of each federation: 16 GiB by default.
    pub disk_cache_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        OpenOptions {
            cache_bytes: 256 << 20,
            threads,
            streams: 2,
            read_ahead_bytes: 2 << 20,
            timeout: Duration::from_secs(60),
            disk_cache: None,
            disk_cache_bytes: 16 << 30,
        }
    }
}

/// What a transaction may rely on when it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All that it read was of one commit, and what it changed nobody else has changed since.
    #[default]
    Snapshot,
    /// Also what it only read nobody has changed since: transactions are as if one came after the
    /// other.
    Serializable,
}

/// Settings of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// What the transaction is for; shown in the history.
    pub message: String,
    /// How long to wait for a container that somebody else writes; 10 s by default.
    pub lock_wait: Duration,
    /// What it may rely on; [`Isolation::Snapshot`] by default.
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
