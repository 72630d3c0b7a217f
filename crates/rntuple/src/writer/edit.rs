//! Replacing values within one cluster, from fields down to columns.
//!
//! A splice says which elements of a field are replaced by which values of an array. Going down the
//! tree of fields, the splices of a collection become those of its items; at the columns all that
//! is new to one is there at once, so that each touched page is written once, however many values
//! of it are replaced.
//!
//! Everything is read from the cluster as it was: no column is changed twice.

use std::ops::Range;

use super::cluster::ClusterWriter;
use super::column::PageOptions;
use super::pages::OldColumn;
use super::summary::{Bounds, SummaryKind, Tracker};
use crate::array::{Array, values_of};
use crate::buffer::AlignedBuffer;
use crate::column::{ColumnType, Element};
use crate::error::{Error, Result};
use crate::page::{CHECKSUM_SIZE, PageBuffers};
use crate::page_list::{Cluster, ColumnPages, PageLocation};
use crate::reader::{
    ClusterSegment, Elements, StoredCluster, convert, element_of, element_of_primitive,
};
use crate::schema::{ColumnId, Schema};
use crate::source::{BlobSink, ByteSource};
use crate::tree::{FieldKind, FieldNode};

/// Elements that are replaced, and the positions of the new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub old: Range<u64>,
    pub new: Range<usize>,
}

impl Splice {
    pub(super) fn keeps_length(&self) -> bool {
        self.old.end - self.old.start == self.new.len() as u64
    }

    fn times(&self, size: u64) -> Option<Splice> {
        let (old, new) = (&self.old, &self.new);
        let width = usize::try_from(size).ok()?;
        Some(Splice {
            old: old.start.checked_mul(size)?..old.end.checked_mul(size)?,
            new: new.start.checked_mul(width)?..new.end.checked_mul(width)?,
        })
    }
}

/// Changes to the pages of one cluster.
pub(super) struct ClusterEdit<'a> {
    pub schema: &'a Schema,
    pub reader: Elements<'a>,
    pub stored: &'a StoredCluster,
    how: &'a [Option<SummaryKind>],
    pub options: PageOptions,
    pub sink: &'a mut dyn BlobSink,
    pub buffers: PageBuffers,
    /// The columns that were changed.
    changed: Vec<(ColumnId, ColumnPages)>,
    /// By how many elements the first representation of a field's columns is longer now.
    growth: Vec<(ColumnId, i64)>,
    bounds: Vec<(ColumnId, Bounds)>,
    bytes: u64,
}

