//! Runs in memory: written, merged, searched and damaged.

use proptest::{collection::vec, prelude::*};
use rntuple::ByteSource;

use super::run::RunSink;
use super::run_reader::{IndexBlockCache, RunReader, RunStream};
use super::sorter::Sorter;
use crate::annex::IndexRun;
use crate::error::Result;

impl RunSink for Vec<u8> {
    fn reserve(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

type Pairs = Vec<(Vec<u8>, u64)>;

fn add(disk: &mut Vec<u8>, runs: &mut Vec<IndexRun>, pairs: &Pairs) {
    let mut sorter = Sorter::default();
    pairs.iter().for_each(|(key, entry)| sorter.push(key, *entry));
    sorter.sort();
    let source = disk.clone();
    sorter.write(runs, &source, disk).unwrap();
}

fn all(disk: &Vec<u8>, run: IndexRun) -> Result<Pairs> {
    let mut stream = RunStream::new(disk, run)?;
    let mut pairs = vec![];
    while let Some((key, entry)) = stream.pair() {
        pairs.push((key.to_vec(), entry));
        stream.advance()?;
    }
    Ok(pairs)
}

/// A source that claims to be remote.
struct RemoteDisk<'a>(&'a Vec<u8>);

impl ByteSource for RemoteDisk<'_> {
    fn size(&self) -> rntuple::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// The entries found in a local source; fails unless a remote source gives the same.
fn found(disk: &Vec<u8>, runs: &[IndexRun], start: &[u8]) -> Result<Vec<u64>> {
    let here = found_by(&RunReader { source: disk, cache: None }, runs, start);
    let cache = IndexBlockCache::new(1 << 20);
    let from_afar = RunReader { source: &RemoteDisk(disk), cache: Some((&cache, 1)) };
    let fetched = from_afar.fetch(runs, start);
    match (&here, fetched.and_then(|()| found_by(&from_afar, runs, start))) {
        (Ok(here), Ok(far)) => assert_eq!(*here, far),
        (here, far) => assert!(here.is_err() && far.is_err(), "{here:?} {far:?}"),
    }
    here
}

fn found_by(blocks: &RunReader<'_>, runs: &[IndexRun], start: &[u8]) -> Result<Vec<u64>> {
    let mut found = vec![];
    runs.iter().try_for_each(|run| blocks.entries_of(run, start, &mut found))?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(0..3_u8, 0..4),
        2 => (0..2000_u16).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => vec(0..3_u8, 300..600),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn merged_runs_have_all_pairs_that_were_added(
        batches in vec(vec((keys(), 0..50_u64), 1..400), 1..8),
        starts in vec(keys(), 20),
    ) {
        let mut disk = vec![0; 24];
        let mut runs = vec![];
        let mut model: Pairs = vec![];
        for batch in &batches {
            add(&mut disk, &mut runs, batch);
            let cut = |(key, entry): &(Vec<u8>, u64)| (super::key::truncate(key).to_vec(), *entry);
            model.extend(batch.iter().map(cut));
            prop_assert!(runs.windows(2).all(|pair| pair[0].keys > pair[1].keys));
        }
        model.sort();
        model.dedup();
        let mut merged: Pairs = vec![];
        for run in &runs {
            let pairs = all(&disk, *run).unwrap();
            prop_assert!(pairs.is_sorted());
            prop_assert_eq!(pairs.iter().map(|(key, _)| key.len() as u64).sum::<u64>(), run.key_bytes);
            let blob = run.blob.read(&disk).unwrap();
            prop_assert_eq!(blob.len() as u64, run.blob.size);
            prop_assert!(run.blob.size <= 2 * (run.key_bytes + 10 * run.keys) + 8192);
            merged.extend(pairs);
        }
        merged.sort();
        merged.dedup();
        prop_assert_eq!(&merged, &model);
        for start in starts.iter().map(|start| super::key::truncate(start)) {
            let mut expected: Vec<u64> =
                model.iter().filter(|(key, _)| key.starts_with(start)).map(|pair| pair.1).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(found(&disk, &runs, start).unwrap(), expected);
        }
    }
}

/// 3000 keys in several levels of blocks.
fn large() -> (Vec<u8>, Vec<IndexRun>) {
    let mut disk = vec![0; 8];
    let mut runs = vec![];
    let pairs = (0..3000_u64).map(|n| ([&n.to_be_bytes()[..], &[7; 100]].concat(), n)).collect();
    add(&mut disk, &mut runs, &pairs);
    (disk, runs)
}

#[test]
fn a_flipped_bit_is_detected_or_changes_no_result() {
    let (disk, runs) = large();
    let key = |n: u64| n.to_be_bytes();
    for bit in (64..8 * disk.len()).step_by(977) {
        let mut flipped = disk.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for n in [0, 1, 1499, 2999] {
            if let Ok(entries) = found(&flipped, &runs, &key(n)) {
                assert_eq!(entries, [n], "bit {bit}");
            }
        }
        assert!(runs[0].blob.read(&flipped).is_err());
    }
    let first_leaf = 8 * (8 + 100);
    let mut flipped = disk.clone();
    flipped[first_leaf / 8] ^= 1;
    assert!(found(&flipped, &runs, &key(0)).is_err());
    assert!(all(&flipped, runs[0]).is_err());
}

#[test]
fn a_run_at_a_wrong_offset_is_refused() {
    let (disk, runs) = large();
    for (offset, size, keys) in [
        (8, 0, 3000),
        (8, u64::MAX, 3000),
        (u64::MAX, runs[0].blob.size, 3000),
        (16, runs[0].blob.size, 3000),
        (8, runs[0].blob.size - 1, 3000),
        (8, 4096, 3000),
        (8, runs[0].blob.size, 2999),
        (8, runs[0].blob.size, u64::MAX),
    ] {
        let mut run = runs[0];
        (run.blob.offset, run.blob.size, run.keys) = (offset, size, keys);
        // A lookup does not count keys, and a stream does not need the root.
        let looked = found(&disk, &[run], &2999_u64.to_be_bytes());
        assert!(all(&disk, run).is_err() || looked.is_err(), "{run:?}");
        assert!(looked.is_err() || looked.unwrap() == [2999] || run.blob.size == 4096, "{run:?}");
    }
}
