//! Reading the sorted runs of an index: searches from the root block down ([`RunReader`], [`RunCursor`]), and streams
//! of all pairs of key and entry ([`RunStream`]).
//!
//! 1. Blocks that searches read are cached for the whole process; blocks of streams are not.
//! 2. A damaged run gives [`Error::Corrupt`]: a child lies before its parent and one level below, so every search ends.
//!
//! Blocks and runs are specified in docs/format.md.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rntuple::{ByteSource, read_verified};

use super::block::{BLOCK_BYTES, IndexBlock};
use super::run::{block_count, damaged, offset_of};
use crate::annex::IndexRun;
use crate::error::{Error, Result};

/// The greatest level of a root that is accepted: a run of 2^60 blocks would not fit a file.
const LEVELS_MAX: u8 = 60;
/// Blocks that a stream reads at once.
const BLOCKS_AHEAD: u64 = 64;

/// Blocks by file number and offset, shared by all searches of a process.
pub(crate) struct IndexBlockCache(Cache<(u64, u64), Arc<IndexBlock>, BlockWeight>);

#[derive(Clone)]
struct BlockWeight;

impl Weighter<(u64, u64), Arc<IndexBlock>> for BlockWeight {
    fn weight(&self, _: &(u64, u64), block: &Arc<IndexBlock>) -> u64 {
        // 128 bytes for the cache's own bookkeeping.
        block.size() as u64 + 128
    }
}

impl IndexBlockCache {
    /// A cache of at most `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        IndexBlockCache(Cache::with_weighter(
            (capacity / BLOCK_BYTES as u64) as usize,
            capacity,
            BlockWeight,
        ))
    }

    /// The block at an offset of a file.
    pub(super) fn get(&self, file: u64, offset: u64) -> Option<Arc<IndexBlock>> {
        self.0.get(&(file, offset))
    }

    pub(super) fn insert(&self, file: u64, offset: u64, block: Arc<IndexBlock>) {
        self.0.insert((file, offset), block);
    }
}

/// Searches the runs of one file.
#[derive(Clone, Copy)]
pub(crate) struct RunReader<'a> {
    pub source: &'a dyn ByteSource,
    /// The cache, and the file's number in its keys.
    pub cache: Option<(&'a IndexBlockCache, u64)>,
}

impl RunReader<'_> {
    /// A block of a run; `Corrupt` if it is damaged, or not of the given level.
    fn block(&self, run: &IndexRun, number: u64, level: Option<u8>) -> Result<Arc<IndexBlock>> {
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
                let read = |source: &dyn ByteSource| {
                    let mut bytes = vec![0; size as usize];
                    source.read_at(offset, &mut bytes).map_err(Error::storage("index"))?;
                    IndexBlock::decode(bytes).map(Arc::new).ok_or_else(|| damaged(run, number))
                };
                let block = read_verified(self.source, Error::is_damage, read)?;
                if let Some((cache, file)) = self.cache {
                    cache.insert(file, offset, block.clone());
                }
                block
            }
        };
        if level.is_none_or(|level| block.level() == level) {
            Ok(block)
        } else {
            Err(damaged(run, number))
        }
    }

    /// A cursor at the first pair of a run whose key is not less than `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the run is damaged.
    pub(crate) fn seek<'a>(&'a self, run: &'a IndexRun, key: &[u8]) -> Result<RunCursor<'a>> {
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
        let mut cursor = RunCursor { blocks: self, run, number, at, block };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Appends to `found` the entries of a run whose keys start with `prefix`.
    ///
    /// # Errors
    /// The errors of [`seek`](Self::seek).
    pub(crate) fn entries_of(
        &self,
        run: &IndexRun,
        prefix: &[u8],
        found: &mut Vec<u64>,
    ) -> Result<()> {
        let mut cursor = self.seek(run, prefix)?;
        while cursor.starts_with(prefix) {
            found.push(cursor.entry());
            cursor.advance()?;
        }
        Ok(())
    }
}

/// The number of the block in the level below in which a search for `key` continues. The first key that is not less
/// than `key` is in that block, or is the first one of the next block.
pub(super) fn child_of(block: &IndexBlock, key: &[u8]) -> u64 {
    // `key` itself may be in the last block whose first key is less.
    block.number(block.lower_bound(key).saturating_sub(1))
}

/// A position in a run.
pub(super) struct RunCursor<'a> {
    blocks: &'a RunReader<'a>,
    run: &'a IndexRun,
    number: u64,
    block: Arc<IndexBlock>,
    at: usize,
}

