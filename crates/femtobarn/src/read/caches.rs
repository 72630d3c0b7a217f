//! Caches that a process retains between reads of a federation: open versions of containers, and blocks of indexes.

use crate::federation::Inner;
use crate::read::index::IndexBlockCache;
use crate::read::version::OpenVersions;

/// Bytes of index blocks that a process retains.
const INDEX_CACHE_BYTES: u64 = 64 << 20;

struct ReadCaches {
    versions: OpenVersions,
    blocks: IndexBlockCache,
}

impl Inner {
    /// The open versions of containers.
    pub(crate) fn versions(&self) -> &OpenVersions {
        &self.caches().versions
    }

    /// The blocks of indexes that were read.
    pub(crate) fn index_blocks(&self) -> &IndexBlockCache {
        &self.caches().blocks
    }

    fn caches(&self) -> &ReadCaches {
        self.read_caches.get_or_create(|| ReadCaches {
            versions: OpenVersions::new(
                self.catalog.clone(),
                self.files.clone(),
                self.pages.clone(),
                self.metadata_bytes / 3,
            ),
            blocks: IndexBlockCache::new(INDEX_CACHE_BYTES),
        })
    }
}
