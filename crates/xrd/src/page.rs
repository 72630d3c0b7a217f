//! Data in pages with checksums, as pgread and pgwrite carry them.
//!
//! ```text
//! file    |        4096        |        4096        |        4096        |
//! data         [ 1000 ............................................ 9000 ]
//! wire    crc 3096 bytes | crc 4096 bytes | crc 808 bytes
//! ```
//!
//! 1. Pages are aligned in the file: the first one is short if the data start within a page.
//! 2. The data of each page follow their CRC32C, 4 bytes, big-endian.
//! 3. A wrong checksum is not a protocol error: the page is reported and its data are kept, since a client may send
//!    corrections later.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_pgread and kXR_pgwrite.

use crate::error::{Error, Result};

/// Bytes of a page of a file.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a page's checksum.
pub const CHECKSUM_BYTES: usize = 4;

/// A range of a file that lies in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// The first byte in the file.
    pub offset: u64,
    /// Bytes, at most [`PAGE_BYTES`].
    pub length: usize,
}

/// The CRC32C of some data (RFC 7143, iSCSI).
///
/// ```
/// assert_eq!(xrd::page::checksum(b"123456789"), 0xe306_9283);
/// ```
pub fn checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// Splits `length` bytes from `offset` on at page boundaries.
pub fn pages(offset: u64, length: u64) -> impl Iterator<Item = PageRange> {
    let end = offset.saturating_add(length);
    let mut next = offset;
    std::iter::from_fn(move || {
        let length = ((end - next) as usize).min(room_in_page(next));
        let range = PageRange { offset: next, length };
        next += length as u64;
        (length > 0).then_some(range)
    })
}

/// Bytes from `offset` to the end of its page.
fn room_in_page(offset: u64) -> usize {
    PAGE_BYTES - (offset % PAGE_BYTES as u64) as usize
}

/// The size on the wire of `length` bytes of data from `offset` on, checksums included.
///
/// ```
/// assert_eq!(xrd::page::wire_bytes(1000, 8000), 8000 + 3 * 4);
/// ```
pub fn wire_bytes(offset: u64, length: u64) -> u64 {
    let first = offset % PAGE_BYTES as u64;
    let pages = if length == 0 { 0 } else { (first + length).div_ceil(PAGE_BYTES as u64) };
    length + pages * CHECKSUM_BYTES as u64
}

/// Appends `data`, which start at `offset` of their file, with their checksums to `out`.
pub fn encode_pages(offset: u64, data: &[u8], out: &mut Vec<u8>) {
    out.reserve(wire_bytes(offset, data.len() as u64) as usize);
    let mut left = data;
    for page in pages(offset, data.len() as u64) {
        let (now, later) = left.split_at(page.length);
        out.extend_from_slice(&checksum(now).to_be_bytes());
        out.extend_from_slice(now);
        left = later;
    }
}

/// Decodes all of `wire`: appends the data to `out`, and returns the pages with wrong checksums.
///
/// # Errors
/// [`Error::Malformed`] if the last page has no data, or only a part of its checksum.
pub fn decode_pages(offset: u64, wire: &[u8], out: &mut Vec<u8>) -> Result<Vec<PageRange>> {
    let mut decoder = PageDecoder::new(offset, wire.len() as u64)?;
    let mut bad = Vec::new();
    decoder.push(wire, out, &mut bad);
    Ok(bad)
}

/// Decodes pages from the wire, in pieces of any size.
///
/// Data are not held back: each byte is appended to the output at once, and a wrong checksum is reported at the end of
/// its page.
///
/// ```
/// let mut wire = Vec::new();
/// xrd::page::encode_pages(0, b"some data", &mut wire);
/// let mut decoder = xrd::page::PageDecoder::new(0, wire.len() as u64)?;
/// let (mut data, mut bad) = (Vec::new(), Vec::new());
/// for piece in wire.chunks(3) {
///     decoder.push(piece, &mut data, &mut bad);
/// }
/// assert_eq!((data.as_slice(), bad.len()), (&b"some data"[..], 0));
/// # Ok::<(), xrd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PageDecoder {
    /// The missing bytes of the wire.
    left: u64,
    page: PageRange,
    /// The received bytes of this page's checksum and data.
    taken: usize,
    expected: [u8; CHECKSUM_BYTES],
    found: u32,
}

