//! The header of a key: class, name and size of the payload behind it.

use super::Timestamp;
use crate::error::{Error, Result};
use crate::wire::{Reader, Writer, string_be_size};

/// Most bytes of a key that this crate writes, header and payload together: ROOT's limit.
pub const KEY_SIZE_MAX: u64 = 1 << 30;
/// Bytes of the header of an `RBlob` key.
pub const RBLOB_KEY_LENGTH: usize = LARGE_FIXED_SIZE + RBLOB_CLASS.len() + 3;
/// The class of keys that hold pages and envelopes.
pub(super) const RBLOB_CLASS: &str = "RBlob";

/// Keys of later versions have offsets of 64 bits.
const LARGE_VERSION: u16 = 1000;
const KEY_VERSION: u16 = 4;
/// Bytes of a large key's header before class, name and title.
const LARGE_FIXED_SIZE: usize = 34;
/// The upper 16 bits of the directory's offset are not part of it.
const DIRECTORY_MASK: u64 = (1 << 48) - 1;

/// The header of a key, or a gap between keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyHeader {
    /// Bytes of header and payload on disk.
    pub size: u64,
    /// Whether this is a gap, which has only a size.
    pub gap: bool,
    /// Bytes of the header.
    pub header_size: u16,
    /// Bytes of the payload when decompressed.
    pub length: u32,
    /// When it was written.
    pub written: Timestamp,
    /// Version of the object among those of the same name.
    pub cycle: u16,
    /// Position of the key, as it records it.
    pub position: u64,
    /// Position of the key of its directory.
    pub directory: u64,
    /// Class of the object.
    pub class: String,
    /// Name of the object.
    pub name: String,
    /// Title of the object.
    pub title: String,
}

impl KeyHeader {
    /// Bytes of the payload on disk.
    pub fn payload_size(&self) -> u64 {
        self.size - u64::from(self.header_size)
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let size = reader.i32_be()?;
        if size < 0 {
            let size = u64::from(size.unsigned_abs());
            return Ok(KeyHeader { size, gap: true, ..KeyHeader::default() });
        }
        let version = reader.u16_be()?;
        let key = KeyHeader {
            size: size as u64,
            gap: false,
            length: reader.u32_be()?,
            written: Timestamp(reader.u32_be()?),
            header_size: reader.u16_be()?,
            cycle: reader.u16_be()?,
            position: reader.seek_be(version > LARGE_VERSION)?,
            directory: reader.seek_be(version > LARGE_VERSION)? & DIRECTORY_MASK,
            class: reader.string_be()?,
            name: reader.string_be()?,
            title: reader.string_be()?,
        };
        if key.size < u64::from(key.header_size) {
            let (size, header) = (key.size, key.header_size);
            return Err(reader.corrupt(format!("a key of {size} bytes has a header of {header}")));
        }
        Ok(key)
    }

    pub(super) fn encode(&self, writer: &mut Writer) {
        writer.u32_be(self.size as u32).u16_be(LARGE_VERSION + KEY_VERSION);
        writer.u32_be(self.length).u32_be(self.written.0);
        writer.u16_be(self.header_size).u16_be(self.cycle);
        writer.u64_be(self.position).u64_be(self.directory);
        writer.string_be(&self.class).string_be(&self.name).string_be(&self.title);
    }
}

/// Decodes the header of a key from the front of `bytes`, which may continue with the payload.
///
/// # Errors
/// [`Error::Corrupt`] if the bytes are not a key's header, or end within it.
pub fn decode_key_header(bytes: &[u8]) -> Result<KeyHeader> {
    KeyHeader::decode(&mut Reader::new("key", bytes, 0))
}

/// Encodes the header of a key at `position` with an uncompressed payload of `payload_size` bytes.
///
/// # Errors
/// [`Error::Invalid`] if the names are too long for a key, or the payload is too large.
pub fn encode_key(
    class: &str,
    name: &str,
    title: &str,
    payload_size: u64,
    position: u64,
    written: Timestamp,
) -> Result<Vec<u8>> {
    let key = new_key([class, name, title], payload_size, position, written)?;
    let mut writer = Writer::default();
    key.encode(&mut writer);
    assert_eq!(writer.bytes.len(), usize::from(key.header_size), "a key's header has its size");
    Ok(writer.bytes)
}

/// The header of a key in the root directory, from its class, name and title.
pub(super) fn new_key(
    names: [&str; 3],
    payload_size: u64,
    position: u64,
    written: Timestamp,
) -> Result<KeyHeader> {
    let [class, name, title] = names;
    let header_size = LARGE_FIXED_SIZE + names.map(string_be_size).iter().sum::<usize>();
    let Ok(header_size) = u16::try_from(header_size) else {
        return Err(Error::invalid(format!("the name {name:.80}... is too long for a ROOT file")));
    };
    let size = payload_size.saturating_add(u64::from(header_size));
    if size > KEY_SIZE_MAX {
        return Err(Error::invalid(format!(
            "a key cannot hold {payload_size} bytes: the limit is 1 GiB"
        )));
    }
    Ok(KeyHeader {
        size,
        gap: false,
        header_size,
        length: payload_size as u32,
        written,
        cycle: 1,
        position,
        directory: super::FIRST_KEY,
        class: class.to_owned(),
        name: name.to_owned(),
        title: title.to_owned(),
    })
}

/// Encodes the header of an `RBlob` key at `position` with `payload_size` bytes of pages and envelopes.
/// Header and payload together have at most [`KEY_SIZE_MAX`] bytes.
///
/// # Errors
/// [`Error::Invalid`] if the payload is too large.
pub fn rblob_key_header(
    position: u64,
    payload_size: u64,
    written: Timestamp,
) -> Result<[u8; RBLOB_KEY_LENGTH]> {
    let bytes = encode_key(RBLOB_CLASS, "", "", payload_size, position, written)?;
    Ok(bytes.try_into().expect("class, name and title have constant lengths"))
}

/// The bytes that mark a gap of `size` bytes, at least 4 and less than 2^31, in the chain of keys; they
/// are written at its start.
///
/// # Errors
/// [`Error::Invalid`] if the size is out of range.
pub fn gap_header(size: u64) -> Result<[u8; 4]> {
    match i32::try_from(size) {
        Ok(size) if size >= 4 => Ok((-size).to_be_bytes()),
        _ => {
            Err(Error::invalid(format!("invalid gap of {size} bytes: must be 4 to 2^31 - 1 bytes")))
        }
    }
}
