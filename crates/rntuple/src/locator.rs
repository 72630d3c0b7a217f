//! Locators: byte ranges of pages and envelopes in the file.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Locators and Envelope Links".

use crate::error::{Error, Result};
use crate::wire::{Reader, Writer};

/// Least bytes of an encoded locator.
pub(crate) const LOCATOR_SIZE_MIN: usize = 12;
/// Least bytes of an encoded envelope link.
pub(crate) const ENVELOPE_LINK_SIZE_MIN: usize = 8 + LOCATOR_SIZE_MIN;

const LARGE_TYPE: u32 = 0x01;
/// Bytes of the large form: head, 64-bit size and 64-bit offset.
const LARGE_SIZE: u32 = 4 + 8 + 8;

/// A range of bytes of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locator {
    /// First byte, counted from the start of the file.
    pub offset: u64,
    /// Number of stored (compressed) bytes, without the checksum of a page.
    pub size: u64,
}

/// Location of an envelope, and its length when decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EnvelopeLink {
    /// Bytes of the envelope when decompressed.
    pub length: u64,
    /// Location of the stored bytes.
    pub locator: Locator,
}

impl Locator {
    /// Decodes either form; the first word of the large form is negative.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let head = reader.i32()?;
        let locator = if head >= 0 {
            Locator { size: u64::from(head.unsigned_abs()), offset: reader.u64()? }
        } else {
            Self::decode_special(head.unsigned_abs(), reader)?
        };
        match locator.offset.checked_add(locator.size) {
            Some(_) => Ok(locator),
            None => Err(reader.corrupt("a locator ends beyond 2^64")),
        }
    }

    /// Decodes the rest of a locator whose head has its type and size.
    fn decode_special(head: u32, reader: &mut Reader<'_>) -> Result<Self> {
        let (kind, size) = (head >> 24, head & 0xFFFF);
        if kind != LARGE_TYPE {
            return Err(Error::unsupported(format!("locator type {kind:#04x}")));
        }
        if size < LARGE_SIZE {
            return Err(reader.corrupt(format!("a large locator cannot have {size} bytes")));
        }
        let locator = Locator { size: reader.u64()?, offset: reader.u64()? };
        reader.take((size - LARGE_SIZE) as usize)?;
        Ok(locator)
    }

    /// Encodes the standard form if the size fits in 31 bits, else the large form.
    pub(crate) fn encode(&self, writer: &mut Writer) {
        match i32::try_from(self.size) {
            Ok(size) => writer.i32(size).u64(self.offset),
            Err(_) => {
                let head = (LARGE_TYPE << 24) | LARGE_SIZE;
                writer.i32(-(head as i32)).u64(self.size).u64(self.offset)
            }
        };
    }
}

impl EnvelopeLink {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(EnvelopeLink { length: reader.u64()?, locator: Locator::decode(reader)? })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.u64(self.length);
        self.locator.encode(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(locator: Locator) -> Vec<u8> {
        let mut writer = Writer::default();
        locator.encode(&mut writer);
        writer.bytes
    }

    #[test]
    fn a_locator_of_a_real_file_is_read() {
        let bytes = [0x28, 0, 0, 0, 0xe6, 0x01, 0, 0, 0, 0, 0, 0];
        let locator = Locator::decode(&mut Reader::new("locator", &bytes, 0)).unwrap();
        assert_eq!(locator, Locator { offset: 0x1e6, size: 40 });
        assert_eq!(encoded(locator), bytes);
    }

    #[test]
    fn sizes_from_2_to_the_31_take_the_large_form() {
        for size in [0, 1, (1 << 31) - 1, 1 << 31, u64::MAX >> 1] {
            let locator = Locator { offset: 1 << 40, size };
            let bytes = encoded(locator);
            assert_eq!(bytes.len(), if size < 1 << 31 { 12 } else { 20 });
            let read = Locator::decode(&mut Reader::new("locator", &bytes, 0)).unwrap();
            assert_eq!(read, locator);
        }
    }

    #[test]
    fn a_locator_beyond_the_address_space_is_refused() {
        let bytes = encoded(Locator { offset: u64::MAX, size: 1 });
        assert!(Locator::decode(&mut Reader::new("locator", &bytes, 0)).is_err());
    }

    #[test]
    fn an_unknown_type_of_locator_is_unsupported() {
        let head: i32 = -(0x02 << 24 | 12);
        let mut bytes = head.to_le_bytes().to_vec();
        bytes.extend([0; 20]);
        let error = Locator::decode(&mut Reader::new("locator", &bytes, 0)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
    }
}
