//! Bit packing: elements narrower than a byte or of odd widths, without gaps, least significant bit
//! first.
//!
//! Truth values are packed in groups of eight, which fill a byte, and integers in blocks of 32, which
//! fill `width` words exactly. An incomplete last group or block is padded.

use std::array::from_fn;

/// Truth values of a byte.
const GROUP: usize = 8;
/// Integers of a block.
const BLOCK: usize = 32;

/// For each byte its eight bits as eight bytes of 0 or 1.
const SPREAD: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[byte] |= ((byte as u64 >> bit) & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// Unpacks truth values of one bit into bytes.
pub(super) fn unpack_truths(encoded: &[u8], out: &mut [u8]) {
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    for (out, byte) in groups.iter_mut().zip(encoded) {
        *out = SPREAD[usize::from(*byte)].to_le_bytes();
    }
    if let Some(byte) = encoded.get(groups.len()) {
        let spread = SPREAD[usize::from(*byte)].to_le_bytes();
        rest.copy_from_slice(&spread[..rest.len()]);
    }
}

/// Packs truth values of one byte into bits; any byte but 0 is true.
pub(super) fn pack_truths(values: &[u8], out: &mut [u8]) {
    let (groups, rest) = values.as_chunks::<GROUP>();
    for (out, group) in out.iter_mut().zip(groups) {
        *out = gather(u64::from_le_bytes(*group));
    }
    if let Some(out) = out.get_mut(groups.len()) {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        *out = gather(u64::from_le_bytes(group));
    }
}

/// Packs eight bytes into bits: the product moves bit 0 of byte `i` to bit `56 + i`.
fn gather(bytes: u64) -> u8 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let not_zero = ((bytes | ((bytes | HIGH) - LOW)) >> 7) & LOW;
    (not_zero.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Unpacks integers of `width` (1 to 32) bits and maps each to an element.
#[inline(always)]
pub(super) fn unpack<const SIZE: usize>(
    encoded: &[u8],
    width: u16,
    out: &mut [[u8; SIZE]],
    map: impl Fn(u32) -> [u8; SIZE],
) {
    let (unpack_block, _) = WIDTHS[usize::from(width) - 1];
    let size = usize::from(width) * BLOCK / 8;
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let (bytes, rest_of_bytes) = encoded.split_at(blocks.len() * size);
    for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(size)) {
        *block = unpack_block(bytes).map(&map);
    }
    if !rest.is_empty() {
        let mut padded = [0; BLOCK * size_of::<u32>()];
        padded[..rest_of_bytes.len()].copy_from_slice(rest_of_bytes);
        let block = unpack_block(&padded).map(map);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// Maps each value to an integer of `width` (1 to 32) bits and packs the integers.
#[inline(always)]
pub(super) fn pack<const SIZE: usize>(
    values: &[[u8; SIZE]],
    width: u16,
    out: &mut [u8],
    map: impl Fn([u8; SIZE]) -> u32,
) {
    let (_, pack_block) = WIDTHS[usize::from(width) - 1];
    let size = usize::from(width) * BLOCK / 8;
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    let (bytes, rest_of_bytes) = out.split_at_mut(blocks.len() * size);
    for (block, bytes) in blocks.iter().zip(bytes.chunks_exact_mut(size)) {
        pack_block(&block.map(&map), bytes);
    }
    if !rest.is_empty() {
        let block = from_fn(|index| rest.get(index).map_or(0, |value| map(*value)));
        let mut padded = [0; BLOCK * size_of::<u32>()];
        pack_block(&block, &mut padded);
        rest_of_bytes.copy_from_slice(&padded[..rest_of_bytes.len()]);
    }
}

type Unpack = fn(&[u8]) -> [u32; BLOCK];
type Pack = fn(&[u32; BLOCK], &mut [u8]);

/// The two directions for each width; constant widths make every shift a constant.
const WIDTHS: [(Unpack, Pack); 32] = {
    macro_rules! widths {
        ($($width:literal)*) => { [$((unpack_block::<$width>, pack_block::<$width>)),*] };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
};

/// A block of `WIDTH`-bit integers fills `WIDTH` 32-bit words exactly.
fn unpack_block<const WIDTH: usize>(bytes: &[u8]) -> [u32; BLOCK] {
    let packed = &bytes.as_chunks().0[..WIDTH];
    let words: [u32; WIDTH] = from_fn(|word| u32::from_le_bytes(packed[word]));
    from_fn(|index| {
        let (word, shift) = (index * WIDTH / 32, index * WIDTH % 32);
        let mut integer = words[word] >> shift;
        if shift + WIDTH > 32 {
            integer |= words[word + 1] << (32 - shift);
        }
        integer & mask(WIDTH)
    })
}

fn pack_block<const WIDTH: usize>(integers: &[u32; BLOCK], bytes: &mut [u8]) {
    let mut words = [0; WIDTH];
    let mut put = |index: usize| {
        let integer = integers[index] & mask(WIDTH);
        let (word, shift) = (index * WIDTH / 32, index * WIDTH % 32);
        words[word] |= integer << shift;
        if shift + WIDTH > 32 {
            words[word + 1] |= integer >> (32 - shift);
        }
    };
    // Unrolled by hand, because the compiler does not unroll a loop of 32: 2.5 GB/s against 6.4.
    macro_rules! each {
        ($($index:literal)*) => { $(put($index);)* };
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    each!(16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = u32::to_le_bytes(word);
    }
}

const fn mask(width: usize) -> u32 {
    u32::MAX >> (32 - width)
}
