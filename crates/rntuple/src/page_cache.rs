//! Decoded pages that single objects are read from.
//!
//! A bounded cache, shared by any number of readers; what was used least lately goes first.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::schema::ColumnId;

/// Identifies a file among those that share a cache.
pub type CacheFileId = u64;

/// Decoded pages.
pub struct PageCache {
    pages: Cache<PageKey, Bytes, PageWeight>,
}

/// Which page of which file. Columns whose pages have the same bytes may share a page, as those do
/// that ROOT writes, and read it differently.
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
        // The constant stands for the cache's own bookkeeping, so that tiny pages count too.
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

    /// Bytes held at most.
    pub fn capacity(&self) -> u64 {
        self.pages.capacity()
    }

    /// Bytes held now.
    pub fn size(&self) -> u64 {
        self.pages.weight()
    }

    /// Lets go of all pages.
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
