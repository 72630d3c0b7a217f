//! Batches of pages of one column: read with one vectored request, checked and decoded.
//!
//! A page that is stored as its elements are in memory is read straight into its target; other pages are
//! read into a buffer of the thread and decoded from there.

use super::cluster::{FileBounds, StoredCluster};
use crate::buffer::AlignedBuffer;
use crate::column::Element;
use crate::compression::uncompressed_size_max;
use crate::encoding::encoded_size;
use crate::error::{Error, Result};
use crate::locator::Locator;
use crate::page::{CHECKSUM_SIZE, PageBuffers, open_page};
use crate::page_list::PageLocation;
use crate::schema::Column;
use crate::source::{ByteSource, ReadRequest};
use crate::wire::checksum_holds;

/// Bytes of a page's elements in memory; ROOT's pages have a mebibyte by default.
const PAGE_BYTES_MAX: u64 = 1 << 30;

/// Reads pages of one column into their targets.
pub(super) fn read_batch(
    source: &dyn ByteSource,
    column: &Column,
    mut reads: Vec<PageRead<'_>>,
) -> Result<()> {
    let staged = reads.iter().map(|read| read.staged_bytes(column)).sum();
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch { stored, buffers } = scratch;
        if stored.len() < staged {
            stored.resize(staged, 0);
        }
        let mut requests = Vec::with_capacity(2 * reads.len());
        let mut free = &mut stored[..];
        for read in &mut reads {
            read.request(column, &mut free, &mut requests);
        }
        source.read_many(&mut requests)?;
        drop(requests);
        let mut rest = &mut stored[..];
        let mut damaged = vec![];
        for mut read in reads {
            let (staged, behind) = rest.split_at_mut(read.staged_bytes(column));
            rest = behind;
            match read.open(column, staged, buffers) {
                Err(error) if error.is_damage() && source.is_remote() => {
                    damaged.push((read, staged))
                }
                opened => opened?,
            }
        }
        read_again(source, column, damaged, buffers)
    })
}

/// Reads pages that arrived damaged once more, past all caches.
fn read_again(
    source: &dyn ByteSource,
    column: &Column,
    mut damaged: Vec<(PageRead<'_>, &mut [u8])>,
    buffers: &mut PageBuffers,
) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let mut requests = Vec::with_capacity(2 * damaged.len());
    for (read, staged) in &mut damaged {
        read.request(column, &mut &mut **staged, &mut requests);
    }
    source.read_past_caches(&mut requests)?;
    drop(requests);
    damaged.into_iter().try_for_each(|(mut read, staged)| read.open(column, staged, buffers))
}

/// Buffers that a thread reuses, so that their memory is touched for the first time only once.
#[derive(Default)]
struct Scratch {
    stored: Vec<u8>,
    buffers: PageBuffers,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

/// A page to read, and the target of the wanted part of its elements.
pub(super) struct PageRead<'a> {
    pub page: &'a PageLocation,
    /// Elements of the page before the first wanted one.
    pub skip: usize,
    pub target: &'a mut [u8],
}

impl PageRead<'_> {
    /// Whether the page is read straight into the target, and only its checksum into the buffer.
    fn is_direct(&self, column: &Column) -> bool {
        let whole = self.page.elements as usize * column.element().map_or(0, Element::size);
        column.column_type.is_plain()
            && self.target.len() == whole
            && self.page.locator.size == whole as u64
    }

    fn staged_bytes(&self, column: &Column) -> usize {
        let checksum = if self.page.checksum { CHECKSUM_SIZE } else { 0 };
        if self.is_direct(column) { checksum } else { self.page.stored_size() as usize }
    }

    fn request<'s>(
        &'s mut self,
        column: &Column,
        free: &mut &'s mut [u8],
        requests: &mut Vec<ReadRequest<'s>>,
    ) {
        let (staged, rest) = std::mem::take(free).split_at_mut(self.staged_bytes(column));
        *free = rest;
        let offset = self.page.locator.offset;
        if self.is_direct(column) {
            let behind = offset.saturating_add(self.target.len() as u64);
            requests.push(ReadRequest { offset, buffer: self.target });
            if !staged.is_empty() {
                requests.push(ReadRequest { offset: behind, buffer: staged });
            }
        } else {
            requests.push(ReadRequest { offset, buffer: staged });
        }
    }

    fn open(&mut self, column: &Column, staged: &[u8], buffers: &mut PageBuffers) -> Result<()> {
        if self.is_direct(column) {
            return check_direct(self.page, self.target, staged);
        }
        let element_size = column.element()?.size();
        let elements = self.page.elements as usize;
        if self.target.len() == elements * element_size {
            return open_stored(column, self.page, staged, buffers, self.target);
        }
        let mut whole = AlignedBuffer::new(elements as u64, element_size)?;
        open_stored(column, self.page, staged, buffers, whole.bytes_mut())?;
        let wanted = self.skip * element_size..self.skip * element_size + self.target.len();
        self.target.copy_from_slice(&whole.bytes_mut()[wanted]);
        Ok(())
    }
}

fn check_direct(page: &PageLocation, payload: &[u8], checksum: &[u8]) -> Result<()> {
    let expected = checksum.first_chunk().copied().map(u64::from_le_bytes);
    if expected.is_some_and(|expected| !checksum_holds(payload, expected)) {
        return Err(Error::corrupt("page", page.locator.offset, "its checksum is wrong"));
    }
    Ok(())
}

fn open_stored(
    column: &Column,
    page: &PageLocation,
    stored: &[u8],
    buffers: &mut PageBuffers,
    out: &mut [u8],
) -> Result<()> {
    let (elements, offset) = (page.elements as usize, page.locator.offset);
    open_page(column, elements, page.checksum, offset, stored, buffers, out)
}

/// Refuses a page whose elements cannot come from its stored bytes.
pub(super) fn check_page(
    column: &Column,
    page: &PageLocation,
    cluster: &StoredCluster,
) -> Result<()> {
    let Locator { offset, size } = page.locator;
    let elements = page.elements as usize;
    let unpacked = encoded_size(column.column_type, column.bits, elements)? as u64;
    let in_memory = elements as u64 * column.element()?.size() as u64;
    let stored = page.stored_size();
    let FileBounds { file_size, key_size_max } = cluster.bounds;
    let reason = if offset.checked_add(stored).is_none_or(|end| end > file_size) {
        format!("its {stored} bytes end beyond the file's {file_size}")
    } else if key_size_max > 0 && stored > key_size_max {
        // The limit is 1 GiB in files of ROOT and of this crate; envelopes may exceed it, pages do not.
        return Err(Error::unsupported("a page that is spread over several keys"));
    } else if size > unpacked || unpacked > uncompressed_size_max(size) {
        format!("{size} bytes cannot hold {elements} elements")
    } else if in_memory > PAGE_BYTES_MAX {
        format!("{elements} elements exceed a page's limit of {PAGE_BYTES_MAX} bytes in memory")
    } else {
        return Ok(());
    };
    Err(Error::corrupt("page", offset, reason))
}
