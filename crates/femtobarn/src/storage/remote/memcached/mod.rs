//! memcached: bytes of a server's files in the memory of a cluster, shared by all jobs that may read the federation.
//!
//! 1. A file is cut into blocks, so that any read finds the bytes of any earlier read. A value is one block: the ranges
//!    that commits refer to and that were read so far. A process adds to blocks in turn; of two processes that write a
//!    block at once, one may lose its ranges.
//! 2. Anybody who reaches memcached can read and write values. Each value is authenticated, and bound to its memcached
//!    key, with a secret derived from the federation's UUID; without the secret no value can be forged, and a value of
//!    another place or another federation is refused. A value is not encrypted, and an older value of the same place is
//!    accepted: its bytes are the same.
//! 3. A value names the newest commit that refers to its bytes. If the federation does not have that commit, as
//!    after restoring an older copy, the value is ignored.
//! 4. `server` bounds the time that a dead or slow memcached costs.

mod block;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use femtobarn_catalog::DatabaseRow;
use parking_lot::Mutex;
use rangemap::RangeSet;
use ring::hmac;
use rntuple::ReadRequest;
use twox_hash::XxHash3_64;
use uuid::Uuid;

use self::block::{BLOCK_BYTES, CachedBlock};
use self::server::MemcachedServer;
use super::history::{CommitHistory, CommitMark};
use super::tier::{FileTier, TierCounts};
use crate::error::Result;

/// Blocks that are asked for, or stored, together: a mebibyte.
const BLOCKS_TOGETHER: usize = 16;
/// The version of the values, in front of each key, so that other versions are not found.
const VERSION: &str = "femtobarn-1";
/// The purpose of the derived authentication key.
const PURPOSE: &[u8] = b"femtobarn: authentication of cached blocks, version 1";

/// The memcached servers of a cluster, for one federation.
#[derive(Debug)]
pub(crate) struct Memcached {
    servers: Vec<MemcachedServer>,
    key: hmac::Key,
    history: Arc<CommitHistory>,
    counts: TierCounts,
    /// Held while blocks are read, added to and written.
    adding: Mutex<()>,
}

/// The blocks of one file in one epoch.
#[derive(Debug)]
pub(crate) struct MemcachedFile {
    memcached: Arc<Memcached>,
    /// The keys of the blocks without their numbers.
    key_prefix: String,
}

impl Memcached {
    /// The servers at these addresses: `host`, or `host:port`. They are connected to when they are needed.
    ///
    /// # Errors
    /// `Invalid` if an address has another form.
    pub(crate) fn new(
        addresses: &[String],
        federation: Uuid,
        history: Arc<CommitHistory>,
    ) -> Result<Arc<Self>> {
        let servers = addresses.iter().map(|address| MemcachedServer::new(address));
        let purpose = hmac::Key::new(hmac::HMAC_SHA256, PURPOSE);
        let secret = hmac::sign(&purpose, federation.as_bytes());
        Ok(Arc::new(Memcached {
            servers: servers.collect::<Result<_>>()?,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()),
            history,
            counts: TierCounts::default(),
            adding: Mutex::default(),
        }))
    }

    /// The blocks of a database's file.
    pub(crate) fn file(self: &Arc<Self>, database: &DatabaseRow) -> MemcachedFile {
        // A database that was detached and attached again has another number.
        let DatabaseRow { uuid, id, epoch, .. } = database;
        let key_prefix = format!("{VERSION}:{}:{id}:{epoch}:", uuid.simple());
        MemcachedFile { memcached: self.clone(), key_prefix }
    }

    /// The reads from memcached.
    pub(crate) fn counts(&self) -> &TierCounts {
        &self.counts
    }

    /// The server that has a key: that of the greatest hash, so a server that is added or removed moves only its own
    /// keys.
    fn server_of(&self, key: &str) -> usize {
        let hash = |index: &usize| {
            XxHash3_64::oneshot(format!("{} {key}", self.servers[*index].address()).as_bytes())
        };
        (0..self.servers.len()).max_by_key(hash).unwrap_or(0)
    }

    /// Groups items by the server of their keys.
    fn by_server<T>(&self, items: Vec<(String, T)>) -> BTreeMap<usize, Vec<(String, T)>> {
        let mut groups: BTreeMap<usize, Vec<(String, T)>> = BTreeMap::new();
        for (key, item) in items {
            groups.entry(self.server_of(&key)).or_default().push((key, item));
        }
        groups
    }

    /// Opens a value; none, and a count, if it is not authentic.
    fn open(&self, key: &str, value: &[u8]) -> Option<CachedBlock> {
        let opened = CachedBlock::open(&self.key, key, value);
        if opened.is_none() {
            self.counts.add_damaged(1);
        }
        opened.filter(|block| self.history.has(block.commit))
    }
}

