//! Finding objects in a file, by the lists of keys of its directories or along the chain of keys.
//!
//! Time and memory are bounded by the size of the file. In a sound file the lists of keys do not
//! overlap, so a file whose lists together exceed its size is refused; so are cycles of directories.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::header::{DIRECTORY_SIZE, DirectoryRecord, FileHeader};
use super::key::KeyHeader;
use super::{FIRST_KEY, Timestamp};
use crate::anchor::{ANCHOR_CLASS, Anchor};
use crate::compression::{decompress, uncompressed_size_max};
use crate::error::{Error, Result};
use crate::locator::Locator;
use crate::source::ByteSource;
use crate::wire::Reader;

/// Most bytes of the path of an object.
const PATH_LENGTH_MAX: usize = 4096;
/// Bytes that are read first for the header of a key; a longer header is read again.
const KEY_HEADER_SIZE_USUAL: u64 = 256;
/// Least bytes of a key's header.
const KEY_HEADER_SIZE_MIN: usize = 26 + 3;
/// Most bytes of an anchor, of this or a later version.
const ANCHOR_SIZE_MAX: u32 = 1 << 16;
/// Bytes of the file header in either format.
const FILE_HEADER_SIZE_MIN: u64 = 63;
const DIRECTORY_CLASSES: [&str; 2] = ["TDirectory", "TDirectoryFile"];

/// An object in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Name with the names of its directories before it: `directory/name`.
    pub path: String,
    /// Class of the object.
    pub class: String,
    /// Title of the object.
    pub title: String,
    /// Version of the object among those of the same name; the greatest is the newest.
    pub cycle: u16,
    /// Time of writing.
    pub written: Timestamp,
    /// Position of its key.
    pub position: u64,
    /// Location of the stored bytes of the object.
    pub payload: Locator,
    /// Bytes of the object when decompressed.
    pub length: u32,
}

/// Lists all objects of all directories, each directory before its contents.
///
/// # Errors
/// [`Error::Corrupt`] if the source is not a ROOT file or its directories are damaged.
pub fn list_keys(source: &dyn ByteSource) -> Result<Vec<KeyInfo>> {
    let file_size = source.size()?;
    let header = read_file_header(source)?;
    let root = header.begin.saturating_add(u64::from(header.name_size));
    let mut walk = Walk { source, budget: file_size, seen: HashSet::new(), found: Vec::new() };
    let mut pending = VecDeque::from([(String::new(), root)]);
    while let Some((prefix, record)) = pending.pop_front() {
        let first = walk.found.len();
        walk.list_directory(&prefix, record)?;
        let directories = walk.found[first..]
            .iter()
            .filter(|key| DIRECTORY_CLASSES.contains(&key.class.as_str()))
            .map(|key| (format!("{}/", key.path), key.payload.offset));
        pending.extend(directories);
    }
    Ok(walk.found)
}

/// The paths and anchors of all RNTuples in the order of their positions; of each path only the newest
/// cycle.
///
/// # Errors
/// [`Error::Corrupt`] if directories or anchors are damaged, [`Error::Unsupported`] if an anchor is older
/// than version 1.0 of the format.
pub fn anchors(source: &dyn ByteSource) -> Result<Vec<(String, Anchor)>> {
    let keys = list_keys(source)?;
    let mut newest: BTreeMap<&str, &KeyInfo> = BTreeMap::new();
    for key in keys.iter().filter(|key| key.class == ANCHOR_CLASS) {
        let best = newest.entry(&key.path).or_insert(key);
        if key.cycle > best.cycle {
            *best = key;
        }
    }
    let mut in_order: Vec<&KeyInfo> = newest.into_values().collect();
    in_order.sort_by_key(|key| key.position);
    in_order.into_iter().map(|key| Ok((key.path.clone(), read_anchor(source, key)?))).collect()
}

/// Reads the bytes of an object, decompressed.
///
/// # Errors
/// [`Error::Corrupt`] if the key lies outside the file or does not decompress.
pub fn read_payload(source: &dyn ByteSource, key: &KeyInfo) -> Result<Vec<u8>> {
    let stored = read_range(source, "object", key.payload)?;
    if stored.len() == key.length as usize {
        return Ok(stored);
    }
    if u64::from(key.length) > uncompressed_size_max(key.payload.size) {
        let reason = format!("{} bytes cannot hold {}", key.payload.size, key.length);
        return Err(Error::corrupt("object", key.position, reason));
    }
    let mut plain = vec![0; key.length as usize];
    decompress(&stored, &mut plain)?;
    Ok(plain)
}

