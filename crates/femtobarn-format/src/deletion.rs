//! The deleted entries of a container.
//!
//! Entries never move: a deleted entry keeps its number, which is not used again. Deleted entries are kept by chunks
//! of 2^16 entries; each chunk is a blob that versions share until the chunk changes.
//!
//! A chunk's blob is either a bitmap, 8192 bytes with entry n of the chunk in bit n % 8 of byte n / 8, or, if that is
//! shorter, the ascending numbers of the deleted entries within the chunk as `u16`. The size of the blob distinguishes
//! the two.
//!
//! Invariants:
//! 1. A chunk without deleted entries is not listed, and chunks are listed in ascending order.
//! 2. A chunk is read at the first look-up of one of its entries.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use femtobarn_catalog::VersionRow;
use rntuple::{BlobSink, ByteSource};

use crate::annex::{Annex, Blob, DeletionChunk};
use crate::error::{Error, Result};

/// Entries of a chunk.
pub const CHUNK_ENTRIES: u64 = 1 << 16;
/// Bytes of a chunk's bitmap.
const BITMAP_BYTES: usize = CHUNK_ENTRIES as usize / 8;
const WORD_BITS: u64 = 64;
const WORDS: usize = (CHUNK_ENTRIES / WORD_BITS) as usize;

/// The deleted entries of one version of a container.
#[derive(Clone, Default)]
pub struct Deletions {
    chunks: BTreeMap<u64, Chunk>,
    count: u64,
}

/// A chunk that is on disk, in memory, or both.
#[derive(Clone)]
struct Chunk {
    /// Its blob; `None` if the chunk has changed since it was written.
    listed: Option<DeletionChunk>,
    bits: OnceLock<Arc<Bitmap>>,
}

/// One bit for each entry of a chunk.
#[derive(Clone)]
struct Bitmap(Box<[u64; WORDS]>);

impl Deletions {
    /// The deletions that an annex lists. `count` is their number in the catalogue, `entries` that of the container's
    /// entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the list contradicts either number.
    pub fn new(listed: &[DeletionChunk], count: u64, entries: u64) -> Result<Self> {
        let is_ascending = listed.windows(2).all(|pair| pair[0].chunk < pair[1].chunk);
        let is_possible = |it: &DeletionChunk| {
            let first = it.chunk.checked_mul(CHUNK_ENTRIES);
            let left = first.and_then(|first| entries.checked_sub(first)).unwrap_or(0);
            it.count > 0 && it.count <= left.min(CHUNK_ENTRIES)
        };
        let total: u64 = listed.iter().map(|it| it.count.min(CHUNK_ENTRIES)).sum();
        if !is_ascending || !listed.iter().all(is_possible) || total != count {
            return Err(Error::Corrupt {
                what: format!("the list of {count} deleted entries of {entries} is damaged"),
            });
        }
        let chunk =
            |it: &DeletionChunk| (it.chunk, Chunk { listed: Some(*it), bits: OnceLock::new() });
        Ok(Deletions { chunks: listed.iter().map(chunk).collect(), count })
    }

    /// The deletions of a version.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) and [`Annex::read`].
    pub fn of(source: &dyn ByteSource, row: &VersionRow) -> Result<Self> {
        match row.deleted {
            0 => Ok(Deletions::default()),
            count => Self::new(&Annex::read(source, row.annex)?.deletions, count, row.entries),
        }
    }

    /// The number of deleted entries.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether an entry is deleted. `source` is the database's file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the entry's chunk is damaged; [`Error::Storage`] if it cannot be read.
    pub fn contains(&self, source: &dyn ByteSource, entry: u64) -> Result<bool> {
        match self.chunks.get(&(entry / CHUNK_ENTRIES)) {
            Some(chunk) => Ok(chunk.bits(source)?.has(entry % CHUNK_ENTRIES)),
            None => Ok(false),
        }
    }

