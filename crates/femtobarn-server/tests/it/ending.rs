//! Ends the other threads of a test when the test ends.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when dropped, also by a failure, which ends the other threads of a test.
pub(crate) struct EndsOthers<'a>(pub &'a AtomicBool);

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
