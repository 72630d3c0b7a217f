//! Aligned memory that ends up as shared bytes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::{Advice, MmapMut};

use crate::error::{Error, Result};

/// Most bytes of a buffer. A fuzzer takes a large allocation for a fault; when built for one, there is
/// little memory.
const LENGTH_MAX: usize = if cfg!(fuzzing) { 1 << 26 } else { isize::MAX as usize - 8 };

/// Bytes, aligned to 8, that become [`Bytes`] without a copy.
///
/// The memory of all but small ones goes to a pool when it is no longer used: memory that is touched
/// for the first time costs more than to fill it.
pub(crate) struct AlignedBuffer {
    memory: BufferMemory,
    length: usize,
}

/// Zeroed memory when it is new, aligned to 8.
enum BufferMemory {
    /// From the allocator.
    Small(Vec<u64>),
    /// From the operating system, in huge pages where it has them: 512 times fewer first touches.
    Large(MmapMut),
}

impl AlignedBuffer {
    /// `count` values of `size` bytes, all zero.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for them.
    pub(crate) fn new(count: u64, size: usize) -> Result<Self> {
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
    pub(crate) fn for_overwriting(count: u64, size: usize) -> Result<Self> {
        Ok(Self::allocate(count, size)?.0)
    }

    /// A buffer, and whether it comes from the pool and has old bytes in it.
    fn allocate(count: u64, size: usize) -> Result<(Self, bool)> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let length = length.filter(|&length| length <= LENGTH_MAX);
        let length = length.ok_or_else(|| too_large(count))?;
        if length >= KEPT_MIN
            && let Some(memory) = pool().take(length)
        {
            return Ok((AlignedBuffer { memory, length }, true));
        }
        let memory = BufferMemory::new(length).ok_or_else(|| too_large(count))?;
        Ok((AlignedBuffer { memory, length }, false))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[..self.length]
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes()[..self.length]
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if (KEPT_MIN..=POOL_BYTES_MAX).contains(&self.memory.bytes().len()) {
            pool().give(std::mem::take(&mut self.memory));
        }
    }
}

impl BufferMemory {
    /// `None` if there is no such memory: a size that a damaged file claims is an error, no abort.
    fn new(length: usize) -> Option<Self> {
        if length >= LARGE_MIN {
            let memory = MmapMut::map_anon(rounded(length)).ok()?;
            // Advice that is not taken costs time, no more.
            drop(memory.advise(Advice::HugePage));
            return Some(BufferMemory::Large(memory));
        }
        let word_count = length.div_ceil(size_of::<u64>());
        Vec::<u64>::new().try_reserve_exact(word_count).ok()?;
        Some(BufferMemory::Small(vec![0; word_count]))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            BufferMemory::Small(words) => bytemuck::cast_slice(words),
            BufferMemory::Large(memory) => memory,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            BufferMemory::Small(words) => bytemuck::cast_slice_mut(words),
            BufferMemory::Large(memory) => memory,
        }
    }
}

impl Default for BufferMemory {
    fn default() -> Self {
        BufferMemory::Small(vec![])
    }
}

/// Memory of buffers that are no longer used, by its size.
struct BufferPool {
    free: BTreeMap<usize, Vec<BufferMemory>>,
    bytes: usize,
}

/// Bytes of a buffer from which on it comes from the operating system.
const LARGE_MIN: usize = 256 << 10;
/// Bytes of a buffer from which on it is worth keeping, as those of pages are.
const KEPT_MIN: usize = 8 << 10;
/// Bytes of all buffers that are kept.
const POOL_BYTES_MAX: usize = 256 << 20;

fn pool() -> MutexGuard<'static, BufferPool> {
    static POOL: Mutex<BufferPool> = Mutex::new(BufferPool { free: BTreeMap::new(), bytes: 0 });
    // The pool is whole whatever happened to a thread that held it.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BufferPool {
    /// The smallest buffer with at least so many bytes, unless it has twice as many.
    fn take(&mut self, length: usize) -> Option<BufferMemory> {
        let (&size, _) = self.free.range(length..2 * length).next()?;
        self.take_of(size)
    }

    fn take_of(&mut self, size: usize) -> Option<BufferMemory> {
        let same = self.free.get_mut(&size)?;
        let memory = same.pop();
        if same.is_empty() {
            self.free.remove(&size);
        }
        self.bytes -= size;
        memory
    }

    /// Keeps a buffer; the smallest ones make place.
    fn give(&mut self, memory: BufferMemory) {
        let size = memory.bytes().len();
        self.bytes += size;
        self.free.entry(size).or_default().push(memory);
        while self.bytes > POOL_BYTES_MAX
            && let Some((&smallest, _)) = self.free.first_key_value()
        {
            self.take_of(smallest);
        }
    }
}

/// A length that buffers of about the same size share, at most an eighth larger.
fn rounded(length: usize) -> usize {
    length.next_multiple_of(length.next_power_of_two() / 16)
}

fn too_large(count: u64) -> Error {
    Error::invalid(format!("there is no memory for {count} values at once: read fewer entries"))
}
