//! The inventory: the bytes of a database file that versions refer to.
//!
//! Invariants:
//! 1. A version refers to its header, its footer, the page lists in the footer, the pages in those, its annex, the
//!    blobs in the annex, and its commit record. Besides these, only the front of the file, the headers of keys and
//!    the uncommitted data of its writer are in use.
//! 2. A page list that several versions share is read once. Its offset identifies it, because no byte that a version
//!    refers to is ever overwritten.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use femtobarn_catalog::{BlobRange, VersionRow};
use rntuple::{
    ByteSource, CHECKSUM_SIZE, EnvelopeKind, EnvelopeLink, Footer, PageList, PageLocation,
    read_envelope,
};

use crate::annex::Annex;
use crate::error::{Error, Result};
use crate::link;

/// A set of bytes, as ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// End by start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range to the set.
    pub fn insert(&mut self, range: Range<u64>) {
        self.insert_with_gaps(range, 0);
    }

    /// Adds a range to the set, and with it the gaps of at most `gap_max` bytes to its neighbours.
    pub fn insert_with_gaps(&mut self, range: Range<u64>, gap_max: u64) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Merges all ranges that touch the new one.
        while let Some((&before, &until)) =
            self.ends.range(..=end.saturating_add(gap_max)).next_back()
        {
            if until.saturating_add(gap_max) < start {
                break;
            }
            start = start.min(before);
            end = end.max(until);
            self.ends.remove(&before);
        }
        self.ends.insert(start, end);
    }

    /// Removes a range from the set.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ends.remove(&start);
            if range.end < end {
                self.ends.insert(range.end, end);
            }
            if start < range.start {
                self.ends.insert(start, range.start);
                break;
            }
        }
    }

    /// Removes all ranges of another set.
    pub fn remove_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.remove(range));
    }

    /// Whether all bytes of a range are in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let before = self.ends.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// The ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Bytes in the set.
    pub fn total(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The set with each range shrunk to multiples of `alignment`.
    pub fn aligned(&self, alignment: u64) -> Ranges {
        let mut aligned = Ranges::default();
        for range in self.iter() {
            let start = range.start.next_multiple_of(alignment);
            aligned.insert(start..(range.end / alignment * alignment).max(start));
        }
        aligned
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Ranges::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

/// The part of a version that a range of a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header of its RNTuple.
    Header,
    /// The footer of its RNTuple.
    Footer,
    /// One of the page lists that the footer names.
    PageList,
    /// A page, and the number of its column.
    Page(PageLocation, usize),
    /// Its annex.
    Annex,
    /// A blob that the annex names.
    Blob,
    /// Its commit record.
    Record,
}

/// Visits the parts of versions of one file, each shared part once.
pub struct Inventory<'a> {
    source: &'a dyn ByteSource,
    page_lists: HashSet<u64>,
    blobs: HashSet<u64>,
}

/// Called with every part of a version that was not visited before.
pub type Visit<'v> = dyn FnMut(Part, Range<u64>) -> Result<()> + 'v;

impl<'a> Inventory<'a> {
    /// An inventory of the file `source`.
    pub fn new(source: &'a dyn ByteSource) -> Self {
        Inventory { source, page_lists: HashSet::new(), blobs: HashSet::new() }
    }

    /// All bytes that versions refer to.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Storage`] if a version is damaged, because its parts cannot be known then;
    /// [`Error::Storage`] if the file cannot be read.
    pub fn of(source: &'a dyn ByteSource, versions: &[VersionRow]) -> Result<Ranges> {
        let mut ranges = Ranges::default();
        let mut inventory = Inventory::new(source);
        for row in versions {
            inventory.visit(row, &mut |_, range| {
                ranges.insert(range);
                Ok(())
            })?;
        }
        Ok(ranges)
    }

    /// Visits the parts of a version.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Storage`] if the version is damaged; [`Error::Storage`] if the file cannot be
    /// read; the error of `visit`.
    pub fn visit(&mut self, row: &VersionRow, visit: &mut Visit<'_>) -> Result<()> {
        visit(Part::Header, envelope(&link(&row.header))?)?;
        visit(Part::Footer, envelope(&link(&row.footer))?)?;
        visit(Part::Record, blob(row.record)?)?;
        self.visit_annex(row, visit)?;
        let bytes = read_envelope(self.source, &link(&row.footer), EnvelopeKind::Footer, u64::MAX);
        let footer = bytes.and_then(|bytes| Footer::decode(&bytes));
        let footer = footer.map_err(Error::storage(format!("footer of commit {}", row.csn)))?;
        for group in &footer.cluster_groups {
            self.visit_page_list(&group.page_list, visit)?;
        }
        Ok(())
    }

