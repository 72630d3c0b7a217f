//! Stored pages: encoded elements, compressed if that makes them smaller, followed by a checksum.

use twox_hash::XxHash3_64;

use crate::column::ColumnType;
use crate::compression::{Compression, Planes, compress_planes, decompress, decompress_verified};
use crate::encoding::{decode, encode_into, encoded_size, encoded_size_of};
use crate::error::{Error, Result};
use crate::schema::Column;
use crate::wire::checksum_holds;

/// Bytes of the checksum after a page, which the size in a locator does not include.
pub const CHECKSUM_SIZE: usize = 8;

/// Buffers for reading and writing pages; keep one for each thread to avoid allocations.
#[derive(Debug, Default)]
pub struct PageBuffers {
    encoded: Vec<u8>,
    compressed: Vec<u8>,
}

/// A page ready to be stored: write the payload, then the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedPage<'a> {
    /// The stored bytes, which a locator refers to. Those of a plain column without compression are the
    /// values of the caller, not a copy.
    pub payload: &'a [u8],
    /// The checksum of the payload.
    pub checksum: [u8; CHECKSUM_SIZE],
}

impl SealedPage<'_> {
    /// Appends payload and checksum.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.payload);
        out.extend_from_slice(&self.checksum);
    }
}

/// Encodes and compresses elements in memory into a page.
pub fn seal_page<'a>(
    column: &Column,
    values: &'a [u8],
    compression: Compression,
    buffers: &'a mut PageBuffers,
) -> Result<SealedPage<'a>> {
    let size = encoded_size_of(column, values)?;
    let encoded = if column.column_type.is_plain() {
        values
    } else {
        let encoded = at_least(&mut buffers.encoded, size);
        encode_into(column, values, encoded)?;
        encoded
    };
    buffers.compressed.clear();
    let planes = planes_of(column, encoded.len());
    let compressed = compress_planes(encoded, planes, compression, &mut buffers.compressed)?;
    let payload = if compressed { &buffers.compressed } else { encoded };
    Ok(SealedPage { payload, checksum: XxHash3_64::oneshot(payload).to_le_bytes() })
}

fn planes_of(column: &Column, encoded_size: usize) -> Planes {
    use ColumnType::*;
    let split = column.column_type;
    // Counters and identifiers, which repeat and ascend, are mostly unsigned.
    let have_noise =
        matches!(split, SplitReal32 | SplitReal64 | SplitInt16 | SplitInt32 | SplitInt64);
    Planes { bytes: encoded_size / split.planes(), have_noise }
}

/// Decodes a stored page of `elements` elements into `out`, which has room for exactly these elements
/// in memory. `stored` is the payload, followed by the checksum if `has_checksum`. `offset` is the
/// page's position in the file, for errors.
pub fn open_page(
    column: &Column,
    elements: usize,
    has_checksum: bool,
    offset: u64,
    stored: &[u8],
    buffers: &mut PageBuffers,
    out: &mut [u8],
) -> Result<()> {
    let (payload, decompress): (_, Decompress) = if has_checksum {
        (verified(stored, offset)?, decompress_verified)
    } else {
        (stored, decompress)
    };
    unpack(column, elements, payload, decompress, buffers, out)
        .map_err(|error| located(error, offset))
}

/// Decompresses a payload into memory of its uncompressed size.
type Decompress = fn(&[u8], &mut [u8]) -> Result<()>;

fn verified(stored: &[u8], offset: u64) -> Result<&[u8]> {
    let Some((payload, checksum)) = stored.split_last_chunk::<CHECKSUM_SIZE>() else {
        return Err(Error::corrupt("page", offset, "too short for its checksum"));
    };
    let expected = u64::from_le_bytes(*checksum);
    if !checksum_holds(payload, expected) {
        let reason = format!(
            "checksum {:016x} where {expected:016x} is expected",
            XxHash3_64::oneshot(payload)
        );
        return Err(Error::corrupt("page", offset, reason));
    }
    Ok(payload)
}

fn unpack(
    column: &Column,
    elements: usize,
    payload: &[u8],
    decompress: Decompress,
    buffers: &mut PageBuffers,
    out: &mut [u8],
) -> Result<()> {
    let size = encoded_size(column.column_type, column.bits, elements)?;
    if payload.len() == size {
        return decode(column, payload, elements, out);
    }
    if column.column_type.is_plain() && out.len() == size {
        return decompress(payload, out);
    }
    let encoded = at_least(&mut buffers.encoded, size);
    decompress(payload, encoded)?;
    decode(column, encoded, elements, out)
}

/// The first `size` bytes of a buffer that never shrinks, so that its memory is zeroed only once.
fn at_least(buffer: &mut Vec<u8>, size: usize) -> &mut [u8] {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    &mut buffer[..size]
}

/// Adds the offset in the file to an error of a codec, which does not know the offset.
fn located(error: Error, offset: u64) -> Error {
    match error {
        Error::Corrupt { what: what @ ("page" | "compressed bytes"), reason, .. } => {
            Error::Corrupt { what, offset, reason }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
