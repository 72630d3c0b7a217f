//! Writing ROOT files.
//!
//! [`FileIdentity::front`] encodes the file header and the root directory of a file without contents.
//! Keys with data follow it. [`seal`] then computes what completes the file: bytes to append, and a new
//! front of the same size. Both are pure functions; [`FileWriter`] uses them to write a file from
//! beginning to end.

use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use super::header::{DIRECTORY_SIZE, DirectoryRecord, FileHeader};
use super::key::{KeyHeader, decode_key_header, new_key, rblob_key_header};
use super::read::read_range;
use super::streamer_info::{STREAMER_INFO_NAMES, encode_streamer_info};
use super::{FIRST_KEY, Timestamp};
use crate::anchor::{ANCHOR_CLASS, ANCHOR_SIZE, Anchor};
use crate::error::{Error, Result};
use crate::locator::Locator;
use crate::source::{BlobSink, ByteSource, io_error};
use crate::wire::{Writer, string_be_size};

const FILE_CLASS: &str = "TFile";
/// Free segments of this version have 64-bit ends.
const FREE_VERSION: u16 = 1001;
/// Least end of the free segment behind the end of a file, as ROOT writes it.
const FREE_END_MIN: u64 = 2_000_000_000;
/// Bytes by which the free segment extends beyond the end of a larger file, as ROOT writes it.
const FREE_GROWTH: u64 = 1_000_000_000;
/// Most bytes of the name of a file in its own record.
const FILE_NAME_LENGTH_MAX: usize = 254;

/// The part of a file's front that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Name of the file when it was created; readers ignore it, so the file may be renamed.
    pub name: String,
    /// Identifies the file.
    pub uuid: [u8; 16],
    /// Time of its creation.
    pub created: Timestamp,
}

impl FileIdentity {
    /// An identity with a name of at most 254 bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is longer than 254 bytes.
    pub fn new(name: &str, uuid: [u8; 16], created: Timestamp) -> Result<Self> {
        if name.len() > FILE_NAME_LENGTH_MAX {
            let what = format!("the file name {name:?} has more than {FILE_NAME_LENGTH_MAX} bytes");
            return Err(Error::invalid(what));
        }
        Ok(FileIdentity { name: name.to_owned(), uuid, created })
    }

    /// Reads the identity from the front of a file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the source is not a ROOT file, or its first key is not at byte 100;
    /// [`Error::Io`] if it cannot be read.
    pub fn read(source: &dyn ByteSource) -> Result<Self> {
        /// Most bytes of a front: names have at most 255 bytes.
        const FRONT_MAX: u64 = 1024;
        let front = Locator { offset: 0, size: source.size()?.min(FRONT_MAX) };
        let front = read_range(source, "file header", front)?;
        let header = FileHeader::decode(&front)?;
        let key = decode_key_header(front.get(FIRST_KEY as usize..).unwrap_or_default())?;
        if key.gap || key.position != FIRST_KEY || header.begin != FIRST_KEY {
            let reason = "the key of the root directory is missing";
            return Err(Error::corrupt("key", FIRST_KEY, reason));
        }
        Self::new(&key.name, header.uuid, key.written)
            .map_err(|error| Error::corrupt("key", FIRST_KEY, error.to_string()))
    }

    /// Bytes of the front of the file, and the position of the next key.
    pub fn front_size(&self) -> u64 {
        u64::from(self.name_size()) + FIRST_KEY + DIRECTORY_SIZE as u64
    }

    /// Encodes the front of a file without contents: header and root directory. ROOT treats such a file
    /// as not closed; [`seal`] completes it.
    pub fn front(&self) -> Vec<u8> {
        let header = FileHeader { end: self.front_size(), ..FileHeader::default() };
        self.encode_front(header, DirectoryRecord { modified: self.created, ..Default::default() })
    }

    /// Bytes of the root directory's key before its record: key header, name and title.
    fn name_size(&self) -> u32 {
        u32::from(self.key().header_size) + (string_be_size(&self.name) + 1) as u32
    }