/// What became of a cluster.
pub(super) struct Edited {
    pub cluster: Cluster,
    /// By how many elements columns are longer now, told of the first representation of each.
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
        how: &'a [Option<SummaryKind>],
        options: PageOptions,
        sink: &'a mut dyn BlobSink,
    ) -> Self {
        ClusterEdit {
            schema,
            reader: Elements { source, cache: None, schema, is_scattered: false },
            stored,
            how,
            options,
            sink,
            buffers: PageBuffers::default(),
            changed: vec![],
            growth: vec![],
            bounds: vec![],
            bytes: 0,
        }
    }

    /// The cluster with all changes.
    pub(super) fn finish(self, was: &Cluster) -> Edited {
        let mut cluster = was.clone();
        let columns = cluster.columns.len().max(self.schema.columns.len());
        cluster.columns.resize_with(columns, ColumnPages::default);
        for (id, pages) in self.changed {
            cluster.columns[id as usize] = pages;
        }
        let ClusterEdit { growth, bounds, bytes, .. } = self;
        Edited { cluster, growth, bounds, bytes }
    }

    /// Replaces values of a field that has so many elements in the cluster.
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
                let element = element_of_primitive(*primitive);
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

    /// Replaces elements of a column without any below it.
    fn replace_elements(
        &mut self,
        columns: &[ColumnId],
        from: Element,
        values: &[u8],
        splices: &[Splice],
        elements: u64,
    ) -> Result<()> {
        let old = OldColumn::of(self.schema, self.stored, columns, elements)?;
        let (mut gathered, splices) = gather(values, from, splices)?;
        let gathered = gathered.bytes_mut();
        if old.id == columns[0] {
            let fresh = converted(from, gathered, old.element)?;
            return self.splice_column(&old, columns, &splices, &fresh);
        }
        match self.converted_exactly(from, gathered, old.id)? {
            Some(fresh) => self.splice_column(&old, columns, &splices, &fresh),
            None => {
                // The representation of this cluster cannot hold the values; the first one can.
                let element = element_of(&self.schema.columns[columns[0] as usize])?;
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
        let pages = self.spliced_pages(old, columns, splices, fresh)?;
        self.track(old.id, |tracker| tracker.add(old.element, fresh))?;
        self.change(old, columns, pages);
        Ok(())
    }

    /// The elements as a column has them that is not of the first representation; `None` if they
    /// would not be the same when they are read again.
    fn converted_exactly(
        &self,
        from: Element,
        values: &[u8],
        id: ColumnId,
    ) -> Result<Option<Vec<u8>>> {
        use ColumnType::{Real16, Real32Quant, Real32Trunc, SplitReal16};
        let column = &self.schema.columns[id as usize];
        if matches!(column.column_type, Real16 | SplitReal16 | Real32Trunc | Real32Quant) {
            return Ok(None);
        }
        let element = element_of(column)?;
        let Ok(there) = converted(from, values, element) else { return Ok(None) };
        let mut aligned = aligned_copy(&there, element)?;
        let back = converted(element, aligned.bytes_mut(), from)?;
        Ok((back == values).then_some(there))
    }

    /// Replaces the sizes of collections; returns the splices of their items, and how many items
    /// the cluster had.
    fn replace_sizes(
        &mut self,
        columns: &[ColumnId],
        new_offsets: &[u8],
        splices: &[Splice],
        elements: u64,
    ) -> Result<(Vec<Splice>, u64)> {
        let new_offsets = values_of::<i64>(new_offsets)?;
        let old = OldColumn::of(self.schema, self.stored, columns, elements)?;
        let (first, last) = (splices[0].old.start, splices[splices.len() - 1].old.end);
        let ends = self.ends_of(&old, first, last)?;
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
                let (pages, count) = self.resized_pages(&old, changed, new_offsets)?;
                self.change(&old, columns, pages);
                count
            }
            None => self.ends_of(&old, old.elements, old.elements)?.before(old.elements),
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

    /// Writes all of a field in this cluster anew.
    fn rewrite(
        &mut self,
        node: &FieldNode,
        array: &Array,
        splices: &[Splice],
        elements: u64,
    ) -> Result<()> {
        let segment =
            ClusterSegment { cluster: self.stored, range: 0..elements, is_referenced: false };
        let was = self.reader.array(node, &[segment])?;
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
        let mut writer = ClusterWriter::new(self.schema, &[], self.options)?;
        writer.append_field(self.sink, node, &spliced, 0, spliced.len())?;
        let (mut written, _) = writer.finish(self.sink, 0)?;
        self.change_all(node, &mut written);
        Ok(())
    }

    /// Takes over all columns of a field; those that are not of the first representation become
    /// suppressed.
    fn change_all(&mut self, node: &FieldNode, written: &mut Cluster) {
        for columns in node.own_columns() {
            let was = self.stored.active(columns).map(|(_, run)| (run.offset, run.elements));
            let (offset, elements) = was.unwrap_or_default();
            for &id in columns {
                let mut pages = std::mem::take(&mut written.columns[id as usize]);
                if pages.element_offset.is_some() {
                    pages.element_offset = Some(offset);
                    self.growth.push((id, growth(elements, &pages.pages)));
                }
                self.bytes += stored_size(&pages.pages);
                self.changed.push((id, pages));
            }
        }
        node.children().iter().for_each(|child| self.change_all(child, written));
    }

    /// Notes the pages of a column that was changed.
    fn change(&mut self, old: &OldColumn<'_>, columns: &[ColumnId], pages: Vec<PageLocation>) {
        let suppressed = columns.iter().filter(|&&id| id != old.id);
        self.changed.extend(suppressed.map(|&id| (id, ColumnPages::default())));
        self.growth.push((columns[0], growth(old.elements, &pages)));
        let compression = self.options.compression.settings();
        let element_offset = Some(old.offset);
        self.changed.push((old.id, ColumnPages { element_offset, compression, pages }));
    }

    pub(super) fn count_written(&mut self, page: &PageLocation) {
        self.bytes += stored_size(std::slice::from_ref(page));
    }

    /// Bounds of the new elements of a column, if it is summarised.
    fn track(&mut self, id: ColumnId, add: impl FnOnce(&mut Tracker)) -> Result<()> {
        if let Some(how) = self.how[id as usize] {
            let mut tracker = Tracker::new(how);
            add(&mut tracker);
            let bounds = tracker.finish(&self.schema.columns[id as usize])?;
            self.bounds.push((id, bounds));
        }
        Ok(())
    }
}

fn stored_size(pages: &[PageLocation]) -> u64 {
    pages.iter().map(|page| page.locator.size + CHECKSUM_SIZE as u64).sum()
}

fn growth(elements: u64, pages: &[PageLocation]) -> i64 {
    let now: u64 = pages.iter().map(|page| u64::from(page.elements)).sum();
    now.wrapping_sub(elements) as i64
}

fn multiplied(splices: &[Splice], elements: u64, size: u64) -> Result<(Vec<Splice>, u64)> {
    let many = || Error::corrupt("page list", 0, "an array has more than 2^64 items");
    let splices = splices.iter().map(|splice| splice.times(size)).collect::<Option<_>>();
    Ok((splices.ok_or_else(many)?, elements.checked_mul(size).ok_or_else(many)?))
}

/// The values that splices refer to, back to back, and the splices with their positions there.
fn gather(values: &[u8], of: Element, splices: &[Splice]) -> Result<(AlignedBuffer, Vec<Splice>)> {
    let count: usize = splices.iter().map(|splice| splice.new.len()).sum();
    let mut gathered = AlignedBuffer::for_overwriting(count as u64, of.size())?;
    let mut rest = gathered.bytes_mut();
    let mut moved = Vec::with_capacity(splices.len());
    let mut next = 0;
    for Splice { old, new } in splices {
        let from = &values[new.start * of.size()..new.end * of.size()];
        let (out, behind) = rest.split_at_mut(from.len());
        out.copy_from_slice(from);
        rest = behind;
        moved.push(Splice { old: old.clone(), new: next..next + new.len() });
        next += new.len();
    }
    Ok((gathered, moved))
}

/// Aligned values as another type of elements.
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
