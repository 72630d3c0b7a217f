//! The page buffer of one column.
//!
//! Invariants:
//! 1. `values` and `shared` have elements as in memory; between calls they have less than a page of them.
//! 2. The elements of the cluster are those of `pages`, then those of `values`, then those of `shared`.

use bytes::Bytes;

use crate::column::Element;
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::locator::Locator;
use crate::page::{CHECKSUM_SIZE, PageBuffers, seal_page};
use crate::page_list::{ColumnPages, ELEMENTS_MAX, PageLocation, TOO_MANY_ELEMENTS};
use crate::schema::Column;
use crate::source::BlobSink;
use crate::summary::{Bounds, Tracker};

/// Least bytes of values that are shared instead of copied.
const SHARED_MIN: usize = 4 << 10;
/// Least bytes of an entry that counts as large: a page ends where a large entry ends, so that reading the
/// entry reads one page without elements of other entries.
pub(super) const LARGE_MIN: usize = 4 << 10;
/// Most bytes of a page of several large entries.
const LARGE_PAGE: usize = 16 << 10;

/// Most pages that a change divides the elements of one column into. A cluster whose metadata claim 2^27
/// zeros, which no page stores, would else become as many pages of the smallest size.
pub(super) const PAGES_MAX: u64 = 1 << 16;

/// Size and compression of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageOptions {
    /// Bytes of a full page's elements in memory.
    pub size: usize,
    pub compression: Compression,
}

impl PageOptions {
    /// Elements of a full page.
    pub(crate) fn elements(&self, element: Element) -> usize {
        (self.size / element.size()).max(1)
    }

    /// The same, with larger pages if `elements` of them would be more than [`PAGES_MAX`] pages.
    pub(super) fn with_few_pages(self, elements: usize) -> PageOptions {
        let size = elements.div_ceil(PAGES_MAX as usize) * size_of::<u64>();
        PageOptions { size: self.size.max(size), ..self }
    }
}

/// A column of the cluster under construction.
pub(super) struct ColumnBuffer {
    pub column: Column,
    pub element: Element,
    /// Bytes of a full page: a whole number of elements.
    capacity: usize,
    compression: Compression,
    values: Vec<u8>,
    /// Large pieces shared with the caller, which are copied only into the sink.
    shared: Vec<Bytes>,
    shared_size: usize,
    pages: Vec<PageLocation>,
    /// Elements of this cluster on pages.
    paged: u64,
    /// Elements of all earlier clusters.
    offset: u64,
    /// For an index column the items of the collections of this cluster so far.
    pub items: u64,
    /// Bytes of this cluster's pages on disk.
    stored: u64,
    /// The bounds of this cluster's elements on pages, if the column has a summary.
    tracker: Option<Tracker>,
}

impl ColumnBuffer {
    pub(super) fn new(
        column: Column,
        offset: u64,
        options: PageOptions,
        tracker: Option<Tracker>,
    ) -> Result<Self> {
        let element = column.element()?;
        let capacity = options.elements(element) * element.size();
        Ok(ColumnBuffer {
            column,
            element,
            capacity,
            compression: options.compression,
            values: vec![],
            shared: vec![],
            shared_size: 0,
            pages: vec![],
            paged: 0,
            offset,
            items: 0,
            stored: 0,
            tracker,
        })
    }

    /// Bytes of this cluster's pages on disk and of its elements that are not on a page yet.
    pub(super) fn size(&self) -> u64 {
        self.stored + self.unpaged() as u64
    }

    /// Bytes of this cluster's elements in memory.
    pub(super) fn memory_size(&self) -> u64 {
        self.paged * self.element.size() as u64 + self.unpaged() as u64
    }

    /// Bytes of elements that are not on a page yet.
    fn unpaged(&self) -> usize {
        self.values.len() + self.shared_size
    }

    /// Adds one element, which must have the type of `element`.
    #[inline]
    pub(super) fn push<T: bytemuck::Pod>(
        &mut self,
        value: T,
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        debug_assert_eq!(size_of::<T>(), self.element.size());
        if size_of::<T>() == 1 && !self.shared.is_empty() {
            self.gather();
        }
        self.values.extend_from_slice(bytemuck::bytes_of(&value));
        if self.values.len() >= self.capacity {
            self.flush(buffers, sink)?;
        }
        Ok(())
    }

    /// Adds the number of items of one collection to an index column.
    #[inline]
    pub(super) fn push_size(
        &mut self,
        size: u64,
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        self.items += size;
        self.push(self.items, buffers, sink)
    }

    /// Ends the page before `size` bytes of one entry, if they are large and do not fit, so that they share
    /// no page with other entries. Compressed pages are not ended: full ones compress better.
    #[inline]
    pub(super) fn keep_together(
        &mut self,
        size: usize,
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        if size < LARGE_MIN || self.compression != Compression::None {
            return Ok(());
        }
        match self.unpaged() {
            0 => Ok(()),
            before if before + size <= LARGE_PAGE.min(self.capacity) => Ok(()),
            _ if self.shared.is_empty() => self.flush(buffers, sink),
            _ => self.flush_shared(sink),
        }
    }

    /// Adds elements.
    #[inline]
    pub(super) fn extend(
        &mut self,
        values: &[u8],
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        debug_assert!(values.len().is_multiple_of(self.element.size()));
        if self.shared.is_empty() && self.values.len() + values.len() < self.capacity {
            self.values.extend_from_slice(values);
            return Ok(());
        }
        self.extend_pages(values, buffers, sink)
    }

