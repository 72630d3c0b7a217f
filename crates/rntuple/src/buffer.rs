//! Aligned buffers that become shared bytes without a copy, and a pool that recycles their memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, Result};

/// Most bytes of a buffer. It is small in builds for fuzzing, since a fuzzer reports a large allocation
/// as a fault.
const LENGTH_MAX: usize = if cfg!(fuzzing) { 1 << 26 } else { isize::MAX as usize - 8 };

/// Bytes, aligned to 8, that become [`Bytes`] without a copy.
///
/// When a buffer of 8 KiB or more is dropped, its memory goes to a pool: the page faults of fresh memory
/// cost more than filling it.
pub(crate) struct AlignedBuffer {
    memory: AlignedMemory,
    length: usize,
}

/// Memory aligned to 8 bytes, zeroed when allocated.
enum AlignedMemory {
    /// From the allocator.
    Small(Vec<u64>),
    /// From the operating system, in huge pages where available: 512 times fewer page faults.
    Large(MappedMemory),
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

    /// `count` values of `size` bytes with undefined content: the caller overwrites all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for them.
    pub(crate) fn for_overwriting(count: u64, size: usize) -> Result<Self> {
        Ok(Self::allocate(count, size)?.0)
    }

    /// A buffer, and whether it comes from the pool and so contains old bytes.
    fn allocate(count: u64, size: usize) -> Result<(Self, bool)> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let length = length.filter(|&length| length <= LENGTH_MAX);
        let length = length.ok_or_else(|| too_large(count))?;
        if length >= KEPT_MIN
            && let Some(memory) = pool().take(length)
        {
            return Ok((AlignedBuffer { memory, length }, true));
        }
        let memory = AlignedMemory::new(length).ok_or_else(|| too_large(count))?;
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

impl AlignedMemory {
    /// `None` if the allocation fails: a huge size in a damaged file must yield an error, not an abort.
    fn new(length: usize) -> Option<Self> {
        if length >= LARGE_MIN {
            return Some(AlignedMemory::Large(mapped(rounded(length))?));
        }
        let word_count = length.div_ceil(size_of::<u64>());
        Vec::<u64>::new().try_reserve_exact(word_count).ok()?;
        Some(AlignedMemory::Small(vec![0; word_count]))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            AlignedMemory::Small(words) => bytemuck::cast_slice(words),
            AlignedMemory::Large(memory) => memory,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            AlignedMemory::Small(words) => bytemuck::cast_slice_mut(words),
            AlignedMemory::Large(memory) => memory,
        }
    }
}

#[cfg(not(target_family = "wasm"))]
type MappedMemory = memmap2::MmapMut;

#[cfg(not(target_family = "wasm"))]
fn mapped(length: usize) -> Option<MappedMemory> {
    let memory = MappedMemory::map_anon(length).ok()?;
    // If the kernel ignores the advice, the memory is slower to touch but usable.
    drop(memory.advise(memmap2::Advice::HugePage));
    Some(memory)
}

/// WebAssembly has no memory but that of the allocator: no buffer has [`LARGE_MIN`] bytes.
#[cfg(target_family = "wasm")]
type MappedMemory = Box<[u8]>;

#[cfg(target_family = "wasm")]
fn mapped(_length: usize) -> Option<MappedMemory> {
    None
}

impl Default for AlignedMemory {
    fn default() -> Self {
        AlignedMemory::Small(vec![])
    }
}

/// Memory of dropped buffers, by size.
struct MemoryPool {
    free: BTreeMap<usize, Vec<AlignedMemory>>,
    bytes: usize,
}

/// Least bytes of a buffer that is mapped from the operating system.
const LARGE_MIN: usize = if cfg!(target_family = "wasm") { LENGTH_MAX + 1 } else { 256 << 10 };
/// Least bytes of a buffer whose memory is recycled; those of pages are.
const KEPT_MIN: usize = 8 << 10;
/// Most bytes of memory in the pool.
const POOL_BYTES_MAX: usize = 256 << 20;

fn pool() -> MutexGuard<'static, MemoryPool> {
    static POOL: Mutex<MemoryPool> = Mutex::new(MemoryPool { free: BTreeMap::new(), bytes: 0 });
    POOL.lock()
}

impl MemoryPool {
    /// Takes the smallest free memory of `length` to `2 * length` bytes, exclusive.
    fn take(&mut self, length: usize) -> Option<AlignedMemory> {
        let (&size, _) = self.free.range(length..2 * length).next()?;
        self.take_of(size)
    }

    fn take_of(&mut self, size: usize) -> Option<AlignedMemory> {
        let same = self.free.get_mut(&size)?;
        let memory = same.pop();
        if same.is_empty() {
            self.free.remove(&size);
        }
        self.bytes -= size;
        memory
    }

    /// Adds memory to the pool and frees the smallest pieces while the pool is over its limit.
    fn give(&mut self, memory: AlignedMemory) {
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

/// Rounds a length up by at most an eighth, so that buffers of similar sizes share memory.
fn rounded(length: usize) -> usize {
    length.next_multiple_of(length.next_power_of_two() / 16)
}

fn too_large(count: u64) -> Error {
    Error::invalid(format!("out of memory for {count} values: read fewer entries at a time"))
}
