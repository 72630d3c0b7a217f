//! Blocks of an index: sorted pairs of a key and a number, which runs consist of.
//!
//! ```text
//!  0        8       9       10      12       14   16     24
//!  +--------+-------+-------+-------+--------+----+------+--------+------+----------+---------+
//!  | xxh3   | level | width | count | prefix | 0  | base | prefix | ends | suffixes | numbers |
//!  +--------+-------+-------+-------+--------+----+------+--------+------+----------+---------+
//! ```
//!
//! The checksum covers all bytes after it. All keys of the block start with the prefix. `ends` has for each key
//! a `u16`, where the rest of the key ends among the suffixes. `numbers` has for each key its number minus
//! `base`, in `width` bytes. Zeros may follow. All integers are little-endian.
//!
//! 1. An [`IndexBlock`] has been checked: its parts lie within it, and its ends do not decrease.
//! 2. Keys do not decrease. This is not checked but follows from the checksum.

use std::cmp::Ordering;

use twox_hash::XxHash3_64;

use super::key::KEY_BYTES_MAX;

/// The size of the largest block.
pub(super) const BLOCK_BYTES: usize = 4096;
const FRONT_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = size_of::<u64>();
const END_BYTES: usize = size_of::<u16>();

// Two keys of any length and the numbers of their children fit.
const _: () = assert!(FRONT_BYTES + 2 * (KEY_BYTES_MAX + END_BYTES + 8) <= BLOCK_BYTES);

/// A block that was decoded and checked.
pub(super) struct IndexBlock {
    bytes: Vec<u8>,
    level: u8,
    width: usize,
    count: usize,
    base: u64,
    /// Where the ends, the suffixes and the numbers start.
    ends: usize,
    suffixes: usize,
    numbers: usize,
}

impl IndexBlock {
    /// Decodes a block; `None` if it is damaged.
    pub(crate) fn decode(bytes: Vec<u8>) -> Option<Self> {
        let front: &[u8; FRONT_BYTES] = bytes.first_chunk()?;
        let checksum = u64::from_le_bytes(front[..CHECKSUM_BYTES].try_into().ok()?);
        let [level, width] = [front[8], front[9]];
        let count = usize::from(u16::from_le_bytes([front[10], front[11]]));
        let prefix = usize::from(u16::from_le_bytes([front[12], front[13]]));
        let base = u64::from_le_bytes(front[16..].try_into().ok()?);
        if XxHash3_64::oneshot(&bytes[CHECKSUM_BYTES..]) != checksum
            || !matches!(width, 0 | 1 | 2 | 4 | 8)
            || count == 0
            || bytes.len() > BLOCK_BYTES
        {
            return None;
        }
        let ends = FRONT_BYTES + prefix;
        let suffixes = ends + count * END_BYTES;
        let mut last = 0;
        for end in bytes.get(ends..suffixes)?.chunks_exact(END_BYTES) {
            let end = usize::from(u16::from_le_bytes([end[0], end[1]]));
            if end < last {
                return None;
            }
            last = end;
        }
        let numbers = suffixes + last;
        let width = usize::from(width);
        bytes.get(numbers..numbers + count * width)?;
        Some(IndexBlock { bytes, level, width, count, base, ends, suffixes, numbers })
    }

