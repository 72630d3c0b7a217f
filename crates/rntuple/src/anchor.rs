//! The anchor: the object of class `ROOT::RNTuple` that makes an RNTuple an object of a ROOT file.
//!
//! Later versions of the class only append members and keep the checksum in the last 8 bytes. So a
//! longer anchor is read by ignoring the bytes between the known members and the checksum.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Anchor schema".

use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::locator::{EnvelopeLink, Locator};
use crate::wire::{Reader, Writer, checksum_holds};

/// The class of an anchor's key.
pub const ANCHOR_CLASS: &str = "ROOT::RNTuple";
/// Bytes of the anchor that this library writes: byte count, class version, members, checksum.
pub const ANCHOR_SIZE: usize = 4 + 2 + MEMBERS_SIZE + CHECKSUM_SIZE;

const MEMBERS_SIZE: usize = 4 * 2 + 7 * 8;
const CHECKSUM_SIZE: usize = 8;
const CLASS_VERSION: u16 = 2;
/// The bit that ROOT sets in the byte count of every streamed object.
const BYTE_COUNT_MARK: u32 = 0x4000_0000;

/// The version of the format that this crate writes.
const FORMAT_VERSION: [u16; 4] = [1, 0, 0, 0];
/// ROOT's own limit on the size of a key, 1 GiB.
const KEY_SIZE_MAX: u64 = 1 << 30;

/// Locations of the header and the footer of an RNTuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Version of the format: epoch, major, minor, patch.
    pub version: [u16; 4],
    /// Location of the header envelope.
    pub header: EnvelopeLink,
    /// Location of the footer envelope.
    pub footer: EnvelopeLink,
    /// Most bytes of a blob in one key; larger blobs are spread over several. 0 means no limit.
    pub max_key_size: u64,
}

impl Anchor {
    /// An anchor of the format version that this crate writes.
    pub fn new(header: EnvelopeLink, footer: EnvelopeLink) -> Self {
        Anchor { version: FORMAT_VERSION, header, footer, max_key_size: KEY_SIZE_MAX }
    }

    /// Encodes the streamed object with its checksum.
    pub fn encode(&self) -> [u8; ANCHOR_SIZE] {
        let mut members = Writer::default();
        self.version.iter().for_each(|&number| {
            members.u16_be(number);
        });
        for link in [&self.header, &self.footer] {
            members.u64_be(link.locator.offset).u64_be(link.locator.size).u64_be(link.length);
        }
        members.u64_be(self.max_key_size);
        let byte_count = (2 + MEMBERS_SIZE) as u32 | BYTE_COUNT_MARK;
        let mut writer = Writer::default();
        writer.u32_be(byte_count).u16_be(CLASS_VERSION);
        writer.raw(&members.bytes).u64_be(XxHash3_64::oneshot(&members.bytes));
        writer.bytes.try_into().expect("the members have constant sizes")
    }

    /// Decodes a streamed object.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes are damaged, [`Error::Unsupported`] if the class is older than
    /// version 1.0 of the format or of another epoch.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("anchor", bytes, 0);
        let _byte_count = reader.u32_be()?;
        let class_version = reader.u16_be()?;
        if class_version < CLASS_VERSION {
            let what = format!("version {class_version} of the class {ANCHOR_CLASS}");
            return Err(Error::unsupported(what));
        }
        let Some(checked) = reader.remaining().checked_sub(CHECKSUM_SIZE) else {
            return Err(reader.corrupt("no checksum"));
        };
        let mut members = Reader::new("anchor", reader.take(checked)?, 6);
        if !checksum_holds(&bytes[6..6 + checked], reader.u64_be()?) {
            return Err(Error::corrupt("anchor", 0, "its checksum is wrong"));
        }
        Self::decode_members(&mut members)
    }

    fn decode_members(reader: &mut Reader<'_>) -> Result<Self> {
        let mut version = [0; 4];
        for number in &mut version {
            *number = reader.u16_be()?;
        }
        if version[0] != FORMAT_VERSION[0] {
            return Err(Error::unsupported(format!("epoch {} of the RNTuple format", version[0])));
        }
        Ok(Anchor {
            version,
            header: decode_link(reader)?,
            footer: decode_link(reader)?,
            max_key_size: reader.u64_be()?,
        })
    }
}

fn decode_link(reader: &mut Reader<'_>) -> Result<EnvelopeLink> {
    let locator = Locator { offset: reader.u64_be()?, size: reader.u64_be()? };
    if locator.offset.checked_add(locator.size).is_none() {
        return Err(reader.corrupt("an envelope ends beyond 2^64"));
    }
    Ok(EnvelopeLink { length: reader.u64_be()?, locator })
}
