//! The annex of a version: Femtobarn's own metadata beside the footer, which ROOT does not read.
//!
//! An annex is a small table of contents, rewritten by every commit. The blobs that it refers to are written once and
//! shared by many versions, so the cost of a commit does not grow with them.
//!
//! Invariants:
//! 1. A blob is used only if its checksum holds. The annex is framed like a commit record, with its own magic.
//! 2. A container without deletions, statistics and indexes has no annex.

use femtobarn_catalog::BlobRange;
use rntuple::{BlobSink, ByteSource, read_verified};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::frame;

/// The first bytes of an annex; the digit is the version of its format.
const MAGIC: [u8; 8] = *b"FBANX\0\x001";

/// The metadata of a version beside its footer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Annex {
    /// The deleted entries, by chunks of entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deletions: Vec<DeletionChunk>,
    /// The deleted entries whose values a compaction has removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<DeletionChunk>,
    /// The smallest and largest values of clusters, by runs of clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statistics: Vec<StatisticsRun>,
    /// The indexes, which find entries by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexState>,
}

/// The deleted entries of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionChunk {
    /// The number of the chunk: its first entry divided by the entries of a chunk.
    pub chunk: u64,
    /// The number of its deleted entries.
    pub count: u64,
    /// The set of deleted entries.
    pub blob: Blob,
}

/// The statistics of consecutive clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatisticsRun {
    /// The first entry of the first cluster.
    pub first_entry: u64,
    /// The number of their entries.
    pub entries: u64,
    /// The number of clusters.
    pub clusters: u64,
    /// The statistics.
    pub blob: Blob,
}

/// One index of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexState {
    /// Its name, unique in the container.
    pub name: String,
    /// The fields of the key, in order.
    pub fields: Vec<String>,
    /// Whether no two objects may have the same key.
    pub unique: bool,
    /// Sorted runs of keys, the oldest first.
    pub runs: Vec<IndexRun>,
}

/// Sorted keys, with their entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRun {
    /// The number of keys.
    pub keys: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// The blocks of the run.
    pub blob: Blob,
}

/// Bytes in the database file, with their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// XXH3-64.
    pub checksum: u64,
}

impl Annex {
    /// Writes the annex; an empty one is not written and has an empty range.
    ///
    /// # Errors
    /// [`rntuple::Error`] if `sink` fails.
    pub fn write(&self, sink: &mut dyn BlobSink) -> rntuple::Result<BlobRange> {
        if *self == Annex::default() {
            return Ok(BlobRange::default());
        }
        let bytes = frame::seal(&MAGIC, self);
        let offset = sink.write_blob(&[&bytes])?;
        Ok(BlobRange { offset, size: bytes.len() as u64 })
    }

    /// Reads the annex in a range of a file; an empty range has an empty annex.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is damaged; [`Error::Storage`] if it cannot be read.
    pub fn read(source: &dyn ByteSource, range: BlobRange) -> Result<Self> {
        if range.size == 0 {
            return Ok(Annex::default());
        }
        let what = format!("annex at byte {}", range.offset);
        let read = |source: &dyn ByteSource| {
            let bytes = read_bytes(source, range.offset, range.size, &what)?;
            frame::open(&MAGIC, &bytes, &what)
        };
        read_verified(source, Error::is_damage, read)
    }

    /// All blobs that the annex refers to.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        let deletions = self.deletions.iter().chain(&self.forgotten).map(|chunk| &chunk.blob);
        let statistics = self.statistics.iter().map(|run| &run.blob);
        let runs = self.indexes.iter().flat_map(|index| &index.runs).map(|run| &run.blob);
        deletions.chain(statistics).chain(runs)
    }

    /// All blobs that the annex refers to, mutable, so that their locations can be changed.
    pub fn blobs_mut(&mut self) -> impl Iterator<Item = &mut Blob> {
        let deletions = self.deletions.iter_mut().chain(&mut self.forgotten);
        let statistics = self.statistics.iter_mut().map(|run| &mut run.blob);
        let runs = self.indexes.iter_mut().flat_map(|index| &mut index.runs);
        let blobs = deletions.map(|chunk| &mut chunk.blob).chain(statistics);
        blobs.chain(runs.map(|run| &mut run.blob))
    }
}

impl Blob {
    /// Writes bytes as a blob.
    ///
    /// # Errors
    /// [`rntuple::Error`] if `sink` fails.
    pub fn write(sink: &mut dyn BlobSink, bytes: &[u8]) -> rntuple::Result<Self> {
        let offset = sink.write_blob(&[bytes])?;
        let checksum = XxHash3_64::oneshot(bytes);
        Ok(Blob { offset, size: bytes.len() as u64, checksum })
    }

    /// The bytes of the blob.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if their checksum is wrong, or they lie beyond the end of the file; [`Error::Storage`] if
    /// they cannot be read.
    pub fn read(&self, source: &dyn ByteSource) -> Result<Vec<u8>> {
        let what = format!("blob at byte {}", self.offset);
        let read = |source: &dyn ByteSource| {
            let bytes = read_bytes(source, self.offset, self.size, &what)?;
            if XxHash3_64::oneshot(&bytes) != self.checksum {
                return Err(Error::Corrupt { what: format!("{what}: its checksum is wrong") });
            }
            Ok(bytes)
        };
        read_verified(source, Error::is_damage, read)
    }
}

/// Bytes that are read without a check before that the file is long enough.
const UNSEEN_BYTES_MAX: u64 = 64 << 10;

/// Reads bytes at an untrusted offset and size. Allocates more than 64 KiB only if the file is long enough. For smaller
/// sizes the file's size is not queried: after such a query the kernel records the time of the next write more exactly,
/// and the next sync takes longer because it writes the inode, too.
///
/// # Errors
/// [`Error::Corrupt`] if they lie beyond the end of the file; [`Error::Storage`] if they cannot be read.
pub fn read_bytes(source: &dyn ByteSource, offset: u64, size: u64, what: &str) -> Result<Vec<u8>> {
    let end = offset.checked_add(size);
    let is_beyond = || end.is_none_or(|end| source.size().is_ok_and(|file| end > file));
    let beyond = || Error::Corrupt { what: format!("{what}: it lies beyond the end of the file") };
    if size > UNSEEN_BYTES_MAX && is_beyond() {
        return Err(beyond());
    }
    let mut bytes = vec![0; size as usize];
    match source.read_at(offset, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) if is_beyond() => Err(beyond()),
        Err(error) => Err(Error::storage(what)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annex() -> Annex {
        let blob = Blob { offset: 1, size: 2, checksum: u64::MAX };
        Annex { deletions: vec![DeletionChunk { chunk: 0, count: 3, blob }], ..Annex::default() }
    }

    #[test]
    fn annex_is_read_back_and_every_flipped_bit_is_detected() {
        let mut disk = vec![0; 16];
        let range = annex().write(&mut disk).unwrap();
        assert_eq!(Annex::read(&disk, range).unwrap(), annex());
        for bit in 8 * 16..8 * disk.len() {
            let mut flipped = disk.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Annex::read(&flipped, range).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn empty_annex_takes_no_space() {
        let mut disk = vec![];
        let range = Annex::default().write(&mut disk).unwrap();
        assert_eq!((range, disk.len()), (BlobRange::default(), 0));
        assert_eq!(Annex::read(&disk, range).unwrap(), Annex::default());
    }

    #[test]
    fn blob_beyond_the_file_is_refused_before_allocation() {
        let blob = Blob { offset: 8, size: 1 << 60, checksum: 0 };
        assert!(blob.read(&vec![0_u8; 16]).is_err());
    }
}
