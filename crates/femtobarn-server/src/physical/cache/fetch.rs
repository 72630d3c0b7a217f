//! Pages that are on their way from the origin, and those who wait for them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::pages::PAGE_BYTES;
use crate::physical::StorageResult;

/// Pages of one fetch at most; none crosses a multiple of them.
const FETCH_PAGES: u64 = 256;

/// Pages that are fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    pub pages: Range<u64>,
    outcome: Mutex<Option<StorageResult<Arc<Vec<u8>>>>>,
    has_ended: Condvar,
}

impl Fetch {
    pub(super) fn new(pages: Range<u64>) -> Self {
        Fetch { pages, outcome: Mutex::default(), has_ended: Condvar::new() }
    }

    /// Ends it, unless it has ended already, and wakes those who wait.
    pub(super) fn end(&self, outcome: StorageResult<Arc<Vec<u8>>>) {
        self.outcome.lock().get_or_insert(outcome);
        self.has_ended.notify_all();
    }

    /// Waits for its bytes.
    pub(super) fn wait(&self) -> StorageResult<Arc<Vec<u8>>> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(ended) => return ended.clone(),
                None => self.has_ended.wait(&mut outcome),
            }
        }
    }

    /// Copies what its bytes are of a range of the file.
    pub(super) fn copy_to(&self, bytes: &[u8], offset: u64, buffer: &mut [u8]) {
        let at = self.pages.start * PAGE_BYTES;
        let start = at.max(offset);
        let end = (at + bytes.len() as u64).min(offset + buffer.len() as u64);
        if start < end {
            let part = &bytes[(start - at) as usize..(end - at) as usize];
            buffer[(start - offset) as usize..][..part.len()].copy_from_slice(part);
        }
    }
}

/// Pages as fetches.
pub(super) fn parts(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let start = next;
        next = ((start / FETCH_PAGES + 1) * FETCH_PAGES).min(pages.end);
        (start < pages.end).then_some(start..next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_multiples() {
        let all = |pages| parts(pages).collect::<Vec<_>>();
        assert_eq!(all(3..5), [3..5]);
        assert_eq!(all(200..600), [200..256, 256..512, 512..600]);
        assert_eq!(all(256..512), [256..512]);
        assert!(all(7..7).is_empty());
    }

    #[test]
    fn the_first_end_counts_and_wakes_everybody() {
        let fetch = Arc::new(Fetch::new(1..2));
        let waiting = Arc::clone(&fetch);
        let waiting = std::thread::spawn(move || waiting.wait());
        fetch.end(Ok(Arc::new(vec![1, 2, 3])));
        fetch.end(Ok(Arc::new(vec![])));
        assert_eq!(*waiting.join().unwrap().unwrap(), [1, 2, 3]);
        let mut buffer = [0; 6];
        fetch.copy_to(&fetch.wait().unwrap(), PAGE_BYTES - 2, &mut buffer);
        assert_eq!(buffer, [0, 0, 1, 2, 3, 0]);
    }
}
