//! Reading one page for itself, to see whether its bytes are whole.

use std::ops::Range;

use rntuple::{
    ByteSource, PageBuffers, PageLocation, Reader, encoded_size, open_page, uncompressed_size_max,
};

use crate::error::{Error, Result};

/// A page has at most this many bytes in memory, as for reading.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// Buffers for reading pages.
#[derive(Default)]
pub(crate) struct PageBuffer {
    stored: Vec<u8>,
    decoded: Vec<u8>,
    buffers: PageBuffers,
}

/// Reads, verifies and decodes a page.
pub(crate) fn read_page(
    source: &dyn ByteSource,
    page: &PageLocation,
    column: usize,
    range: Range<u64>,
    reader: &Reader,
    room: &mut PageBuffer,
) -> Result<()> {
    let what = || format!("page at byte {}", range.start);
    let damaged = |reason: &str| Error::Corrupt { what: format!("{}: {reason}", what()) };
    if lies_beyond(source, &range) {
        return Err(damaged("it ends beyond the end of the file"));
    }
    let Some(column) = reader.schema().columns.get(column) else {
        return Err(damaged("it belongs to no column"));
    };
    let elements = page.elements as usize;
    let size = encoded_size(column.column_type, column.bits, elements);
    let (Ok(size), Some(element)) = (size, column.column_type.element()) else {
        // A column of a later version of the format can be carried but not looked at.
        return Ok(());
    };
    let memory = elements.saturating_mul(element.size());
    if size as u64 > uncompressed_size_max(page.locator.size) || memory > PAGE_BYTES_MAX {
        return Err(damaged("its elements do not come from its bytes"));
    }
    room.stored.resize((range.end - range.start) as usize, 0);
    room.decoded.resize(memory, 0);
    source.read_at(range.start, &mut room.stored).map_err(Error::storage(what()))?;
    let (stored, decoded) = (&room.stored, &mut room.decoded);
    open_page(column, elements, page.checksum, range.start, stored, &mut room.buffers, decoded)
        .map_err(Error::storage(what()))
}

/// Bytes of the file from which on nothing can lie.
pub(super) fn lies_beyond(source: &dyn ByteSource, range: &Range<u64>) -> bool {
    source.size().is_ok_and(|size| range.end > size)
}
