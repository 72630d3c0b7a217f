//! Codecs of the integers, strings and frames that envelopes and ROOT's records are made of.
//!
//! Invariants:
//! 1. A [`Reader`] never reads outside its bytes and never allocates more than they can describe:
//!    it refuses a count of items that cannot fit in the bytes left, at their least size.
//! 2. RNTuple is little-endian; the records of a ROOT file are big-endian (`_be`).
//! 3. A frame is skipped by its size, so fields that later versions append to it are ignored.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Basic Types" and "Frames".

use twox_hash::XxHash3_64;

use crate::error::{Error, Result};

/// Bytes of the size that opens a record frame.
pub(crate) const RECORD_FRAME_OVERHEAD: usize = 8;
/// Bytes of the size and the count that open a list frame.
pub(crate) const LIST_FRAME_OVERHEAD: usize = 12;

/// Decodes values from the front of a byte slice.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    position: usize,
    /// Offset of `bytes` in the file or envelope, for error messages.
    base: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, which start at offset `base` of a structure called `what` in errors.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8], base: u64) -> Self {
        Reader { what, bytes, position: 0, base }
    }

    /// Bytes not yet read.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Offset of the next byte in the file or envelope.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.what, self.offset(), reason)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let left = &self.bytes[self.position..];
        let taken = left.get(..count).ok_or_else(|| {
            self.corrupt(format!("{count} bytes expected, but only {} are left", left.len()))
        })?;
        self.position += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64> {
        self.array().map(f64::from_le_bytes)
    }

    pub(crate) fn u16_be(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32_be(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32_be(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64_be(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A file offset of a ROOT record: 8 bytes in the large format, 4 in the small one.
    pub(crate) fn seek_be(&mut self, large: bool) -> Result<u64> {
        if large { self.u64_be() } else { self.u32_be().map(u64::from) }
    }

    /// A string of an envelope.
    pub(crate) fn string(&mut self) -> Result<String> {
        let length = self.u32()?;
        self.text(length)
    }

    /// A string of a ROOT record: a length byte, or 255 and a length of 32 bits.
    pub(crate) fn string_be(&mut self) -> Result<String> {
        let length = match self.u8()? {
            255 => self.u32_be()?,
            short => u32::from(short),
        };
        self.text(length)
    }

    /// Opaque bytes, stored as a string is.
    pub(crate) fn blob(&mut self) -> Result<Vec<u8>> {
        let length = self.u32()?;
        self.take(length as usize).map(<[u8]>::to_vec)
    }

    fn text(&mut self, length: u32) -> Result<String> {
        let bytes = self.take(length as usize)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| self.corrupt("a string is not UTF-8"))
    }

    /// The payload of the next record frame; this reader continues behind the frame.
    pub(crate) fn record_frame(&mut self) -> Result<Reader<'a>> {
        let size = self.i64()?;
        if size < 0 {
            return Err(self.corrupt("a list frame stands where a record frame is expected"));
        }
        self.frame_payload(size.unsigned_abs(), RECORD_FRAME_OVERHEAD)
    }

    /// The number of items and the payload of the next list frame, whose items have at least
    /// `item_size_min` bytes each; this reader continues behind the frame.
    pub(crate) fn list_frame(&mut self, item_size_min: usize) -> Result<(usize, Reader<'a>)> {
        let size = self.i64()?;
        if size >= 0 {
            return Err(self.corrupt("a record frame stands where a list frame is expected"));
        }
        let count = self.u32()? as usize;
        let payload = self.frame_payload(size.unsigned_abs(), LIST_FRAME_OVERHEAD)?;
        payload.check_count(count, item_size_min)?;
        Ok((count, payload))
    }

    /// Refuses a count of items that cannot fit in the bytes left.
    pub(crate) fn check_count(&self, count: usize, item_size_min: usize) -> Result<()> {
        match count.checked_mul(item_size_min) {
            Some(needed) if needed <= self.remaining() => Ok(()),
            _ => {
                let left = self.remaining();
                Err(self.corrupt(format!("{count} items cannot fit in the {left} bytes left")))
            }
        }
    }

    fn frame_payload(&mut self, size: u64, overhead: usize) -> Result<Reader<'a>> {
        let length = usize::try_from(size).ok().and_then(|size| size.checked_sub(overhead));
        let Some(length) = length else {
            return Err(self.corrupt(format!("a frame cannot have {size} bytes")));
        };
        let base = self.offset();
        Ok(Reader::new(self.what, self.take(length)?, base))
    }
}

/// Appends values to bytes.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn f64(&mut self, value: f64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn u16_be(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u32_be(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u64_be(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// A string of an envelope.
    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        self.blob(text.as_bytes())
    }

    /// Opaque bytes, stored as a string is.
    pub(crate) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(count_u32(bytes.len())).raw(bytes)
    }

    /// A string of a ROOT record; see [`string_be_size`].
    pub(crate) fn string_be(&mut self, text: &str) -> &mut Self {
        match u8::try_from(text.len()) {
            Ok(length) if length < 255 => self.u8(length),
            _ => self.u8(255).u32_be(count_u32(text.len())),
        };
        self.raw(text.as_bytes())
    }

    pub(crate) fn record_frame(&mut self, payload: impl FnOnce(&mut Writer)) -> &mut Self {
        let start = self.bytes.len();
        self.i64(0);
        payload(self);
        self.close_frame(start, 1)
    }

    pub(crate) fn list_frame(
        &mut self,
        count: usize,
        payload: impl FnOnce(&mut Writer),
    ) -> &mut Self {
        let start = self.bytes.len();
        self.i64(0).u32(count_u32(count));
        payload(self);
        self.close_frame(start, -1)
    }

    fn close_frame(&mut self, start: usize, sign: i64) -> &mut Self {
        let size = sign * (self.bytes.len() - start) as i64;
        self.bytes[start..start + 8].copy_from_slice(&size.to_le_bytes());
        self
    }
}

/// Bytes that [`Writer::string_be`] writes.
pub(crate) const fn string_be_size(text: &str) -> usize {
    text.len() + if text.len() < 255 { 1 } else { 5 }
}

/// Whether `bytes` have this XXH3 checksum. A fuzzer cannot guess checksums: in builds for fuzzing all
/// of them hold, so that its inputs reach the decoders behind.
pub(crate) fn checksum_holds(bytes: &[u8], checksum: u64) -> bool {
    cfg!(fuzzing) || XxHash3_64::oneshot(bytes) == checksum
}

/// A count or length as the 32 bits of the format. Written names and lists never come near the limit.
fn count_u32(count: usize) -> u32 {
    u32::try_from(count).expect("names and lists of metadata have fewer than 2^32 items")
}
