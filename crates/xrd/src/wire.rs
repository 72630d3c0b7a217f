//! Codecs of integers, texts and lists, of which all messages consist.
//!
//! 1. A [`Reader`] never reads outside its bytes, and does not allocate.
//! 2. Integers are big-endian. Lengths and offsets are signed on the wire: a [`Reader`] rejects negative ones, and a
//!    [`Writer`] those that do not fit.
//! 3. A [`Writer`] keeps its first error until [`Writer::finish`], so that encoders read like layouts.
//!
//! Source: "The XRootD Protocol", section 1 (data types and their order).

use bytes::Bytes;

use crate::error::{Error, Result};

/// Decodes values from the front of some bytes.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    position: usize,
    /// The offset of `bytes` in the message, for errors.
    base: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which start at `base` of a `what`.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8], base: usize) -> Self {
        Reader { what, bytes, position: 0, base }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn malformed(&self, reason: impl Into<String>) -> Error {
        Error::malformed(self.what, self.base + self.position, reason)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let left = &self.bytes[self.position..];
        let taken = left.get(..count).ok_or_else(|| {
            self.malformed(format!("expected {count} bytes, found {}", left.len()))
        })?;
        self.position += count;
        Ok(taken)
    }

    /// All bytes not yet read.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.position..];
        self.position = self.bytes.len();
        rest
    }

    /// The bytes up to the next zero byte, which is skipped.
    pub(crate) fn zero_ended(&mut self) -> Result<&'a [u8]> {
        let left = &self.bytes[self.position..];
        let Some(length) = left.iter().position(|&byte| byte == 0) else {
            return Err(self.malformed("a text without a zero byte at its end"));
        };
        self.position += length + 1;
        Ok(&left[..length])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of 31 bits.
    pub(crate) fn length(&mut self) -> Result<u32> {
        let length = self.clone().i32()?;
        let positive = u32::try_from(length)
            .map_err(|_| self.malformed(format!("the length {length} is negative")))?;
        self.position += 4;
        Ok(positive)
    }

    /// An offset of 63 bits.
    pub(crate) fn offset(&mut self) -> Result<u64> {
        let offset = self.clone().u64()?.cast_signed();
        let positive = u64::try_from(offset)
            .map_err(|_| self.malformed(format!("the offset {offset} is negative")))?;
        self.position += 8;
        Ok(positive)
    }

    /// Rejects trailing bytes.
    pub(crate) fn end(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.malformed(format!("{left} trailing bytes"))),
        }
    }
}

/// Appends values to bytes.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    error: Option<Error>,
}

impl Writer {
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// A length of 31 bits.
    pub(crate) fn length(&mut self, value: u32) -> &mut Self {
        if i32::try_from(value).is_err() {
            self.fail(Error::invalid(format!("a length of {value} does not fit in 31 bits")));
        }
        self.u32(value)
    }

    /// An offset of 63 bits.
    pub(crate) fn offset(&mut self, value: u64) -> &mut Self {
        if i64::try_from(value).is_err() {
            self.fail(Error::invalid(format!("an offset of {value} does not fit in 63 bits")));
        }
        self.u64(value)
    }

    /// Appends bytes, which must not have a zero byte, and a zero byte.
    pub(crate) fn zero_ended(&mut self, bytes: &[u8]) -> &mut Self {
        if bytes.contains(&0) {
            self.fail(Error::invalid("a text must not have a zero byte"));
        }
        self.raw(bytes).u8(0)
    }

    /// Makes [`Writer::finish`] fail.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.bytes),
        }
    }
}

/// A body without the zero byte that may end it.
pub(crate) fn without_end(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(&[0]).unwrap_or(bytes)
}

/// A body as text, without trailing zero bytes, and with invalid UTF-8 replaced.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// `part`, which must lie in `whole`, as a [`Bytes`] that shares its memory.
pub(crate) fn shared(whole: &Bytes, part: &[u8]) -> Bytes {
    whole.slice_ref(part)
}
