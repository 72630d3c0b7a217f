//! What the objects of a federation hold of pages, so that they are read without asking for them:
//! together not more than one reader may.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A reader that holds pages.
pub trait PageHolder: Send + Sync {
    /// Releases the pages, but for those that another thread reads from right now.
    fn release_pages(&self);
}

/// The shapes that may hold pages, and how many bytes were held since all were let go of.
#[derive(Default)]
pub struct PageBudget {
    bytes: AtomicU64,
    holders: Mutex<Vec<Weak<dyn PageHolder>>>,
}

impl PageBudget {
    /// Adds a holder of pages, for as long as it lives.
    pub fn register(&self, holder: &Arc<impl PageHolder + 'static>) {
        let holder: Weak<dyn PageHolder> = Arc::downgrade(holder) as Weak<dyn PageHolder>;
        let mut holders = self.holders.lock();
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(holder);
    }

    /// Counts bytes that are held from now on; returns how many there are.
    pub fn add(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Lets go of all pages, but for those that somebody reads from right now.
    pub fn release(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.release_pages());
    }
}
