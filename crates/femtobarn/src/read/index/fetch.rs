//! Fetching of blocks from a remote source before a search: the levels above the keys of all runs in one round
//! trip.
//!
//! The blocks go to the cache, where the search finds them. Only each block's checksum is checked here; the search
//! detects and reports all other damage.

use std::ops::Range;
use std::sync::Arc;

use rntuple::ReadRequest;

use super::block::{BLOCK_BYTES, IndexBlock};
use super::run::{block_count, offset_of};
use super::run_reader::{IndexBlockCache, RunReader, child_of};
use crate::annex::IndexRun;
use crate::error::{Error, Result};

/// Blocks at the end of a run that are fetched together: all blocks of a small run, and the levels above the
/// keys of a larger one, unless it has millions of keys.
const END_BLOCKS: u64 = 8;

impl RunReader<'_> {
    /// If the source is remote, fetches the blocks that a search for `key` needs and the cache lacks: in one
    /// round trip the ends of all runs, and in another one each level below these.
    ///
    /// # Errors
    /// [`Error::Storage`] if the source cannot be read.
    pub(crate) fn fetch(&self, runs: &[IndexRun], key: &[u8]) -> Result<()> {
        let Some((cache, file)) = self.cache.filter(|_| self.source.is_remote()) else {
            return Ok(());
        };
        let mut before = vec![];
        loop {
            let known = |run: &IndexRun, number| cache.get(file, offset_of(run, number));
            let missing = runs.iter().filter_map(|run| {
                let blocks = missing_blocks(run, key, &|number| known(run, number))?;
                Some((run, blocks))
            });
            let missing: Vec<(&IndexRun, Range<u64>)> = missing.collect();
            // Damaged blocks are not cached, and a cache that is too small retains none: fetch the same blocks
            // once.
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
        cache: &IndexBlockCache,
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
                if let Some(block) = IndexBlock::decode(bytes.to_vec()) {
                    cache.insert(file, offset_of(run, number), Arc::new(block));
                }
            }
        }
        Ok(())
    }
}

/// The first blocks of a run that a search for `key` needs and the cache lacks; `None` if it has all.
fn missing_blocks(
    run: &IndexRun,
    key: &[u8],
    known: &dyn Fn(u64) -> Option<Arc<IndexBlock>>,
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
