//! The budget of memory for synthesised parts of files, for all databases and snapshots together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of bytes, and the number of bytes taken.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    taken: AtomicU64,
}

/// Bytes taken from a budget, which are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Budget { total, taken: AtomicU64::new(0) })
    }

    /// An empty share.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }
}

impl Share {
    /// Takes more bytes; false if the budget does not have them.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let taken = self.budget.taken.fetch_add(bytes, Ordering::AcqRel);
        let fits = taken.checked_add(bytes).is_some_and(|taken| taken <= self.budget.total);
        if fits {
            self.bytes += bytes;
        } else {
            self.budget.taken.fetch_sub(bytes, Ordering::AcqRel);
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow(60) && !other.grow(41) && other.grow(40) && !one.grow(1));
        drop(one);
        assert!(other.grow(60) && !other.grow(u64::MAX));
        drop(other);
        assert!(budget.share().grow(100));
    }
}
