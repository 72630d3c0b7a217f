//! Arrays from the elements of columns, field by field.
//!
//! A field is read for a list of segments, one for each cluster that overlaps the entries. The offsets of
//! a collection determine which elements of its items belong to a segment; these form the segments for
//! which the items are read.

use std::ops::Range;

use bytes::Bytes;

use super::Reader;
use super::elements::{ClusterSegment, Elements, total};
use crate::array::{Array, bytes_of, values_of};
use crate::buffer::AlignedBuffer;
use crate::column::{Element, switch_pairs};
use crate::error::{Error, Result};
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};
use crate::types::Primitive;

impl Reader {
    /// Reads fields of runs of entries. If the read `is_sequential`, the pages behind are announced too.
    pub(super) fn assemble(
        &self,
        nodes: &[FieldNode],
        runs: &[Range<u64>],
        is_sequential: bool,
    ) -> Result<Array> {
        let segments = self.segments(runs)?;
        let is_scattered = runs.len() > 1;
        let elements = Elements { is_scattered, ..self.elements() };
        let is_announced =
            !self.source.is_remote() || elements.announce_fields(nodes, &segments, is_sequential);
        elements.members(nodes, &segments, |member| {
            if !is_announced {
                elements.announce_fields(std::slice::from_ref(member), &segments, is_sequential);
            }
        })
    }

    /// Announces fields of a run of entries to a remote source, before they are read one by one.
    pub(super) fn announce(&self, nodes: &[FieldNode], run: &Range<u64>) -> Result<()> {
        if self.source.is_remote() {
            let segments = self.segments(std::slice::from_ref(run))?;
            self.elements().announce_fields(nodes, &segments, false);
        }
        Ok(())
    }

    /// The parts of clusters that runs of entries are in.
    fn segments(&self, runs: &[Range<u64>]) -> Result<Vec<ClusterSegment<'_>>> {
        let mut segments = Vec::with_capacity(runs.len());
        for run in runs {
            let clusters = self.clusters.overlapping(&*self.source, run)?;
            segments.extend(clusters.into_iter().map(|cluster| {
                let first = cluster.entries.start;
                let start = run.start.max(first) - first;
                let end = run.end.min(cluster.entries.end) - first;
                ClusterSegment { cluster, range: start..end, is_referenced: false }
            }));
        }
        Ok(segments)
    }

    pub(crate) fn elements(&self) -> Elements<'_> {
        let (source, cache) = (&*self.source, self.cache.as_ref());
        Elements { source, cache, schema: self.schema(), is_scattered: false }
    }
}

