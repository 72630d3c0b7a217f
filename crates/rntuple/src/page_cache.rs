//! Decoded pages that single objects are read from.
//!
//! A bounded cache, shared by any number of readers; what was used least lately goes first.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Identifies a file among those that share a cache.
pub type FileNumber = u64;

/// Decoded pages by file and offset.
pub struct PageCache {
    pages: Cache<(FileNumber, u64), Bytes, Weight>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<(FileNumber, u64), Bytes> for Weight {
    fn weight(&self, _: &(FileNumber, u64), page: &Bytes) -> u64 {
        // The constant stands for the cache's own bookkeeping, so that tiny pages count too.
        page.len() as u64 + 64
    }
}

impl PageCache {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        const TYPICAL_PAGE: u64 = 64 << 10;
        let items = (capacity / TYPICAL_PAGE).max(16) as usize;
        PageCache { pages: Cache::with_weighter(items, capacity, Weight) }
    }

    /// Bytes held now.
    pub fn size(&self) -> u64 {
        self.pages.weight()
    }

    pub(crate) fn get(&self, file: FileNumber, offset: u64) -> Option<Bytes> {
        self.pages.get(&(file, offset))
    }

    pub(crate) fn put(&self, file: FileNumber, offset: u64, page: Bytes) {
        self.pages.insert((file, offset), page);
    }
}
