//! Prefetching from a remote source: the pages of a read are announced before they are read.
//!
//! 1. All columns whose elements are known are announced together. Their offsets then determine the
//!    elements of items, which are announced next. So a read costs one round trip for each level of
//!    nested collections, for any number of fields.
//! 2. If the fields together lack more than 64 MiB at one of these levels, the rest is announced field by field, as
//!    it is read.
//! 3. Announcing never fails a read: damaged pages or offsets are skipped, and the read reports them.

use std::ops::Range;

use super::Reader;
use super::elements::{ClusterSegment, Elements};
use crate::array::values_of;
use crate::column::Element;
use crate::page::CHECKSUM_SIZE;
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};

/// Most stored bytes of several fields that are announced together.
const TOGETHER_BYTES: u64 = 64 << 20;
/// Number of ends of reads that are remembered, so that this many threads can each read sequentially.
const ENDS_MAX: usize = 32;

/// A column and the segments of it that a read needs.
struct Need<'n, 'a> {
    columns: &'n [ColumnId],
    segments: Vec<ClusterSegment<'a>>,
}

/// Collections whose offsets are not read yet, so the segments of their items are unknown.
struct Collection<'n, 'a> {
    offsets: &'n [ColumnId],
    segments: Vec<ClusterSegment<'a>>,
    below: Below<'n>,
}

/// The items of a collection.
#[derive(Clone, Copy)]
enum Below<'n> {
    Column(&'n [ColumnId]),
    Field(&'n FieldNode),
}

/// The needs of all fields at the same level of nested collections.
#[derive(Default)]
struct NeedLevel<'n, 'a> {
    needs: Vec<Need<'n, 'a>>,
    collections: Vec<Collection<'n, 'a>>,
}

impl Reader {
    /// Whether a read from a remote source starts where one of the last reads ended. Also records the end of this
    /// read, so call it once for each read.
    pub(super) fn continues_last_read(&self, entries: &Range<u64>) -> bool {
        if !self.source.is_remote() {
            return false;
        }
        let mut ends = self.ends.lock();
        let known = ends.iter().position(|&end| end == entries.start);
        if let Some(known) = known {
            ends.remove(known);
        } else if ends.len() == ENDS_MAX {
            ends.remove(0);
        }
        ends.push(entries.end);
        known.is_some() && entries.start > 0
    }
}

impl Elements<'_> {
    /// Announces the pages of fields to the source and, if the read `is_sequential`, those of the next
    /// read. Returns false if the fields are too large to be announced together.
    pub(crate) fn announce_fields(
        &self,
        nodes: &[FieldNode],
        segments: &[ClusterSegment<'_>],
        is_sequential: bool,
    ) -> bool {
        let mut level = NeedLevel::default();
        nodes.iter().for_each(|node| level.add(node, segments));
        while !level.needs.is_empty() {
            let ranges = self.missing(&level.needs);
            let add = |sum: u64, range: &Range<u64>| sum.saturating_add(range.end - range.start);
            if nodes.len() > 1 && ranges.iter().fold(0, add) > TOGETHER_BYTES {
                return false;
            }
            let is_last = level.collections.is_empty();
            let next = if is_sequential { self.missing(&following(&level.needs)) } else { vec![] };
            self.source.will_need(&ranges);
            self.source.may_need(&next);
            if is_last {
                break;
            }
            level = self.below(level);
        }
        true
    }

    /// The ranges of pages that are not in the cache, in the order in which they are needed.
    fn missing(&self, needs: &[Need<'_, '_>]) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = vec![];
        for need in needs {
            for segment in &need.segments {
                let Some((id, run)) = segment.cluster.active(need.columns) else { continue };
                for page in &run.pages[run.pages_with(&segment.range)] {
                    if self.is_cached(id, page) {
                        continue;
                    }
                    let start = page.locator.offset;
                    let checksum = if page.checksum { CHECKSUM_SIZE as u64 } else { 0 };
                    let end = start.saturating_add(page.locator.size).saturating_add(checksum);
                    match ranges.last_mut() {
                        Some(before) if before.end == start => before.end = end,
                        _ => ranges.push(start..end),
                    }
                }
            }
        }
        ranges
    }

    /// The needs one level below: the items of collections whose offsets are sound.
    fn below<'n, 'a>(&self, level: NeedLevel<'n, 'a>) -> NeedLevel<'n, 'a> {
        let mut below = NeedLevel::default();
        for collection in level.collections {
            let items = |segment: &ClusterSegment<'a>| self.items(collection.offsets, segment);
            let items: Vec<_> = collection.segments.iter().filter_map(items).collect();
            match collection.below {
                Below::Column(columns) => below.needs.push(Need { columns, segments: items }),
                Below::Field(node) => below.add(node, &items),
            }
        }
        below
    }

    /// The elements that a segment's collections refer to. They begin at the offset stored before the first
    /// collection and end at that of the last. `None` if there are none, or an offset is damaged.
    fn items<'a>(
        &self,
        offsets: &[ColumnId],
        segment: &ClusterSegment<'a>,
    ) -> Option<ClusterSegment<'a>> {
        let end_of = |index: u64| {
            let range = index..index.checked_add(1)?;
            let segment = ClusterSegment { range, ..segment.clone() };
            let end = self.read(offsets, &[segment], Element::U64).ok()?;
            values_of::<u64>(&end).ok()?.first().copied()
        };
        let Range { start, end } = segment.range;
        let first = if start == 0 { 0 } else { end_of(start - 1)? };
        let last = if start == end { first } else { end_of(end - 1)? };
        let range = first..last;
        (first < last).then(|| ClusterSegment { range, is_referenced: true, ..segment.clone() })
    }
}