    /// 0 if the numbers are entries; otherwise they are the numbers of blocks of the level below.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Its size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    fn prefix(&self) -> &[u8] {
        &self.bytes[FRONT_BYTES..self.ends]
    }

    fn end(&self, at: usize) -> usize {
        let place = self.ends + at * END_BYTES;
        usize::from(u16::from_le_bytes([self.bytes[place], self.bytes[place + 1]]))
    }

    fn suffix(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.end(at - 1) };
        &self.bytes[self.suffixes + start..self.suffixes + self.end(at)]
    }

    /// Replaces `out` by the key at a position.
    pub(crate) fn key(&self, at: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(at));
    }

    pub(crate) fn number(&self, at: usize) -> u64 {
        let place = self.numbers + at * self.width;
        let mut bytes = [0; 8];
        bytes[..self.width].copy_from_slice(&self.bytes[place..place + self.width]);
        self.base.wrapping_add(u64::from_le_bytes(bytes))
    }

    /// The position of the first key that is not less than `key`; [`count`](Self::count) if all are less.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        let common = prefix.len().min(key.len());
        match prefix[..common].cmp(&key[..common]) {
            Ordering::Less => return self.count,
            Ordering::Greater => return 0,
            Ordering::Equal if common < prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let rest = &key[common..];
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.suffix(middle) < rest { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Whether the key at a position starts with `start`.
    pub(crate) fn starts_with(&self, at: usize, start: &[u8]) -> bool {
        let prefix = self.prefix();
        match start.strip_prefix(prefix) {
            Some(rest) => self.suffix(at).starts_with(rest),
            None => prefix.starts_with(start),
        }
    }
}

/// Builds a block from pairs in order.
#[derive(Default)]
pub(super) struct BlockBuilder {
    /// All keys, back to back, and the end of each.
    keys: Vec<u8>,
    ends: Vec<usize>,
    numbers: Vec<u64>,
    /// Length of the prefix of all keys.
    prefix: usize,
    min: u64,
    max: u64,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The first key.
    pub(crate) fn first(&self) -> &[u8] {
        &self.keys[..self.ends.first().copied().unwrap_or(0)]
    }

    /// Adds a pair; false if the block is full. Pairs must come in order.
    pub(crate) fn push(&mut self, key: &[u8], number: u64) -> bool {
        let common = |first: &[u8]| first.iter().zip(key).take_while(|(a, b)| a == b).count();
        let (prefix, min, max) = if self.is_empty() {
            (key.len(), number, number)
        } else {
            (common(&self.keys[..self.prefix]), self.min.min(number), self.max.max(number))
        };
        let count = self.ends.len() + 1;
        let suffixes = self.keys.len() + key.len() - count * prefix;
        let numbers = count * width_of(max - min);
        let size = FRONT_BYTES + prefix + count * END_BYTES + suffixes + numbers;
        if size > BLOCK_BYTES {
            return false;
        }
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.numbers.push(number);
        (self.prefix, self.min, self.max) = (prefix, min, max);
        true
    }

    /// The bytes of the block. The builder is empty afterwards.
    pub(crate) fn finish(&mut self, level: u8, is_padded: bool) -> Vec<u8> {
        let (prefix, count) = (self.prefix, self.numbers.len());
        let width = width_of(self.max - self.min);
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend_from_slice(&[0; CHECKSUM_BYTES]);
        bytes.extend_from_slice(&[level, width as u8]);
        bytes.extend_from_slice(&(count as u16).to_le_bytes());
        bytes.extend_from_slice(&(prefix as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.min.to_le_bytes());
        bytes.extend_from_slice(&self.keys[..prefix]);
        for (at, end) in self.ends.iter().enumerate() {
            bytes.extend_from_slice(&((end - (at + 1) * prefix) as u16).to_le_bytes());
        }
        let mut start = 0;
        for &end in &self.ends {
            bytes.extend_from_slice(&self.keys[start + prefix..end]);
            start = end;
        }
        for number in &self.numbers {
            bytes.extend_from_slice(&(number - self.min).to_le_bytes()[..width]);
        }
        if is_padded {
            bytes.resize(BLOCK_BYTES, 0);
        }
        let checksum = XxHash3_64::oneshot(&bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.keys.clear();
        self.ends.clear();
        self.numbers.clear();
        bytes
    }
}

/// Bytes of a number up to `max`.
fn width_of(max: u64) -> usize {
    match max {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_decoded_block_has_the_pairs_that_were_added(
            mut pairs in vec((vec(0..4_u8, 0..20), prop_oneof![0..9_u64, any::<u64>()]), 1..300),
            start in vec(0..4_u8, 0..6),
            shared in vec(any::<u8>(), 0..6),
            is_padded in any::<bool>(),
        ) {
            for (key, _) in &mut pairs {
                key.splice(0..0, shared.iter().copied());
            }
            pairs.sort();
            let mut builder = BlockBuilder::default();
            let fitting = pairs.iter().take_while(|(key, number)| builder.push(key, *number)).count();
            let block = IndexBlock::decode(builder.finish(0, is_padded)).unwrap();
            prop_assert_eq!(block.count(), fitting);
            prop_assert!(fitting == pairs.len() || fitting > 80);
            let mut key = vec![];
            for (at, pair) in pairs[..fitting].iter().enumerate() {
                block.key(at, &mut key);
                prop_assert_eq!((&key, block.number(at)), (&pair.0, pair.1));
            }
            for start in [&start[..], &[&shared[..], &start].concat()] {
                let bound = block.lower_bound(start);
                prop_assert_eq!(bound, pairs[..fitting].partition_point(|(key, _)| &key[..] < start));
                for (at, (key, _)) in pairs[..fitting].iter().enumerate() {
                    prop_assert_eq!(block.starts_with(at, start), key.starts_with(start));
                }
            }
        }

        #[test]
        fn decoding_any_bytes_never_panics(
            mut bytes in vec(any::<u8>(), 0..200), count in 0..20_u8,
        ) {
            if bytes.len() >= FRONT_BYTES {
                (bytes[9], bytes[10], bytes[11], bytes[13]) = (count & 1, count, 0, 0);
                let checksum = XxHash3_64::oneshot(&bytes[8..]);
                bytes[..8].copy_from_slice(&checksum.to_le_bytes());
            }
            if let Some(block) = IndexBlock::decode(bytes) {
                let mut key = vec![];
                for at in 0..block.count() {
                    block.key(at, &mut key);
                    block.starts_with(at, &[1]);
                    block.number(at);
                }
                block.lower_bound(&key);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let mut builder = BlockBuilder::default();
        (0..20_u8).for_each(|n| assert!(builder.push(&[1, 2, n], u64::from(n) * 1000)));
        let bytes = builder.finish(0, false);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexBlock::decode(flipped).is_none(), "bit {bit}");
        }
    }
}
