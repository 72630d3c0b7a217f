//! The simulated cache in front of a disk: the blocks that are in memory or in transit. It holds block numbers only.
//!
//! 1. A prefetched block is kept until it is read, since its fetch would be wasted otherwise. There are at most
//!    [`COMING_BYTES_MAX`] of such blocks; the oldest is evicted first.
//! 2. Blocks that were read or written are evicted in the order of their last use.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Bytes of a disk's prefetched blocks: the prefetch bursts of about a hundred readers.
const COMING_BYTES_MAX: u64 = 1 << 30;

/// The number of a file, and of a block in it.
pub(super) type BlockAddress = (u64, u64);

/// The cache in front of a disk.
pub(super) struct BlockCache {
    coming: Recent,
    coming_max: usize,
    held: Recent,
    held_max: usize,
}

impl BlockCache {
    /// An empty cache for `cache_bytes` of blocks that were used.
    pub(super) fn new(block_size: u64, cache_bytes: u64) -> Self {
        let count = |bytes| usize::try_from(bytes / block_size).unwrap_or(usize::MAX).max(1);
        BlockCache {
            coming: Recent::default(),
            coming_max: count(COMING_BYTES_MAX),
            held: Recent::default(),
            held_max: count(cache_bytes),
        }
    }

    /// When a block is in memory; `None` if it is neither there nor in transit.
    pub(super) fn ready_at(&self, block: BlockAddress) -> Option<Duration> {
        let known = self.coming.by_block.get(&block).or_else(|| self.held.by_block.get(&block));
        known.map(|(_, ready)| *ready)
    }

    /// Evicts prefetched blocks to make room for `count` more; false if the blocks in transit leave too little room.
    pub(super) fn make_room(&mut self, count: usize, now: Duration) -> bool {
        while self.coming.by_block.len() + count > self.coming_max {
            match self.coming.oldest() {
                Some((block, ready)) if ready <= now => self.coming.remove(block),
                _ => return false,
            }
        }
        true
    }

    /// Records that a block is in transit.
    pub(super) fn add_coming(&mut self, block: BlockAddress, ready: Duration) {
        self.coming.put(block, ready);
    }

    /// Keeps a block that is in memory until it is read again.
    pub(super) fn keep_until_read(&mut self, block: BlockAddress) {
        if let Some((_, ready)) = self.held.by_block.get(&block).copied() {
            self.held.remove(block);
            self.coming.put(block, ready);
        }
    }

    /// Notes that a block was read or written.
    pub(super) fn mark_used(&mut self, block: BlockAddress, now: Duration) {
        self.coming.remove(block);
        self.held.put(block, now);
        while self.held.by_block.len() > self.held_max
            && let Some((oldest, _)) = self.held.oldest()
        {
            self.held.remove(oldest);
        }
    }
}

/// Blocks in the order of their last insertion.
#[derive(Default)]
struct Recent {
    turns: u64,
    by_turn: BTreeMap<u64, BlockAddress>,
    /// The turn of each block, and when it is in memory.
    by_block: HashMap<BlockAddress, (u64, Duration)>,
}

impl Recent {
    fn put(&mut self, block: BlockAddress, ready: Duration) {
        self.remove(block);
        self.turns += 1;
        self.by_turn.insert(self.turns, block);
        self.by_block.insert(block, (self.turns, ready));
    }

    fn remove(&mut self, block: BlockAddress) {
        if let Some((turn, _)) = self.by_block.remove(&block) {
            self.by_turn.remove(&turn);
        }
    }

    fn oldest(&self) -> Option<(BlockAddress, Duration)> {
        let (_, block) = self.by_turn.first_key_value()?;
        self.by_block.get(block).map(|(_, ready)| (*block, *ready))
    }
}
