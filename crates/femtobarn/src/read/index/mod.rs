//! Indexes: which entries of a container have which keys.
//!
//! An index is a list of sorted runs in the version's annex. Each commit adds a run with the keys of new
//! objects, and of objects whose key fields changed. `key`, `fields`, `block`, `run` and `sorter` encode, read,
//! store and sort keys, `run_reader` searches them; `fetch` reads blocks from a server in few round trips.
//! `definition` adds and removes indexes, `pending` has the keys that a transaction still has to write, `update`
//! writes them. `find` and `referrers` look up objects, `verify` checks an index. Specified in docs/format.md.
//!
//! 1. Every key of every object that is not deleted is in a run of the index.
//! 2. A run may have keys that objects had before, and keys of deleted objects. So each found entry is checked.
//! 3. The cost of a commit does not depend on the number of keys, except for the merging of runs, in which each
//!    key is rewritten about log2 of the number of commits times.

mod block;
mod definition;
mod fetch;
mod fields;
mod find;
mod key;
mod pending;
mod referrers;
mod run;
mod run_reader;
mod sorter;
#[cfg(test)]
mod tests;
mod update;
mod verify;

use crate::annex::IndexState;

pub(crate) use definition::{create, remove};
pub use find::Index;
pub(crate) use find::Indexes;
pub(crate) use pending::PendingKeys;
pub use referrers::{Referrer, Referrers};
pub(crate) use run::RunSink;
pub(crate) use run_reader::IndexBlockCache;
pub(crate) use update::Indexed;

/// Entries whose keys are read at once.
const ENTRIES_AT_ONCE: u64 = 16 << 10;

/// Bytes of all runs.
pub(crate) fn size(indexes: &[IndexState]) -> u64 {
    indexes.iter().flat_map(|index| &index.runs).map(|run| run.blob.size).sum()
}

/// Decodes a block, and looks at all its pairs.
#[cfg(fuzzing)]
pub(crate) fn fuzz_block(bytes: Vec<u8>) {
    let Some(block) = block::IndexBlock::decode(bytes) else { return };
    let mut key = vec![];
    for at in 0..block.count() {
        block.key(at, &mut key);
        assert!(block.starts_with(at, &key) && block.starts_with(at, &key[..key.len() / 2]));
        assert!(block.lower_bound(&key) <= block.count());
        std::hint::black_box((block.level(), block.number(at)));
    }
}
