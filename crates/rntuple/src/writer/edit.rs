//! Replacing values within one cluster, from fields down to columns.
//!
//! Down the tree of fields, the splices of a collection become those of its items. A column gets all its
//! splices at once, so each touched page is written once, for any number of values that are replaced in
//! it.
//!
//! **Invariant:** elements are read from the cluster as it was, and no column is changed twice.

use super::cluster::ClusterWriter;
use super::column::PageOptions;
use super::pages::{OldColumn, PageEditor};
use super::splice::{Splice, gather, multiplied};
use crate::array::{Array, values_of};
use crate::buffer::AlignedBuffer;
use crate::column::{ColumnType, Element};
use crate::error::{Error, Result};
use crate::page::PageBuffers;
use crate::page_list::{Cluster, ColumnPages, PageLocation};
use crate::reader::{ClusterSegment, Elements, StoredCluster, convert};
use crate::schema::{ColumnId, Schema};
use crate::source::{BlobSink, ByteSource};
use crate::summary::{Bounds, SummaryKind, Tracker};
use crate::tree::{FieldKind, FieldNode};

/// Changes to the pages of one cluster.
pub(super) struct ClusterEdit<'a> {
    pages: PageEditor<'a>,
    kinds: &'a [Option<SummaryKind>],
    /// The new pages of the columns that were changed.
    changed: Vec<(ColumnId, ColumnPages)>,
    /// The elements by which columns have grown, for the first representation of each.
    growth: Vec<(ColumnId, i64)>,
    bounds: Vec<(ColumnId, Bounds)>,
}

/// The result of editing a cluster.
pub(super) struct Edited {
    pub cluster: Cluster,
    /// The elements by which columns have grown, for the first representation of each.
    pub growth: Vec<(ColumnId, i64)>,
    /// Bounds of the new values.
    pub bounds: Vec<(ColumnId, Bounds)>,
    /// Bytes of the pages that were written.
    pub bytes: u64,
}

impl<'a> ClusterEdit<'a> {
    pub(super) fn new(
        schema: &'a Schema,
        source: &'a dyn ByteSource,
        stored: &'a StoredCluster,
        kinds: &'a [Option<SummaryKind>],
        options: PageOptions,
        sink: &'a mut dyn BlobSink,
    ) -> Self {
        let reader = Elements { source, cache: None, schema, is_scattered: false };
        let buffers = PageBuffers::default();
        let pages = PageEditor { schema, reader, stored, options, sink, buffers, bytes: 0 };
        ClusterEdit { pages, kinds, changed: vec![], growth: vec![], bounds: vec![] }
    }

    /// Applies all changes to the cluster.
    pub(super) fn finish(self, was: &Cluster) -> Edited {
        let mut cluster = was.clone();
        let columns = cluster.columns.len().max(self.pages.schema.columns.len());
        cluster.columns.resize_with(columns, ColumnPages::default);
        for (id, pages) in self.changed {
            cluster.columns[id as usize] = pages;
        }
        let ClusterEdit { pages, growth, bounds, .. } = self;
        Edited { cluster, growth, bounds, bytes: pages.bytes }
    }

    /// Replaces values of a field that has `elements` elements in the cluster.
    pub(super) fn replace(
        &mut self,
        node: &FieldNode,
        array: &Array,
        splices: Vec<Splice>,
        elements: u64,
    ) -> Result<()> {
        if splices.is_empty() {
            return Ok(());
        }
        match (&node.kind, array) {
            (
                FieldKind::Primitive { primitive, values: columns, .. },
                Array::Primitive { values, .. },
            ) => {
                let element = primitive.element();
                self.replace_elements(columns, element, values, &splices, elements)
            }
            (FieldKind::Bitset { size, bits }, Array::Fixed { content, .. }) => {
                let Array::Primitive { values, .. } = &**content else { return Err(unlike(node)) };
                let (splices, elements) = multiplied(&splices, elements, *size)?;
                self.replace_elements(bits, Element::U8, values, &splices, elements)
            }
            (
                FieldKind::String { offsets, bytes },
                Array::String { offsets: ends, bytes: characters },
            ) => {
                let (splices, elements) = self.replace_sizes(offsets, ends, &splices, elements)?;
                if splices.is_empty() {
                    return Ok(());
                }
                self.replace_elements(bytes, Element::U8, characters, &splices, elements)
            }
            (FieldKind::List { offsets, item, .. }, Array::List { offsets: ends, content, .. }) => {
                let (splices, elements) = self.replace_sizes(offsets, ends, &splices, elements)?;
                self.replace(item, content, splices, elements)
            }
            (FieldKind::Fixed { size, item }, Array::Fixed { content, .. }) => {
                let (splices, elements) = multiplied(&splices, elements, *size)?;
                self.replace(item, content, splices, elements)
            }
            (FieldKind::Record { members, .. }, Array::Record { .. }) => {
                members.iter().try_for_each(|member| {
                    let array = array.member(&member.name).ok_or_else(|| unlike(member))?;
                    self.replace(member, array, splices.clone(), elements)
                })
            }
            (FieldKind::Variant { .. }, Array::Variant { .. }) => {
                self.rewrite(node, array, &splices, elements)
            }
            _ => Err(unlike(node)),
        }
    }