    fn extend_pages(
        &mut self,
        mut values: &[u8],
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        self.gather();
        while !values.is_empty() {
            if self.values.is_empty() && values.len() >= self.capacity {
                // Whole pages are written from the caller's memory, without a copy.
                let (page, rest) = values.split_at(self.capacity);
                self.write_page(page, buffers, sink)?;
                values = rest;
                continue;
            }
            let room = self.capacity - self.values.len();
            let (fitting, rest) = values.split_at(room.min(values.len()));
            self.values.extend_from_slice(fitting);
            values = rest;
            if self.values.len() >= self.capacity {
                self.flush(buffers, sink)?;
            }
        }
        Ok(())
    }

    /// Adds bytes, which are shared until their page is full if that saves a copy.
    pub(super) fn extend_shared(
        &mut self,
        values: &Bytes,
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        let is_stored_so = self.element == Element::U8
            && self.column.column_type.is_plain()
            && self.compression == Compression::None
            && self.tracker.is_none();
        if values.len() < SHARED_MIN || !is_stored_so {
            return self.extend(values, buffers, sink);
        }
        let mut rest = values.clone();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(self.capacity - self.unpaged()));
            self.shared_size += piece.len();
            self.shared.push(piece);
            if self.unpaged() >= self.capacity {
                self.flush_shared(sink)?;
            }
        }
        Ok(())
    }

    /// Copies shared pieces to `values`, so that elements that are not shared can follow.
    #[cold]
    fn gather(&mut self) {
        self.shared.drain(..).for_each(|piece| self.values.extend_from_slice(&piece));
        self.shared_size = 0;
    }

    /// Writes a page of `values` and `shared`.
    fn flush_shared(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        let size = self.unpaged();
        let shared = self.shared.iter().map(|piece| &piece[..]);
        let parts: Vec<&[u8]> = std::iter::once(&self.values[..]).chain(shared).collect();
        let offset = sink.write_with_checksum(&parts);
        self.values.clear();
        self.shared.clear();
        self.shared_size = 0;
        let locator = Locator { offset: offset?, size: size as u64 };
        self.note(PageLocation { elements: size as u32, checksum: true, locator });
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self, buffers: &mut PageBuffers, sink: &mut dyn BlobSink) -> Result<()> {
        let mut values = std::mem::take(&mut self.values);
        let written = self.write_page(&values, buffers, sink);
        values.clear();
        self.values = values;
        written
    }

    fn write_page(
        &mut self,
        values: &[u8],
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<()> {
        if let Some(tracker) = &mut self.tracker {
            tracker.add(self.element, values);
        }
        let location = write_page(&self.column, values, self.compression, buffers, sink)?;
        self.note(location);
        Ok(())
    }

    fn note(&mut self, page: PageLocation) {
        self.pages.push(page);
        self.paged += u64::from(page.elements);
        self.stored += page.locator.size + CHECKSUM_SIZE as u64;
    }

    /// Frees unused memory.
    pub(super) fn release_memory(&mut self) {
        self.values.shrink_to_fit();
        self.shared.shrink_to_fit();
    }

    /// Elements of this column in all earlier clusters.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Adds elements by which earlier clusters have grown.
    pub(super) fn shift_offset(&mut self, elements: i64) {
        self.offset = self.offset.saturating_add_signed(elements);
    }

    /// Discards this cluster's elements.
    pub(super) fn reset(&mut self, offset: u64) {
        self.values.clear();
        self.shared.clear();
        self.shared_size = 0;
        self.pages.clear();
        (self.paged, self.items, self.stored) = (0, 0, 0);
        self.offset = offset;
        if let Some(tracker) = &mut self.tracker {
            tracker.reset();
        }
    }

    /// Ends the cluster and returns its pages and bounds.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the column exceeds 2^63 elements, as a damaged file may claim; [`Error::Io`]
    /// from the sink.
    pub(super) fn finish(
        &mut self,
        buffers: &mut PageBuffers,
        sink: &mut dyn BlobSink,
    ) -> Result<(ColumnPages, Option<Bounds>)> {
        self.gather();
        if !self.values.is_empty() {
            self.flush(buffers, sink)?;
        }
        let end = self.offset.checked_add(self.paged).filter(|&end| end <= ELEMENTS_MAX);
        let end = end.ok_or_else(|| Error::corrupt("page list", 0, TOO_MANY_ELEMENTS))?;
        let finished = ColumnPages {
            element_offset: Some(self.offset),
            compression: self.compression.settings(),
            pages: std::mem::take(&mut self.pages),
        };
        self.offset = end;
        (self.paged, self.items, self.stored) = (0, 0, 0);
        let bounds = self.tracker.as_mut().map(|tracker| tracker.finish(&self.column));
        Ok((finished, bounds.transpose()?))
    }
}

/// Seals a page of elements and writes it.
pub(super) fn write_page(
    column: &Column,
    values: &[u8],
    compression: Compression,
    buffers: &mut PageBuffers,
    sink: &mut dyn BlobSink,
) -> Result<PageLocation> {
    let page = seal_page(column, values, compression, buffers)?;
    let offset = sink.write_blob(&[page.payload, &page.checksum])?;
    Ok(PageLocation {
        elements: (values.len() / column.element()?.size()) as u32,
        checksum: true,
        locator: Locator { offset, size: page.payload.len() as u64 },
    })
}
