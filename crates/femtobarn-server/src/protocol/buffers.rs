//! BufferMemory for what goes through connections: buffers of two sizes that are used again.
//!
//! 1. A connection that waits for its client holds no buffer, but for what the client has not taken.
//! 2. A buffer goes back to its pool when it is dropped, wherever that happens. The pool keeps
//!    some of each size, the warmest on top, and frees the others.
//! 3. A large buffer is mapped: it starts at a page of memory, so that a disk may be given what is in it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use memmap2::{Advice, MmapMut};

/// Bytes of data that one buffer is meant for; heads of answers fit besides.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Bytes of one buffer.
pub const BUFFER_BYTES: usize = PIECE_BYTES + 4096;

/// Bytes of data that one large buffer is meant for, with the checksums of their pages: as many as are
/// written past the operating system's page cache at once.
pub const LARGE_PIECE_BYTES: usize = 2 << 20;

/// Bytes of one large buffer.
pub const LARGE_BUFFER_BYTES: usize = LARGE_PIECE_BYTES + 4096;

/// Buffers that a pool keeps while nobody uses them: 16 MiB.
const SPARE_BUFFERS_MAX: usize = 64;

/// The same of large buffers: 32 MiB, as many as connections may hold at once. A new one is a large page that the
/// kernel fills with zeros.
const SPARE_LARGE_BUFFERS_MAX: usize = 16;

/// Bytes that are mapped for a large buffer: a whole number of large pages of memory. What is not used of
/// them is only addresses.
const LARGE_MAP_BYTES: usize = 2 * LARGE_PIECE_BYTES;

/// Buffers that nobody uses now.
#[derive(Debug, Default)]
pub struct BufferPool {
    spare: Mutex<Vec<BufferMemory>>,
    spare_large: Mutex<Vec<BufferMemory>>,
    used: AtomicUsize,
}

impl BufferPool {
    /// A buffer of [`BUFFER_BYTES`], with anything in it.
    pub fn take(self: &Arc<Self>) -> PooledBuffer {
        self.take_for(BUFFER_BYTES)
    }

    /// A buffer of [`BUFFER_BYTES`], or of [`LARGE_BUFFER_BYTES`] where so many bytes need it.
    ///
    /// # Panics
    /// If they do not fit into that either.
    pub fn take_for(self: &Arc<Self>, bytes: usize) -> PooledBuffer {
        assert!(bytes <= LARGE_BUFFER_BYTES, "{bytes} bytes do not fit into any buffer");
        let size = if bytes <= BUFFER_BYTES { BUFFER_BYTES } else { LARGE_BUFFER_BYTES };
        let spare = self.spare_of(size).pop();
        self.used.fetch_add(1, Ordering::Relaxed);
        let memory = spare.unwrap_or_else(|| BufferMemory::new(size));
        PooledBuffer { memory, length: 0, pool: Arc::clone(self) }
    }

    fn spare_of(&self, size: usize) -> MutexGuard<'_, Vec<BufferMemory>> {
        let spare = if size == BUFFER_BYTES { &self.spare } else { &self.spare_large };
        spare.lock()
    }

    /// Buffers that are in use now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn give_back(&self, memory: BufferMemory) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        let size = memory.len();
        let is_large = size == LARGE_BUFFER_BYTES;
        let most = if is_large { SPARE_LARGE_BUFFERS_MAX } else { SPARE_BUFFERS_MAX };
        let mut spare = self.spare_of(size);
        if spare.len() < most {
            spare.push(memory);
        }
    }
}

/// The bytes of a buffer.
#[derive(Debug)]
enum BufferMemory {
    Small(Box<[u8]>),
    Large(MmapMut),
}

impl BufferMemory {
    fn new(size: usize) -> Self {
        if size != LARGE_BUFFER_BYTES {
            return BufferMemory::Small(vec![0; size].into_boxed_slice());
        }
        let map = MmapMut::map_anon(LARGE_MAP_BYTES).expect("memory for a large buffer");
        // The kernel hands one large page to the disk faster than 512 small ones. Advice that is not taken
        // costs time, no more.
        drop(map.advise_range(Advice::HugePage, 0, LARGE_PIECE_BYTES));
        BufferMemory::Large(map)
    }
}

impl Deref for BufferMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BufferMemory::Small(bytes) => bytes,
            BufferMemory::Large(map) => &map[..LARGE_BUFFER_BYTES],
        }
    }
}

impl DerefMut for BufferMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            BufferMemory::Small(bytes) => bytes,
            BufferMemory::Large(map) => &mut map[..LARGE_BUFFER_BYTES],
        }
    }
}

/// A buffer, of which the first [`PooledBuffer::filled`] bytes are in use.
#[derive(Debug)]
pub struct PooledBuffer {
    memory: BufferMemory,
    length: usize,
    pool: Arc<BufferPool>,
}

impl PooledBuffer {
    /// The bytes in use.
    pub fn filled(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The bytes behind those in use.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.length..]
    }

    /// Uses so many bytes more, which were written to [`PooledBuffer::room`].
    ///
    /// # Panics
    /// If there are not as many.
    pub fn grow(&mut self, count: usize) {
        assert!(
            count <= self.memory.len() - self.length,
            "a buffer cannot hold more than its size"
        );
        self.length += count;
    }

    /// Uses these bytes, too; whether they had room.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let has_room = bytes.len() <= self.memory.len() - self.length;
        if has_room {
            self.room()[..bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        }
        has_room
    }
}

/// All of its bytes, in use or not.
impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

/// The bytes in use, for [`bytes::Bytes::from_owner`].
impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let nothing = BufferMemory::Small(Box::default());
        self.pool.give_back(std::mem::replace(&mut self.memory, nothing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_starts_empty() {
        let pool = Arc::new(BufferPool::default());
        let mut buffer = pool.take();
        assert!(buffer.append(b"abc"));
        let place = buffer.as_ptr();
        drop(buffer);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.filled()), (place, &b""[..]));
    }

    #[test]
    fn what_does_not_fit_is_not_appended() {
        let mut buffer = Arc::new(BufferPool::default()).take();
        buffer.grow(BUFFER_BYTES - 2);
        assert!(!buffer.append(b"abc"));
        assert!(buffer.append(b"ab"));
        assert_eq!(buffer.room().len(), 0);
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_share() {
        let pool = Arc::new(BufferPool::default());
        let many: Vec<_> = (0..SPARE_BUFFERS_MAX + 5).map(|_| pool.take()).collect();
        assert_eq!(pool.used(), SPARE_BUFFERS_MAX + 5);
        drop(many);
        assert_eq!(pool.used(), 0);
        assert_eq!(pool.spare.lock().len(), SPARE_BUFFERS_MAX);
        let many: Vec<_> = (0..99).map(|_| pool.take_for(LARGE_PIECE_BYTES)).collect();
        assert!(many.iter().all(|buffer| (buffer.as_ptr() as usize).is_multiple_of(4096)));
        drop(many);
        assert_eq!(pool.spare_of(LARGE_BUFFER_BYTES).len(), SPARE_LARGE_BUFFERS_MAX);
        assert_eq!(pool.take_for(BUFFER_BYTES).len(), BUFFER_BYTES);
        assert_eq!(pool.take_for(BUFFER_BYTES + 1).len(), LARGE_BUFFER_BYTES);
    }
}
