//! The cluster under construction: all columns of a range of entries.
//!
//! Invariants:
//! 1. Between calls every column has the elements of the same whole entries. Values are checked against
//!    the schema before they are appended. Only a failing sink can leave a partial entry; then the
//!    writer refuses all calls until it is reset.
//! 2. `columns` are in the depth-first order of the tree of fields, so a row fills them from first to
//!    last. They are the columns of the first representation of each field; the columns of other
//!    representations are suppressed in a new cluster.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::column::{ColumnBuffer, LARGE_MIN, PageOptions};
use super::renumbering::Renumbering;
use super::row::RowWriter;
use crate::array::{Array, values_of};
use crate::buffer::AlignedBuffer;
use crate::column::{Element, switch_element};
use crate::error::{Error, Result};
use crate::page::PageBuffers;
use crate::page_list::{Cluster, ColumnPages};
use crate::reader::convert;
use crate::schema::{ColumnId, Schema};
use crate::source::BlobSink;
use crate::summary::{Bounds, Tracker, summary_kinds};
use crate::tree::{FieldKind, FieldNode, FieldTree};

/// Greatest ratio of a cluster's size in memory to its size on disk; ROOT has the same limit.
pub(crate) const RATIO_MAX: u64 = 10;

/// The cluster under construction.
pub(crate) struct ClusterWriter {
    pub tree: FieldTree,
    columns: Vec<ColumnBuffer>,
    /// The column of the schema for each of `columns`.
    ids: Vec<ColumnId>,
    /// For each column of the schema its position among `columns`.
    positions: Vec<Option<usize>>,
    /// For each variant, by the position of its switch column, the number of elements of each alternative
    /// in this cluster.
    alternatives: BTreeMap<usize, Vec<u64>>,
    buffers: PageBuffers,
    pub renumbering: Renumbering,
    pub entries: u64,
    failed: bool,
}

impl ClusterWriter {
    /// `element_offsets` are the elements of each column of the schema in all earlier clusters.
    pub(crate) fn new(
        schema: &Schema,
        element_offsets: &[u64],
        options: PageOptions,
    ) -> Result<Self> {
        let tree = FieldTree::of(schema)?;
        if let Some((name, reason)) = tree.ignored.first() {
            return Err(Error::unsupported(format!("writing field {name:?}: {reason}")));
        }
        if !schema.aliases.is_empty() {
            return Err(Error::unsupported("writing projected fields"));
        }
        let kinds = summary_kinds(&tree, schema.columns.len());
        let ids = tree.first_columns();
        let mut positions = vec![None; schema.columns.len()];
        ids.iter().enumerate().for_each(|(at, &id)| positions[id as usize] = Some(at));
        let columns = ids.iter().map(|&id| {
            let column = schema.columns[id as usize].clone();
            let offset = element_offsets.get(id as usize).copied().unwrap_or(0);
            ColumnBuffer::new(column, offset, options, kinds[id as usize].map(Tracker::new))
        });
        Ok(ClusterWriter {
            columns: columns.collect::<Result<_>>()?,
            tree,
            ids,
            positions,
            alternatives: BTreeMap::new(),
            buffers: PageBuffers::default(),
            renumbering: Renumbering::default(),
            entries: 0,
            failed: false,
        })
    }

    /// The elements of each column of the schema in all earlier clusters.
    pub(crate) fn element_offsets(&self) -> Vec<u64> {
        let offset = |position: &Option<usize>| position.map_or(0, |at| self.columns[at].offset());
        self.positions.iter().map(offset).collect()
    }

    /// Shifts the element offsets of columns whose elements in earlier clusters have grown.
    pub(crate) fn shift_offsets(&mut self, growth: &[(ColumnId, i64)]) {
        for &(id, elements) in growth {
            if let Some(position) = self.positions[id as usize] {
                self.columns[position].shift_offset(elements);
            }
        }
    }

    /// Frees unused memory.
    pub(crate) fn release_memory(&mut self) {
        self.columns.iter_mut().for_each(ColumnBuffer::release_memory);
        self.buffers = PageBuffers::default();
    }

    /// Discards the elements of the cluster and a failed write.
    pub(crate) fn reset(&mut self, element_offsets: &[u64]) {
        for (column, &id) in self.columns.iter_mut().zip(&self.ids) {
            column.reset(element_offsets.get(id as usize).copied().unwrap_or(0));
        }
        self.alternatives.clear();
        self.entries = 0;
        self.failed = false;
    }