    /// The runs of entries in `entries` that are not deleted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a chunk is damaged; [`Error::Storage`] if one cannot be read.
    pub fn live(&self, source: &dyn ByteSource, entries: Range<u64>) -> Result<Vec<Range<u64>>> {
        let mut runs = vec![];
        let mut start = entries.start;
        let chunks = entries.start / CHUNK_ENTRIES..entries.end.div_ceil(CHUNK_ENTRIES);
        for (number, chunk) in self.chunks.range(chunks) {
            let first = number * CHUNK_ENTRIES;
            for entry in chunk.bits(source)?.ones().map(|bit| first + bit) {
                if !entries.contains(&entry) {
                    continue;
                }
                if start < entry {
                    runs.push(start..entry);
                }
                start = entry + 1;
            }
        }
        if start < entries.end {
            runs.push(start..entries.end);
        }
        Ok(runs)
    }

    /// The runs of deleted entries in a container with `entries` entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a chunk is damaged; [`Error::Storage`] if one cannot be read.
    pub fn runs(&self, source: &dyn ByteSource, entries: u64) -> Result<Vec<Range<u64>>> {
        let mut runs = vec![];
        let mut end = 0;
        for run in self.live(source, 0..entries)? {
            if end < run.start {
                runs.push(end..run.start);
            }
            end = run.end;
        }
        if end < entries {
            runs.push(end..entries);
        }
        Ok(runs)
    }

    /// Deletes an entry; `false` if it was deleted already.
    ///
    /// # Errors
    /// The errors of [`contains`](Self::contains).
    pub fn insert(&mut self, source: &dyn ByteSource, entry: u64) -> Result<bool> {
        let fresh = || Chunk { listed: None, bits: OnceLock::from(Arc::new(Bitmap::empty())) };
        let chunk = self.chunks.entry(entry / CHUNK_ENTRIES).or_insert_with(fresh);
        let mut bits = chunk.bits(source)?.clone();
        if bits.has(entry % CHUNK_ENTRIES) {
            return Ok(false);
        }
        chunk.bits.take();
        Arc::make_mut(&mut bits).set(entry % CHUNK_ENTRIES);
        chunk.bits = OnceLock::from(bits);
        chunk.listed = None;
        self.count += 1;
        Ok(true)
    }

    /// Writes the chunks that changed, and returns the list of all.
    ///
    /// # Errors
    /// [`rntuple::Error`] if `sink` fails.
    pub fn write(&mut self, sink: &mut dyn BlobSink) -> rntuple::Result<Vec<DeletionChunk>> {
        let mut listed = Vec::with_capacity(self.chunks.len());
        for (number, chunk) in &mut self.chunks {
            let on_disk = match (chunk.listed, chunk.bits.get()) {
                (Some(on_disk), _) => on_disk,
                (None, bits) => {
                    let bits = bits.expect("a chunk that is not on disk is in memory");
                    let blob = Blob::write(sink, &bits.encode())?;
                    DeletionChunk { chunk: *number, count: bits.count(), blob }
                }
            };
            chunk.listed = Some(on_disk);
            listed.push(on_disk);
        }
        Ok(listed)
    }
}

impl Chunk {
    fn bits(&self, source: &dyn ByteSource) -> Result<&Arc<Bitmap>> {
        if let (None, Some(on_disk)) = (self.bits.get(), &self.listed) {
            let bits = Bitmap::decode(&on_disk.blob.read(source)?)
                .filter(|bits| bits.count() == on_disk.count)
                .ok_or_else(|| Error::Corrupt {
                    what: format!(
                        "the deleted entries at byte {} are damaged",
                        on_disk.blob.offset
                    ),
                })?;
            // Another thread may have set the same bits first.
            drop(self.bits.set(Arc::new(bits)));
        }
        Ok(self.bits.get().expect("a chunk that is not on disk is in memory"))
    }
}

impl Bitmap {
    fn empty() -> Self {
        Bitmap(Box::new([0; WORDS]))
    }

    fn has(&self, bit: u64) -> bool {
        self.0[(bit / WORD_BITS) as usize] >> (bit % WORD_BITS) & 1 == 1
    }

