//! Entries as Rust structures, one at a time.
//!
//! A cursor holds the pages that it has read from, so that a number costs a division, a comparison
//! and a copy: no lock, no counting of references, no memory.
//!
//! Invariants:
//! 1. `plan` has the columns of the structure, depth first, as `FromCell::get` goes through them.
//! 2. As of [`held`](super::held).

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use bytes::Bytes;

use super::cluster::StoredCluster;
use super::elements::{check_page, element_of};
use super::held::{AccessPattern, HeldCluster, HeldColumn, HeldPages, PlannedColumn};
use super::row::FromCell;
use super::{Reader, convert, element_of_primitive};
use crate::buffer::AlignedBuffer;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};
use crate::types::{Primitive, Type};

/// Items without a page that a list may have: those of a field that is younger than they are.
const ZERO_ITEMS_MAX: u64 = 1 << 20;

/// Reads entries as values of `R`; `D` leads to the reader.
///
/// ```no_run
/// rntuple::row! {
///     struct Muon { pt: f32, charge: i8 }
/// }
/// # fn main() -> rntuple::Result<()> {
/// # let file = std::fs::File::open("muons.root").expect("the file exists");
/// let reader = rntuple::Reader::open(std::sync::Arc::new(file), "muons")?;
/// let mut muons = reader.cursor::<Muon>()?;
/// println!("{}", muons.get(17)?.pt);
/// # Ok(())
/// # }
/// ```
pub struct Cursor<R, D> {
    pages: HeldPages<D>,
    of: PhantomData<fn() -> R>,
}

impl Reader {
    /// A cursor that reads entries as Rust structures. The structure's members are found among the
    /// fields by their names; there may be fewer of them, in any order.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a member is no field, [`Error::Invalid`] if one is of another type.
    pub fn cursor<R: FromCell>(&self) -> Result<Cursor<R, &Self>> {
        Cursor::new(self)
    }
}

impl<R: FromCell, D: Deref<Target = Reader>> Cursor<R, D> {
    /// As [`Reader::cursor`], with what leads to the reader.
    ///
    /// # Errors
    /// As [`Reader::cursor`].
    pub fn new(reader: D) -> Result<Self> {
        let Type::Record { members, .. } = R::cell_type() else {
            return Err(Error::invalid("entries are read as structures, which row! declares"));
        };
        let mut plan = vec![];
        plan_members(&members, &reader.tree().nodes, false, &mut plan)?;
        Ok(Cursor { pages: HeldPages::new(reader, plan), of: PhantomData })
    }

    /// Says what is meant by the numbers that stand in the file for others, from 0 on: the mirror
    /// image of [`Renumbering`](crate::Renumbering).
    #[must_use]
    pub fn with_numbers(mut self, numbers: Vec<u32>) -> Self {
        self.pages.numbers = numbers;
        self
    }

    /// Reads entries that mostly follow each other: what it has read it lets go of, and leaves the
    /// cache to others.
    #[must_use]
    pub fn forward(mut self) -> Self {
        self.pages.pattern = AccessPattern::Sequential;
        self
    }

    /// Bytes of the pages that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.pages.held
    }

    /// The reader.
    pub fn reader(&self) -> &Reader {
        &self.pages.reader
    }

    /// One entry.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such entry, [`Error::Corrupt`] if what is stored is damaged.
    #[inline]
    pub fn get(&mut self, entry: u64) -> Result<R> {
        let (mut row, index) = self.pages.row(entry)?;
        R::get(&mut row, index)
    }
}

impl<D: Deref<Target = Reader>> HeldPages<D> {
    /// The columns of an entry, and its number in its cluster.
    #[inline]
    pub(super) fn row(&mut self, entry: u64) -> Result<(RowReader<'_>, u64)> {
        let cluster = self.cluster_of(entry)?;
        let HeldCluster { entries, columns } = &mut self.clusters[cluster];
        let row = RowReader {
            reader: &self.reader,
            plan: &self.plan,
            numbers: &self.numbers,
            pattern: self.pattern,
            ahead: self.ahead,
            first_entry: entries.start,
            columns,
            column: 0,
            held: &mut self.held,
        };
        Ok((row, entry - entries.start))
    }
}

/// The columns of one entry, read from first to last.
pub struct RowReader<'a> {
    reader: &'a Reader,
    plan: &'a [PlannedColumn],
    numbers: &'a [u32],
    pattern: AccessPattern,
    /// Stored bytes of a column that are read at once if entries follow each other.
    ahead: usize,
    first_entry: u64,
    columns: &'a mut [HeldColumn],
    /// The next column.
    column: usize,
    held: &'a mut u64,
}

