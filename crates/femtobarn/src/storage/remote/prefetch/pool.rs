//! The prefetch buffers of a federation.
//!
//! 1. A federation holds at most [`BUFFERS_MAX`] times the bytes of the largest buffer, however many files it
//!    reads.
//! 2. A buffer that was read to its end is released at once. When the limit is reached, the oldest buffers go.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::buffer::PrefetchBuffer;
use super::memory::PrefetchMemory;

/// Bytes of one buffer, whatever is configured, because each is one allocation.
const BUFFER_BYTES_MAX: u64 = 64 << 20;
/// Buffers of the largest size that a federation holds.
const BUFFERS_MAX: u64 = 8;
/// Buffers of any size that a federation holds.
const COUNT_MAX: usize = 64;

/// The prefetch buffers of a federation.
#[derive(Debug)]
pub(crate) struct PrefetchPool {
    /// Bytes of the largest buffer; 0 if prefetching is off.
    buffer_bytes_max: u64,
    /// The oldest first. Only these are strong references that last.
    buffers: Mutex<VecDeque<Arc<PrefetchBuffer>>>,
    memory: PrefetchMemory,
}

impl PrefetchPool {
    /// A pool of buffers of up to `buffer_bytes_max` bytes, and 64 MiB at most. 0 turns prefetching off.
    pub(crate) fn new(buffer_bytes_max: u64) -> Self {
        let buffer_bytes_max = buffer_bytes_max.min(BUFFER_BYTES_MAX);
        let memory = PrefetchMemory::new(buffer_bytes_max);
        PrefetchPool { buffer_bytes_max, buffers: Mutex::default(), memory }
    }

    /// Bytes of the largest buffer; 0 if prefetching is off.
    pub(super) fn buffer_bytes_max(&self) -> u64 {
        self.buffer_bytes_max
    }

    /// Bytes of all buffers.
    pub(super) fn bytes_max(&self) -> u64 {
        self.buffer_bytes_max.saturating_mul(BUFFERS_MAX)
    }

    /// Adds a buffer of `ranges`, which are ascending, disjoint and of [`buffer_bytes_max`](Self::buffer_bytes_max)
    /// at most in all. The caller must [fetch](PrefetchBuffer::fetch) it, since its readers wait until then.
    pub(super) fn add(&self, ranges: Vec<Range<u64>>, plan: Option<u64>) -> Arc<PrefetchBuffer> {
        let buffer = Arc::new(PrefetchBuffer::new(ranges, plan, self.memory.clone()));
        let mut buffers = self.buffers.lock();
        buffers.push_back(buffer.clone());
        let mut bytes: u64 = buffers.iter().map(|buffer| buffer.size()).sum();
        while (bytes > self.bytes_max() || buffers.len() > COUNT_MAX)
            && let Some(oldest) = buffers.pop_front()
        {
            bytes -= oldest.size();
        }
        buffer
    }

    /// Removes a buffer that was read to its end.
    pub(super) fn release(&self, buffer: &Arc<PrefetchBuffer>) {
        self.buffers.lock().retain(|held| !Arc::ptr_eq(held, buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_drops_its_oldest_buffers() {
        let pool = PrefetchPool::new(1 << 20);
        let buffer = |index: u64| {
            let start = index << 20;
            pool.add(std::iter::once(start..start + (1 << 20)).collect(), None)
        };
        let count = pool.bytes_max() >> 20;
        let all: Vec<_> = (0..count + 3).map(buffer).collect();
        assert_eq!(pool.buffers.lock().len() as u64, count);
        assert_eq!(Arc::strong_count(&all[2]), 1, "the oldest is gone");
        pool.release(&all[3]);
        assert_eq!(Arc::strong_count(&all[3]), 1, "a released one is gone");
        assert_eq!(Arc::strong_count(&all[4]), 2);
    }
}
