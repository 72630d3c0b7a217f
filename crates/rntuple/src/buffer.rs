//! Aligned memory that ends up as shared bytes.

use bytes::Bytes;

use crate::error::{Error, Result};

/// Most bytes of a buffer. A fuzzer takes a large allocation for a fault; when built for one, there is
/// little memory.
const LENGTH_MAX: usize = if cfg!(fuzzing) { 1 << 26 } else { isize::MAX as usize - 8 };

/// Zeroed bytes, aligned to 8, that become [`Bytes`] without a copy.
pub(crate) struct AlignedBuffer {
    words: Vec<u64>,
    length: usize,
}

impl AlignedBuffer {
    /// `count` values of `size` bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for them.
    pub fn new(count: u64, size: usize) -> Result<Self> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        let length = length.filter(|&length| length <= LENGTH_MAX);
        let length = length.ok_or_else(|| too_large(count))?;
        let word_count = length.div_ceil(size_of::<u64>());
        // Asks first, so that a size that a damaged file claims is an error and not an abort; the
        // zeroed allocation itself costs nothing until its pages are touched.
        Vec::<u64>::new().try_reserve_exact(word_count).map_err(|_| too_large(count))?;
        Ok(AlignedBuffer { words: vec![0; word_count], length })
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

/// An empty vector with room for `count` values.
///
/// # Errors
/// [`Error::Invalid`] if there is no memory for them.
pub(crate) fn vector_with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut values = vec![];
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|length| length <= LENGTH_MAX);
    match fits && values.try_reserve_exact(count).is_ok() {
        true => Ok(values),
        false => Err(too_large(count as u64)),
    }
}

fn too_large(count: u64) -> Error {
    Error::invalid(format!("there is no memory for {count} values at once: read fewer entries"))
}
