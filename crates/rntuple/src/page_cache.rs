//! A bounded cache of decoded pages, from which single entries are read. Any number of readers share
//! it; it evicts the least recently used pages first.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::schema::ColumnId;

/// Identifies a file among the files that share a cache.
pub type CacheFileId = u64;

/// Decoded pages of any number of files.
pub struct PageCache {
    pages: Cache<PageKey, Bytes, PageWeight>,
}

/// The column is part of the key because ROOT lets columns share a stored page if their pages have the
/// same bytes, and each column decodes it in its own way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    pub file: CacheFileId,
    pub column: ColumnId,
    pub offset: u64,
}

#[derive(Clone)]
struct PageWeight;

impl Weighter<PageKey, Bytes> for PageWeight {
    fn weight(&self, _: &PageKey, page: &Bytes) -> u64 {
        // The constant accounts for the cache's own bookkeeping, which dominates for tiny pages.
        page.len() as u64 + 64
    }
}

impl PageCache {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        const TYPICAL_PAGE: u64 = 64 << 10;
        let items = (capacity / TYPICAL_PAGE).max(16) as usize;
        PageCache { pages: Cache::with_weighter(items, capacity, PageWeight) }
    }

    /// Most bytes that the cache holds.
    pub fn capacity(&self) -> u64 {
        self.pages.capacity()
    }

    /// Bytes held now.
    pub fn size(&self) -> u64 {
        self.pages.weight()
    }

    /// Drops all pages.
    pub fn clear(&self) {
        self.pages.clear();
    }

    pub(crate) fn get(&self, key: PageKey) -> Option<Bytes> {
        self.pages.get(&key)
    }

    pub(crate) fn remove(&self, key: PageKey) {
        self.pages.remove(&key);
    }

    pub(crate) fn put(&self, key: PageKey, page: Bytes) {
        self.pages.insert(key, page);
    }
}
