//! Byte planes, with zigzag and differences fused into the same pass.
//!
//! A page of `n` words of `N` bytes is stored as `n` first bytes, then `n` second bytes, and so on.
//! The loops run over blocks of a constant length, which is what lets the compiler use vector
//! instructions; what is left over after the last whole block goes one word at a time.

use std::array::from_fn;

use crate::error::{Error, Result};

/// Words of a block.
const BLOCK: usize = 64;

/// An unsigned integer of `N` bytes.
pub(super) trait Word<const N: usize>: Copy + Default {
    fn from_bytes(bytes: [u8; N]) -> Self;
    fn to_bytes(self) -> [u8; N];
}

macro_rules! word {
    ($word:ty, $size:literal) => {
        impl Word<$size> for $word {
            #[inline(always)]
            fn from_bytes(bytes: [u8; $size]) -> Self {
                <$word>::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn to_bytes(self) -> [u8; $size] {
                self.to_le_bytes()
            }
        }
    };
}
word!(u16, 2);
word!(u32, 4);
word!(u64, 8);

/// Joins byte planes to words and maps each.
#[inline(always)]
pub(super) fn unsplit<const N: usize, W: Word<N>>(
    encoded: &[u8],
    out: &mut [[u8; N]],
    map: impl Fn(W) -> W,
) {
    let planes = planes_of::<N>(encoded, out.len());
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    for (index, block) in blocks.iter_mut().enumerate() {
        let planes = planes.map(|plane| &plane.as_chunks::<BLOCK>().0[index]);
        for (word, out) in block.iter_mut().enumerate() {
            *out = map(W::from_bytes(from_fn(|byte| planes[byte][word]))).to_bytes();
        }
    }
    let done = blocks.len() * BLOCK;
    for (word, out) in rest.iter_mut().enumerate() {
        *out = map(W::from_bytes(from_fn(|byte| planes[byte][done + word]))).to_bytes();
    }
}

/// Maps words and parts them into byte planes.
#[inline(always)]
pub(super) fn split<const N: usize, W: Word<N>>(
    values: &[[u8; N]],
    out: &mut [u8],
    map: impl Fn(W) -> W,
) {
    let mut planes = planes_of_mut::<N>(out, values.len());
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    for (index, block) in blocks.iter().enumerate() {
        let words: [W; BLOCK] = from_fn(|word| map(W::from_bytes(block[word])));
        for (byte, plane) in planes.iter_mut().enumerate() {
            let plane = &mut plane.as_chunks_mut::<BLOCK>().0[index];
            for (out, word) in plane.iter_mut().zip(words) {
                *out = word.to_bytes()[byte];
            }
        }
    }
    let done = blocks.len() * BLOCK;
    for (word, value) in rest.iter().enumerate() {
        let bytes = map(W::from_bytes(*value)).to_bytes();
        for (plane, byte) in planes.iter_mut().zip(bytes) {
            plane[done + word] = byte;
        }
    }
}

/// Joins the byte planes of 32-bit differences and sums them up.
pub(super) fn undelta32(encoded: &[u8], out: &mut [[u8; 8]]) {
    let planes = planes_of::<4>(encoded, out.len());
    let mut sum = 0u32;
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    for (index, block) in blocks.iter_mut().enumerate() {
        let planes = planes.map(|plane| &plane.as_chunks::<BLOCK>().0[index]);
        let differences: [u32; BLOCK] =
            from_fn(|word| u32::from_le_bytes(from_fn(|byte| planes[byte][word])));
        for (out, difference) in block.iter_mut().zip(differences) {
            sum = sum.wrapping_add(difference);
            *out = u64::from(sum).to_le_bytes();
        }
    }
    let done = blocks.len() * BLOCK;
    for (word, out) in rest.iter_mut().enumerate() {
        let difference = u32::from_le_bytes(from_fn(|byte| planes[byte][done + word]));
        sum = sum.wrapping_add(difference);
        *out = u64::from(sum).to_le_bytes();
    }
}

/// Joins the byte planes of 64-bit differences and sums them up.
pub(super) fn undelta64(encoded: &[u8], out: &mut [[u8; 8]]) {
    unsplit(encoded, out, |word: u64| word);
    let mut sum = 0u64;
    for out in out {
        sum = sum.wrapping_add(u64::from_le_bytes(*out));
        *out = sum.to_le_bytes();
    }
}

/// Parts the 32-bit differences of indexes into byte planes.
pub(super) fn delta32(values: &[[u8; 8]], out: &mut [u8]) -> Result<()> {
    let mut planes = planes_of_mut::<4>(out, values.len());
    let mut previous = 0u32;
    for (word, value) in values.iter().enumerate() {
        let value = index32(*value)?;
        let bytes = value.wrapping_sub(previous).to_le_bytes();
        previous = value;
        for (plane, byte) in planes.iter_mut().zip(bytes) {
            plane[word] = byte;
        }
    }
    Ok(())
}

/// Parts the 64-bit differences of indexes into byte planes.
pub(super) fn delta64(values: &[[u8; 8]], out: &mut [u8]) {
    let mut planes = planes_of_mut::<8>(out, values.len());
    let mut previous = 0u64;
    for (word, value) in values.iter().enumerate() {
        let value = u64::from_le_bytes(*value);
        let bytes = value.wrapping_sub(previous).to_le_bytes();
        previous = value;
        for (plane, byte) in planes.iter_mut().zip(bytes) {
            plane[word] = byte;
        }
    }
}

/// 32-bit indexes to 64-bit ones.
pub(super) fn widen(encoded: &[u8], out: &mut [u8]) {
    for (out, index) in out.as_chunks_mut::<8>().0.iter_mut().zip(encoded.as_chunks().0) {
        *out = u64::from(u32::from_le_bytes(*index)).to_le_bytes();
    }
}

/// 64-bit indexes to 32-bit ones.
pub(super) fn narrow(values: &[[u8; 8]], out: &mut [u8]) -> Result<()> {
    for (out, index) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *out = index32(*index)?.to_le_bytes();
    }
    Ok(())
}

fn index32(index: [u8; 8]) -> Result<u32> {
    let index = u64::from_le_bytes(index);
    u32::try_from(index).map_err(|_| {
        Error::invalid(format!(
            "index {index} does not fit into 32 bits; use a 64-bit index column"
        ))
    })
}

fn planes_of<const N: usize>(encoded: &[u8], words: usize) -> [&[u8]; N] {
    from_fn(|byte| &encoded[byte * words..(byte + 1) * words])
}

fn planes_of_mut<const N: usize>(out: &mut [u8], words: usize) -> [&mut [u8]; N] {
    let mut rest = out;
    from_fn(|_| {
        let (plane, after) = std::mem::take(&mut rest).split_at_mut(words);
        rest = after;
        plane
    })
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
