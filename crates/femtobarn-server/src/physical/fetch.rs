//! Bytes of a file in transit from another machine, and the readers that wait for them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::error::StorageResult;

/// A range of a file that is fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    pub range: Range<u64>,
    outcome: Mutex<Option<StorageResult<Arc<Vec<u8>>>>>,
    has_ended: Condvar,
}

impl Fetch {
    pub(super) fn new(range: Range<u64>) -> Self {
        Fetch { range, outcome: Mutex::default(), has_ended: Condvar::new() }
    }

    /// Ends the fetch, unless it has ended already, and wakes the waiting readers.
    pub(super) fn end(&self, outcome: StorageResult<Arc<Vec<u8>>>) {
        self.outcome.lock().get_or_insert(outcome);
        self.has_ended.notify_all();
    }

    /// Waits for the bytes.
    pub(super) fn wait(&self) -> StorageResult<Arc<Vec<u8>>> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(ended) => return ended.clone(),
                None => self.has_ended.wait(&mut outcome),
            }
        }
    }

    /// The bytes, if they have arrived.
    pub(super) fn bytes(&self) -> Option<Arc<Vec<u8>>> {
        self.outcome.lock().clone()?.ok()
    }

    /// Copies the fetched bytes that lie in a range of the file.
    pub(super) fn copy_to(&self, bytes: &[u8], offset: u64, buffer: &mut [u8]) {
        let at = self.range.start;
        let start = at.max(offset);
        let end = (at + bytes.len() as u64).min(offset + buffer.len() as u64);
        if start < end {
            let part = &bytes[(start - at) as usize..(end - at) as usize];
            buffer[(start - offset) as usize..][..part.len()].copy_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_counts_and_wakes_everybody() {
        let fetch = Arc::new(Fetch::new(4096..4099));
        assert!(fetch.bytes().is_none());
        let waiting = Arc::clone(&fetch);
        let waiting = std::thread::spawn(move || waiting.wait());
        fetch.end(Ok(Arc::new(vec![1, 2, 3])));
        fetch.end(Ok(Arc::new(vec![])));
        assert_eq!(*waiting.join().unwrap().unwrap(), [1, 2, 3]);
        let mut buffer = [0; 6];
        fetch.copy_to(&fetch.bytes().unwrap(), 4094, &mut buffer);
        assert_eq!(buffer, [0, 0, 1, 2, 3, 0]);
    }
}