    /// The key of the root directory.
    fn key(&self) -> KeyHeader {
        let payload_size = (string_be_size(&self.name) + 1 + DIRECTORY_SIZE) as u64;
        new_key([FILE_CLASS, &self.name, ""], payload_size, FIRST_KEY, self.created)
            .expect("the length of the name was checked")
    }

    /// Adds the identity to a file header and a root directory, and encodes them.
    fn encode_front(&self, header: FileHeader, directory: DirectoryRecord) -> Vec<u8> {
        let name_size = self.name_size();
        let header = FileHeader { name_size, uuid: self.uuid, ..header };
        let directory = DirectoryRecord {
            created: self.created,
            name_size,
            position: FIRST_KEY,
            parent: 0,
            ..directory
        };
        let mut writer = Writer { bytes: header.encode() };
        self.key().encode(&mut writer);
        writer.string_be(&self.name).string_be("");
        directory.encode(&self.uuid, &mut writer);
        assert_eq!(writer.bytes.len() as u64, self.front_size(), "the front has a fixed size");
        writer.bytes
    }
}

/// The input of [`seal`], for a file whose chain of keys reaches from byte 100 to `end`.
#[derive(Clone, Copy, Debug)]
pub struct Sealing<'a> {
    /// The identity that the file was created with.
    pub identity: &'a FileIdentity,
    /// End of the last key.
    pub end: u64,
    /// The RNTuples of the file, by name.
    pub anchors: &'a [(String, Anchor)],
    /// The gaps between keys, each marked by [`gap_header`](super::gap_header).
    pub gaps: &'a [Range<u64>],
    /// Time of sealing.
    pub modified: Timestamp,
}

/// The bytes that make a chain of keys a complete ROOT file. Write `tail` at the end first, then `front`
/// at byte 0: until the front is written, the file is unchanged for readers.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Bytes to append at [`Sealing::end`].
    pub tail: Vec<u8>,
    /// Bytes to write over the [`FileIdentity::front`].
    pub front: Vec<u8>,
}

/// Encodes anchors, list of keys, streamer information and list of free segments, and the front that
/// refers to them.
///
/// # Errors
/// [`Error::Invalid`] if a name is empty, has a slash, occurs twice or is too long.
pub fn seal(sealing: &Sealing<'_>) -> Result<Sealed> {
    check_names(sealing.anchors)?;
    let mut tail = SealingTail { sealing, writer: Writer::default() };
    let keys = sealing
        .anchors
        .iter()
        .map(|(name, anchor)| {
            let key = tail.key([ANCHOR_CLASS, name, ""], ANCHOR_SIZE)?;
            tail.writer.raw(&anchor.encode());
            Ok(key)
        })
        .collect::<Result<Vec<_>>>()?;
    let list = tail.list_of_keys(&keys)?;
    let streamer_info = tail.streamer_info()?;
    let free = tail.free_segments()?;
    let header = FileHeader {
        end: tail.position(),
        free: (free.position, free.size as u32),
        free_count: sealing.gaps.len() as u32 + 1,
        streamer_info: (streamer_info.position, streamer_info.size as u32),
        ..FileHeader::default()
    };
    let directory = DirectoryRecord {
        modified: sealing.modified,
        keys_size: list.size as u32,
        keys: list.position,
        ..DirectoryRecord::default()
    };
    Ok(Sealed { tail: tail.writer.bytes, front: sealing.identity.encode_front(header, directory) })
}

fn check_names(anchors: &[(String, Anchor)]) -> Result<()> {
    let mut names: Vec<&str> = anchors.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| name.is_empty() || name.contains('/')) {
        let what = format!("invalid RNTuple name {name:?}: must have no slash and not be empty");
        return Err(Error::invalid(what));
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!("two RNTuples have the name {:?}", pair[0]))),
        None => Ok(()),
    }
}

/// The keys appended by [`seal`].
struct SealingTail<'a> {
    sealing: &'a Sealing<'a>,
    writer: Writer,
}