fn read_anchor(source: &dyn ByteSource, key: &KeyInfo) -> Result<Anchor> {
    if key.length > ANCHOR_SIZE_MAX {
        let reason = format!("it cannot have {} bytes", key.length);
        return Err(Error::corrupt("anchor", key.position, reason));
    }
    Anchor::decode(&read_payload(source, key)?)
}

/// Reads the file header.
pub(crate) fn read_file_header(source: &dyn ByteSource) -> Result<FileHeader> {
    let size = source.size()?.min(FIRST_KEY);
    if size < FILE_HEADER_SIZE_MIN {
        return Err(Error::corrupt("file header", 0, "the file is too short for a ROOT file"));
    }
    let bytes = read_range(source, "file header", Locator { offset: 0, size })?;
    FileHeader::decode(&bytes)
}

/// Reads a blob. A blob of more than `key_size_max` bytes (0 means no limit) is spread over several keys;
/// its first piece ends with the offsets of the other pieces, 8 bytes each.
///
/// # Errors
/// [`Error::Corrupt`] if a piece lies outside the file, [`Error::Io`] if the source cannot be read.
pub fn read_blob(source: &dyn ByteSource, blob: Locator, key_size_max: u64) -> Result<Vec<u8>> {
    if key_size_max == 0 || blob.size <= key_size_max {
        return read_range(source, "blob", blob);
    }
    if blob.size > source.size()? {
        return Err(Error::corrupt("blob", blob.offset, "it is larger than the file"));
    }
    let pieces = piece_count(blob, key_size_max)?;
    let first = Locator { offset: blob.offset, size: key_size_max };
    let mut bytes = read_range(source, "blob", first)?;
    let offsets = bytes.split_off(bytes.len() - 8 * (pieces as usize - 1));
    let mut offsets = Reader::new("blob", &offsets, 0);
    while (bytes.len() as u64) < blob.size {
        let size = key_size_max.min(blob.size - bytes.len() as u64);
        let piece = Locator { offset: offsets.u64()?, size };
        bytes.extend(read_range(source, "blob", piece)?);
    }
    Ok(bytes)
}

/// Number of keys that a blob is spread over.
fn piece_count(blob: Locator, key_size_max: u64) -> Result<u64> {
    let pieces = blob.size.div_ceil(key_size_max);
    let room = pieces * key_size_max - blob.size;
    let offsets_size = |pieces: u64| (pieces - 1).saturating_mul(8);
    let pieces = if offsets_size(pieces) > room { pieces + 1 } else { pieces };
    if offsets_size(pieces) > key_size_max {
        let reason = format!("{} bytes cannot be in keys of {key_size_max}", blob.size);
        return Err(Error::corrupt("blob", blob.offset, reason));
    }
    Ok(pieces)
}

/// Reads a range, after checking that it lies in the file: a hostile size must not allocate memory.
pub(crate) fn read_range(
    source: &dyn ByteSource,
    what: &'static str,
    range: Locator,
) -> Result<Vec<u8>> {
    let file_size = source.size()?;
    match range.offset.checked_add(range.size) {
        Some(end) if end <= file_size => {}
        _ => {
            let reason = format!("its {} bytes end beyond the file's {file_size}", range.size);
            return Err(Error::corrupt(what, range.offset, reason));
        }
    }
    let mut bytes = vec![0; range.size as usize];
    source.read_at(range.offset, &mut bytes)?;
    Ok(bytes)
}

/// The state of listing all directories.
struct Walk<'a> {
    source: &'a dyn ByteSource,
    /// Bytes that further lists of keys may have.
    budget: u64,
    /// Positions of the lists of keys already read.
    seen: HashSet<u64>,
    found: Vec<KeyInfo>,
}

