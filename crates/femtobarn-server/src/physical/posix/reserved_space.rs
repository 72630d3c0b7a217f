//! [`ReservedSpace`]: disk space for a file whose client has announced its size.
//!
//! 1. It is reserved ahead of the writes, block by block, so that a file lies in few pieces though others grow beside
//!    it: of four files that grew at the same time by 2 MiB, each had a piece for every 8 MiB, and with space reserved
//!    ahead two in 128 MiB.
//! 2. Neither the size of the file nor its bytes change. Reserved space that is never written stays reserved until the
//!    file is cut or removed, so a client that announces too much takes at most a block.
//! 3. A failure to reserve never fails a write.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};

/// Bytes that are reserved in one step.
const BLOCK_BYTES: u64 = 64 << 20;

/// The space of a file that is being written.
#[derive(Debug)]
pub(super) struct ReservedSpace {
    /// Bytes that the file will have.
    size: u64,
    /// The block after the last one that was reserved.
    next: AtomicU64,
}

impl ReservedSpace {
    /// Nothing is reserved yet for a file that will have `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        ReservedSpace { size, next: AtomicU64::new(0) }
    }

    /// Reserves the block of a write that begins at `offset`, unless that or a later one was reserved before.
    pub(super) fn reach(&self, file: &File, offset: u64) {
        let block = offset / BLOCK_BYTES;
        if offset >= self.size || self.next.fetch_max(block + 1, Ordering::Relaxed) > block {
            return;
        }
        let start = block * BLOCK_BYTES;
        let length = (self.size - start).min(BLOCK_BYTES);
        if let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) {
            // The write reports errors.
            let _ = fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, start, length);
        }
    }
}
