//! What a read will need, told to a source that is far away before it is needed.
//!
//! 1. All columns whose elements are known are told of at once; the offsets of collections, which then
//!    come together, tell where those below are. So a read costs a round trip for each level of
//!    collections, however many fields there are.
//! 2. What is large is told of field by field, as it is read.
//! 3. Nothing here fails a read: what is damaged is told by whoever reads it.

use std::ops::Range;

use super::Reader;
use super::elements::{ClusterSegment, Elements};
use crate::array::values_of;
use crate::column::Element;
use crate::page::CHECKSUM_SIZE;
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};

/// Stored bytes of the pages of all fields that are told of together.
const TOGETHER_BYTES: u64 = 64 << 20;
/// Reads that may be gone on with: as many threads may each read a range of their own.
const ENDS_MAX: usize = 32;

/// A column and which of its elements are needed.
struct Need<'n, 'a> {
    columns: &'n [ColumnId],
    segments: Vec<ClusterSegment<'a>>,
}

/// A collection, of which it is not known yet where its items are.
struct Collection<'n, 'a> {
    offsets: &'n [ColumnId],
    segments: Vec<ClusterSegment<'a>>,
    below: Below<'n>,
}

#[derive(Clone, Copy)]
enum Below<'n> {
    Column(&'n [ColumnId]),
    Field(&'n FieldNode),
}

/// What is needed of fields of the same depth in collections.
#[derive(Default)]
struct NeedLevel<'n, 'a> {
    needs: Vec<Need<'n, 'a>>,
    collections: Vec<Collection<'n, 'a>>,
}

impl Reader {
    /// Whether a read goes on where one before it ended.
    pub(super) fn goes_on(&self, entries: &Range<u64>) -> bool {
        if !self.source.is_remote() {
            return false;
        }
        let mut ends = self.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    /// Tells the source of what fields need, and if the read `goes_on`, of what the next one will.
    /// False if several fields are so large that they are to be told of one by one.
    pub(crate) fn announce_fields(
        &self,
        nodes: &[FieldNode],
        segments: &[ClusterSegment<'_>],
        goes_on: bool,
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
            let next = if goes_on { self.missing(&following(&level.needs)) } else { vec![] };
            self.source.will_need(&ranges);
            self.source.may_need(&next);
            if is_last {
                break;
            }
            level = self.below(level);
        }
        true
    }

    /// The pages that are not in the cache, in the order in which they are needed.
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

    /// What is needed one level below: the items of collections, as far as their offsets are sound.
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

    /// The items of a segment's collections, by the two offsets around them.
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
            // Which alternatives there are, only all of the switch's elements tell.
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

/// With the offset before, where the first collection starts.
fn with_previous<'a>(segments: &[ClusterSegment<'a>]) -> Vec<ClusterSegment<'a>> {
    let with = |segment: &ClusterSegment<'a>| {
        let range = segment.range.start.saturating_sub(1)..segment.range.end;
        ClusterSegment { range, ..segment.clone() }
    };
    segments.iter().map(with).collect()
}

/// Items of arrays of one size; those of which there are too many are left to be refused by the read.
fn multiplied<'a>(segments: &[ClusterSegment<'a>], size: u64) -> Vec<ClusterSegment<'a>> {
    let multiply = |segment: &ClusterSegment<'a>| {
        let start = segment.range.start.checked_mul(size)?;
        let end = segment.range.end.checked_mul(size)?;
        Some(ClusterSegment { range: start..end, ..segment.clone() })
    };
    segments.iter().filter_map(multiply).collect()
}

/// As much of each column again, as far as its cluster goes, from the next page on: who reads now gets
/// the rest of the last one, too.
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
