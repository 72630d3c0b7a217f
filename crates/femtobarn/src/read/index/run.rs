//! Sorted runs: keys in order, each with its entry, as one blob that is never changed.
//!
//! A run is a sequence of blocks of [`BLOCK_BYTES`]: the keys, then for each level above the first key
//! of every block of the level below with that block's number, up to one block. The last block is the
//! root, and only it may be shorter, so that a small run is small: there are as many blocks as bytes
//! divided by the size of one, rounded up.
//!
//! Invariants:
//! 1. The blocks of level 0 are the first ones and in order, so that going on means reading on.
//! 2. A block refers only to blocks before it that are of the level below.
//! 3. Pairs of key and entry are in order, and none is there twice.

use std::hash::Hasher;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rntuple::{BlobSink, ByteSource};
use twox_hash::XxHash3_64;

use super::block::{BLOCK_BYTES, Block, BlockBuilder};
use crate::annex::{Blob, IndexRun};
use crate::error::{Error, Result};
use crate::storage::extent::ExtentWriter;

/// Levels of a run at most: 2 to the power of that many blocks would not fit a file.
const LEVELS_MAX: u8 = 60;
/// Blocks that are read at once when all of a run is wanted.
const BLOCKS_AHEAD: u64 = 64;
/// Bytes of a pair beside its key: where the key ends, and the entry.
const PAIR_BYTES: u64 = 10;

/// Where runs are written: like any blob, but piece by piece.
pub(crate) trait RunSink: BlobSink {
    /// Sees to it that the blobs that are written next follow each other without a gap up to `bytes`
    /// in all, if their sizes are multiples of 8.
    ///
    /// # Errors
    /// As the disk.
    fn reserve(&mut self, bytes: u64) -> Result<()>;

    /// Lets everything that was written be read.
    ///
    /// # Errors
    /// As the disk.
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

/// Writes a run; pairs come in order.
pub(super) struct RunWriter<'a> {
    sink: &'a mut dyn RunSink,
    leaf: BlockBuilder,
    /// First keys of the blocks of the level that was written last, and where each ends.
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
    /// As the disk.
    pub fn new(sink: &'a mut dyn RunSink, keys: u64, key_bytes: u64) -> Result<Self> {
        // A block leaves less than a quarter free, and levels above take less than another.
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
    /// As the disk.
    pub fn push(&mut self, key: &[u8], entry: u64) -> Result<()> {
        (self.keys, self.key_bytes) = (self.keys + 1, self.key_bytes + key.len() as u64);
        if self.leaf.push(key, entry) {
            return Ok(());
        }
        let block = std::mem::take(&mut self.leaf);
        self.leaf = self.end_block(block, 0, true)?;
        match self.leaf.push(key, entry) {
            true => Ok(()),
            false => Err(Error::invalid(format!("a key of {} bytes is too long", key.len()))),
        }
    }

    /// Ends the run; `None` if it is empty.
    ///
    /// # Errors
    /// As the disk.
    pub fn finish(mut self) -> Result<Option<IndexRun>> {
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
                    // An empty block takes any pair.
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

    /// Writes a block and returns its builder, empty.
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
            return Err(Error::invalid("a run of keys was torn apart; the index was not written"));
        }
        self.hasher.write(&bytes);
        self.blocks += 1;
        self.size += bytes.len() as u64;
        Ok(block)
    }
}

/// Blocks that look-ups share, by database and place in its file.
pub(crate) struct BlockCache(Cache<(u64, u64), Arc<Block>, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<(u64, u64), Arc<Block>> for Weight {
    fn weight(&self, _: &(u64, u64), block: &Arc<Block>) -> u64 {
        // The constant stands for the cache's own bookkeeping.
        block.size() as u64 + 128
    }
}

impl BlockCache {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        BlockCache(Cache::with_weighter((capacity / BLOCK_BYTES as u64) as usize, capacity, Weight))
    }

    /// The block at a place of a database's file.
    pub(super) fn get(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        self.0.get(&(file, offset))
    }

    pub(super) fn insert(&self, file: u64, offset: u64, block: Arc<Block>) {
        self.0.insert((file, offset), block);
    }
}