impl RowReader<'_> {
    /// The next column.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Goes on with a column.
    pub(super) fn go_to(&mut self, column: usize) {
        self.column = column;
    }

    /// Passes columns over.
    pub(super) fn skip(&mut self, columns: usize) {
        self.column += columns;
    }

    /// What is meant by a number that stands for another in the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it stands for nothing.
    #[inline]
    pub fn original_number(&self, stored: u32) -> Result<u32> {
        self.numbers.get(stored as usize).copied().ok_or_else(|| {
            let known = self.numbers.len();
            Error::corrupt(
                "link",
                0,
                format!("it is to database number {stored}, of {known} known"),
            )
        })
    }

    /// One number of the next column.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if what is stored is damaged.
    #[inline]
    pub fn number<T: bytemuck::Pod>(&mut self, index: u64) -> Result<T> {
        let size = size_of::<T>();
        let held = self.columns.get(self.column).and_then(|held| held.held_from(index, size));
        if let Some(bytes) = held.and_then(|held| held.get(..size)) {
            self.column += 1;
            return Ok(bytemuck::pod_read_unaligned(bytes));
        }
        let mut value = T::zeroed();
        self.fill_slowly(index, size, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Numbers of `size` bytes of the next column, from one on.
    #[inline]
    pub(super) fn fill(&mut self, index: u64, size: usize, out: &mut [u8]) -> Result<()> {
        let held = self.columns.get(self.column).and_then(|held| held.held_from(index, size));
        match held.and_then(|held| held.get(..out.len())) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                self.column += 1;
                Ok(())
            }
            None => self.fill_slowly(index, size, out),
        }
    }

    /// All numbers of a range of the next column.
    pub(super) fn numbers<T: bytemuck::Pod>(&mut self, range: Range<u64>) -> Result<Vec<T>> {
        let count = self.checked_count(&range)?;
        let mut values = vec![T::zeroed(); count];
        self.fill(range.start, size_of::<T>(), bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// All bytes of a range of the next column: shared with their page if one has all.
    pub(super) fn bytes(&mut self, range: Range<u64>) -> Result<Bytes> {
        self.elements(range, 1)
    }

    /// As [`bytes`](Self::bytes), of elements of any size.
    pub(super) fn elements(&mut self, range: Range<u64>, size: usize) -> Result<Bytes> {
        let count = self.checked_count(&range)?;
        if count == 0 {
            self.column += 1;
            return Ok(Bytes::new());
        }
        if let Some((page, before)) = self.page_of(range.start)? {
            let held = &self.columns[self.column].pages[page].bytes;
            let (start, length) = (before.saturating_mul(size), count.saturating_mul(size));
            if start.checked_add(length).is_some_and(|end| end <= held.len()) {
                self.column += 1;
                return Ok(held.slice(start..start + length));
            }
        }
        let mut joined = AlignedBuffer::for_overwriting(count as u64, size)?;
        self.fill_slowly(range.start, size, joined.bytes_mut())?;
        Ok(joined.into_bytes())
    }

    /// The range of the items of collection number `index`, from the column of offsets.
    #[inline]
    pub(super) fn items(&mut self, index: u64) -> Result<Range<u64>> {
        let ends = self.column;
        let start = match index {
            0 => 0,
            _ => self.number(index - 1)?,
        };
        self.column = ends;
        let end = self.number(index)?;
        if start <= end {
            Ok(start..end)
        } else {
            Err(Error::corrupt("collection", 0, "its offsets decrease"))
        }
    }

    /// How many elements a range of the next column has, which are there or are zeros.
    fn checked_count(&self, range: &Range<u64>) -> Result<usize> {
        let column = self.columns.get(self.column).ok_or_else(no_column)?;
        let (count, zeros) = (range.end - range.start, column.missing.saturating_sub(range.start));
        let are_zeros = range.end <= column.missing && !self.plan[self.column].is_referenced;
        let are_there = range.end <= column.elements || are_zeros;
        match are_there && zeros.min(count) <= ZERO_ITEMS_MAX {
            true => Ok(count as usize),
            false if count == 0 => Ok(0),
            false => Err(beyond(range.end)),
        }
    }

    /// As [`fill`](Self::fill), of pages that are not held, not of one size, or several.
    #[inline(never)]
    fn fill_slowly(&mut self, mut index: u64, size: usize, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let count = match self.page_of(index)? {
                Some((page, before)) => {
                    let held = &self.columns[self.column].pages[page].bytes;
                    let from = held.get(before.saturating_mul(size)..).unwrap_or_default();
                    let count = from.len().min(out.len());
                    out[..count].copy_from_slice(&from[..count]);
                    count
                }
                None => {
                    out[..size].fill(0);
                    size
                }
            };
            if count == 0 {
                return Err(beyond(index));
            }
            out = &mut out[count..];
            index += (count / size) as u64;
        }
        self.column += 1;
        Ok(())
    }

    /// The page of the next column with an element, and how many elements are before it there; none
    /// if no page has it and it is zero.
    fn page_of(&mut self, index: u64) -> Result<Option<(usize, usize)>> {
        let column = self.columns.get(self.column).ok_or_else(no_column)?;
        if index < column.missing
            && (!self.plan[self.column].is_referenced || index < column.elements)
        {
            return Ok(None);
        }
        if index >= column.elements {
            return Err(beyond(index));
        }
        let page = column.page_with(index);
        let Some(found) = column.pages.get(page) else { return Err(beyond(index)) };
        let before = index.saturating_sub(found.start) as usize;
        if found.bytes.is_empty() {
            self.hold(page)?;
        }
        Ok(Some((page, before)))
    }

    /// Reads a page of the next column; if entries follow each other, some more, and lets go of those
    /// behind.
    #[cold]
    fn hold(&mut self, page: usize) -> Result<()> {
        let clusters = self.reader.clusters_of(&(self.first_entry..self.first_entry + 1))?;
        let cluster: &StoredCluster = clusters.first().ok_or_else(no_column)?;
        let planned = &self.plan[self.column];
        let (id, run) = cluster.active(&planned.columns).ok_or_else(no_column)?;
        let schema_column = &self.reader.schema().columns[id as usize];
        let locations = run.pages.get(page..).unwrap_or_default();
        let held = &mut self.columns[self.column];
        let elements = self.reader.elements();
        let read = match self.pattern {
            AccessPattern::Random => {
                let location = locations.first().ok_or_else(no_column)?;
                check_page(schema_column, location, cluster)?;
                vec![elements.cached_page(id, location, true)?]
            }
            AccessPattern::Sequential => {
                for behind in &mut held.pages[held.last.clone()] {
                    let bytes = std::mem::take(&mut behind.bytes);
                    *self.held = self.held.saturating_sub(bytes.len() as u64);
                }
                elements.pages_ahead(id, locations, cluster, self.ahead)?
            }
        };
        held.last = page..page + read.len();
        for (place, bytes) in held.pages[page..].iter_mut().zip(read) {
            let bytes = converted(bytes, element_of(schema_column)?, planned.element)?;
            *self.held += bytes.len() as u64;
            place.bytes = bytes;
        }
        Ok(())
    }
}

