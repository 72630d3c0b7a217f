//! Envelopes, the frames of all metadata: kind, length, payload, checksum.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Envelopes" and "Feature Flags".

use twox_hash::XxHash3_64;

use crate::compression::{RATIO_MAX, decompress};
use crate::error::{Error, Result};
use crate::locator::{EnvelopeLink, Locator};
use crate::source::{BlobSink, ByteSource};
use crate::tfile::read_blob;
use crate::wire::{Reader, Writer, checksum_holds};

/// Bytes of kind and length.
pub(crate) const PREAMBLE_SIZE: usize = 8;
pub(crate) const CHECKSUM_SIZE: usize = 8;

/// Most bytes of an envelope when decompressed; it bounds the memory that a hostile length claims.
/// Envelopes have a few bytes for each page.
const LENGTH_MAX: u64 = 1 << 32;

/// The kind of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum EnvelopeKind {
    /// Fields and columns.
    Header = 1,
    /// Cluster groups and additional fields and columns.
    Footer = 2,
    /// Clusters and their pages.
    PageList = 3,
}

impl EnvelopeKind {
    /// The kind's name in error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EnvelopeKind::Header => "header envelope",
            EnvelopeKind::Footer => "footer envelope",
            EnvelopeKind::PageList => "page list envelope",
        }
    }
}

/// Frames a payload with kind, length and checksum.
pub fn seal_envelope(kind: EnvelopeKind, payload: &[u8]) -> Vec<u8> {
    let length = PREAMBLE_SIZE + payload.len() + CHECKSUM_SIZE;
    let mut writer = Writer { bytes: Vec::with_capacity(length) };
    writer.u64((length as u64) << 16 | u64::from(kind as u16)).raw(payload);
    let checksum = XxHash3_64::oneshot(&writer.bytes);
    writer.u64(checksum);
    writer.bytes
}

/// Checks kind, length and checksum, and returns the payload.
///
/// # Errors
/// [`Error::Corrupt`] if any of them is wrong.
pub fn open_envelope(kind: EnvelopeKind, bytes: &[u8]) -> Result<&[u8]> {
    let mut reader = Reader::new(kind.name(), bytes, 0);
    let preamble = reader.u64()?;
    if preamble & 0xFFFF != u64::from(kind as u16) {
        return Err(Error::corrupt(kind.name(), 0, format!("its kind is {}", preamble & 0xFFFF)));
    }
    if preamble >> 16 != bytes.len() as u64 {
        let (stated, is) = (preamble >> 16, bytes.len());
        return Err(Error::corrupt(kind.name(), 0, format!("length {stated} in {is} bytes")));
    }
    let payload_size = reader.remaining().checked_sub(CHECKSUM_SIZE);
    let payload = reader.take(payload_size.ok_or_else(|| reader.corrupt("no checksum"))?)?;
    if !checksum_holds(&bytes[..PREAMBLE_SIZE + payload.len()], reader.u64()?) {
        return Err(Error::corrupt(kind.name(), 0, "its checksum is wrong"));
    }
    Ok(payload)
}

/// The checksum at the end of an envelope. That of the header identifies it in all other envelopes.
pub fn envelope_checksum(bytes: &[u8]) -> u64 {
    let tail = bytes.last_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(tail)
}

/// Reads, decompresses and checks an envelope; returns all its bytes. An envelope of more than
/// `key_size_max` stored bytes is spread over several keys.
///
/// # Errors
/// [`Error::Corrupt`] if the link or the envelope is damaged, [`Error::Io`] if the source cannot be read.
pub fn read_envelope(
    source: &dyn ByteSource,
    link: &EnvelopeLink,
    kind: EnvelopeKind,
    key_size_max: u64,
) -> Result<Vec<u8>> {
    let EnvelopeLink { length, locator } = *link;
    if length > LENGTH_MAX || length / RATIO_MAX > locator.size || locator.size > length {
        let reason = format!("{} bytes cannot hold {length}", locator.size);
        return Err(Error::corrupt(kind.name(), locator.offset, reason));
    }
    let mut envelope = read_blob(source, locator, key_size_max)?;
    if locator.size != length {
        let mut plain = vec![0; length as usize];
        decompress(&envelope, &mut plain)?;
        envelope = plain;
    }
    open_envelope(kind, &envelope)?;
    Ok(envelope)
}

/// Writes an envelope without compression; returns the link to it.
///
/// # Errors
/// [`Error::Invalid`] if it exceeds 4 GiB, [`Error::Io`] from the sink.
pub(crate) fn write_envelope(sink: &mut dyn BlobSink, bytes: &[u8]) -> Result<EnvelopeLink> {
    let offset = sink.write_blob(&[bytes])?;
    let size = bytes.len() as u64;
    if size > u64::from(u32::MAX) {
        return Err(Error::invalid("the description of the clusters exceeds 4 GiB"));
    }
    Ok(EnvelopeLink { length: size, locator: Locator { offset, size } })
}

/// Decodes the feature flags and refuses any that is set: version 1.0 defines none.
pub(crate) fn decode_feature_flags(reader: &mut Reader<'_>) -> Result<()> {
    let mut first_bit = 0;
    loop {
        let flags = reader.u64()?;
        let known_continuation = flags & !(1 << 63);
        if known_continuation != 0 {
            let bit = first_bit + known_continuation.trailing_zeros();
            return Err(Error::unsupported(format!("RNTuple feature flag {bit}")));
        }
        if flags == 0 {
            return Ok(());
        }
        first_bit += 63;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_an_envelope_returns_its_payload() {
        let sealed = seal_envelope(EnvelopeKind::Footer, b"payload");
        assert_eq!(open_envelope(EnvelopeKind::Footer, &sealed).unwrap(), b"payload");
        assert!(open_envelope(EnvelopeKind::Header, &sealed).is_err());
    }

    #[test]
    fn opening_fails_for_any_flipped_bit_or_truncation() {
        let sealed = seal_envelope(EnvelopeKind::PageList, b"some payload");
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open_envelope(EnvelopeKind::PageList, &damaged).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(open_envelope(EnvelopeKind::PageList, &sealed[..length]).is_err());
        }
    }

    #[test]
    fn a_feature_flag_in_the_second_word_is_refused_by_its_number() {
        let words = [1u64 << 63, 1 << 2].map(u64::to_le_bytes).concat();
        let error = decode_feature_flags(&mut Reader::new("header", &words, 0)).unwrap_err();
        assert_eq!(error.to_string(), "RNTuple feature flag 65 is not supported");
        assert!(decode_feature_flags(&mut Reader::new("header", &[0; 8], 0)).is_ok());
    }
}
