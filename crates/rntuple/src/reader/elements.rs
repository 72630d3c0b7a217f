//! Elements of columns, read page by page or from the page cache.
//!
//! Large ranges are read in batches, straight into the result where a page is stored as its elements are
//! in memory. Small ranges, such as one entry, go through the page cache, so that the next entry of the
//! same page needs no read, no checksum and no decompression.

use std::ops::Range;

use bytes::Bytes;

use super::FileCache;
use super::cluster::{PageRun, StoredCluster};
use super::conversion::convert;
use super::page_batch::{PageRead, check_page, read_batch};
use crate::buffer::AlignedBuffer;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::page_cache::PageKey;
use crate::page_list::PageLocation;
use crate::schema::{Column, ColumnId, Schema};
use crate::source::ByteSource;

/// Stored bytes read at once: enough to amortise a system call, few enough to stay in the processor's
/// cache until the checksums are verified.
const BATCH_BYTES: usize = 1 << 20;

/// Segments that are announced to the source at once. While the reader reads one such group of segments,
/// the source prefetches the next; 64 keep a disk busy.
const ANNOUNCED: usize = 64;

/// Most stored bytes of a page that is cached even if it is read as a whole: it may have a single entry.
const SMALL_PAGE: u64 = 64 << 10;

/// Most bytes of zeros that no page stores in one read: the values of a field that was added after the
/// entries were written. All other elements are bounded by the bytes of their pages.
const ZERO_BYTES_MAX: u64 = 1 << 30;

/// Elements of one field within one cluster.
#[derive(Clone)]
pub(crate) struct ClusterSegment<'a> {
    pub cluster: &'a StoredCluster,
    pub range: Range<u64>,
    /// Whether offsets or a switch in the file refer to these elements; then they must exist.
    pub is_referenced: bool,
}

/// Sum of the lengths of segments.
pub(crate) fn total(segments: &[ClusterSegment<'_>]) -> Result<u64> {
    segments.iter().try_fold(0_u64, |sum, segment| {
        sum.checked_add(segment.range.end - segment.range.start)
            .ok_or_else(|| Error::corrupt("page list", 0, "more than 2^64 elements"))
    })
}

/// Reads the elements of columns, and assembles arrays from them.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub source: &'a dyn ByteSource,
    pub cache: Option<&'a FileCache>,
    pub schema: &'a Schema,
    /// Whether segments are apart, so that pages are announced to the source before they are read.
    pub is_scattered: bool,
}

