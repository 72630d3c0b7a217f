//! Bytes as what Femtobarn writes into database files beside RNTuple: commit records, annexes with deletions and statistics,
//! blocks of indexes, receipts. Checksums are made right, so that what they protect is looked at.

#![no_main]

use femtobarn::fuzzing;
use femtobarn::{Fork, Receipt};
use femtobarn_format::annex::{Annex, Blob, DeletionChunk};
use femtobarn_format::deletion::Deletions;
use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash3_64;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => fuzzing::commit_record(&framed(b"FBCMT\0\x002", bytes)),
        1 => annex(bytes),
        2 => deletions(bytes),
        3 => fuzzing::statistics(bytes),
        4 | 5 => fuzzing::index_block(bytes),
        6 => drop(Receipt::decode(&framed(b"FBRCT\0\x001", bytes))),
        _ => drop(Fork::decode(&framed(b"FBFRK\0\x001", bytes))),
    }
});

/// A text in its frame.
fn framed(magic: &[u8; 8], text: &[u8]) -> Vec<u8> {
    let length = (text.len() as u64).to_le_bytes();
    let checksum = XxHash3_64::oneshot(text).to_le_bytes();
    [&magic[..], &length[..], &checksum[..], text].concat()
}

fn annex(text: &[u8]) {
    let file = framed(b"FBANX\0\x001", text);
    let range = femtobarn_catalog::BlobRange { offset: 0, size: file.len() as u64 };
    let Ok(annex) = Annex::read(&file, range) else { return };
    let mut copy = vec![];
    let written = annex.write(&mut copy).expect("memory takes all");
    assert_eq!(Annex::read(&copy, written).expect("our own annex is sound"), annex);
    if let Ok(deletions) = Deletions::new(&annex.deletions, 1, 100) {
        drop(deletions.runs(&file, 100));
    }
}

/// The first two bytes are how many entries are said to be deleted, and there; the rest is a file with their bitmap.
fn deletions(bytes: &[u8]) {
    let Some((&[count, entries], file)) = bytes.split_first_chunk() else { return };
    let (count, entries, file) = (u64::from(count), u64::from(entries), file.to_vec());
    let blob = Blob { offset: 0, size: file.len() as u64, checksum: XxHash3_64::oneshot(&file) };
    let Ok(mut deletions) =
        Deletions::new(&[DeletionChunk { chunk: 0, count, blob }], count, entries)
    else {
        return;
    };
    let Ok(live) = deletions.live(&file, 0..entries) else { return };
    let deleted = deletions.runs(&file, entries).expect("the chunk is decoded");
    let total: u64 = live.iter().chain(&deleted).map(|run| run.end - run.start).sum();
    assert_eq!(total, entries);
    let was_there = deletions.contains(&file, 0).expect("the chunk is decoded");
    assert_eq!(deletions.insert(&file, 0).expect("the chunk is decoded"), !was_there);
}
