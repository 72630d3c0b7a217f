//! Threads that end with their test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says when it goes, be it by a failure, that the threads beside the test shall end.
pub(crate) struct EndsOthers<'a>(pub &'a AtomicBool);

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