impl RunCursor<'_> {
    /// Goes to the next block if the position is at the end of this one.
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

    /// Whether the key at the position starts with `prefix`.
    pub(crate) fn starts_with(&self, prefix: &[u8]) -> bool {
        !self.is_at_end() && self.block.starts_with(self.at, prefix)
    }

    /// The entry at the position, which must not be at the end.
    pub(crate) fn entry(&self) -> u64 {
        self.block.number(self.at)
    }

    /// Whether the position is after the last key.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.block.count()
    }

    /// Advances to the first pair whose key is not less than `key`. The keys of successive calls must not decrease.
    ///
    /// # Errors
    /// The errors of [`RunReader::seek`].
    pub(crate) fn seek_on(&mut self, key: &[u8]) -> Result<()> {
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

    pub(crate) fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.settle()
    }
}

/// Cursors over all runs of an index, for searches of ascending keys.
pub(super) struct RunCursors<'a> {
    reader: &'a RunReader<'a>,
    runs: &'a [IndexRun],
    /// Empty before the first search.
    cursors: Vec<RunCursor<'a>>,
}

impl<'a> RunCursors<'a> {
    pub(crate) fn new(reader: &'a RunReader<'a>, runs: &'a [IndexRun]) -> Self {
        RunCursors { reader, runs, cursors: vec![] }
    }

    /// The cursors, each at the first pair whose key is not less than `key`. The keys of successive calls must
    /// not decrease.
    ///
    /// # Errors
    /// The errors of [`RunReader::seek`].
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<&mut [RunCursor<'a>]> {
        if self.cursors.is_empty() {
            let cursors = self.runs.iter().map(|run| self.reader.seek(run, key));
            self.cursors = cursors.collect::<Result<_>>()?;
        } else {
            self.cursors.iter_mut().try_for_each(|cursor| cursor.seek_on(key))?;
        }
        Ok(&mut self.cursors)
    }
}

/// All pairs of a run, in order.
pub(super) struct RunStream<'a> {
    source: &'a dyn ByteSource,
    run: IndexRun,
    /// Blocks that were read and not passed, the current one last.
    ahead: Vec<IndexBlock>,
    next_block: u64,
    at: usize,
    /// Number of pairs before the current one.
    before: u64,
    key: Vec<u8>,
}

impl<'a> RunStream<'a> {
    /// A stream at its first pair.
    ///
    /// # Errors
    /// The errors of [`advance`](Self::advance).
    pub(crate) fn new(source: &'a dyn ByteSource, run: IndexRun) -> Result<Self> {
        let (ahead, key) = (vec![], vec![]);
        let mut stream = RunStream { source, run, ahead, next_block: 0, at: 0, before: 0, key };
        stream.settle()?;
        Ok(stream)
    }

    /// The current pair; `None` at the end.
    pub(crate) fn pair(&self) -> Option<(&[u8], u64)> {
        self.ahead.last().map(|block| (&self.key[..], block.number(self.at)))
    }

    /// Advances to the next pair.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the run is damaged, or has fewer keys than its description in the annex states.
    pub(crate) fn advance(&mut self) -> Result<()> {
        (self.at, self.before) = (self.at + 1, self.before + 1);
        self.settle()
    }

    /// Goes to the next block if the current one is passed, and sets the current key.
    fn settle(&mut self) -> Result<()> {
        while self.ahead.last().is_none_or(|block| self.at == block.count()) {
            self.ahead.pop();
            self.at = 0;
            if self.ahead.is_empty() && !self.read_blocks()? {
                return if self.before == self.run.keys {
                    Ok(())
                } else {
                    Err(damaged(&self.run, self.next_block))
                };
            }
        }
        if let Some(block) = self.ahead.last() {
            block.key(self.at, &mut self.key);
        }
        Ok(())
    }

    /// Reads the next blocks of keys; false if there are none.
    fn read_blocks(&mut self) -> Result<bool> {
        let count = block_count(&self.run).saturating_sub(self.next_block).min(BLOCKS_AHEAD);
        if count == 0 || self.before >= self.run.keys {
            return Ok(false);
        }
        let start = self.next_block * BLOCK_BYTES as u64;
        let size = (self.run.blob.size - start).min(count * BLOCK_BYTES as u64);
        let offset = self.run.blob.offset.saturating_add(start);
        let read = |source: &dyn ByteSource| {
            let mut bytes = vec![0; size as usize];
            source.read_at(offset, &mut bytes).map_err(Error::storage("index"))?;
            let blocks =
                (self.next_block..).zip(bytes.chunks(BLOCK_BYTES)).map(|(number, bytes)| {
                    IndexBlock::decode(bytes.to_vec()).ok_or_else(|| damaged(&self.run, number))
                });
            blocks.collect::<Result<Vec<_>>>()
        };
        let blocks = read_verified(self.source, Error::is_damage, read)?;
        self.ahead.extend(blocks.into_iter().take_while(|block| block.level() == 0));
        self.next_block += count;
        self.ahead.reverse();
        Ok(!self.ahead.is_empty())
    }
}
