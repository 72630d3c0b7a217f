//! Runs: the keys of an index in order, each with its entry, as one blob that never changes. This module writes
//! them.
//!
//! A run is a sequence of blocks of [`BLOCK_BYTES`]: the keys, then for each level above the first key of every
//! block of the level below with that block's number, up to one block. The last block is the root, and only it
//! may be shorter, so that a small run is small. The number of blocks is the number of bytes divided by the
//! block size, rounded up.
//!
//! 1. The blocks of level 0 come first and in order, so the keys after a block are in the next block.
//! 2. A block refers only to blocks of the level below, which lie before it.
//! 3. Pairs of key and entry ascend, and none occurs twice.

use std::hash::Hasher;

use rntuple::BlobSink;
use twox_hash::XxHash3_64;

use super::block::{BLOCK_BYTES, BlockBuilder};
use crate::annex::{Blob, IndexRun};
use crate::error::{Error, Result};
use crate::storage::extent::ExtentWriter;

/// Bytes of a pair without its key: the end of the key, and the entry.
const PAIR_BYTES: u64 = 10;

/// Receives runs, whose blocks are written one by one as blobs.
pub(crate) trait RunSink: BlobSink {
    /// Makes sure that the next blobs, up to `bytes` in all, follow each other without a gap if their sizes are
    /// multiples of 8.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written or extended.
    fn reserve(&mut self, bytes: u64) -> Result<()>;

    /// Makes all blobs so far readable.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    fn settle(&mut self) -> Result<()>;
}

impl RunSink for ExtentWriter {
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        ExtentWriter::reserve(self, bytes)
    }

    fn settle(&mut self) -> Result<()> {
        self.flush()
    }
}

/// Writes a run from pairs in order.
pub(super) struct RunWriter<'a> {
    sink: &'a mut dyn RunSink,
    leaf: BlockBuilder,
    /// The first keys of the blocks of the last level, back to back, and the end of each.
    fences: Vec<u8>,
    fence_ends: Vec<usize>,
    start: Option<u64>,
    blocks: u64,
    size: u64,
    hasher: XxHash3_64,
    keys: u64,
    key_bytes: u64,
}

impl<'a> RunWriter<'a> {
    /// Starts a run of at most `keys` keys of `key_bytes` bytes in all.
    ///
    /// # Errors
    /// [`Error::Storage`] if a block cannot be written.
    pub(crate) fn new(sink: &'a mut dyn RunSink, keys: u64, key_bytes: u64) -> Result<Self> {
        // A block is more than three quarters full, and the levels above need less than another quarter.
        let bound = 2 * (key_bytes + keys * PAIR_BYTES) + 2 * BLOCK_BYTES as u64;
        sink.reserve(bound.next_multiple_of(BLOCK_BYTES as u64))?;
        Ok(RunWriter {
            sink,
            leaf: BlockBuilder::default(),
            fences: vec![],
            fence_ends: vec![],
            start: None,
            blocks: 0,
            size: 0,
            hasher: XxHash3_64::new(),
            keys: 0,
            key_bytes: 0,
        })
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// [`Error::Storage`] if a block cannot be written.
    pub(crate) fn push(&mut self, key: &[u8], entry: u64) -> Result<()> {
        (self.keys, self.key_bytes) = (self.keys + 1, self.key_bytes + key.len() as u64);
        if self.leaf.push(key, entry) {
            return Ok(());
        }
        let block = std::mem::take(&mut self.leaf);
        self.leaf = self.end_block(block, 0, true)?;
        if self.leaf.push(key, entry) {
            Ok(())
        } else {
            Err(Error::invalid(format!("a key of {} bytes does not fit a block", key.len())))
        }
    }

    /// Finishes the run; `None` if it has no pairs.
    ///
    /// # Errors
    /// [`Error::Storage`] if a block cannot be written.
    pub(crate) fn finish(mut self) -> Result<Option<IndexRun>> {
        if self.leaf.is_empty() {
            return Ok(None);
        }
        let is_root = self.blocks == 0;
        let block = std::mem::take(&mut self.leaf);
        let mut free = self.end_block(block, 0, !is_root)?;
        let (mut level, mut first_block) = (1, 0);
        while self.fence_ends.len() > 1 {
            let fences = std::mem::take(&mut self.fences);
            let ends = std::mem::take(&mut self.fence_ends);
            let next_first = self.blocks;
            let mut start = 0;
            for (number, &end) in (first_block..).zip(&ends) {
                if !free.push(&fences[start..end], number) {
                    free = self.end_block(free, level, true)?;
                    // A pair always fits an empty block.
                    free.push(&fences[start..end], number);
                }
                start = end;
            }
            let is_root = self.blocks == next_first;
            free = self.end_block(free, level, !is_root)?;
            (level, first_block) = (level + 1, next_first);
        }
        let checksum = self.hasher.finish();
        let blob = Blob { offset: self.start.unwrap_or(0), size: self.size, checksum };
        Ok(Some(IndexRun { keys: self.keys, key_bytes: self.key_bytes, blob }))
    }

    /// Writes a block, and returns its builder for the next one.
    fn end_block(
        &mut self,
        mut block: BlockBuilder,
        level: u8,
        is_padded: bool,
    ) -> Result<BlockBuilder> {
        self.fences.extend_from_slice(block.first());
        self.fence_ends.push(self.fences.len());
        let bytes = block.finish(level, is_padded);
        let offset = self.sink.write_blob(&[&bytes]).map_err(Error::storage("index"))?;
        let start = *self.start.get_or_insert(offset);
        if offset != start + self.size {
            return Err(Error::invalid(
                "blocks of an index run are not contiguous; the index was not written",
            ));
        }
        self.hasher.write(&bytes);
        self.blocks += 1;
        self.size += bytes.len() as u64;
        Ok(block)
    }
}

/// The offset of a block in the file.
pub(super) fn offset_of(run: &IndexRun, number: u64) -> u64 {
    run.blob.offset.saturating_add(number.saturating_mul(BLOCK_BYTES as u64))
}

pub(super) fn block_count(run: &IndexRun) -> u64 {
    run.blob.size.div_ceil(BLOCK_BYTES as u64)
}

/// The error for a damaged block.
pub(super) fn damaged(run: &IndexRun, number: u64) -> Error {
    let offset = offset_of(run, number);
    Error::Corrupt {
        what: format!(
            "block of an index at byte {offset} is damaged; repair the database to rebuild the index"
        ),
    }
}