    /// Replaces elements of a column of values.
    fn replace_elements(
        &mut self,
        columns: &[ColumnId],
        from: Element,
        values: &[u8],
        splices: &[Splice],
        elements: u64,
    ) -> Result<()> {
        let old = OldColumn::of(self.pages.schema, self.pages.stored, columns, elements)?;
        let (mut gathered, splices) = gather(values, from, splices)?;
        let gathered = gathered.bytes_mut();
        if old.id == columns[0] {
            let fresh = converted(from, gathered, old.element)?;
            return self.splice_column(&old, columns, &splices, &fresh);
        }
        match self.converted_exactly(from, gathered, old.id)? {
            Some(fresh) => self.splice_column(&old, columns, &splices, &fresh),
            None => {
                // The representation of this cluster cannot store the values; the first one can.
                let element = self.pages.schema.columns[columns[0] as usize].element()?;
                let fresh = converted(from, gathered, element)?;
                let old = old.as_first_representation(columns[0], element);
                self.splice_column(&old, columns, &splices, &fresh)
            }
        }
    }

    fn splice_column(
        &mut self,
        old: &OldColumn<'_>,
        columns: &[ColumnId],
        splices: &[Splice],
        fresh: &[u8],
    ) -> Result<()> {
        let pages = self.pages.spliced_pages(old, columns, splices, fresh)?;
        self.track(old.id, |tracker| tracker.add(old.element, fresh))?;
        self.change(old, columns, pages);
        Ok(())
    }

    /// The values converted to the elements of a column that is not of the first representation; `None` if
    /// they would not read back equal.
    fn converted_exactly(
        &self,
        from: Element,
        values: &[u8],
        id: ColumnId,
    ) -> Result<Option<Vec<u8>>> {
        use ColumnType::{Real16, Real32Quant, Real32Trunc, SplitReal16};
        let column = &self.pages.schema.columns[id as usize];
        if matches!(column.column_type, Real16 | SplitReal16 | Real32Trunc | Real32Quant) {
            return Ok(None);
        }
        let element = column.element()?;
        let Ok(there) = converted(from, values, element) else { return Ok(None) };
        let mut aligned = aligned_copy(&there, element)?;
        let back = converted(element, aligned.bytes_mut(), from)?;
        Ok((back == values).then_some(there))
    }

    /// Replaces the sizes of collections; returns the splices of their items, and the number of items that
    /// the cluster had.
    fn replace_sizes(
        &mut self,
        columns: &[ColumnId],
        new_offsets: &[u8],
        splices: &[Splice],
        elements: u64,
    ) -> Result<(Vec<Splice>, u64)> {
        let new_offsets = values_of::<i64>(new_offsets)?;
        let old = OldColumn::of(self.pages.schema, self.pages.stored, columns, elements)?;
        let (first, last) = (splices[0].old.start, splices[splices.len() - 1].old.end);
        let ends = self.pages.ends_of(&old, first, last)?;
        let mut items = Vec::with_capacity(splices.len());
        let mut first_changed = None;
        for (position, splice) in splices.iter().enumerate() {
            let range = ends.before(splice.old.start)..ends.before(splice.old.end);
            let previous = items.last().map_or(0, |last: &Splice| last.old.end);
            if range.start > range.end || range.start < previous {
                return Err(Error::corrupt("collection", 0, "its offsets decrease"));
            }
            let new = &new_offsets[splice.new.start..=splice.new.end];
            if first_changed.is_none() && !ends.have_sizes(splice, new) {
                first_changed = Some(position);
            }
            items.push(Splice { old: range, new: new[0] as usize..new[new.len() - 1] as usize });
        }
        let count = match first_changed {
            Some(first) => {
                let changed = &splices[first..];
                let (pages, count) = self.pages.resized_pages(&old, changed, new_offsets)?;
                self.change(&old, columns, pages);
                count
            }
            None => self.pages.ends_of(&old, old.elements, old.elements)?.before(old.elements),
        };
        if items.last().is_some_and(|last| last.old.end > count) {
            return Err(Error::corrupt("collection", 0, "its offsets decrease"));
        }
        self.track(old.id, |tracker| {
            for pair in splices.iter().flat_map(|s| new_offsets[s.new.start..=s.new.end].windows(2))
            {
                tracker.add_size((pair[1] - pair[0]) as u64);
            }
        })?;
        items.retain(|splice| !splice.old.is_empty() || !splice.new.is_empty());
        Ok((items, count))
    }