    fn set(&mut self, bit: u64) {
        self.0[(bit / WORD_BITS) as usize] |= 1 << (bit % WORD_BITS);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn ones(&self) -> impl Iterator<Item = u64> {
        let of_word = |(at, word): (usize, &u64)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = u64::from(left.trailing_zeros());
                left &= left.checked_sub(1)?;
                Some(at as u64 * WORD_BITS + bit)
            })
        };
        self.0.iter().enumerate().flat_map(of_word)
    }

    fn encode(&self) -> Vec<u8> {
        if self.count() as usize * size_of::<u16>() < BITMAP_BYTES {
            return self.ones().flat_map(|bit| (bit as u16).to_le_bytes()).collect();
        }
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bitmap = Bitmap::empty();
        if bytes.len() == BITMAP_BYTES {
            let words = bytes.chunks_exact(size_of::<u64>());
            for (word, bytes) in bitmap.0.iter_mut().zip(words) {
                *word = u64::from_le_bytes(bytes.try_into().ok()?);
            }
            return Some(bitmap);
        }
        if bytes.len() > BITMAP_BYTES || !bytes.len().is_multiple_of(size_of::<u16>()) {
            return None;
        }
        let bits = bytes.chunks_exact(size_of::<u16>());
        let bits = bits.map(|pair| u64::from(u16::from_le_bytes([pair[0], pair[1]])));
        let mut last = None;
        for bit in bits {
            if last.is_some_and(|last| last >= bit) {
                return None;
            }
            bitmap.set(bit);
            last = Some(bit);
        }
        Some(bitmap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_entries_are_read_back_at_any_density() {
        for step in [1, 2, 15, 16, 17, 1000, CHUNK_ENTRIES] {
            let entries = 2 * CHUNK_ENTRIES + 100;
            let mut disk = vec![1, 2, 3];
            let mut deletions = Deletions::default();
            let deleted: Vec<u64> = (0..entries).step_by(step as usize).collect();
            for &entry in &deleted {
                assert!(deletions.insert(&disk, entry).unwrap());
                assert!(!deletions.insert(&disk, entry).unwrap());
            }
            let listed = deletions.write(&mut disk).unwrap();
            assert!(disk.len() <= 3 + 3 * BITMAP_BYTES);
            let read = Deletions::new(&listed, deleted.len() as u64, entries).unwrap();
            let live = read.live(&disk, 0..entries).unwrap();
            let live: Vec<u64> = live.into_iter().flatten().collect();
            let expected: Vec<u64> = (0..entries).filter(|entry| entry % step != 0).collect();
            assert!(live == expected, "every {step}th");
            let runs = read.runs(&disk, entries).unwrap();
            assert!(runs.into_iter().flatten().eq(deleted.iter().copied()), "every {step}th");
            assert!(read.contains(&disk, 0).unwrap());
            assert_eq!(read.contains(&disk, 1).unwrap(), step == 1);
            assert_eq!(read.count(), deleted.len() as u64);
        }
    }

    #[test]
    fn unchanged_chunks_are_not_written_again() {
        let mut disk = vec![];
        let mut deletions = Deletions::default();
        deletions.insert(&disk, 7).unwrap();
        deletions.insert(&disk, CHUNK_ENTRIES).unwrap();
        let before = deletions.write(&mut disk).unwrap();
        let mut deletions = Deletions::new(&before, 2, 2 * CHUNK_ENTRIES).unwrap();
        let size = disk.len();
        deletions.insert(&disk, 8).unwrap();
        let after = deletions.write(&mut disk).unwrap();
        assert_eq!((disk.len() - size, after[1]), (4, before[1]));
        let old = Deletions::new(&before, 2, 2 * CHUNK_ENTRIES).unwrap();
        assert!(!old.contains(&disk, 8).unwrap());
    }

    #[test]
    fn contradictory_list_is_refused() {
        let blob = Blob { offset: 0, size: 2, checksum: 0 };
        let chunk = |chunk, count| DeletionChunk { chunk, count, blob };
        for (listed, count, entries) in [
            (vec![chunk(0, 1)], 2, 10),
            (vec![chunk(0, 11)], 11, 10),
            (vec![chunk(1, 1)], 1, CHUNK_ENTRIES),
            (vec![chunk(0, 1), chunk(0, 1)], 2, 10),
            (vec![chunk(u64::MAX, 1)], 1, 10),
            (vec![chunk(0, 0)], 0, 10),
        ] {
            assert!(Deletions::new(&listed, count, entries).is_err(), "{listed:?}");
        }
        assert!(Bitmap::decode(&[1, 0, 1, 0]).is_none());
        assert!(Bitmap::decode(&[1]).is_none());
    }
}
