//! A map in shards, so that threads that need different keys seldom wait for each other.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::{Mutex, MutexGuard};

/// Many more than cores, so that two threads seldom need the same shard.
const SHARDS: usize = 256;

/// The shards. No thread holds two of them.
#[derive(Debug)]
pub(super) struct Shards<K, V> {
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<K, V>>>,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Shards { hasher: RandomState::new(), shards }
    }
}

impl<K: Hash, V> Shards<K, V> {
    /// The shard that has a key.
    pub(super) fn of(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        self.shards[self.hasher.hash_one(key) as usize % SHARDS].lock()
    }

    /// All shards, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, HashMap<K, V>>> {
        self.shards.iter().map(Mutex::lock)
    }
}