    /// Rewrites all columns of a field in this cluster.
    fn rewrite(
        &mut self,
        node: &FieldNode,
        array: &Array,
        splices: &[Splice],
        elements: u64,
    ) -> Result<()> {
        let segment =
            ClusterSegment { cluster: self.pages.stored, range: 0..elements, is_referenced: false };
        let was = self.pages.reader.array(node, &[segment])?;
        let new: Vec<usize> = splices.iter().flat_map(|splice| splice.new.clone()).collect();
        let mut positions = Vec::with_capacity(was.len() + new.len());
        let (mut at, mut next_new) = (0, was.len());
        for splice in splices {
            positions.extend(at..splice.old.start as usize);
            positions.extend(next_new..next_new + splice.new.len());
            (at, next_new) = (splice.old.end as usize, next_new + splice.new.len());
        }
        positions.extend(at..was.len());
        let spliced = Array::concatenate(&[was, array.take(&new)?])?.take(&positions)?;
        let options = self.pages.options.with_few_pages(spliced.len());
        let mut writer = ClusterWriter::new(self.pages.schema, &[], options)?;
        writer.append_field(self.pages.sink, node, &spliced, 0, spliced.len())?;
        let (mut written, _) = writer.finish(self.pages.sink, 0)?;
        self.change_all(node, &mut written);
        Ok(())
    }

    /// Replaces all columns of a field by those written; columns that are not of the first representation
    /// become suppressed.
    fn change_all(&mut self, node: &FieldNode, written: &mut Cluster) {
        for columns in node.own_columns() {
            let was = self.pages.stored.active(columns).map(|(_, run)| (run.offset, run.elements));
            let (offset, elements) = was.unwrap_or_default();
            for &id in columns {
                let mut pages = std::mem::take(&mut written.columns[id as usize]);
                if pages.element_offset.is_some() {
                    pages.element_offset = Some(offset);
                    self.growth.push((id, growth(elements, &pages.pages)));
                }
                self.pages.bytes += pages.pages.iter().map(PageLocation::stored_size).sum::<u64>();
                self.changed.push((id, pages));
            }
        }
        node.children().iter().for_each(|child| self.change_all(child, written));
    }

    /// Records the new pages of a column.
    fn change(&mut self, old: &OldColumn<'_>, columns: &[ColumnId], pages: Vec<PageLocation>) {
        let suppressed = columns.iter().filter(|&&id| id != old.id);
        self.changed.extend(suppressed.map(|&id| (id, ColumnPages::default())));
        self.growth.push((columns[0], growth(old.elements, &pages)));
        let compression = self.pages.options.compression.settings();
        let element_offset = Some(old.offset);
        self.changed.push((old.id, ColumnPages { element_offset, compression, pages }));
    }

    /// Records the bounds of the new elements of a column, if it has a summary.
    fn track(&mut self, id: ColumnId, add: impl FnOnce(&mut Tracker)) -> Result<()> {
        if let Some(kind) = self.kinds[id as usize] {
            let mut tracker = Tracker::new(kind);
            add(&mut tracker);
            let bounds = tracker.finish(&self.pages.schema.columns[id as usize])?;
            self.bounds.push((id, bounds));
        }
        Ok(())
    }
}

fn growth(elements: u64, pages: &[PageLocation]) -> i64 {
    let now: u64 = pages.iter().map(|page| u64::from(page.elements)).sum();
    now.wrapping_sub(elements) as i64
}

/// Converts aligned values to elements of another type.
fn converted(from: Element, values: &[u8], to: Element) -> Result<Vec<u8>> {
    if from == to {
        return Ok(values.to_vec());
    }
    let mut out = AlignedBuffer::for_overwriting((values.len() / from.size()) as u64, to.size())?;
    convert(from, values, to, out.bytes_mut())?;
    Ok(out.bytes_mut().to_vec())
}

fn aligned_copy(values: &[u8], of: Element) -> Result<AlignedBuffer> {
    let mut copy = AlignedBuffer::for_overwriting((values.len() / of.size()) as u64, of.size())?;
    copy.bytes_mut().copy_from_slice(values);
    Ok(copy)
}

fn unlike(node: &FieldNode) -> Error {
    Error::invalid(format!("the array is not of the type of field {:?}", node.name))
}
