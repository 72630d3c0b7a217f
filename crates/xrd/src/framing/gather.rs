//! A number of bytes that come in pieces.

use bytes::Bytes;

/// Waits until it has a number of bytes; holds no more than have come.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    wanted: usize,
    held: Vec<u8>,
}

impl Gather {
    pub(super) fn new(wanted: usize) -> Self {
        Gather { wanted, held: Vec::new() }
    }

    /// So many bytes more, behind those that are there.
    pub(super) fn after(held: &[u8], more: usize) -> Self {
        Gather { wanted: held.len() + more, held: held.to_vec() }
    }

    /// Whether nothing has come yet.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes bytes off the input; all that were wanted once they are there, without copying if
    /// they are in one piece.
    pub(super) fn take(&mut self, input: &mut Bytes) -> Option<Bytes> {
        if self.held.is_empty() && input.len() >= self.wanted {
            return Some(input.split_to(self.wanted));
        }
        let missing = self.wanted - self.held.len();
        let piece = input.split_to(missing.min(input.len()));
        self.held.extend_from_slice(&piece);
        (self.held.len() == self.wanted).then(|| std::mem::take(&mut self.held).into())
    }

    /// Exactly `N` bytes.
    pub(super) fn take_array<const N: usize>(&mut self, input: &mut Bytes) -> Option<[u8; N]> {
        debug_assert_eq!(self.wanted, N);
        let bytes = self.take(input)?;
        Some(std::array::from_fn(|index| bytes[index]))
    }
}