impl MemcachedFile {
    /// The blocks of these numbers that memcached has.
    fn get(&self, numbers: &[u64]) -> HashMap<u64, CachedBlock> {
        let keys = numbers.iter().map(|number| (format!("{}{number}", self.key_prefix), *number));
        let mut found = HashMap::new();
        for (server, keys) in self.memcached.by_server(keys.collect()) {
            let values = self.memcached.servers[server].get(&keys, &self.memcached.counts);
            for ((key, number), value) in keys.iter().zip(values) {
                let block = value.and_then(|value| self.memcached.open(key, &value));
                found.extend(block.map(|block| (*number, block)));
            }
        }
        found
    }

    fn set(&self, blocks: HashMap<u64, CachedBlock>) {
        let values = blocks.into_iter().map(|(number, block)| {
            let key = format!("{}{number}", self.key_prefix);
            let value = block.seal(&self.memcached.key, &key);
            (key, value)
        });
        for (server, values) in self.memcached.by_server(values.collect()) {
            self.memcached.servers[server].set(&values, &self.memcached.counts);
        }
    }
}

impl FileTier for MemcachedFile {
    fn counts(&self) -> &TierCounts {
        &self.memcached.counts
    }

    fn fill(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Vec<Range<u64>>> {
        let mut lacking = vec![RangeSet::new(); requests.len()];
        for numbers in blocks_of(requests).chunks(BLOCKS_TOGETHER) {
            let blocks = self.get(numbers);
            for (request, lacking) in requests.iter_mut().zip(&mut lacking) {
                for number in within(request, numbers) {
                    if !blocks.get(number).is_some_and(|block| block.copy_to(*number, request)) {
                        lacking.insert(block::range_of_request(*number, request));
                    }
                }
            }
        }
        lacking.into_iter().map(|ranges| ranges.into_iter().collect()).collect()
    }

    fn insert(&self, requests: &[ReadRequest<'_>], commit: CommitMark) {
        for numbers in blocks_of(requests).chunks(BLOCKS_TOGETHER) {
            let _adding = self.memcached.adding.lock();
            let mut blocks = self.get(numbers);
            for request in requests {
                for number in within(request, numbers) {
                    let block = blocks.entry(*number).or_insert_with(|| CachedBlock::new(commit));
                    block.insert(*number, request, commit);
                }
            }
            self.set(blocks);
        }
    }
}

/// The numbers of the blocks that a request reaches into.
fn numbers_of(request: &ReadRequest<'_>) -> RangeInclusive<u64> {
    let last = request.offset.saturating_add(request.buffer.len() as u64).saturating_sub(1);
    // Reversed for an empty request, so it has none.
    let first = if request.buffer.is_empty() {
        last / BLOCK_BYTES + 1
    } else {
        request.offset / BLOCK_BYTES
    };
    first..=last / BLOCK_BYTES
}

/// The numbers of all blocks that requests reach into, ascending.
fn blocks_of(requests: &[ReadRequest<'_>]) -> Vec<u64> {
    let numbers: BTreeSet<u64> = requests.iter().flat_map(numbers_of).collect();
    numbers.into_iter().collect()
}

/// The blocks, of those with the given ascending numbers, that a request overlaps.
fn within<'a>(request: &ReadRequest<'_>, numbers: &'a [u64]) -> &'a [u64] {
    let wanted = numbers_of(request);
    let start = numbers.partition_point(|number| number < wanted.start());
    let end = numbers.partition_point(|number| number <= wanted.end());
    &numbers[start.min(end)..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(offset: u64, count: usize) -> Vec<u64> {
        numbers_of(&ReadRequest { offset, buffer: &mut vec![0; count] }).collect()
    }

    #[test]
    fn a_request_reaches_into_the_blocks_of_its_first_and_last_byte() {
        assert_eq!(numbers(0, 1), [0]);
        assert_eq!(numbers(BLOCK_BYTES - 1, 1), [0]);
        assert_eq!(numbers(BLOCK_BYTES - 1, 2), [0, 1]);
        assert_eq!(numbers(BLOCK_BYTES, 2 * BLOCK_BYTES as usize), [1, 2]);
        assert!(numbers(0, 0).is_empty());
        assert!(numbers(BLOCK_BYTES, 0).is_empty());
        let mut buffer = vec![0; 3 * BLOCK_BYTES as usize];
        let request = ReadRequest { offset: 2 * BLOCK_BYTES + 1, buffer: &mut buffer };
        assert_eq!(within(&request, &[0, 1, 3, 5, 6, 9]), [3, 5]);
        assert!(within(&request, &[0, 1, 6, 9]).is_empty());
    }

    #[test]
    fn a_server_that_is_added_takes_over_keys_and_leaves_the_others_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let catalog =
            femtobarn_catalog::LocalCatalogue::create(&folder.path().join("lhc.fed"), "lhc");
        let history = Arc::new(CommitHistory::new(Arc::new(catalog.unwrap())));
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Memcached::new(&names, Uuid::nil(), history.clone()).unwrap()
        };
        let (two, three) = (of(&["a", "b"]), of(&["a", "b", "c"]));
        let mut counts = [0; 3];
        for key in (0..300).map(|number| format!("key {number}")) {
            let server = three.server_of(&key);
            assert!(server == 2 || server == two.server_of(&key));
            counts[server] += 1;
        }
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
    }
}