    /// Bytes of the cluster as compared with its maximum: those on disk or, if the data compress better
    /// than [`RATIO_MAX`], those in memory divided by it. So a cluster is never too large to be read at
    /// once, or to have its items counted with 32 bits.
    pub(crate) fn size(&self) -> u64 {
        let stored: u64 = self.columns.iter().map(ColumnBuffer::size).sum();
        let in_memory: u64 = self.columns.iter().map(ColumnBuffer::memory_size).sum();
        stored.max(in_memory / RATIO_MAX)
    }

    /// Appends one entry, written by `fill`.
    #[inline]
    pub(crate) fn append_row(
        &mut self,
        sink: &mut dyn BlobSink,
        fill: impl FnOnce(&mut RowWriter<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_usable()?;
        let (columns, buffers) = (&mut self.columns[..], &mut self.buffers);
        let (alternatives, renumbering) = (&mut self.alternatives, &self.renumbering);
        let mut row = RowWriter { columns, buffers, alternatives, renumbering, sink, cursor: 0 };
        let filled = fill(&mut row).and_then(|()| row.check_complete());
        self.failed = filled.is_err();
        self.entries += 1;
        filled
    }

    /// Appends entries `first..end` of a checked array of records.
    pub(crate) fn append(
        &mut self,
        sink: &mut dyn BlobSink,
        entries: &Array,
        first: usize,
        end: usize,
    ) -> Result<()> {
        self.check_usable()?;
        let tree = std::mem::take(&mut self.tree);
        let appended = self.append_members(sink, &tree.nodes, entries, first, end);
        self.tree = tree;
        self.failed = appended.is_err();
        self.entries += (end - first) as u64;
        appended
    }

    /// Ends the cluster, whose first entry is `first_entry`. Returns also the bounds of its columns.
    pub(crate) fn finish(
        &mut self,
        sink: &mut dyn BlobSink,
        first_entry: u64,
    ) -> Result<(Cluster, Vec<(ColumnId, Bounds)>)> {
        self.check_usable()?;
        self.failed = true;
        let mut columns = vec![ColumnPages::default(); self.positions.len()];
        let mut bounds = vec![];
        for (column, &id) in self.columns.iter_mut().zip(&self.ids) {
            let (pages, of_column) = column.finish(&mut self.buffers, sink)?;
            columns[id as usize] = pages;
            bounds.extend(of_column.map(|of_column| (id, of_column)));
        }
        self.failed = false;
        self.alternatives.clear();
        let entries = std::mem::take(&mut self.entries);
        Ok((Cluster { first_entry, entries, columns }, bounds))
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(Error::invalid("an earlier write failed: roll back to a savepoint"));
        }
        Ok(())
    }

    fn append_members(
        &mut self,
        sink: &mut dyn BlobSink,
        members: &[FieldNode],
        records: &Array,
        first: usize,
        end: usize,
    ) -> Result<()> {
        members.iter().try_for_each(|node| {
            let array = records.member(&node.name).ok_or_else(|| unlike(node))?;
            self.append_field(sink, node, array, first, end)
        })
    }

    /// Appends values `first..end` of one field.
    pub(crate) fn append_field(
        &mut self,
        sink: &mut dyn BlobSink,
        node: &FieldNode,
        array: &Array,
        first: usize,
        end: usize,
    ) -> Result<()> {
        match (&node.kind, array) {
            (
                FieldKind::Primitive { primitive, values: columns, .. },
                Array::Primitive { values, .. },
            ) => {
                let size = primitive.size();
                let element = primitive.element();
                self.extend(sink, columns[0], &values[first * size..end * size], element)
            }
            (FieldKind::Bitset { size, bits }, Array::Fixed { content, .. }) => {
                let Array::Primitive { values, .. } = &**content else { return Err(unlike(node)) };
                let size = *size as usize;
                self.extend(sink, bits[0], &values[first * size..end * size], Element::U8)
            }
            (
                FieldKind::String { offsets, bytes },
                Array::String { offsets: ends, bytes: characters },
            ) => {
                self.append_offsets(sink, offsets[0], ends, first, end)?;
                let ends = &values_of::<i64>(ends)?[first..=end];
                self.extend_items(sink, bytes[0], characters, Element::U8, ends)
            }
            (FieldKind::List { offsets, item, .. }, Array::List { offsets: ends, content, .. }) => {
                let (from, to) = self.append_offsets(sink, offsets[0], ends, first, end)?;
                match (&item.kind, &**content) {
                    (
                        FieldKind::Primitive { primitive, values: columns, .. },
                        Array::Primitive { values, .. },
                    ) => {
                        let ends = &values_of::<i64>(ends)?[first..=end];
                        let element = primitive.element();
                        self.extend_items(sink, columns[0], values, element, ends)
                    }
                    _ => self.append_field(sink, item, content, from, to),
                }
            }
            (FieldKind::Fixed { size, item }, Array::Fixed { content, .. }) => {
                let size = *size as usize;
                self.append_field(sink, item, content, first * size, end * size)
            }
            (FieldKind::Record { members, .. }, Array::Record { .. }) => {
                self.append_members(sink, members, array, first, end)
            }
            (
                FieldKind::Variant { switch, alternatives },
                Array::Variant { tags, positions, contents },
            ) => {
                let chosen = &values_of::<i8>(tags)?[first..end];
                let positions = &values_of::<i64>(positions)?[first..end];
                chosen.iter().zip(positions).try_for_each(|(&tag, &position)| {
                    self.append_alternative(sink, switch[0], alternatives, contents, tag, position)
                })
            }
            _ => Err(unlike(node)),
        }
    }

