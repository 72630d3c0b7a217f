//! The budget for pages that readers of single fields hold, over all objects of a federation. A held page is
//! read without looking it up in the page cache. Together the readers hold no more than one may.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A reader that holds pages.
pub trait PageHolder: Send + Sync {
    /// Releases the pages, except those of a reader that another thread is using.
    fn release_pages(&self);
}

/// The holders of pages, and the bytes held since the last release.
#[derive(Default)]
pub struct PageBudget {
    bytes: AtomicU64,
    holders: Mutex<Vec<Weak<dyn PageHolder>>>,
}

impl PageBudget {
    /// Adds a holder, for as long as it lives.
    pub fn register(&self, holder: &Arc<impl PageHolder + 'static>) {
        let holder: Weak<dyn PageHolder> = Arc::downgrade(holder) as Weak<dyn PageHolder>;
        let mut holders = self.holders.lock();
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(holder);
    }

    /// Adds to the bytes held; returns their sum.
    pub fn add(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Releases all pages, except those of readers in use.
    pub fn release(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.release_pages());
    }
}
