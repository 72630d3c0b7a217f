//! Settings of containers and transactions.

use std::time::Duration;

use rntuple::{Compression, WriteOptions};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the pages of a container are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Not at all: the fastest to write, and readable in part.
    #[default]
    Plain,
    /// LZ4: half the speed, and smaller where data repeat.
    Fast,
    /// Zstandard: the smallest.
    Archive,
}

/// How a container is laid out on disk. Kept in the catalogue with the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerOptions {
    /// Bytes of a full page: 4 KiB to 16 MiB, 64 KiB by default. Small pages suit objects that are
    /// read one by one.
    pub page_size: usize,
    /// Bytes after which a cluster ends: at least a page, 64 MiB by default.
    pub cluster_size: u64,
    /// Compression of pages.
    pub compression: Profile,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        ContainerOptions {
            page_size: 64 << 10,
            cluster_size: 64 << 20,
            compression: Profile::Plain,
        }
    }
}

impl ContainerOptions {
    const PAGE_SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=16 << 20;

    /// Options from the catalogue's JSON.
    pub(crate) fn from_json(options: &str) -> Result<Self> {
        let options: Self = serde_json::from_str(options)
            .map_err(|error| Error::invalid(format!("container options: {error}")))?;
        options.check()?;
        Ok(options)
    }

    pub(crate) fn to_json(self) -> String {
        serde_json::to_string(&self).expect("options are plain numbers and names")
    }

    pub(crate) fn check(&self) -> Result<()> {
        let size = self.page_size;
        if !Self::PAGE_SIZES.contains(&size) {
            return Err(Error::invalid(format!(
                "a page of {size} bytes is not between 4 KiB and 16 MiB"
            )));
        }
        if self.cluster_size < size as u64 {
            return Err(Error::invalid(format!(
                "a cluster of {} bytes is smaller than a page of {size}",
                self.cluster_size
            )));
        }
        Ok(())
    }

    pub(crate) fn write_options(&self) -> WriteOptions {
        WriteOptions {
            page_size: self.page_size,
            cluster_size: self.cluster_size,
            compression: match self.compression {
                Profile::Plain => Compression::None,
                Profile::Fast => Compression::Lz4 { level: 1 },
                Profile::Archive => Compression::Zstd { level: 3 },
            },
        }
    }
}

/// What a process gives to a federation that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Bytes of decoded pages that are kept for reading objects: 256 MiB by default. It bounds the
    /// memory of readers: each [`Cursor`](crate::Cursor) may hold half as much of its own, mostly of
    /// the same pages. What arrays are read into is beside it; up to 256 MiB of that is kept to be
    /// used again.
    pub cache_bytes: u64,
    /// Threads that read a large array, field by field; as many as there are cores by default. With
    /// 1 no thread is ever started.
    pub threads: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        OpenOptions { cache_bytes: 256 << 20, threads }
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
