//! One shard: the scenarios are about threads that meet.

use std::collections::HashMap;

use crate::sync::{Mutex, MutexGuard};

pub(super) use OneShard as Shards;

/// The shard.
#[derive(Debug)]
pub(super) struct OneShard<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for OneShard<K, V> {
    fn default() -> Self {
        OneShard(Mutex::new(HashMap::new()))
    }
}

impl<K, V> OneShard<K, V> {
    pub(super) fn of(&self, _key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        self.0.lock()
    }

    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, HashMap<K, V>>> {
        std::iter::once(self.0.lock())
    }
}
