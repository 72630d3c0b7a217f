//! What fuzzers call of modules that are not public: there is none of it in any other build.

use twox_hash::XxHash3_64;

use crate::annex::Blob;
use crate::read::index::fuzz_block;
use crate::read::statistics::fuzz_statistics;
use crate::storage::commit_record::CommitRecord;

/// Decodes a commit record, whose own bytes have to be decoded to the same record.
pub fn commit_record(bytes: &[u8]) {
    if let Ok(record) = CommitRecord::decode(bytes) {
        let again = CommitRecord::decode(&record.encode());
        assert_eq!(again.expect("our own record is sound"), record);
    }
}

/// Decodes a block of an index, whose checksum is made right.
pub fn index_block(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes, usize::MAX);
    fuzz_block(bytes);
}

/// Decodes the statistics of clusters: a directory of the size that it states, and the sections behind it.
pub fn statistics(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let stated = bytes.get(8..12).and_then(|size| size.try_into().ok()).map(u32::from_le_bytes);
    seal(&mut bytes, stated.unwrap_or_default() as usize);
    let checksum = XxHash3_64::oneshot(&bytes);
    fuzz_statistics(&bytes, &Blob { offset: 0, size: bytes.len() as u64, checksum });
}

/// Makes the checksum in the first 8 bytes right for the next ones, up to `end`.
fn seal(bytes: &mut [u8], end: usize) {
    let end = end.min(bytes.len());
    if let Some(behind) = bytes.get(8..end) {
        let checksum = XxHash3_64::oneshot(behind);
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    }
}