impl SealingTail<'_> {
    fn position(&self) -> u64 {
        self.sealing.end + self.writer.bytes.len() as u64
    }

    /// Appends the header of a key, whose payload the caller appends next.
    fn key(&mut self, names: [&str; 3], payload_size: usize) -> Result<KeyHeader> {
        let key = new_key(names, payload_size as u64, self.position(), self.sealing.modified)?;
        key.encode(&mut self.writer);
        Ok(key)
    }

    fn list_of_keys(&mut self, keys: &[KeyHeader]) -> Result<KeyHeader> {
        let mut payload = Writer::default();
        payload.u32_be(keys.len() as u32);
        keys.iter().for_each(|key| key.encode(&mut payload));
        let name = self.sealing.identity.name.as_str();
        let key = self.key([FILE_CLASS, name, ""], payload.bytes.len())?;
        self.writer.raw(&payload.bytes);
        Ok(key)
    }

    fn streamer_info(&mut self) -> Result<KeyHeader> {
        let header_size = new_key(STREAMER_INFO_NAMES, 0, 0, Timestamp::default())?.header_size;
        let payload = encode_streamer_info(usize::from(header_size));
        let key = self.key(STREAMER_INFO_NAMES, payload.len())?;
        self.writer.raw(&payload);
        Ok(key)
    }

    /// Appends the key of the list of free segments: the gaps, then all space behind the end of the file.
    /// This key is the last of the file.
    fn free_segments(&mut self) -> Result<KeyHeader> {
        let gaps = self.sealing.gaps;
        let name = self.sealing.identity.name.as_str();
        let segment_size = 2 + 2 * 8;
        let key = self.key([FILE_CLASS, name, ""], (gaps.len() + 1) * segment_size)?;
        let end = key.position + key.size;
        for gap in gaps {
            self.writer.u16_be(FREE_VERSION).u64_be(gap.start).u64_be(gap.end - 1);
        }
        let free_end = FREE_END_MIN.max(end.saturating_add(FREE_GROWTH));
        self.writer.u16_be(FREE_VERSION).u64_be(end).u64_be(free_end);
        assert_eq!(self.position(), end, "the key of the free segments is the last of the file");
        Ok(key)
    }
}

/// Writes a ROOT file from beginning to end, each blob in a key of its own.
///
/// If it is dropped before [`finish`](Self::finish), ROOT reports the file as not closed.
pub struct FileWriter<W> {
    sink: W,
    identity: FileIdentity,
    end: u64,
}

impl<W: Write + Seek> FileWriter<W> {
    /// Writes the front of a file at the start of `sink`. Writes are small: wrap a file in a
    /// [`BufWriter`](std::io::BufWriter).
    ///
    /// # Errors
    /// [`Error::Io`] if the sink cannot be written.
    pub fn create(sink: W, identity: FileIdentity) -> Result<Self> {
        let mut writer = FileWriter { sink, identity, end: 0 };
        writer.sink.seek(SeekFrom::Start(0)).map_err(|source| io_error("seek", source))?;
        let front = writer.identity.front();
        writer.append(&front)?;
        Ok(writer)
    }

    /// Completes the file and returns the sink, flushed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is empty, has a slash, occurs twice or is too long; [`Error::Io`] if
    /// the sink cannot be written.
    pub fn finish(mut self, anchors: &[(String, Anchor)], modified: Timestamp) -> Result<W> {
        let sealing =
            Sealing { identity: &self.identity, end: self.end, anchors, gaps: &[], modified };
        let Sealed { tail, front } = seal(&sealing)?;
        self.append(&tail)?;
        self.sink.seek(SeekFrom::Start(0)).map_err(|source| io_error("seek", source))?;
        self.append(&front)?;
        self.sink.flush().map_err(|source| io_error("flush", source))?;
        Ok(self.sink)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write_all(bytes).map_err(|source| io_error("write", source))?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

impl<W: Write + Seek> BlobSink for FileWriter<W> {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let header = rblob_key_header(self.end, size, self.identity.created)?;
        self.append(&header)?;
        let offset = self.end;
        parts.iter().try_for_each(|part| self.append(part))?;
        Ok(offset)
    }
}