    fn append_alternative(
        &mut self,
        sink: &mut dyn BlobSink,
        switch: ColumnId,
        alternatives: &[FieldNode],
        contents: &[Array],
        tag: i8,
        position: i64,
    ) -> Result<()> {
        let switch = self.position(switch)?;
        let column = &mut self.columns[switch];
        let Ok(chosen) = usize::try_from(tag) else {
            return column.extend(&switch_element(0, 0), &mut self.buffers, sink);
        };
        let counts = self.alternatives.entry(switch).or_insert_with(|| vec![0; alternatives.len()]);
        let pair = switch_element(counts[chosen], tag as u32 + 1);
        counts[chosen] += 1;
        column.extend(&pair, &mut self.buffers, sink)?;
        let position = position as usize;
        self.append_field(sink, &alternatives[chosen], &contents[chosen], position, position + 1)
    }

    fn position(&self, column: ColumnId) -> Result<usize> {
        let position = self.positions.get(column as usize).copied().flatten();
        position.ok_or_else(|| Error::invalid(format!("column {column} is not written")))
    }

    /// Appends the sizes of collections `first..end` and returns the range of their items.
    fn append_offsets(
        &mut self,
        sink: &mut dyn BlobSink,
        column: ColumnId,
        offsets: &[u8],
        first: usize,
        end: usize,
    ) -> Result<(usize, usize)> {
        let offsets = &values_of::<i64>(offsets)?[first..=end];
        let (from, to) = (offsets[0], offsets[offsets.len() - 1]);
        let position = self.position(column)?;
        let column = &mut self.columns[position];
        let base = column.items;
        for &offset in &offsets[1..] {
            column.push(base + (offset - from) as u64, &mut self.buffers, sink)?;
        }
        column.items = base + (to - from) as u64;
        Ok((from as usize, to as usize))
    }

    /// Appends the items of collections between offsets. If they are large, each collection is kept on one
    /// page by [`ColumnBuffer::keep_together`].
    fn extend_items(
        &mut self,
        sink: &mut dyn BlobSink,
        column: ColumnId,
        values: &Bytes,
        element: Element,
        offsets: &[i64],
    ) -> Result<()> {
        let at = |offset: i64| offset as usize * element.size();
        let (from, to) = (at(offsets[0]), at(offsets[offsets.len() - 1]));
        if (to - from) / offsets.len() < LARGE_MIN {
            return self.extend(sink, column, &values[from..to], element);
        }
        let position = self.position(column)?;
        offsets.windows(2).try_for_each(|pair| {
            let item = values.slice(at(pair[0])..at(pair[1]));
            let into = &mut self.columns[position];
            into.keep_together(item.len(), &mut self.buffers, sink)?;
            if into.element == element {
                into.extend_shared(&item, &mut self.buffers, sink)
            } else {
                self.extend(sink, column, &item, element)
            }
        })
    }

    fn extend(
        &mut self,
        sink: &mut dyn BlobSink,
        column: ColumnId,
        values: &[u8],
        element: Element,
    ) -> Result<()> {
        let position = self.position(column)?;
        let column = &mut self.columns[position];
        if column.element == element {
            return column.extend(values, &mut self.buffers, sink);
        }
        // Only numbers of reduced precision have elements of another type than the array.
        let count = (values.len() / element.size()) as u64;
        let mut converted = AlignedBuffer::for_overwriting(count, column.element.size())?;
        convert(element, values, column.element, converted.bytes_mut())?;
        column.extend(converted.bytes_mut(), &mut self.buffers, sink)
    }
}

fn unlike(node: &FieldNode) -> Error {
    Error::invalid(format!("the array is not of the type of field {:?}", node.name))
}
