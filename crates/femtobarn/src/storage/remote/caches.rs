//! The caches through which a process reads one federation, and their statistics.

use std::path::PathBuf;
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, Csn, DatabaseRow};

use super::disk_cache::DiskCache;
use super::history::{CommitHistory, CommitMark};
use super::memcached::Memcached;
use super::tier::{FileTier, FileTiers, TierCounts, TierStatistics};
use crate::error::{Error, Result};
use crate::options::OpenOptions;

/// The caches before a server, each of which may be left out.
pub(crate) struct RemoteCaches {
    disk: Option<Arc<DiskCache>>,
    memcached: Option<Arc<Memcached>>,
    history: Arc<CommitHistory>,
    /// The reads from the server.
    pub server: Arc<TierCounts>,
}

impl RemoteCaches {
    /// The caches that the options name.
    ///
    /// # Errors
    /// `Io` if the folder of the disk cache cannot be created; `Invalid` if an address of memcached has
    /// another form than `host:port`.
    pub(crate) fn open(catalog: Arc<dyn Catalogue>, options: &OpenOptions) -> Result<Self> {
        let OpenOptions { disk_cache, disk_cache_bytes, memcached, .. } = options;
        let federation = catalog.uuid();
        let history = Arc::new(CommitHistory::new(catalog));
        let open = |folder: &PathBuf| {
            DiskCache::open(folder, federation, *disk_cache_bytes)
                .map_err(|error| Error::io("make the folder", folder, error))
        };
        let connect = || Memcached::new(memcached, federation, history.clone());
        Ok(RemoteCaches {
            disk: disk_cache.as_ref().map(open).transpose()?,
            memcached: (!memcached.is_empty()).then(connect).transpose()?,
            history,
            server: Arc::default(),
        })
    }

    /// The tiers of a database's file, the nearest first, for reading as of a commit. There are none if the catalogue
    /// does not answer.
    pub(crate) fn tiers(&self, database: &DatabaseRow, at: Csn) -> FileTiers {
        let mut tiers: Vec<Arc<dyn FileTier>> = vec![];
        let is_on = self.disk.is_some() || self.memcached.is_some();
        let commit = is_on.then(|| self.history.mark(at)).flatten();
        if commit.is_some() {
            let mirror =
                |disk: &Arc<DiskCache>| disk.mirror(database, |commit| self.history.has(commit));
            if let Some(mirror) = self.disk.as_ref().and_then(mirror) {
                tiers.push(mirror);
            }
            if let Some(memcached) = &self.memcached {
                tiers.push(Arc::new(memcached.file(database)));
            }
        }
        let commit = commit.unwrap_or(CommitMark { csn: at, time_us: 0 });
        FileTiers { tiers: tiers.into(), commit }
    }

    /// Records the content of the disk cache, for other processes.
    pub(crate) fn publish(&self) {
        if let Some(disk) = &self.disk {
            disk.publish();
        }
    }

    /// The reads from each cache, in the order in which the caches are asked.
    pub(crate) fn statistics(&self) -> Vec<TierStatistics> {
        let disk = self.disk.as_ref().map(|disk| disk.counts().statistics("disk cache"));
        let memcached = self.memcached.as_ref().map(|it| it.counts().statistics("memcached"));
        disk.into_iter().chain(memcached).collect()
    }
}
