//! Reading one page by itself, to see whether its bytes are intact.

use std::ops::Range;

use rntuple::{
    ByteSource, PageBuffers, PageLocation, Reader, encoded_size, open_page, uncompressed_size_max,
};

use crate::error::{Error, Result};

/// Bytes of a page in memory, at most, as for reading.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// Buffers for reading pages, reused from page to page.
#[derive(Default)]
pub(crate) struct PageBuffer {
    stored: Vec<u8>,
    decoded: Vec<u8>,
    buffers: PageBuffers,
}

/// A page of a version: its entry in the page list, the position of its column, and its bytes in the file.
pub(crate) struct StoredPage {
    pub(crate) page: PageLocation,
    pub(crate) column: usize,
    pub(crate) range: Range<u64>,
}

/// Reads, verifies and decodes a page.
pub(crate) fn read_page(
    source: &dyn ByteSource,
    stored: &StoredPage,
    reader: &Reader,
    buffer: &mut PageBuffer,
) -> Result<()> {
    let StoredPage { page, column, range } = stored;
    let what = || format!("page at byte {}", range.start);
    let damaged = |reason: &str| Error::Corrupt { what: format!("{}: {reason}", what()) };
    if lies_beyond(source, range) {
        return Err(damaged("it ends beyond the end of the file"));
    }
    let Some(column) = reader.schema().columns.get(*column) else {
        return Err(damaged("its column does not exist"));
    };
    let elements = page.elements as usize;
    let size = encoded_size(column.column_type, column.bits, elements);
    let (Ok(size), Some(element)) = (size, column.column_type.element()) else {
        // A column of a later version of the format is carried along unread.
        return Ok(());
    };
    let memory = elements.saturating_mul(element.size());
    if size as u64 > uncompressed_size_max(page.locator.size) || memory > PAGE_BYTES_MAX {
        return Err(damaged("its elements need more memory than its bytes can fill"));
    }
    buffer.stored.resize((range.end - range.start) as usize, 0);
    buffer.decoded.resize(memory, 0);
    source.read_at(range.start, &mut buffer.stored).map_err(Error::storage(what()))?;
    let (stored, decoded) = (&buffer.stored, &mut buffer.decoded);
    open_page(column, elements, page.checksum, range.start, stored, &mut buffer.buffers, decoded)
        .map_err(Error::storage(what()))
}

/// Whether a range ends beyond the file.
pub(super) fn lies_beyond(source: &dyn ByteSource, range: &Range<u64>) -> bool {
    source.size().is_ok_and(|size| range.end > size)
}
