//! Memory for what goes through connections: buffers of two sizes that are used again.
//!
//! 1. A connection that waits for its client holds no buffer, but for what the client has not taken.
//! 2. A buffer goes back to its pool when it is dropped, wherever that happens. The pool keeps
//!    some of each size, the warmest on top, and frees the others.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of data that one buffer is meant for; heads of answers fit besides.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Bytes of one buffer.
pub const BUFFER_BYTES: usize = PIECE_BYTES + 4096;

/// Bytes of data that one large buffer is meant for, with the checksums of their pages.
pub const LARGE_PIECE_BYTES: usize = 1024 * 1024;

/// Bytes of one large buffer.
pub const LARGE_BUFFER_BYTES: usize = LARGE_PIECE_BYTES + 4096;

/// Buffers that a pool keeps while nobody uses them: 16 MiB.
const SPARE_BUFFERS_MAX: usize = 64;

/// The same of large buffers.
const SPARE_LARGE_BUFFERS_MAX: usize = 16;

/// Buffers that nobody uses now.
#[derive(Debug, Default)]
pub struct BufferPool {
    spare: Mutex<Vec<Box<[u8]>>>,
    spare_large: Mutex<Vec<Box<[u8]>>>,
    used: AtomicUsize,
}

impl BufferPool {
    /// A buffer of [`BUFFER_BYTES`], with anything in it.
    pub fn take(self: &Arc<Self>) -> Buffer {
        self.take_for(BUFFER_BYTES)
    }

    /// A buffer of [`BUFFER_BYTES`], or of [`LARGE_BUFFER_BYTES`] where so many bytes need it.
    ///
    /// # Panics
    /// If they do not fit into that either.
    pub fn take_for(self: &Arc<Self>, bytes: usize) -> Buffer {
        assert!(bytes <= LARGE_BUFFER_BYTES, "{bytes} bytes do not fit into any buffer");
        let size = if bytes <= BUFFER_BYTES { BUFFER_BYTES } else { LARGE_BUFFER_BYTES };
        let spare = self.spare_of(size).pop();
        self.used.fetch_add(1, Ordering::Relaxed);
        let bytes = spare.unwrap_or_else(|| vec![0; size].into_boxed_slice());
        Buffer { bytes, length: 0, pool: Arc::clone(self) }
    }

    fn spare_of(&self, size: usize) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        let spare = if size == BUFFER_BYTES { &self.spare } else { &self.spare_large };
        spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffers that are in use now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        let is_large = bytes.len() == LARGE_BUFFER_BYTES;
        let most = if is_large { SPARE_LARGE_BUFFERS_MAX } else { SPARE_BUFFERS_MAX };
        let mut spare = self.spare_of(bytes.len());
        if spare.len() < most {
            spare.push(bytes);
        }
    }
}

/// A buffer, of which the first [`Buffer::filled`] bytes are in use.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    length: usize,
    pool: Arc<BufferPool>,
}

impl Buffer {
    /// The bytes in use.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The bytes behind those in use.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length..]
    }

    /// Uses so many bytes more, which were written to [`Buffer::room`].
    ///
    /// # Panics
    /// If there are not as many.
    pub fn grow(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.length, "a buffer cannot hold more than its size");
        self.length += count;
    }

    /// Uses these bytes, too; whether they had room.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let has_room = bytes.len() <= self.bytes.len() - self.length;
        if has_room {
            self.room()[..bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        }
        has_room
    }
}

/// All of its bytes, in use or not.
impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// The bytes in use, for [`bytes::Bytes::from_owner`].
impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
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
        assert_eq!(pool.spare.lock().expect("nobody panicked").len(), SPARE_BUFFERS_MAX);
        drop((0..99).map(|_| pool.take_for(LARGE_PIECE_BYTES)).collect::<Vec<_>>());
        assert_eq!(pool.spare_of(LARGE_BUFFER_BYTES).len(), SPARE_LARGE_BUFFERS_MAX);
        assert_eq!(pool.take_for(BUFFER_BYTES).len(), BUFFER_BYTES);
        assert_eq!(pool.take_for(BUFFER_BYTES + 1).len(), LARGE_BUFFER_BYTES);
    }
}
