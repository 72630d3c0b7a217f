//! What the objects of a federation hold of pages, so that they are read without asking for them:
//! together not more than one reader may.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::shape::Shape;

/// The shapes that may hold pages, and how many bytes were held since all were let go of.
#[derive(Default)]
pub struct Held {
    bytes: AtomicU64,
    shapes: Mutex<Vec<Weak<Shape>>>,
}

impl Held {
    /// Takes a shape in.
    pub fn enlist(&self, shape: &Arc<Shape>) {
        let mut shapes = self.shapes();
        if shapes.len() == shapes.capacity() {
            shapes.retain(|shape| shape.strong_count() > 0);
        }
        shapes.push(Arc::downgrade(shape));
    }

    /// Counts bytes that are held from now on; returns how many there are.
    pub fn add(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Lets go of all pages, but for those that somebody reads from right now.
    pub fn release(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        let shapes: Vec<_> = self.shapes().iter().filter_map(Weak::upgrade).collect();
        shapes.iter().for_each(|shape| shape.release());
    }

    fn shapes(&self) -> MutexGuard<'_, Vec<Weak<Shape>>> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
