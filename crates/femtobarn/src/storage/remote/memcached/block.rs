//! Blocks of a file as values in memcached.
//!
//! A value is the HMAC-SHA-256 of all that follows, the number and time of a commit (8 bytes each), the number of
//! ranges, the start and end of each range in the block (4 bytes each), and the bytes of all ranges. Numbers are
//! little-endian. The ranges ascend, are not empty, and do not overlap. The key of the HMAC is the HMAC of the value's
//! key in memcached under the federation's key, so a value is authentic in one place only.

use std::ops::Range;

use femtobarn_catalog::Csn;
use rangemap::RangeSet;
use ring::{digest, hmac};
use rntuple::ReadRequest;

use crate::storage::remote::history::CommitMark;

/// Bytes of a file in one block. With its ranges a block is far below the mebibyte that memcached takes.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
/// Bytes of an HMAC.
const TAG_BYTES: usize = digest::SHA256_OUTPUT_LEN;
/// Bytes of the start and end of a range.
const RANGE_BYTES: usize = 8;

/// The bytes of a block that are known.
#[derive(Debug)]
pub(super) struct CachedBlock {
    /// The newest commit that refers to them.
    pub commit: CommitMark,
    ranges: RangeSet<u32>,
    /// All bytes of the block; those outside of the ranges are 0.
    bytes: Vec<u8>,
}

impl CachedBlock {
    pub(super) fn new(commit: CommitMark) -> Self {
        CachedBlock { commit, ranges: RangeSet::new(), bytes: vec![0; BLOCK_BYTES as usize] }
    }

    /// Copies the part of a request in this block, whose number is given; false if the block does not have all of it.
    pub(super) fn copy_to(&self, number: u64, request: &mut ReadRequest<'_>) -> bool {
        let (own, part) = overlap(number, request);
        let has_all = self.ranges.gaps(&(own.start as u32..own.end as u32)).next().is_none();
        if has_all {
            request.buffer[part].copy_from_slice(&self.bytes[own]);
        }
        has_all
    }

    /// Adds the part of a request in this block, whose number is given.
    pub(super) fn insert(&mut self, number: u64, request: &ReadRequest<'_>, commit: CommitMark) {
        let (own, part) = overlap(number, request);
        self.bytes[own.clone()].copy_from_slice(&request.buffer[part]);
        self.ranges.insert(own.start as u32..own.end as u32);
        if commit.csn > self.commit.csn {
            self.commit = commit;
        }
    }

    /// The value of the block under the key `place`.
    pub(super) fn seal(&self, federation: &hmac::Key, place: &str) -> Vec<u8> {
        let mut value = vec![0; TAG_BYTES];
        value.extend_from_slice(&self.commit.csn.0.to_le_bytes());
        value.extend_from_slice(&self.commit.time_us.to_le_bytes());
        value.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        for range in self.ranges.iter() {
            value.extend_from_slice(&range.start.to_le_bytes());
            value.extend_from_slice(&range.end.to_le_bytes());
        }
        for range in self.ranges.iter() {
            value.extend_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        }
        let tag = hmac::sign(&key_of_place(federation, place), &value[TAG_BYTES..]);
        value[..TAG_BYTES].copy_from_slice(tag.as_ref());
        value
    }

