//! Collects a given number of bytes from pieces.

use bytes::Bytes;

/// A buffer for a given number of bytes. It allocates only for bytes that arrived.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    wanted: usize,
    held: Vec<u8>,
}

impl Gather {
    pub(super) fn new(wanted: usize) -> Self {
        Gather { wanted, held: Vec::new() }
    }

    /// A buffer that starts with `held` and takes `more` bytes.
    pub(super) fn after(held: &[u8], more: usize) -> Self {
        Gather { wanted: held.len() + more, held: held.to_vec() }
    }

    /// Whether no byte has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes bytes from the input, and returns all of them once they are complete, without a copy if they are
    /// contiguous.
    pub(super) fn take(&mut self, input: &mut Bytes) -> Option<Bytes> {
        if self.held.is_empty() && input.len() >= self.wanted {
            return Some(input.split_to(self.wanted));
        }
        let missing = self.wanted - self.held.len();
        let piece = input.split_to(missing.min(input.len()));
        self.held.extend_from_slice(&piece);
        (self.held.len() == self.wanted).then(|| std::mem::take(&mut self.held).into())
    }

    /// Like [`Self::take`], for exactly `N` bytes.
    pub(super) fn take_array<const N: usize>(&mut self, input: &mut Bytes) -> Option<[u8; N]> {
        debug_assert_eq!(self.wanted, N);
        let bytes = self.take(input)?;
        Some(std::array::from_fn(|index| bytes[index]))
    }
}
