//! The decoded pages that a cursor holds, by cluster and column.
//!
//! Invariants:
//! 1. The bytes of a [`HeldPage`] are all its elements in memory, or empty if the page is not held.
//! 2. A cursor holds at most half as many bytes as its reader's cache has, exceeded by at most one read.

use std::ops::{Deref, Range};

use bytes::Bytes;

use super::Reader;
use super::cluster::PageRun;
use crate::column::Element;
use crate::error::Result;
use crate::schema::ColumnId;

/// Most bytes that a cursor holds if its reader has no cache.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Stored bytes of a column that a sequential cursor reads at once: few enough to stay in the processor's
/// cache.
const AHEAD_BYTES: u64 = 256 << 10;
/// Most clusters that a cursor holds pages of.
const HELD_CLUSTERS_MAX: usize = 4096;

/// The held pages of some columns; `D` dereferences to the reader.
pub(super) struct HeldPages<D> {
    pub reader: D,
    pub plan: Vec<PlannedColumn>,
    /// The clusters in the order of their entries.
    pub clusters: Vec<HeldCluster>,
    /// Position of the cluster of the last entry that was read.
    current: usize,
    pub held: u64,
    pub held_max: u64,
    pub pattern: AccessPattern,
    /// Stored bytes of a column that a sequential cursor reads at once.
    pub ahead: usize,
    pub numbers: Vec<u32>,
}

/// The order in which a cursor reads entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessPattern {
    /// Any order: pages also go to the reader's cache.
    Random,
    /// Ascending: pages behind the current entry are dropped, and none go to the reader's cache.
    Sequential,
}

/// A column that a cursor reads.
pub(super) struct PlannedColumn {
    /// The column in each of its representations.
    pub columns: Vec<ColumnId>,
    /// Type that elements are converted to.
    pub element: Element,
    /// Whether its elements are items that offsets in the file refer to; such elements must exist.
    pub is_referenced: bool,
}

pub(super) struct HeldCluster {
    pub entries: Range<u64>,
    pub columns: Vec<HeldColumn>,
}

/// A column in one cluster.
pub(super) struct HeldColumn {
    /// Elements before the first page, all zero.
    pub missing: u64,
    pub elements: u64,
    /// Elements of the first page, and usually of every other.
    per_page: u64,
    pub pages: Vec<HeldPage>,
    /// Positions of the pages that were read last.
    pub last: Range<usize>,
}

pub(super) struct HeldPage {
    pub start: u64,
    pub bytes: Bytes,
}

impl<D: Deref<Target = Reader>> HeldPages<D> {
    /// Holds no page yet of the columns of a plan.
    pub(super) fn new(reader: D, plan: Vec<PlannedColumn>) -> Self {
        let held_max = reader.cache_capacity().map_or(HELD_BYTES_MAX, |bytes| bytes / 2);
        let ahead_max = held_max / (2 * plan.len().max(1) as u64);
        HeldPages {
            reader,
            plan,
            clusters: vec![],
            current: 0,
            held: 0,
            held_max,
            pattern: AccessPattern::Random,
            ahead: AHEAD_BYTES.min(ahead_max) as usize,
            numbers: vec![],
        }
    }

    /// Drops all pages.
    pub(super) fn clear(&mut self) {
        self.clusters.clear();
        self.held = 0;
    }

    /// The cluster with an entry, if the cursor already has it.
    #[inline]
    pub(super) fn known_cluster(&mut self, entry: u64) -> Option<&mut HeldCluster> {
        let has = |cluster: &HeldCluster| cluster.entries.contains(&entry);
        if !self.clusters.get(self.current).is_some_and(has) {
            let found = self.clusters.partition_point(|cluster| cluster.entries.end <= entry);
            self.clusters.get(found).filter(|cluster| has(cluster))?;
            self.current = found;
        }
        self.clusters.get_mut(self.current)
    }

    /// The position of the cluster with an entry.
    #[inline]
    pub(super) fn cluster_of(&mut self, entry: u64) -> Result<usize> {
        if self.held > self.held_max || self.known_cluster(entry).is_none() {
            self.current = self.new_cluster(entry)?;
        }
        Ok(self.current)
    }

    fn new_cluster(&mut self, entry: u64) -> Result<usize> {
        let is_full = self.held > self.held_max || self.clusters.len() >= HELD_CLUSTERS_MAX;
        if is_full || self.pattern == AccessPattern::Sequential {
            self.clear();
        }
        let wanted = entry..entry.saturating_add(1);
        let clusters = self.reader.clusters_of(&wanted)?;
        let cluster = clusters.first().ok_or_else(|| self.reader.no_entries(&wanted))?;
        let columns =
            self.plan.iter().map(|column| HeldColumn::of(cluster.active(&column.columns)));
        let new = HeldCluster { entries: cluster.entries.clone(), columns: columns.collect() };
        let position = self.clusters.partition_point(|cluster| cluster.entries.end <= entry);
        self.clusters.insert(position, new);
        Ok(position)
    }
}

impl HeldColumn {
    fn of(active: Option<(ColumnId, &PageRun)>) -> Self {
        // A field that was added after the cluster was written reads as zeros.
        let Some((_, run)) = active else {
            let (missing, pages) = (u64::MAX, vec![]);
            return HeldColumn { missing, elements: 0, per_page: 1, pages, last: 0..0 };
        };
        let per_page = run.pages.first().map_or(1, |page| u64::from(page.elements).max(1));
        let pages = run.starts.iter().map(|&start| HeldPage { start, bytes: Bytes::new() });
        let (missing, elements) = (run.missing, run.elements);
        HeldColumn { missing, elements, per_page, pages: pages.collect(), last: 0..0 }
    }

    /// The position of the page with an existing element: usually the page expected from `per_page`.
    pub(super) fn page_with(&self, index: u64) -> usize {
        let expected = (index.saturating_sub(self.missing) / self.per_page) as usize;
        let start = |page: usize| self.pages.get(page).map_or(self.elements, |page| page.start);
        if (start(expected)..start(expected.saturating_add(1))).contains(&index) {
            expected
        } else {
            self.pages.partition_point(|page| page.start <= index).saturating_sub(1)
        }
    }

    /// The elements from `index` on that are on its expected page, if that page is held and has it.
    #[inline]
    pub(super) fn held_from(&self, index: u64, size: usize) -> Option<&[u8]> {
        let (page, before) = self.expected(index, size)?;
        page.get(before..)
    }

    /// `count` elements from `index` on, shared with their expected page, if that is held and has all.
    #[inline]
    pub(super) fn shared(&self, index: u64, count: u64, size: usize) -> Option<Bytes> {
        let (page, before) = self.expected(index, size)?;
        let end = before.checked_add(usize::try_from(count).ok()?.checked_mul(size)?)?;
        (end <= page.len()).then(|| page.slice(before..end))
    }

    /// The page where an element is expected, and the byte offset of the element in it.
    #[inline]
    fn expected(&self, index: u64, size: usize) -> Option<(&Bytes, usize)> {
        let expected = index.checked_sub(self.missing)? / self.per_page;
        let page = self.pages.get(expected as usize)?;
        let before = index.checked_sub(page.start)? as usize;
        Some((&page.bytes, before.checked_mul(size)?))
    }
}