impl<'n, 'a> NeedLevel<'n, 'a> {
    fn add(&mut self, node: &'n FieldNode, segments: &[ClusterSegment<'a>]) {
        match &node.kind {
            FieldKind::Primitive { values, .. } => self.need(values, segments.to_vec()),
            FieldKind::Bitset { size, bits } => self.need(bits, multiplied(segments, *size)),
            FieldKind::String { offsets, bytes } => {
                self.collect(offsets, segments, Below::Column(bytes));
            }
            FieldKind::List { offsets, item, .. } => {
                self.collect(offsets, segments, Below::Field(item))
            }
            FieldKind::Fixed { size, item } => self.add(item, &multiplied(segments, *size)),
            FieldKind::Record { members, .. } => {
                members.iter().for_each(|member| self.add(member, segments));
            }
            // The needed elements of the alternatives depend on all elements of the switch, so they are
            // not announced.
            FieldKind::Variant { switch, .. } => self.need(switch, segments.to_vec()),
            FieldKind::Cardinality { offsets, .. } => self.need(offsets, with_previous(segments)),
        }
    }

    fn need(&mut self, columns: &'n [ColumnId], segments: Vec<ClusterSegment<'a>>) {
        self.needs.push(Need { columns, segments });
    }

    fn collect(
        &mut self,
        offsets: &'n [ColumnId],
        segments: &[ClusterSegment<'a>],
        below: Below<'n>,
    ) {
        self.need(offsets, with_previous(segments));
        self.collections.push(Collection { offsets, segments: segments.to_vec(), below });
    }
}

/// Segments extended by one offset to the front: the end of the collection before is the start of the first one.
fn with_previous<'a>(segments: &[ClusterSegment<'a>]) -> Vec<ClusterSegment<'a>> {
    let with = |segment: &ClusterSegment<'a>| {
        let range = segment.range.start.saturating_sub(1)..segment.range.end;
        ClusterSegment { range, ..segment.clone() }
    };
    segments.iter().map(with).collect()
}

/// The items of arrays of `size` items; segments that overflow are skipped, and the read refuses them.
fn multiplied<'a>(segments: &[ClusterSegment<'a>], size: u64) -> Vec<ClusterSegment<'a>> {
    let multiply = |segment: &ClusterSegment<'a>| {
        let start = segment.range.start.checked_mul(size)?;
        let end = segment.range.end.checked_mul(size)?;
        Some(ClusterSegment { range: start..end, ..segment.clone() })
    };
    segments.iter().filter_map(multiply).collect()
}

/// The needs of the next read: as many elements of each column again, up to the end of the cluster, from
/// the next page on, since the current read fetches its last page as a whole.
fn following<'n, 'a>(needs: &[Need<'n, 'a>]) -> Vec<Need<'n, 'a>> {
    let following = |need: &Need<'n, 'a>| {
        let last = need.segments.last()?;
        let Range { start, end } = last.range;
        let (_, run) = last.cluster.active(need.columns)?;
        let next_page = run.starts.get(run.pages_with(&last.range).end).copied()?;
        let range = next_page..end.saturating_add(end - start).min(run.elements);
        let segment = ClusterSegment { range, ..last.clone() };
        (!segment.range.is_empty()).then(|| Need { columns: need.columns, segments: vec![segment] })
    };
    needs.iter().filter_map(following).collect()
}
