//! Aligned memory that ends up as shared bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::{Error, Result};

/// Most bytes of a buffer. A fuzzer takes a large allocation for a fault; when built for one, there is
/// little memory.
const LENGTH_MAX: usize = if cfg!(fuzzing) { 1 << 26 } else { isize::MAX as usize - 8 };

/// Bytes, aligned to 8, that become [`Bytes`] without a copy.
///
/// The memory of large ones goes to a pool when it is no longer used: memory that is touched for the
/// first time costs more than to fill it.
pub(crate) struct AlignedBuffer {
    words: Vec<u64>,
    length: usize,
}

impl AlignedBuffer {
    /// `count` values of `size` bytes, all zero.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for them.
    pub fn new(count: u64, size: usize) -> Result<Self> {
        let (mut buffer, is_used) = Self::allocate(count, size)?;
        if is_used {
            buffer.bytes_mut().fill(0);
        }
        Ok(buffer)
    }

    /// `count` values of `size` bytes that may be anything: the caller writes all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for them.
    pub fn for_overwriting(count: u64, size: usize) -> Result<Self> {
        Ok(Self::allocate(count, size)?.0)
    }

    /// A buffer, and whether it comes from the pool and has old bytes in it.
    fn allocate(count: u64, size: usize) -> Result<(Self, bool)> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let length = length.filter(|&length| length <= LENGTH_MAX);
        let length = length.ok_or_else(|| too_large(count))?;
        let word_count = length.div_ceil(size_of::<u64>());
        if let Some(words) = pool().take(word_count) {
            return Ok((AlignedBuffer { words, length }, true));
        }
        let word_count = rounded(word_count);
        // Asks first, so that a size that a damaged file claims is an error and not an abort; the
        // zeroed allocation itself costs nothing until its pages are touched.
        Vec::<u64>::new().try_reserve_exact(word_count).map_err(|_| too_large(count))?;
        Ok((AlignedBuffer { words: vec![0; word_count], length }, false))
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }

    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        pool().give(std::mem::take(&mut self.words));
    }
}

/// Memory of buffers that are no longer used, oldest first.
struct Pool {
    free: Vec<Vec<u64>>,
    words: usize,
}

/// Words of a buffer from which on it is worth keeping: 256 KiB.
const POOLED_MIN: usize = 1 << 15;
/// Words of all buffers that are kept: 256 MiB.
const POOL_MAX: usize = 1 << 25;

fn pool() -> MutexGuard<'static, Pool> {
    static POOL: Mutex<Pool> = Mutex::new(Pool { free: vec![], words: 0 });
    // The pool is whole whatever happened to a thread that held it.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The smallest buffer with at least so many words, unless it has twice as many.
    fn take(&mut self, word_count: usize) -> Option<Vec<u64>> {
        if word_count < POOLED_MIN {
            return None;
        }
        let fits = |words: &Vec<u64>| (word_count..2 * word_count).contains(&words.len());
        let fitting = self.free.iter().enumerate().filter(|(_, words)| fits(words));
        let (position, _) = fitting.min_by_key(|(_, words)| words.len())?;
        let words = self.free.remove(position);
        self.words -= words.len();
        Some(words)
    }

    /// Keeps a buffer; the oldest ones make place.
    fn give(&mut self, words: Vec<u64>) {
        if !(POOLED_MIN..=POOL_MAX).contains(&words.len()) {
            return;
        }
        self.words += words.len();
        self.free.push(words);
        let mut surplus = 0;
        while self.words > POOL_MAX {
            self.words -= self.free[surplus].len();
            surplus += 1;
        }
        self.free.drain(..surplus);
    }
}

/// A number of words that buffers of about the same size share, at most an eighth larger.
fn rounded(word_count: usize) -> usize {
    match word_count < POOLED_MIN {
        true => word_count,
        false => word_count.next_multiple_of(word_count.next_power_of_two() / 16),
    }
}

fn too_large(count: u64) -> Error {
    Error::invalid(format!("there is no memory for {count} values at once: read fewer entries"))
}