impl PageDecoder {
    /// A decoder for `wire` bytes, checksums included, of data from `offset` of their file on.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the last page would have no data; [`Error::Invalid`] if the data end past 2^63 - 1.
    pub fn new(offset: u64, wire: u64) -> Result<Self> {
        if i64::try_from(offset.saturating_add(wire)).is_err() {
            return Err(Error::invalid(format!("{wire} bytes from {offset} on end past 2^63")));
        }
        let first = (room_in_page(offset) + CHECKSUM_BYTES) as u64;
        let last = match wire.checked_sub(first) {
            None => wire,
            Some(behind) => behind % (PAGE_BYTES + CHECKSUM_BYTES) as u64,
        };
        if (1..=CHECKSUM_BYTES as u64).contains(&last) {
            let reason = format!("the last page has {last} bytes, but its checksum alone has 4");
            return Err(Error::malformed("pages", wire as usize, reason));
        }
        let mut decoder = PageDecoder {
            left: wire,
            page: PageRange { offset, length: 0 },
            taken: 0,
            expected: [0; CHECKSUM_BYTES],
            found: 0,
        };
        decoder.start_page(offset);
        Ok(decoder)
    }

    /// The missing bytes of the wire.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Decodes bytes, at most [`PageDecoder::remaining`]. Appends their data to `out`, and the pages that end in them
    /// with wrong checksums to `bad`.
    pub fn push(&mut self, wire: &[u8], out: &mut Vec<u8>, bad: &mut Vec<PageRange>) {
        self.push_to(wire, |data| out.extend_from_slice(data), bad);
    }

    /// Like [`PageDecoder::push`], with the data passed to a function, in order.
    pub fn push_to(&mut self, wire: &[u8], mut out: impl FnMut(&[u8]), bad: &mut Vec<PageRange>) {
        let usable = usize::try_from(self.left).unwrap_or(usize::MAX).min(wire.len());
        let mut wire = &wire[..usable];
        while !wire.is_empty() {
            let used = if self.taken < CHECKSUM_BYTES {
                self.take_checksum(wire)
            } else {
                self.take_data(wire, &mut out)
            };
            wire = &wire[used..];
            self.taken += used;
            self.left -= used as u64;
            if self.taken == CHECKSUM_BYTES + self.page.length {
                self.end_page(bad);
            }
        }
    }

    fn take_checksum(&mut self, wire: &[u8]) -> usize {
        let count = wire.len().min(CHECKSUM_BYTES - self.taken);
        self.expected[self.taken..self.taken + count].copy_from_slice(&wire[..count]);
        count
    }

    fn take_data(&mut self, wire: &[u8], out: &mut impl FnMut(&[u8])) -> usize {
        let count = wire.len().min(CHECKSUM_BYTES + self.page.length - self.taken);
        self.found = crc32c::crc32c_append(self.found, &wire[..count]);
        out(&wire[..count]);
        count
    }

    fn end_page(&mut self, bad: &mut Vec<PageRange>) {
        if self.found != u32::from_be_bytes(self.expected) {
            bad.push(self.page);
        }
        self.start_page(self.page.offset + self.page.length as u64);
    }

    fn start_page(&mut self, offset: u64) {
        let data = self.left.saturating_sub(CHECKSUM_BYTES as u64);
        let length = usize::try_from(data).unwrap_or(usize::MAX).min(room_in_page(offset));
        self.page = PageRange { offset, length };
        (self.taken, self.found) = (0, 0);
    }
}