/// Where runs are read.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub source: &'a dyn ByteSource,
    /// The cache, and what tells this file in it from others.
    pub cache: Option<(&'a BlockCache, u64)>,
}

impl Blocks<'_> {
    fn block(&self, run: &IndexRun, number: u64, level: Option<u8>) -> Result<Arc<Block>> {
        let count = block_count(run);
        if number >= count {
            return Err(damaged(run, number));
        }
        let offset = offset_of(run, number);
        let known = self.cache.and_then(|(cache, file)| cache.get(file, offset));
        let block = match known {
            Some(block) => block,
            None => {
                let size = (run.blob.size - number * BLOCK_BYTES as u64).min(BLOCK_BYTES as u64);
                let mut bytes = vec![0; size as usize];
                self.source.read_at(offset, &mut bytes).map_err(Error::storage("index"))?;
                let block = Block::decode(bytes).map(Arc::new);
                let block = block.ok_or_else(|| damaged(run, number))?;
                if let Some((cache, file)) = self.cache {
                    cache.insert(file, offset, block.clone());
                }
                block
            }
        };
        match level.is_none_or(|level| block.level() == level) {
            true => Ok(block),
            false => Err(damaged(run, number)),
        }
    }

    /// Goes to the first pair of a run whose key is not below `key`.
    ///
    /// # Errors
    /// `Corrupt` if the run is damaged.
    pub fn seek<'a>(&'a self, run: &'a IndexRun, key: &[u8]) -> Result<Cursor<'a>> {
        let mut number = match block_count(run) {
            0 => return Err(damaged(run, 0)),
            count => count - 1,
        };
        let mut block = self.block(run, number, None)?;
        if block.level() > LEVELS_MAX {
            return Err(damaged(run, number));
        }
        while block.level() > 0 {
            let child = child_of(&block, key);
            if child >= number {
                return Err(damaged(run, number));
            }
            number = child;
            block = self.block(run, number, Some(block.level() - 1))?;
        }
        let at = block.lower_bound(key);
        let mut cursor = Cursor { blocks: self, run, number, at, block };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Entries of a run whose keys begin with `start`, appended to `found`.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn entries_of(&self, run: &IndexRun, start: &[u8], found: &mut Vec<u64>) -> Result<()> {
        let mut cursor = self.seek(run, start)?;
        while cursor.starts_with(start) {
            found.push(cursor.entry());
            cursor.advance()?;
        }
        Ok(())
    }
}

/// The block below another in which the first key that is not below `key` is, or behind which it is.
pub(super) fn child_of(block: &Block, key: &[u8]) -> u64 {
    // Keys not below may be at the end of the last block whose first key is below.
    block.number(block.lower_bound(key).saturating_sub(1))
}

pub(super) fn offset_of(run: &IndexRun, number: u64) -> u64 {
    run.blob.offset.saturating_add(number.saturating_mul(BLOCK_BYTES as u64))
}

pub(super) fn block_count(run: &IndexRun) -> u64 {
    run.blob.size.div_ceil(BLOCK_BYTES as u64)
}

fn damaged(run: &IndexRun, number: u64) -> Error {
    let offset = offset_of(run, number);
    Error::Corrupt {
        what: format!("block of an index at byte {offset} is damaged; build the index again"),
    }
}

/// A place in a run.
pub(crate) struct Cursor<'a> {
    blocks: &'a Blocks<'a>,
    run: &'a IndexRun,
    number: u64,
    block: Arc<Block>,
    at: usize,
}

