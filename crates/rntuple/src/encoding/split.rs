//! Byte planes, with zigzag encoding, differences and conversions in the same pass.
//!
//! A page of `n` words of `N` bytes is stored as the `n` first bytes, then the `n` second bytes, and so
//! on. Blocks of a constant number of words let the compiler use vector instructions; an incomplete last
//! block is padded.

use std::array::from_fn;

use crate::error::{Error, Result};

/// Words of a block.
const BLOCK: usize = 64;

/// A block of words.
pub(super) type WordBlock<W> = [W; BLOCK];

/// An unsigned integer of `N` bytes.
///
/// `join` has loops, not adapters of arrays: where the compiler does not inline these, they lack the instructions that
/// a page is decoded with.
pub(super) trait Word<const N: usize>: Copy + Default {
    /// Makes words from their bytes, given as the blocks of each plane and the number of the block.
    fn join(planes: [&[WordBlock<u8>]; N], block: usize) -> WordBlock<Self>;
    /// Writes the bytes of words as planes.
    fn part(words: &WordBlock<Self>, planes: [&mut WordBlock<u8>; N]);
}

impl Word<2> for u16 {
    #[inline(always)]
    fn join([low, high]: [&[WordBlock<u8>]; 2], block: usize) -> WordBlock<u16> {
        let (low, high) = (&low[block], &high[block]);
        let mut words = [0; BLOCK];
        for (index, word) in words.iter_mut().enumerate() {
            *word = u16::from_le_bytes([low[index], high[index]]);
        }
        words
    }

    #[inline(always)]
    fn part(words: &WordBlock<u16>, planes: [&mut WordBlock<u8>; 2]) {
        for (byte, plane) in planes.into_iter().enumerate() {
            *plane = words.map(|word| (word >> (8 * byte)) as u8);
        }
    }
}

impl Word<4> for u32 {
    #[inline(always)]
    fn join([a, b, c, d]: [&[WordBlock<u8>]; 4], block: usize) -> WordBlock<u32> {
        let (a, b, c, d) = (&a[block], &b[block], &c[block], &d[block]);
        let mut words = [0; BLOCK];
        for (index, word) in words.iter_mut().enumerate() {
            *word = u32::from_le_bytes([a[index], b[index], c[index], d[index]]);
        }
        words
    }

    #[inline(always)]
    fn part(words: &WordBlock<u32>, planes: [&mut WordBlock<u8>; 4]) {
        for (byte, plane) in planes.into_iter().enumerate() {
            *plane = words.map(|word| (word >> (8 * byte)) as u8);
        }
    }
}

/// Splits words into 32-bit halves, for which there are faster instructions.
impl Word<8> for u64 {
    #[inline(always)]
    fn join([a, b, c, d, e, f, g, h]: [&[WordBlock<u8>]; 8], block: usize) -> WordBlock<u64> {
        let (low, high) = (u32::join([a, b, c, d], block), u32::join([e, f, g, h], block));
        let mut words = [0; BLOCK];
        for (index, word) in words.iter_mut().enumerate() {
            *word = u64::from(high[index]) << 32 | u64::from(low[index]);
        }
        words
    }

    #[inline(always)]
    fn part(words: &WordBlock<u64>, planes: [&mut WordBlock<u8>; 8]) {
        let [a, b, c, d, e, f, g, h] = planes;
        u32::part(&words.map(|word| word as u32), [a, b, c, d]);
        u32::part(&words.map(|word| (word >> 32) as u32), [e, f, g, h]);
    }
}

