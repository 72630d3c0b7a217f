//! Which blocks of a disk are in memory, or on their way there. Only their numbers are kept.
//!
//! 1. A block that will be read, as somebody said, stays until it is: it would have been fetched for nothing.
//!    Of these there are [`COMING_BYTES_MAX`] and no more; the first to go is the one that came first.
//! 2. What was read or written stays until so many others were.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Bytes of the blocks of a disk that may be on their way or waited for: the bursts of some hundred readers.
const COMING_BYTES_MAX: u64 = 1 << 30;

/// A file, and a block of it.
pub(super) type Block = (u64, u64);

/// The memory before a disk.
pub(super) struct Blocks {
    coming: Recent,
    coming_max: usize,
    held: Recent,
    held_max: usize,
}

impl Blocks {
    /// With nothing in it, and room for so many bytes.
    pub(super) fn new(block_size: u64, cache_bytes: u64) -> Self {
        let count = |bytes| usize::try_from(bytes / block_size).unwrap_or(usize::MAX).max(1);
        Blocks {
            coming: Recent::default(),
            coming_max: count(COMING_BYTES_MAX),
            held: Recent::default(),
            held_max: count(cache_bytes),
        }
    }

    /// When a block is in memory, if it is or will be.
    pub(super) fn ready_at(&self, block: Block) -> Option<Duration> {
        let known = self.coming.by_block.get(&block).or_else(|| self.held.by_block.get(&block));
        known.map(|(_, ready)| *ready)
    }

    /// Makes room for so many blocks that nobody waits for yet; false if those that are on their way leave
    /// none.
    pub(super) fn make_room(&mut self, count: usize, now: Duration) -> bool {
        while self.coming.by_block.len() + count > self.coming_max {
            match self.coming.oldest() {
                Some((block, ready)) if ready <= now => self.coming.remove(block),
                _ => return false,
            }
        }
        true
    }

    /// A block is on its way.
    pub(super) fn come(&mut self, block: Block, ready: Duration) {
        self.coming.put(block, ready);
    }

    /// A block that is in memory will be read again: it stays until then.
    pub(super) fn keep(&mut self, block: Block) {
        if let Some((_, ready)) = self.held.by_block.get(&block).copied() {
            self.held.remove(block);
            self.coming.put(block, ready);
        }
    }

    /// A block was read or written.
    pub(super) fn hold(&mut self, block: Block, now: Duration) {
        self.coming.remove(block);
        self.held.put(block, now);
        while self.held.by_block.len() > self.held_max
            && let Some((oldest, _)) = self.held.oldest()
        {
            self.held.remove(oldest);
        }
    }
}

/// Blocks in the order in which they were put here last.
#[derive(Default)]
struct Recent {
    turns: u64,
    by_turn: BTreeMap<u64, Block>,
    /// The turn of each, and when it is in memory.
    by_block: HashMap<Block, (u64, Duration)>,
}

impl Recent {
    fn put(&mut self, block: Block, ready: Duration) {
        self.remove(block);
        self.turns += 1;
        self.by_turn.insert(self.turns, block);
        self.by_block.insert(block, (self.turns, ready));
    }

    fn remove(&mut self, block: Block) {
        if let Some((turn, _)) = self.by_block.remove(&block) {
            self.by_turn.remove(&turn);
        }
    }

    fn oldest(&self) -> Option<(Block, Duration)> {
        let (_, block) = self.by_turn.first_key_value()?;
        self.by_block.get(block).map(|(_, ready)| (*block, *ready))
    }
}