impl Elements<'_> {
    /// Reads the elements of all segments, back to back, converted to `target`.
    pub(crate) fn read(
        &self,
        columns: &[ColumnId],
        segments: &[ClusterSegment<'_>],
        target: Element,
    ) -> Result<Bytes> {
        if let [segment] = segments
            && let Some(bytes) = self.shared_elements(columns, segment, target)?
        {
            return Ok(bytes);
        }
        self.check_segments(columns, segments, target)?;
        let mut buffer = AlignedBuffer::for_overwriting(total(segments)?, target.size())?;
        let mut rest = buffer.bytes_mut();
        for (position, segment) in segments.iter().enumerate() {
            self.announce(columns, segments, position);
            let count = (segment.range.end - segment.range.start) as usize;
            let (out, behind) = rest.split_at_mut(count * target.size());
            self.read_segment(columns, segment, target, out)?;
            rest = behind;
        }
        Ok(buffer.into_bytes())
    }

    /// Announces the pages of coming segments to the source; called before segment `position` is read.
    pub(crate) fn announce(
        &self,
        columns: &[ColumnId],
        segments: &[ClusterSegment<'_>],
        position: usize,
    ) {
        // The pages of a remote source were announced by `announce_fields`.
        if !self.is_scattered || !position.is_multiple_of(ANNOUNCED) || self.source.is_remote() {
            return;
        }
        let first = if position == 0 { 0 } else { position + ANNOUNCED };
        let end = segments.len().min(position + 2 * ANNOUNCED);
        let mut ranges: Vec<Range<u64>> = vec![];
        for segment in segments.get(first..end).unwrap_or_default() {
            let Some((id, run)) = segment.cluster.active(columns) else { continue };
            let pages = &run.pages[run.pages_with(&segment.range)];
            ranges.extend(pages.iter().filter(|page| !self.is_cached(id, page)).map(|page| {
                let start = page.locator.offset;
                start..start.saturating_add(page.stored_size())
            }));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let is_joined = next.start <= before.end;
            before.end = if is_joined { before.end.max(next.end) } else { before.end };
            is_joined
        });
        self.source.will_need(&ranges);
    }

    pub(super) fn is_cached(&self, id: ColumnId, page: &PageLocation) -> bool {
        self.cache.is_some_and(|cache| cache.pages.get(cache.key(id, page)).is_some())
    }

    fn forget(&self, id: ColumnId, page: &PageLocation) {
        if let Some(cache) = self.cache {
            cache.pages.remove(cache.key(id, page));
        }
    }

    /// Refuses elements that stored pages cannot have, before memory is allocated for them.
    pub(crate) fn check_segments(
        &self,
        columns: &[ColumnId],
        segments: &[ClusterSegment<'_>],
        target: Element,
    ) -> Result<()> {
        let mut zeros = 0_u64;
        for segment in segments.iter().filter(|segment| !segment.range.is_empty()) {
            let Range { start, end } = segment.range;
            let active = segment.cluster.active(columns);
            let elements = active.map_or(end, |(_, run)| run.elements);
            if end > elements || active.is_none() && segment.is_referenced {
                let columns = format!("columns {columns:?} end before element {end}");
                return Err(Error::corrupt("page list", 0, columns));
            }
            let missing = active.map_or(end, |(_, run)| run.missing.min(end));
            zeros = zeros.saturating_add(missing.saturating_sub(start));
            if let Some((id, run)) = active {
                let column = &self.schema.columns[id as usize];
                let pages = &run.pages[run.pages_with(&segment.range)];
                pages.iter().try_for_each(|page| check_page(column, page, segment.cluster))?;
            }
        }
        if zeros.saturating_mul(target.size() as u64) <= ZERO_BYTES_MAX {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "{zeros} default values of an added field are too many: read fewer entries at a time"
            )))
        }
    }

    /// Reads a small range from the page cache: shared with the cache if one page has all of it, else
    /// copied. `None` if the range is not worth caching.
    fn shared_elements(
        &self,
        columns: &[ColumnId],
        segment: &ClusterSegment<'_>,
        target: Element,
    ) -> Result<Option<Bytes>> {
        let Some((id, run)) = segment.cluster.active(columns) else { return Ok(None) };
        let column = &self.schema.columns[id as usize];
        let ClusterSegment { range, .. } = segment;
        let pages = run.pages_with(range);
        if column.element()? != target || !self.is_worth_caching(run, range, &pages) {
            return Ok(None);
        }
        let located = &run.pages[pages.clone()];
        located.iter().try_for_each(|page| check_page(column, page, segment.cluster))?;
        if let [page] = located {
            let page_start = run.starts[pages.start];
            let first = (range.start - page_start) as usize * target.size();
            let length = (range.end - range.start) as usize * target.size();
            return Ok(Some(self.cached_page(id, page, true)?.slice(first..first + length)));
        }
        let mut joined = AlignedBuffer::new(range.end - range.start, target.size())?;
        let mut rest = joined.bytes_mut();
        for position in pages {
            let (page, start) = (&run.pages[position], run.starts[position]);
            let first = (range.start.max(start) - start) as usize * target.size();
            let end = (range.end.min(start + u64::from(page.elements)) - start) as usize;
            let part = &self.cached_page(id, page, true)?[first..end * target.size()];
            rest[..part.len()].copy_from_slice(part);
            rest = &mut rest[part.len()..];
        }
        Ok(Some(joined.into_bytes()))
    }

    /// Whether further reads are likely to need the pages of a range: those of one page, if it is small or
    /// not read as a whole; those of two pages, if at most half a page is read.
    fn is_worth_caching(&self, run: &PageRun, range: &Range<u64>, pages: &Range<usize>) -> bool {
        let Some(first) = run.pages.get(pages.start) else { return false };
        let (count, elements) = (range.end - range.start, u64::from(first.elements));
        let is_part = match pages.len() {
            1 => count < elements || first.locator.size <= SMALL_PAGE,
            2 => count <= elements / 2,
            _ => false,
        };
        let is_stored = run.starts[pages.start] <= range.start && range.end <= run.elements;
        self.cache.is_some() && is_part && is_stored
    }

    /// A whole page, from the cache if possible; a page that is read is put into the cache if `is_kept`.
    pub(super) fn cached_page(
        &self,
        id: ColumnId,
        page: &PageLocation,
        is_kept: bool,
    ) -> Result<Bytes> {
        let column = &self.schema.columns[id as usize];
        if let Some(cache) = self.cache
            && let Some(bytes) = cache.pages.get(cache.key(id, page))
            && bytes.len() == page.elements as usize * column.element()?.size()
        {
            return Ok(bytes);
        }
        let bytes = self.whole_page(column, page)?.into_bytes();
        if let Some(cache) = self.cache.filter(|_| is_kept) {
            cache.pages.put(cache.key(id, page), bytes.clone());
        }
        Ok(bytes)
    }

    /// Reads the first of consecutive pages of a cluster, together with as many of the next as fit in
    /// `bytes` stored bytes. None of them is put in the cache.
    pub(super) fn pages_ahead(
        &self,
        id: ColumnId,
        pages: &[PageLocation],
        cluster: &StoredCluster,
        bytes: usize,
    ) -> Result<Vec<Bytes>> {
        let column = &self.schema.columns[id as usize];
        let mut ahead = 0;
        let together = pages.iter().take_while(|page| {
            ahead += page.stored_size() as usize;
            ahead <= bytes && !self.is_cached(id, page)
        });
        let pages = &pages[..together.count().max(1).min(pages.len())];
        pages.iter().try_for_each(|page| check_page(column, page, cluster))?;
        if let [only] = pages {
            return Ok(vec![self.cached_page(id, only, false)?]);
        }
        let size = column.element()?.size();
        let buffers =
            pages.iter().map(|page| AlignedBuffer::for_overwriting(page.elements.into(), size));
        let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
        let reads = pages.iter().zip(&mut buffers);
        let reads =
            reads.map(|(page, buffer)| PageRead { page, skip: 0, target: buffer.bytes_mut() });
        read_batch(self.source, column, reads.collect())?;
        Ok(buffers.into_iter().map(AlignedBuffer::into_bytes).collect())
    }

    fn whole_page(&self, column: &Column, page: &PageLocation) -> Result<AlignedBuffer> {
        let mut decoded =
            AlignedBuffer::for_overwriting(page.elements.into(), column.element()?.size())?;
        let whole = PageRead { page, skip: 0, target: decoded.bytes_mut() };
        read_batch(self.source, column, vec![whole])?;
        Ok(decoded)
    }

    /// Fills `out` with the elements of one checked segment, converted to `target`.
    fn read_segment(
        &self,
        columns: &[ColumnId],
        segment: &ClusterSegment<'_>,
        target: Element,
        out: &mut [u8],
    ) -> Result<()> {
        // A field that was added after the cluster was written reads as zeros.
        let Some((id, run)) = segment.cluster.active(columns) else {
            out.fill(0);
            return Ok(());
        };
        let column = &self.schema.columns[id as usize];
        let element = column.element()?;
        let start = segment.range.start.max(run.missing).min(segment.range.end);
        let zeros = (start - segment.range.start) as usize;
        let range = start..segment.range.end;
        let (before, out) = out.split_at_mut(zeros * target.size());
        before.fill(0);
        if element == target {
            return self.read_pages(id, run, range, out);
        }
        let mut unconverted =
            AlignedBuffer::for_overwriting(range.end - range.start, element.size())?;
        self.read_pages(id, run, range, unconverted.bytes_mut())?;
        convert(element, unconverted.bytes_mut(), target, out)
    }

    fn read_pages(
        &self,
        id: ColumnId,
        run: &PageRun,
        range: Range<u64>,
        mut out: &mut [u8],
    ) -> Result<()> {
        let column = &self.schema.columns[id as usize];
        let element_size = column.element()?.size();
        let mut reads: Vec<PageRead<'_>> = vec![];
        let mut batch_bytes = 0;
        let pages = run.pages_with(&range);
        let is_entry = self.is_scattered && pages.len() <= 2;
        for position in pages {
            let page = &run.pages[position];
            let first = run.starts[position].max(range.start);
            let end = (run.starts[position] + u64::from(page.elements)).min(range.end);
            let (target, behind) = out.split_at_mut((end - first) as usize * element_size);
            out = behind;
            let skip = (first - run.starts[position]) as usize;
            let is_whole = end - first == u64::from(page.elements);
            let has_remote = self.source.is_remote() && self.is_cached(id, page);
            if self.cache.is_some() && (is_entry || !is_whole || has_remote) {
                // The next range is likely to need the rest of the page. If this range reads the page to
                // its end, the cache drops it, and its memory is recycled.
                let is_done =
                    !self.is_scattered && end == run.starts[position] + u64::from(page.elements);
                let bytes = self.cached_page(id, page, !is_done)?;
                target.copy_from_slice(&bytes[skip * element_size..][..target.len()]);
                if is_done {
                    self.forget(id, page);
                }
                continue;
            }
            reads.push(PageRead { page, skip, target });
            batch_bytes += page.stored_size() as usize;
            if batch_bytes >= BATCH_BYTES {
                read_batch(self.source, column, std::mem::take(&mut reads))?;
                batch_bytes = 0;
            }
        }
        read_batch(self.source, column, reads)
    }
}

impl FileCache {
    fn key(&self, column: ColumnId, page: &PageLocation) -> PageKey {
        PageKey { file: self.file, column, offset: page.locator.offset }
    }
}

impl PageRun {
    /// The pages that overlap a range.
    pub(crate) fn pages_with(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let first = self.starts.partition_point(|&start| start <= range.start).saturating_sub(1);
        let end = self.starts.partition_point(|&start| start < range.end);
        first..end.max(first)
    }
}