impl Cursor<'_> {
    /// Goes to the next block if this one is at its end.
    fn settle(&mut self) -> Result<()> {
        let is_last = |number: u64| number + 1 >= block_count(self.run);
        if self.at < self.block.count() || is_last(self.number) {
            return Ok(());
        }
        let next = self.blocks.block(self.run, self.number + 1, None)?;
        if next.level() == 0 {
            (self.number, self.block, self.at) = (self.number + 1, next, 0);
        }
        Ok(())
    }

    /// Whether there is a key here that begins with `start`.
    pub fn starts_with(&self, start: &[u8]) -> bool {
        !self.is_at_end() && self.block.starts_with(self.at, start)
    }

    pub fn entry(&self) -> u64 {
        self.block.number(self.at)
    }

    /// Whether there are no more keys.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.block.count()
    }

    /// Goes on to the first pair whose key is not below `key`, which no pair before is.
    ///
    /// # Errors
    /// As [`Blocks::seek`].
    pub fn seek_on(&mut self, key: &[u8]) -> Result<()> {
        if self.is_at_end() {
            return Ok(());
        }
        let at = self.block.lower_bound(key);
        if at < self.block.count() {
            self.at = at.max(self.at);
        } else {
            *self = self.blocks.seek(self.run, key)?;
        }
        Ok(())
    }

    pub fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.settle()
    }
}

/// All pairs of a run, in order, read many blocks at a time.
pub(super) struct Stream<'a> {
    source: &'a dyn ByteSource,
    run: IndexRun,
    /// Blocks that were read and not gone through, the next one last.
    ahead: Vec<Block>,
    next_block: u64,
    at: usize,
    /// Pairs before the current one.
    before: u64,
    key: Vec<u8>,
}

impl<'a> Stream<'a> {
    /// A stream at its first pair.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn new(source: &'a dyn ByteSource, run: IndexRun) -> Result<Self> {
        let (ahead, key) = (vec![], vec![]);
        let mut stream = Stream { source, run, ahead, next_block: 0, at: 0, before: 0, key };
        stream.settle()?;
        Ok(stream)
    }

    /// The pair here; `None` at the end.
    pub fn pair(&self) -> Option<(&[u8], u64)> {
        self.ahead.last().map(|block| (&self.key[..], block.number(self.at)))
    }

    /// Goes to the next pair.
    ///
    /// # Errors
    /// `Corrupt` if the run is damaged, or has not the number of keys that it should have.
    pub fn advance(&mut self) -> Result<()> {
        (self.at, self.before) = (self.at + 1, self.before + 1);
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        while self.ahead.last().is_none_or(|block| self.at == block.count()) {
            self.ahead.pop();
            self.at = 0;
            if self.ahead.is_empty() && !self.read_ahead()? {
                return match self.before == self.run.keys {
                    true => Ok(()),
                    false => Err(damaged(&self.run, self.next_block)),
                };
            }
        }
        if let Some(block) = self.ahead.last() {
            block.key(self.at, &mut self.key);
        }
        Ok(())
    }

    /// Reads blocks of keys; says whether there were any.
    fn read_ahead(&mut self) -> Result<bool> {
        let count = block_count(&self.run).saturating_sub(self.next_block).min(BLOCKS_AHEAD);
        if count == 0 || self.before >= self.run.keys {
            return Ok(false);
        }
        let start = self.next_block * BLOCK_BYTES as u64;
        let size = (self.run.blob.size - start).min(count * BLOCK_BYTES as u64);
        let offset = self.run.blob.offset.saturating_add(start);
        let mut bytes = vec![0; size as usize];
        self.source.read_at(offset, &mut bytes).map_err(Error::storage("index"))?;
        for (number, bytes) in (self.next_block..).zip(bytes.chunks(BLOCK_BYTES)) {
            let block = Block::decode(bytes.to_vec()).ok_or_else(|| damaged(&self.run, number))?;
            if block.level() > 0 {
                break;
            }
            self.ahead.push(block);
        }
        self.next_block += count;
        self.ahead.reverse();
        Ok(!self.ahead.is_empty())
    }
}
