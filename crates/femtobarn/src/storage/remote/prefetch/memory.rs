//! The memory of prefetch buffers.

use std::sync::Arc;

use parking_lot::Mutex;

/// Allocations of released buffers that are retained for the next ones.
const FREE_MAX: usize = 2;
/// Buffers smaller than this are allocated anew each time.
const REUSED_BYTES_MIN: u64 = 512 << 10;

/// Allocations for buffers, of which those of released buffers are used again.
#[derive(Clone, Debug)]
pub(super) struct PrefetchMemory {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Bytes of an allocation that any buffer can use.
    full_size: u64,
}

impl PrefetchMemory {
    pub(super) fn new(full_size: u64) -> Self {
        PrefetchMemory { free: Arc::default(), full_size }
    }

    /// Memory of at least `size` bytes, with unspecified content.
    pub(super) fn take(&self, size: u64) -> Vec<u8> {
        if size < REUSED_BYTES_MIN {
            return vec![0; size as usize];
        }
        let free = self.free.lock().pop().filter(|bytes| bytes.len() as u64 >= size);
        free.unwrap_or_else(|| vec![0; self.full_size.max(size) as usize])
    }

    /// Takes back the memory of a buffer of `size` bytes.
    pub(super) fn put_back(&self, bytes: Vec<u8>, size: u64) {
        if size < REUSED_BYTES_MIN {
            return;
        }
        let mut free = self.free.lock();
        if free.len() < FREE_MAX {
            free.push(bytes);
        }
    }
}
