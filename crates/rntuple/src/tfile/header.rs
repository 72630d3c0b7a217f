//! The file header and the record of a directory.

use super::{FIRST_KEY, Timestamp};
use crate::error::{Error, Result};
use crate::wire::{Reader, Writer};

/// The header of a file of this or a later version has offsets of 64 bits.
const LARGE_VERSION: i32 = 1_000_000;
/// The version of ROOT whose file layout this library writes, 6.34.
const ROOT_VERSION: u32 = 63_400;
const MAGIC: &[u8] = b"root";
/// Bytes of a file offset in the large format.
const LARGE_UNITS: u8 = 8;

const DIRECTORY_VERSION: u16 = 5;
const DIRECTORY_LARGE_VERSION: u16 = 1000;
/// Bytes of a directory record in the large format.
pub(super) const DIRECTORY_SIZE: usize = 2 + 2 * 4 + 2 * 4 + 3 * 8 + UUID_SIZE;
/// Bytes of a UUID with its version.
const UUID_SIZE: usize = 2 + 16;
const UUID_VERSION: u16 = 1;

/// The first 100 bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileHeader {
    /// Version of ROOT that wrote the file, such as 63400; without the mark of the large format.
    pub version: u32,
    /// Position of the first key.
    pub begin: u64,
    /// End of the file.
    pub end: u64,
    /// Position and size of the key of the list of free segments.
    pub free: (u64, u32),
    /// Number of free segments, with the one behind the end of the file.
    pub free_count: u32,
    /// Bytes of the root directory's key before its record: key header, name and title.
    pub name_size: u32,
    /// Compression settings for objects, as a hint.
    pub compression: u32,
    /// Position and size of the key of the streamer information.
    pub streamer_info: (u64, u32),
    /// Identifies the file.
    pub uuid: [u8; 16],
}

impl FileHeader {
    /// Decodes the small or the large format.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes are not the header of a ROOT file.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("file header", bytes, 0);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(Error::corrupt("file header", 0, "this is not a ROOT file"));
        }
        // Some tools subtract the mark of the large format from a version without it. ROOT reads the
        // version as signed, finds a negative one, and so the small format.
        let version = reader.u32_be()?.cast_signed();
        let large = version >= LARGE_VERSION;
        let begin = u64::from(reader.u32_be()?);
        let end = reader.seek_be(large)?;
        let free_at = reader.seek_be(large)?;
        let free_size = reader.u32_be()?;
        let free_count = reader.u32_be()?;
        let name_size = reader.u32_be()?;
        let _units = reader.u8()?;
        let compression = reader.u32_be()?;
        let streamer_info = (reader.seek_be(large)?, reader.u32_be()?);
        Ok(FileHeader {
            version: version.rem_euclid(LARGE_VERSION).cast_unsigned(),
            begin,
            end,
            free: (free_at, free_size),
            free_count,
            name_size,
            compression,
            streamer_info,
            uuid: decode_uuid(&mut reader)?,
        })
    }

    /// Encodes the first 100 bytes of a file of the large format.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer
            .raw(MAGIC)
            .u32_be(LARGE_VERSION.cast_unsigned() + ROOT_VERSION)
            .u32_be(FIRST_KEY as u32);
        writer.u64_be(self.end).u64_be(self.free.0).u32_be(self.free.1);
        writer.u32_be(self.free_count).u32_be(self.name_size).u8(LARGE_UNITS);
        writer.u32_be(self.compression).u64_be(self.streamer_info.0).u32_be(self.streamer_info.1);
        writer.u16_be(UUID_VERSION).raw(&self.uuid);
        writer.bytes.resize(FIRST_KEY as usize, 0);
        writer.bytes
    }
}

/// The record of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// Time of its creation.
    pub created: Timestamp,
    /// Time of its last change.
    pub modified: Timestamp,
    /// Bytes of the key of its list of keys; 0 if there is none.
    pub keys_size: u32,
    /// Bytes of the directory's key before this record.
    pub name_size: u32,
    /// Position of the directory's key.
    pub position: u64,
    /// Position of the key of the parent directory; 0 for the root directory.
    pub parent: u64,
    /// Position of the key of its list of keys; 0 if there is none.
    pub keys: u64,
}

impl DirectoryRecord {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let large = reader.u16_be()? > DIRECTORY_LARGE_VERSION;
        Ok(DirectoryRecord {
            created: Timestamp(reader.u32_be()?),
            modified: Timestamp(reader.u32_be()?),
            keys_size: reader.u32_be()?,
            name_size: reader.u32_be()?,
            position: reader.seek_be(large)?,
            parent: reader.seek_be(large)?,
            keys: reader.seek_be(large)?,
        })
    }

    pub(super) fn encode(&self, uuid: &[u8; 16], writer: &mut Writer) {
        writer.u16_be(DIRECTORY_LARGE_VERSION + DIRECTORY_VERSION);
        writer.u32_be(self.created.0).u32_be(self.modified.0);
        writer.u32_be(self.keys_size).u32_be(self.name_size);
        writer.u64_be(self.position).u64_be(self.parent).u64_be(self.keys);
        writer.u16_be(UUID_VERSION).raw(uuid);
    }
}

fn decode_uuid(reader: &mut Reader<'_>) -> Result<[u8; 16]> {
    let _version = reader.u16_be()?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(reader.take(16)?);
    Ok(uuid)
}
