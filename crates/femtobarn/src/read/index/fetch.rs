//! Fetching blocks of runs from a remote source: for all runs together, all levels above the keys at once.
//!
//! What is fetched goes to the cache, where a search finds it. Nothing is checked here beyond that each block is
//! sound by itself: what is damaged is left to the search, which says so.

use std::ops::Range;
use std::sync::Arc;

use rntuple::ReadRequest;

use super::block::{BLOCK_BYTES, Block};
use super::run::{BlockCache, Blocks, block_count, child_of, offset_of};
use crate::annex::IndexRun;
use crate::error::{Error, Result};

/// Blocks at the end of a run that are fetched together: all of a small run, and of a larger one the levels
/// above its keys, unless it has millions.
const END_BLOCKS: u64 = 8;

impl Blocks<'_> {
    /// Fetches what a search for `key` looks at and the cache has not, if the source is far: a round trip for the
    /// ends of all runs, and one for each level that is below these.
    ///
    /// # Errors
    /// As the source.
    pub fn fetch(&self, runs: &[IndexRun], key: &[u8]) -> Result<()> {
        let Some((cache, file)) = self.cache.filter(|_| self.source.is_remote()) else {
            return Ok(());
        };
        let mut before = vec![];
        loop {
            let known = |run: &IndexRun, number| cache.get(file, offset_of(run, number));
            let missing = runs.iter().filter_map(|run| {
                let blocks = unknown_blocks(run, key, &|number| known(run, number))?;
                Some((run, blocks))
            });
            let missing: Vec<(&IndexRun, Range<u64>)> = missing.collect();
            // Damaged ones are not kept, and none are by a cache that is too small.
            if missing.is_empty() || missing == before {
                return Ok(());
            }
            self.fetch_all(&missing, cache, file)?;
            before = missing;
        }
    }

    fn fetch_all(
        &self,
        missing: &[(&IndexRun, Range<u64>)],
        cache: &BlockCache,
        file: u64,
    ) -> Result<()> {
        let buffer = |(run, blocks): &(&IndexRun, Range<u64>)| {
            let end = run.blob.size.min(blocks.end.saturating_mul(BLOCK_BYTES as u64));
            vec![0; (end - blocks.start * BLOCK_BYTES as u64) as usize]
        };
        let mut buffers: Vec<Vec<u8>> = missing.iter().map(buffer).collect();
        let requests = missing.iter().zip(&mut buffers).map(|((run, blocks), buffer)| {
            let offset = offset_of(run, blocks.start);
            ReadRequest { offset, buffer }
        });
        let mut requests: Vec<ReadRequest<'_>> = requests.collect();
        self.source.read_many(&mut requests).map_err(Error::storage("index"))?;
        for ((run, blocks), buffer) in missing.iter().zip(&buffers) {
            for (number, bytes) in blocks.clone().zip(buffer.chunks(BLOCK_BYTES)) {
                if let Some(block) = Block::decode(bytes.to_vec()) {
                    cache.insert(file, offset_of(run, number), Arc::new(block));
                }
            }
        }
        Ok(())
    }
}

/// The first blocks that a search for `key` looks at in a run and that are not known; none if all are.
fn unknown_blocks(
    run: &IndexRun,
    key: &[u8],
    known: &dyn Fn(u64) -> Option<Arc<Block>>,
) -> Option<Range<u64>> {
    let count = block_count(run);
    let mut number = count.checked_sub(1)?;
    let Some(mut block) = known(number) else {
        return Some(count.saturating_sub(END_BLOCKS)..count);
    };
    while block.level() > 0 {
        number = Some(child_of(&block, key)).filter(|child| *child < number)?;
        let Some(child) = known(number) else { return Some(number..number + 1) };
        block = Some(child).filter(|child| child.level() + 1 == block.level())?;
    }
    None
}