    /// Visits the annex of a version and its blobs.
    ///
    /// # Errors
    /// The errors of [`visit`](Self::visit).
    pub fn visit_annex(&mut self, row: &VersionRow, visit: &mut Visit<'_>) -> Result<()> {
        visit(Part::Annex, blob(row.annex)?)?;
        for found in Annex::read(self.source, row.annex)?.blobs() {
            if self.blobs.insert(found.offset) {
                visit(Part::Blob, blob(BlobRange { offset: found.offset, size: found.size })?)?;
            }
        }
        Ok(())
    }

    /// Visits a page list and its pages.
    ///
    /// # Errors
    /// The errors of [`visit`](Self::visit).
    pub fn visit_page_list(&mut self, list: &EnvelopeLink, visit: &mut Visit<'_>) -> Result<()> {
        if !self.page_lists.insert(list.locator.offset) {
            return Ok(());
        }
        visit(Part::PageList, envelope(list)?)?;
        let bytes = read_envelope(self.source, list, EnvelopeKind::PageList, u64::MAX);
        let pages = bytes.and_then(|bytes| PageList::decode(&bytes));
        let pages = pages.map_err(Error::storage("page list"))?;
        for cluster in &pages.clusters {
            for (column, run) in cluster.columns.iter().enumerate() {
                for page in &run.pages {
                    visit(Part::Page(*page, column), page_range(page)?)?;
                }
            }
        }
        Ok(())
    }
}

/// The range of a page, with its checksum.
///
/// # Errors
/// [`Error::Corrupt`] if it ends beyond byte 2^64.
pub fn page_range(page: &PageLocation) -> Result<Range<u64>> {
    let checksum = if page.checksum { CHECKSUM_SIZE as u64 } else { 0 };
    range(page.locator.offset, page.locator.size.saturating_add(checksum))
}

fn envelope(link: &EnvelopeLink) -> Result<Range<u64>> {
    range(link.locator.offset, link.locator.size)
}

/// The range of a blob.
///
/// # Errors
/// [`Error::Corrupt`] if it ends beyond byte 2^64.
pub fn blob(blob: BlobRange) -> Result<Range<u64>> {
    range(blob.offset, blob.size)
}

fn range(offset: u64, size: u64) -> Result<Range<u64>> {
    match offset.checked_add(size) {
        Some(end) => Ok(offset..end),
        None => Err(Error::Corrupt {
            what: format!("{size} bytes at byte {offset} end beyond byte 2^64"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[Range<u64>]) -> Ranges {
        ranges.iter().cloned().collect()
    }

    #[test]
    fn touching_ranges_are_merged() {
        let ranges = set(&[10..20, 30..40, 20..30, 50..50, 5..12]);
        assert_eq!(ranges, std::iter::once(5..40).collect());
        assert_eq!(ranges.total(), 35);
        assert!(ranges.contains(&(5..40)) && !ranges.contains(&(4..6)));
    }

    #[test]
    fn insert_with_gaps_merges_ranges_across_small_gaps() {
        let mut ranges = Ranges::default();
        for range in [40..50, 10..20, 27..39, 58..60, u64::MAX - 1..u64::MAX] {
            ranges.insert_with_gaps(range, 7);
        }
        let expected = [10..50, 58..60, u64::MAX - 1..u64::MAX];
        assert_eq!(ranges.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn removed_range_may_cut_split_or_miss_ranges() {
        let mut ranges = set(&[0..10, 20..30, 40..50]);
        ranges.remove(5..25);
        ranges.remove(42..44);
        ranges.remove(60..70);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..5, 25..30, 40..42, 44..50]);
        ranges.remove_all(&std::iter::once(0..100).collect());
        assert_eq!(ranges, Ranges::default());
    }

    #[test]
    fn set_agrees_with_a_set_of_single_bytes() {
        let mut seed = 7_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
        for _ in 0..4000 {
            let start = below(64);
            let range = start..(start + below(12)).min(64);
            let is_added = below(2) == 0;
            if is_added {
                ranges.insert(range.clone());
            } else {
                ranges.remove(range.clone());
            }
            range.clone().for_each(|at| bytes[at as usize] = is_added);
            let found: Vec<u64> = ranges.iter().flatten().collect();
            let expected: Vec<u64> = (0..64).filter(|&at| bytes[at as usize]).collect();
            assert_eq!(found, expected);
            let all = range.clone().all(|at| bytes[at as usize]);
            assert_eq!(ranges.contains(&range), all);
        }
    }

    #[test]
    fn aligned_ranges_shrink_to_multiples() {
        let ranges = set(&[3..8, 9..15, 17..40]);
        assert_eq!(ranges.aligned(8), std::iter::once(24..40).collect());
    }
}