    /// Opens the value that was found under the key `place`; `None` if it is not authentic.
    pub(super) fn open(federation: &hmac::Key, place: &str, value: &[u8]) -> Option<Self> {
        let (tag, content) = value.split_at_checked(TAG_BYTES)?;
        hmac::verify(&key_of_place(federation, place), content, tag).ok()?;
        Self::decode(content)
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let (csn, rest) = content.split_first_chunk()?;
        let (time_us, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let csn = Csn(u64::from_le_bytes(*csn));
        let commit = CommitMark { csn, time_us: i64::from_le_bytes(*time_us) };
        let (ranges, mut bytes) = rest.split_at_checked(count.checked_mul(RANGE_BYTES)?)?;
        let mut block = CachedBlock::new(commit);
        for range in ranges.chunks_exact(RANGE_BYTES) {
            let (start, end) = range.split_at(RANGE_BYTES / 2);
            let start = u32::from_le_bytes(start.try_into().ok()?);
            let end = u32::from_le_bytes(end.try_into().ok()?);
            let own = block.bytes.get_mut(start as usize..end as usize)?;
            let (part, behind) = bytes.split_at_checked(own.len())?;
            own.copy_from_slice(part);
            bytes = behind;
            block.ranges.insert(Some(start..end).filter(|range| !range.is_empty())?);
        }
        bytes.is_empty().then_some(block)
    }
}

/// The key that authenticates the value in one place.
fn key_of_place(federation: &hmac::Key, place: &str) -> hmac::Key {
    let derived = hmac::sign(federation, place.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// The part of a request that lies in a block, as offsets in the file. The request reaches into the block.
pub(super) fn range_of_request(number: u64, request: &ReadRequest<'_>) -> Range<u64> {
    let block_start = number * BLOCK_BYTES;
    let end = request.offset + request.buffer.len() as u64;
    request.offset.max(block_start)..end.min(block_start + BLOCK_BYTES)
}

/// The overlap of a block and a request: the range in the block, and that in the request's buffer.
fn overlap(number: u64, request: &ReadRequest<'_>) -> (Range<usize>, Range<usize>) {
    let Range { start, end } = range_of_request(number, request);
    let from = |first: u64| (start - first) as usize..(end - first) as usize;
    (from(number * BLOCK_BYTES), from(request.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: CommitMark = CommitMark { csn: Csn(7), time_us: 1234 };

    fn federation(name: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, name)
    }

    fn insert(block: &mut CachedBlock, offset: u64, bytes: &mut [u8], commit: CommitMark) {
        block.insert(3, &ReadRequest { offset, buffer: bytes }, commit);
    }

    fn copied(block: &CachedBlock, offset: u64, count: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; count];
        let has_all = block.copy_to(3, &mut ReadRequest { offset, buffer: &mut buffer });
        has_all.then_some(buffer)
    }

    /// A block with two ranges and a gap between them.
    fn block() -> CachedBlock {
        let start = 3 * BLOCK_BYTES;
        let mut block = CachedBlock::new(COMMIT);
        insert(&mut block, start + 10, &mut [1; 5], COMMIT);
        insert(&mut block, start + 15, &mut [2; 5], CommitMark { csn: Csn(9), time_us: 5 });
        // Bytes before and after the block belong to other blocks.
        insert(&mut block, start - 4, &mut [9, 9, 9, 9, 3, 4], COMMIT);
        insert(&mut block, start + BLOCK_BYTES - 2, &mut [5, 6, 9, 9], COMMIT);
        block
    }

    #[test]
    fn an_opened_value_has_the_ranges_that_were_sealed_and_no_others() {
        let (key, start) = (federation(b"lhc"), 3 * BLOCK_BYTES);
        let value = block().seal(&key, "place");
        assert!(value.len() < 200, "a block takes as much as is known of it");
        let block = CachedBlock::open(&key, "place", &value).unwrap();
        assert_eq!(block.commit.csn, Csn(9), "the newest");
        assert_eq!(copied(&block, start + 12, 6), Some(vec![1, 1, 1, 2, 2, 2]));
        assert_eq!(copied(&block, start, 2), Some(vec![3, 4]));
        assert_eq!(copied(&block, start + BLOCK_BYTES - 2, 2), Some(vec![5, 6]));
        for (from, count) in [(2, 1), (0, 11), (9, 2), (19, 2), (BLOCK_BYTES - 3, 2)] {
            assert_eq!(copied(&block, start + from, count), None, "{count} from {from}");
        }
    }

    #[test]
    fn a_value_is_refused_if_a_bit_differs_or_its_place_or_federation_is_another() {
        let key = federation(b"lhc");
        let value = block().seal(&key, "place");
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(CachedBlock::open(&key, "place", &flipped).is_none(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(CachedBlock::open(&key, "place", &value[..length]).is_none());
        }
        assert!(CachedBlock::open(&key, "another place", &value).is_none());
        assert!(CachedBlock::open(&federation(b"sps"), "place", &value).is_none());
    }

    #[test]
    fn content_of_any_form_is_decoded_or_refused() {
        let content = |ranges: &[(u32, u32)], bytes: usize| {
            let mut content = vec![0; 16];
            content.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
            for (start, end) in ranges {
                content.extend_from_slice(&start.to_le_bytes());
                content.extend_from_slice(&end.to_le_bytes());
            }
            content.resize(content.len() + bytes, 7);
            content
        };
        let end = BLOCK_BYTES as u32;
        assert!(CachedBlock::decode(&content(&[(0, 3), (end - 2, end)], 5)).is_some());
        for (ranges, bytes) in [
            (&[(0, 3)][..], 4),
            (&[(0, 3)][..], 2),
            (&[(3, 0)][..], 0),
            (&[(3, 3)][..], 0),
            (&[(end - 1, end + 1)][..], 2),
            (&[(0, u32::MAX)][..], 2),
        ] {
            assert!(CachedBlock::decode(&content(ranges, bytes)).is_none(), "{ranges:?} {bytes}");
        }
        let mut many = content(&[], 8);
        many[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CachedBlock::decode(&many).is_none());
    }
}