/// Joins byte planes to words; `emit` converts each block, in order, to elements in memory.
#[inline(always)]
pub(super) fn unsplit<const N: usize, const M: usize, W: Word<N>>(
    encoded: &[u8],
    out: &mut [[u8; M]],
    mut emit: impl FnMut(&WordBlock<W>, &mut WordBlock<[u8; M]>),
) {
    let words = out.len();
    let planes: [&[u8]; N] = from_fn(|byte| &encoded[byte * words..(byte + 1) * words]);
    let whole = planes.map(|plane| plane.as_chunks().0);
    let (blocks, rest) = out.as_chunks_mut();
    for (index, block) in blocks.iter_mut().enumerate() {
        emit(&W::join(whole, index), block);
    }
    if !rest.is_empty() {
        let padded = planes.map(|plane| pad(plane.as_chunks::<BLOCK>().1, 0));
        let mut block = [[0; M]; BLOCK];
        emit(&W::join(padded.each_ref().map(std::slice::from_ref), 0), &mut block);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// Splits words into byte planes; `take` converts each block of elements in memory, in order, to words.
#[inline(always)]
pub(super) fn split<const N: usize, const M: usize, W: Word<N>>(
    values: &[[u8; M]],
    out: &mut [u8],
    mut take: impl FnMut(&WordBlock<[u8; M]>) -> WordBlock<W>,
) {
    let mut rest_of_out = out;
    let mut planes: [&mut [u8]; N] = from_fn(|_| {
        let (plane, after) = std::mem::take(&mut rest_of_out).split_at_mut(values.len());
        rest_of_out = after;
        plane
    });
    let (blocks, rest) = values.as_chunks();
    for (index, block) in blocks.iter().enumerate() {
        W::part(&take(block), planes.each_mut().map(|plane| &mut plane.as_chunks_mut().0[index]));
    }
    if !rest.is_empty() {
        let mut padded = [[0; BLOCK]; N];
        W::part(&take(&pad(rest, [0; M])), padded.each_mut());
        for (plane, padded) in planes.iter_mut().zip(padded) {
            plane.as_chunks_mut::<BLOCK>().1.copy_from_slice(&padded[..rest.len()]);
        }
    }
}

fn pad<T: Copy>(rest: &[T], filling: T) -> WordBlock<T> {
    from_fn(|index| rest.get(index).copied().unwrap_or(filling))
}

/// Decodes 32-bit indexes from the differences of a page.
#[inline(always)]
pub(super) fn unsplit_differences32(encoded: &[u8], out: &mut [[u8; 8]]) {
    let mut sum = 0u32;
    unsplit(encoded, out, |differences: &WordBlock<u32>, out| {
        for (out, difference) in out.iter_mut().zip(differences) {
            sum = sum.wrapping_add(*difference);
            *out = u64::from(sum).to_le_bytes();
        }
    });
}

/// Decodes 64-bit indexes from the differences of a page.
#[inline(always)]
pub(super) fn unsplit_differences64(encoded: &[u8], out: &mut [[u8; 8]]) {
    let mut sum = 0u64;
    unsplit(encoded, out, |differences: &WordBlock<u64>, out| {
        for (out, difference) in out.iter_mut().zip(differences) {
            sum = sum.wrapping_add(*difference);
            *out = sum.to_le_bytes();
        }
    });
}

/// Encodes the differences of indexes that must fit into 32 bits.
pub(super) fn split_differences32(values: &[[u8; 8]], out: &mut [u8]) -> Result<()> {
    fits32(values)?;
    let mut previous = 0u32;
    split(values, out, |block| {
        let indexes = block.map(|bytes| u64::from_le_bytes(bytes) as u32);
        differences(&indexes, &mut previous, u32::wrapping_sub)
    });
    Ok(())
}

/// Encodes the differences of 64-bit indexes.
pub(super) fn split_differences64(values: &[[u8; 8]], out: &mut [u8]) {
    let mut previous = 0u64;
    split(values, out, |block| {
        differences(&block.map(u64::from_le_bytes), &mut previous, u64::wrapping_sub)
    });
}

/// The difference of each word from its predecessor. `previous` is the word before the block, and becomes
/// its last word.
#[inline(always)]
fn differences<W: Copy>(
    words: &WordBlock<W>,
    previous: &mut W,
    minus: impl Fn(W, W) -> W,
) -> WordBlock<W> {
    let before = std::mem::replace(previous, words[BLOCK - 1]);
    from_fn(|index| minus(words[index], if index == 0 { before } else { words[index - 1] }))
}

/// Widens 32-bit indexes to 64 bits.
#[inline(always)]
pub(super) fn widen(encoded: &[u8], out: &mut [[u8; 8]]) {
    for (out, index) in out.iter_mut().zip(encoded.as_chunks().0) {
        *out = u64::from(u32::from_le_bytes(*index)).to_le_bytes();
    }
}

/// Narrows 64-bit indexes to 32 bits.
pub(super) fn narrow(values: &[[u8; 8]], out: &mut [u8]) -> Result<()> {
    fits32(values)?;
    for (out, index) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *out = (u64::from_le_bytes(*index) as u32).to_le_bytes();
    }
    Ok(())
}

fn fits32(indexes: &[[u8; 8]]) -> Result<()> {
    let ored = indexes.iter().fold(0, |all, index| all | u64::from_le_bytes(*index));
    if ored <= u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Error::invalid("an index does not fit into 32 bits; use a column of 64-bit indexes"))
}

macro_rules! zigzag {
    ($zigzag:ident, $unzigzag:ident, $signed:ty, $unsigned:ty) => {
        /// Maps small magnitudes of either sign to small unsigned numbers.
        #[inline(always)]
        pub(super) fn $zigzag(value: $unsigned) -> $unsigned {
            (value << 1) ^ ((value as $signed) >> (<$signed>::BITS - 1)) as $unsigned
        }

        /// The inverse of zigzag.
        #[inline(always)]
        pub(super) fn $unzigzag(value: $unsigned) -> $unsigned {
            (value >> 1) ^ (value & 1).wrapping_neg()
        }
    };
}
zigzag!(zigzag16, unzigzag16, i16, u16);
zigzag!(zigzag32, unzigzag32, i32, u32);
zigzag!(zigzag64, unzigzag64, i64, u64);

macro_rules! words {
    ($unsplit:ident, $split:ident, $word:ty, $size:literal) => {
        /// Joins byte planes to words and maps each.
        #[inline(always)]
        pub(super) fn $unsplit(
            encoded: &[u8],
            out: &mut [[u8; $size]],
            map: impl Fn($word) -> $word,
        ) {
            unsplit(encoded, out, |words: &WordBlock<$word>, out| {
                for (out, word) in out.iter_mut().zip(words) {
                    *out = map(*word).to_le_bytes();
                }
            });
        }

        /// Maps words and splits them into byte planes.
        #[inline(always)]
        pub(super) fn $split(values: &[[u8; $size]], out: &mut [u8], map: impl Fn($word) -> $word) {
            split(values, out, |block| block.map(|bytes| map(<$word>::from_le_bytes(bytes))));
        }
    };
}
words!(unsplit16, split16, u16, 2);
words!(unsplit32, split32, u32, 4);
words!(unsplit64, split64, u64, 8);
