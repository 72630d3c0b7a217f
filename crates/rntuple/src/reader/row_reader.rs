//! Elements of one entry, column by column, from the pages that a cursor holds.
//!
//! An element on a page that is held costs a division, a comparison and a copy: no lock, no reference
//! count, no allocation.

use std::ops::{Deref, Range};

use bytes::Bytes;

use super::cluster::StoredCluster;
use super::held_pages::{AccessPattern, HeldCluster, HeldColumn, HeldPages, PlannedColumn};
use super::page_batch::check_page;
use super::{Reader, convert};
use crate::buffer::AlignedBuffer;
use crate::column::Element;
use crate::error::{Error, Result};

/// Items without a page that a list may have: those of a field that is younger than they are.
const ZERO_ITEMS_MAX: u64 = 1 << 20;

impl<D: Deref<Target = Reader>> HeldPages<D> {
    /// A reader of the columns of an entry, and the index of the entry in its cluster.
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

/// Reads the columns of one entry, from first to last.
pub struct RowReader<'a> {
    reader: &'a Reader,
    plan: &'a [PlannedColumn],
    numbers: &'a [u32],
    pattern: AccessPattern,
    /// Stored bytes of a column that a sequential cursor reads at once.
    ahead: usize,
    first_entry: u64,
    columns: &'a mut [HeldColumn],
    /// Position of the next column.
    column: usize,
    held: &'a mut u64,
}

impl RowReader<'_> {
    /// Position of the next column.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Sets the next column.
    pub(super) fn go_to(&mut self, column: usize) {
        self.column = column;
    }

    /// Skips columns.
    pub(super) fn skip(&mut self, columns: usize) {
        self.column += columns;
    }

    /// The original number of a number that the file stores instead of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such stored number.
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

    /// Reads one number of the next column.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its page is damaged, [`Error::Io`] if the source cannot be read.
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

    /// Fills `out` with numbers of `size` bytes of the next column, from `index` on.
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

    /// Reads the numbers of a range of the next column.
    pub(super) fn numbers<T: bytemuck::Pod>(&mut self, range: Range<u64>) -> Result<Vec<T>> {
        let count = self.checked_count(&range)?;
        let mut values = vec![T::zeroed(); count];
        self.fill(range.start, size_of::<T>(), bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Reads the bytes of a range of the next column; they are shared with their page if one has all.
    pub(super) fn bytes(&mut self, range: Range<u64>) -> Result<Bytes> {
        self.elements(range, 1)
    }

    /// Reads the elements of `size` bytes of a range of the next column, shared as by
    /// [`bytes`](Self::bytes).
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

    /// The range of the items of collection `index`; the next column has the offsets.
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

    /// The number of elements in a range of the next column, after checking that pages store them or that
    /// they are zeros.
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

    /// Fills `out` where [`fill`](Self::fill) cannot: the pages are not held, not of equal size, or
    /// several.
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

    /// The page of the next column with an element, and the element's index in it; `None` if no page
    /// stores the element, so that it is zero. Reads the page if it is not held.
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

    /// Reads and holds a page of the next column. A sequential cursor also reads pages after it, and drops those that
    /// it read before.
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
            let bytes = converted(bytes, schema_column.element()?, planned.element)?;
            *self.held += bytes.len() as u64;
            place.bytes = bytes;
        }
        Ok(())
    }
}

/// Converts elements to the type of the cursor.
fn converted(bytes: Bytes, from: Element, to: Element) -> Result<Bytes> {
    if from == to {
        return Ok(bytes);
    }
    let count = (bytes.len() / from.size()) as u64;
    let mut out = AlignedBuffer::for_overwriting(count, to.size())?;
    convert(from, &bytes, to, out.bytes_mut())?;
    Ok(out.into_bytes())
}

fn no_column() -> Error {
    Error::invalid("the structure reads more columns than its type has")
}

fn beyond(index: u64) -> Error {
    Error::corrupt("page list", 0, format!("a column ends before element {index}"))
}
