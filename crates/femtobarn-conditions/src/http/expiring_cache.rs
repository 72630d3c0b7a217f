//! Values in memory that pin snapshots: dropped when they are no longer requested, so that vacuum can remove the
//! snapshots.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A value that was not requested between two sweeps is dropped.
const SWEEP: Duration = Duration::from_secs(60);

/// Values by key, kept while they are requested.
pub(super) struct ExpiringCache<K, V> {
    values_max: usize,
    kept: Mutex<HashMap<K, KeptValue<V>>>,
    is_swept: AtomicBool,
}

struct KeptValue<V> {
    value: Arc<V>,
    was_used: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static, V: Send + Sync + 'static> ExpiringCache<K, V> {
    /// Keeps at most this many values.
    pub(super) fn new(values_max: usize) -> Arc<Self> {
        Arc::new(ExpiringCache {
            values_max,
            kept: Mutex::default(),
            is_swept: AtomicBool::new(false),
        })
    }

    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut kept = self.kept.lock();
        let found = kept.get_mut(key)?;
        found.was_used = true;
        Some(found.value.clone())
    }

    /// Keeps a value; if there are too many, in place of one that was not used since the last sweep. Must be called on
    /// a thread of a tokio runtime.
    pub(super) fn insert(self: &Arc<Self>, key: K, value: Arc<V>) {
        let mut kept = self.kept.lock();
        if kept.len() >= self.values_max && !kept.contains_key(&key) {
            let unused = kept.iter().min_by_key(|(_, it)| it.was_used);
            if let Some(unused) = unused.map(|(key, _)| key.clone()) {
                kept.remove(&unused);
            }
        }
        kept.insert(key, KeptValue { value, was_used: true });
        if !self.is_swept.swap(true, Ordering::AcqRel) {
            self.sweep_from_now_on();
        }
    }

    /// Starts the task that drops unused values. It ends when none is kept.
    fn sweep_from_now_on(self: &Arc<Self>) {
        let values = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                if values.upgrade().is_none_or(|values| values.sweep()) {
                    return;
                }
            }
        });
    }

    /// Drops the values that were not requested since the last sweep; true if none is left.
    fn sweep(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.retain(|_, it| std::mem::take(&mut it.was_used));
        if kept.is_empty() {
            self.is_swept.store(false, Ordering::Release);
        }
        kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_runtime(test: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime of one thread").block_on(async { test() });
    }

    #[test]
    fn values_that_are_not_requested_are_dropped() {
        in_runtime(|| {
            let kept = ExpiringCache::new(2);
            let unused = Arc::new(1);
            kept.insert("used", Arc::new(0));
            kept.insert("unused", unused.clone());
            for _ in 0..3 {
                assert_eq!(kept.get(&"used").as_deref(), Some(&0));
                assert!(!kept.sweep());
            }
            assert_eq!(Arc::strong_count(&unused), 1, "given up");
            assert!(kept.sweep(), "nothing is left");
            kept.insert("unused", unused.clone());
            assert!(kept.is_swept.load(Ordering::Acquire), "the task runs again");
        });
    }

    #[test]
    fn no_more_values_are_kept_than_allowed() {
        in_runtime(|| {
            let kept = ExpiringCache::new(2);
            (0..5).for_each(|key| kept.insert(key, Arc::new(key)));
            assert_eq!((0..5).filter(|key| kept.get(key).is_some()).count(), 2);
            assert!(kept.get(&4).is_some(), "the newest");
        });
    }
}