impl Elements<'_> {
    /// Reads the values of a field.
    pub(crate) fn array(&self, node: &FieldNode, segments: &[ClusterSegment<'_>]) -> Result<Array> {
        match &node.kind {
            FieldKind::Primitive { primitive, values, .. } => {
                let values = self.read(values, segments, primitive.element())?;
                Ok(Array::Primitive { primitive: *primitive, values })
            }
            FieldKind::Bitset { size, bits } => {
                let content = Array::Primitive {
                    primitive: Primitive::Bool,
                    values: self.read(bits, &multiplied(segments, *size)?, Element::U8)?,
                };
                self.fixed(*size, segments, content)
            }
            FieldKind::String { offsets, bytes } => {
                let (offsets, segments) = self.offsets(offsets, segments)?;
                Ok(Array::String { offsets, bytes: self.read(bytes, &segments, Element::U8)? })
            }
            FieldKind::List { offsets, item, optional } => {
                let (offsets, segments) = self.offsets(offsets, segments)?;
                if *optional && values_of::<i64>(&offsets)?.windows(2).any(|of| of[1] - of[0] > 1) {
                    return Err(Error::corrupt(
                        "collection",
                        0,
                        "an optional value has several items",
                    ));
                }
                let content = self.array(item, &segments)?.into();
                Ok(Array::List { offsets, content, optional: *optional })
            }
            FieldKind::Fixed { size, item } => {
                let content = self.array(item, &multiplied(segments, *size)?)?;
                self.fixed(*size, segments, content)
            }
            FieldKind::Record { members, .. } => self.record(members, segments),
            FieldKind::Variant { switch, alternatives } => {
                self.variant(switch, alternatives, segments)
            }
            FieldKind::Cardinality { offsets, primitive } => {
                self.cardinality(offsets, *primitive, segments)
            }
        }
    }

    fn record(&self, members: &[FieldNode], segments: &[ClusterSegment<'_>]) -> Result<Array> {
        self.members(members, segments, |_| ())
    }

    /// Reads the values of a record; `begin` is called before each member is read.
    fn members(
        &self,
        members: &[FieldNode],
        segments: &[ClusterSegment<'_>],
        begin: impl Fn(&FieldNode),
    ) -> Result<Array> {
        let read = |member: &FieldNode| {
            begin(member);
            Ok((member.name.clone(), self.array(member, segments)?))
        };
        let arrays = members.iter().map(read).collect::<Result<_>>()?;
        Ok(Array::Record { length: length(segments)?, members: arrays })
    }

    fn fixed(&self, size: u64, segments: &[ClusterSegment<'_>], content: Array) -> Result<Array> {
        Ok(Array::Fixed { size, length: length(segments)?, content: content.into() })
    }

    /// Reads the offsets of collections, counted through all segments from 0 on; returns also the segments
    /// of their items.
    fn offsets<'a>(
        &self,
        columns: &[ColumnId],
        segments: &[ClusterSegment<'a>],
    ) -> Result<(Bytes, Vec<ClusterSegment<'a>>)> {
        self.check_segments(columns, segments, Element::U64)?;
        let mut buffer =
            AlignedBuffer::for_overwriting(total(segments)?.saturating_add(1), size_of::<i64>())?;
        let (start, mut rest) =
            bytemuck::cast_slice_mut::<u8, u64>(buffer.bytes_mut()).split_at_mut(1);
        start[0] = 0;
        let mut items = Vec::with_capacity(segments.len());
        let mut count = 0_u64;
        for (position, segment) in segments.iter().enumerate() {
            self.announce(columns, segments, position);
            let (first, ends) = self.ends(columns, segment)?;
            let ends = values_of::<u64>(&ends)?;
            let (offsets, behind) = rest.split_at_mut(ends.len());
            let last = shifted(ends, first, count, offsets).ok_or_else(decreasing)?;
            count = count.checked_add(last - first).ok_or_else(decreasing)?;
            if count > MAX_OFFSET {
                return Err(decreasing());
            }
            items.push(ClusterSegment {
                cluster: segment.cluster,
                range: first..last,
                is_referenced: true,
            });
            rest = behind;
        }
        Ok((buffer.into_bytes(), items))
    }

    /// The start offset of the first collection of a segment, and the end offsets of all.
    fn ends(&self, columns: &[ColumnId], segment: &ClusterSegment<'_>) -> Result<(u64, Bytes)> {
        let Range { start, end } = segment.range;
        if start == 0 || start == end {
            let ends = self.read(columns, std::slice::from_ref(segment), Element::U64)?;
            return Ok((0, ends));
        }
        let with_previous = ClusterSegment { range: start - 1..end, ..segment.clone() };
        let ends = self.read(columns, &[with_previous], Element::U64)?;
        let first = values_of::<u64>(&ends)?[0];
        Ok((first, ends.slice(size_of::<u64>()..)))
    }

    fn cardinality(
        &self,
        columns: &[ColumnId],
        primitive: Primitive,
        segments: &[ClusterSegment<'_>],
    ) -> Result<Array> {
        let (offsets, _) = self.offsets(columns, segments)?;
        let sizes = values_of::<i64>(&offsets)?.windows(2).map(|pair| (pair[1] - pair[0]) as u64);
        match primitive {
            Primitive::UInt32 => {
                let sizes = sizes.map(|size| u32::try_from(size).map_err(|_| decreasing()));
                Ok(Array::primitive(primitive, sizes.collect::<Result<Vec<u32>>>()?))
            }
            Primitive::UInt64 => Ok(Array::primitive(primitive, sizes.collect::<Vec<u64>>())),
            other => Err(Error::unsupported(format!("a cardinality of type {other:?}"))),
        }
    }

    fn variant(
        &self,
        switch: &[ColumnId],
        alternatives: &[FieldNode],
        segments: &[ClusterSegment<'_>],
    ) -> Result<Array> {
        let mut tags: Vec<i8> = vec![];
        let mut positions: Vec<i64> = vec![];
        let mut parts: Vec<Vec<ClusterSegment<'_>>> = vec![vec![]; alternatives.len()];
        let mut counts = vec![0_u64; alternatives.len()];
        for segment in segments {
            let pairs = self.read(switch, std::slice::from_ref(segment), Element::Switch)?;
            let used = used_ranges(&pairs, alternatives.len())?;
            for (position, tag) in switch_pairs(&pairs) {
                let alternative = (tag as usize).wrapping_sub(1);
                tags.push(if tag == 0 { -1 } else { alternative as i8 });
                positions.push(match used.get(alternative) {
                    Some(used) => (counts[alternative] + position - used.start) as i64,
                    None => 0,
                });
            }
            for (alternative, range) in used.into_iter().enumerate() {
                counts[alternative] += range.end - range.start;
                parts[alternative].push(ClusterSegment {
                    cluster: segment.cluster,
                    range,
                    is_referenced: true,
                });
            }
        }
        let contents = alternatives.iter().zip(&parts);
        let contents =
            contents.map(|(node, part)| self.array(node, part)).collect::<Result<_>>()?;
        Ok(Array::Variant { tags: bytes_of(tags), positions: bytes_of(positions), contents })
    }
}

/// Writes end offsets that count from `first` on as offsets that count from `base` on; returns the last
/// end offset, or `None` if they decrease. The loop has no branches, for speed.
fn shifted(ends: &[u64], first: u64, base: u64, offsets: &mut [u64]) -> Option<u64> {
    let mut last = first;
    let mut decreases = false;
    for (&end, offset) in ends.iter().zip(offsets) {
        decreases |= end < last;
        *offset = end.wrapping_sub(first).wrapping_add(base);
        last = end;
    }
    (!decreases).then_some(last)
}

/// The greatest offset accepted; sums of a few offsets then cannot overflow.
const MAX_OFFSET: u64 = 1 << 60;

/// For each alternative the range of elements that a switch column refers to.
fn used_ranges(pairs: &[u8], alternatives: usize) -> Result<Vec<Range<u64>>> {
    let none = Range { start: u64::MAX, end: 0 };
    let mut used = vec![none; alternatives];
    for (position, tag) in switch_pairs(pairs) {
        if tag == 0 {
            continue;
        }
        let range = used.get_mut(tag as usize - 1).filter(|_| position < MAX_OFFSET);
        let range = range.ok_or_else(|| {
            Error::corrupt("variant", 0, format!("it has no element {position} of type {tag}"))
        })?;
        *range = range.start.min(position)..range.end.max(position + 1);
    }
    for range in &mut used {
        if range.start > range.end {
            *range = 0..0;
        }
    }
    Ok(used)
}

fn multiplied<'a>(segments: &[ClusterSegment<'a>], size: u64) -> Result<Vec<ClusterSegment<'a>>> {
    let multiply = |segment: &ClusterSegment<'a>| {
        let start = segment.range.start.checked_mul(size)?;
        let end = segment.range.end.checked_mul(size).filter(|&end| end <= MAX_OFFSET)?;
        Some(ClusterSegment { range: start..end, ..segment.clone() })
    };
    segments.iter().map(multiply).collect::<Option<_>>().ok_or_else(decreasing)
}

fn length(segments: &[ClusterSegment<'_>]) -> Result<usize> {
    // A damaged file can claim any number of records without columns. No memory depends on the number
    // itself, only on the members of the records.
    usize::try_from(total(segments)?).map_err(|_| decreasing())
}

fn decreasing() -> Error {
    Error::corrupt("collection", 0, "its offsets decrease or exceed 2^60")
}