impl Walk<'_> {
    /// Appends the objects of the directory whose record lies at `offset`.
    fn list_directory(&mut self, prefix: &str, offset: u64) -> Result<()> {
        let size = DIRECTORY_SIZE as u64;
        // At the end of the file, a record in the small format may be shorter.
        let size = size.min(self.source.size()?.saturating_sub(offset));
        let bytes = read_range(self.source, "directory", Locator { offset, size })?;
        let record = DirectoryRecord::decode(&mut Reader::new("directory", &bytes, offset))?;
        if record.keys == 0 {
            return Ok(());
        }
        let list = Locator { offset: record.keys, size: u64::from(record.keys_size) };
        if !self.seen.insert(list.offset) {
            let reason = "a list of keys belongs to two directories";
            return Err(Error::corrupt("directory", offset, reason));
        }
        match self.budget.checked_sub(list.size) {
            Some(left) => self.budget = left,
            None => {
                let reason = "the lists of keys are larger than the file";
                return Err(Error::corrupt("directory", offset, reason));
            }
        }
        let bytes = read_range(self.source, "list of keys", list)?;
        self.decode_list(prefix, &mut Reader::new("list of keys", &bytes, list.offset))
    }

    fn decode_list(&mut self, prefix: &str, reader: &mut Reader<'_>) -> Result<()> {
        let _own = KeyHeader::decode(reader)?;
        let count = reader.u32_be()? as usize;
        reader.check_count(count, KEY_HEADER_SIZE_MIN)?;
        for _ in 0..count {
            let key = KeyHeader::decode(reader)?;
            if key.gap {
                return Err(reader.corrupt("a gap is listed as an object"));
            }
            if prefix.len() + key.name.len() > PATH_LENGTH_MAX {
                return Err(reader.corrupt("the path of an object is too long"));
            }
            self.found.push(describe(prefix, key, reader)?);
        }
        Ok(())
    }
}

fn describe(prefix: &str, key: KeyHeader, reader: &Reader<'_>) -> Result<KeyInfo> {
    let size = key.payload_size();
    let Some(offset) = key.position.checked_add(u64::from(key.header_size)) else {
        return Err(reader.corrupt("an object lies beyond 2^64"));
    };
    Ok(KeyInfo {
        path: format!("{prefix}{}", key.name),
        class: key.class,
        title: key.title,
        cycle: key.cycle,
        written: key.written,
        position: key.position,
        payload: Locator { offset, size },
        length: key.length,
    })
}

/// Iterates over the chain of keys of a file and yields the position and header of each key. It ends
/// after the first error.
pub struct KeyChain<'a> {
    source: &'a dyn ByteSource,
    next: u64,
    end: u64,
}

impl<'a> KeyChain<'a> {
    /// The keys between `start` and `end`.
    pub fn new(source: &'a dyn ByteSource, start: u64, end: u64) -> Self {
        KeyChain { source, next: start, end }
    }

    /// All keys of a file, up to the end that its header records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the source is not a ROOT file.
    pub fn of_file(source: &'a dyn ByteSource) -> Result<Self> {
        let header = read_file_header(source)?;
        Ok(Self::new(source, header.begin, header.end))
    }

    fn read_next(&mut self) -> Result<(u64, KeyHeader)> {
        let position = self.next;
        let left = self.end.min(self.source.size()?).saturating_sub(position);
        let read = |size: u64| {
            read_range(self.source, "key", Locator { offset: position, size: size.min(left) })
        };
        let mut bytes = read(KEY_HEADER_SIZE_USUAL)?;
        let header_size =
            bytes.get(14..16).map_or(0, |size| u16::from_be_bytes([size[0], size[1]]));
        if u64::from(header_size) > KEY_HEADER_SIZE_USUAL {
            bytes = read(u64::from(header_size))?;
        }
        let key = KeyHeader::decode(&mut Reader::new("key", &bytes, position))?;
        if key.size < 4 || key.size > left {
            let reason = format!("its size is {} bytes, with {left} left in the file", key.size);
            return Err(Error::corrupt("key", position, reason));
        }
        self.next = position + key.size;
        Ok((position, key))
    }
}

impl Iterator for KeyChain<'_> {
    type Item = Result<(u64, KeyHeader)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let item = self.read_next();
        if item.is_err() {
            self.next = self.end;
        }
        Some(item)
    }
}