/// Elements as the structure has them.
fn converted(bytes: Bytes, from: Element, to: Element) -> Result<Bytes> {
    if from == to {
        return Ok(bytes);
    }
    let count = (bytes.len() / from.size()) as u64;
    let mut out = AlignedBuffer::for_overwriting(count, to.size())?;
    convert(from, &bytes, to, out.bytes_mut())?;
    Ok(out.into_bytes())
}

// ---- Which columns a structure takes

/// `is_referenced`: whether they are members of items.
fn plan_members(
    members: &[(String, Type)],
    nodes: &[FieldNode],
    is_referenced: bool,
    plan: &mut Vec<PlannedColumn>,
) -> Result<()> {
    members.iter().try_for_each(|(name, of)| {
        let node = nodes.iter().find(|node| node.name == *name).ok_or_else(|| Error::NotFound {
            what: "field",
            name: name.clone(),
            candidates: nodes.iter().map(|node| node.name.clone()).collect(),
        })?;
        plan_field(of, node, is_referenced, plan)
    })
}

fn plan_field(
    of: &Type,
    node: &FieldNode,
    is_referenced: bool,
    plan: &mut Vec<PlannedColumn>,
) -> Result<()> {
    let mut add = |columns: &[ColumnId], element, is_referenced| {
        plan.push(PlannedColumn { columns: columns.to_vec(), element, is_referenced });
    };
    match (of, &node.kind) {
        (Type::Primitive(of), FieldKind::Primitive { primitive, values, .. })
            if of == primitive || is_byte(*of) && is_byte(*primitive) =>
        {
            add(values, element_of_primitive(*of), is_referenced);
        }
        (Type::String, FieldKind::String { offsets, bytes }) => {
            add(offsets, Element::U64, is_referenced);
            add(bytes, Element::U8, true);
        }
        // What is at most one may be stored as a list; it is looked at when it is read.
        (Type::List(of), FieldKind::List { offsets, item, optional: false })
        | (Type::Optional(of), FieldKind::List { offsets, item, .. }) => {
            add(offsets, Element::U64, is_referenced);
            plan_field(of, item, true, plan)?;
        }
        (Type::Array { item: of, size }, FieldKind::Fixed { size: stored, item })
            if size == stored =>
        {
            plan_field(of, item, is_referenced, plan)?;
        }
        (Type::Array { item: of, size }, FieldKind::Bitset { size: stored, bits })
            if size == stored && **of == Type::Primitive(Primitive::Bool) =>
        {
            add(bits, Element::U8, is_referenced);
        }
        (Type::Record { members, .. }, FieldKind::Record { members: nodes, .. }) => {
            plan_members(members, nodes, is_referenced, plan)?;
        }
        _ => {
            let stored = node.logical_type();
            let what = format!("field {:?} is of type {stored:?}, not {of:?}", node.name);
            return Err(Error::invalid(what));
        }
    }
    Ok(())
}

fn is_byte(primitive: Primitive) -> bool {
    matches!(primitive, Primitive::Byte | Primitive::Char | Primitive::UInt8)
}

fn no_column() -> Error {
    Error::invalid("the structure has other columns than its type says")
}

fn beyond(index: u64) -> Error {
    Error::corrupt("page list", 0, format!("a column ends before element {index}"))
}
