//! Baskets of a TTree's branches; tests/python/test_importers.py tests baskets of ROOT and uproot.

use proptest::prelude::*;
use rntuple::tfile::{Branch, Timestamp, encode_key};
use rntuple::{Compression, ErrorKind, compress, values_of};

/// Bytes of a basket's own fields, which end its key's header.
const FIELDS_SIZE: usize = 19;

/// A basket at the start of a file, of lists or of single numbers.
fn basket(numbers: &[f32], ends: Option<&[usize]>) -> (Vec<u8>, usize) {
    let header_size =
        encode_key("TBasket", "x", "t", 0, 0, Timestamp(0)).unwrap().len() + FIELDS_SIZE;
    let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let border = header_size + payload.len();
    let entries = ends.map_or(numbers.len(), <[usize]>::len);
    if let Some(ends) = ends {
        let starts = [0].iter().chain(ends).take(entries).map(|start| header_size + 4 * start);
        let stored: Vec<usize> = [entries + 1].into_iter().chain(starts).chain([0]).collect();
        payload.extend(stored.iter().flat_map(|it| (*it as u32).to_be_bytes()));
    }
    let mut stored = vec![];
    if !compress(&payload, Compression::Lz4 { level: 1 }, &mut stored).unwrap() {
        stored.clone_from(&payload);
    }
    let mut file = encode_key("TBasket", "x", "t", 0, 0, Timestamp(0)).unwrap();
    file[..4].copy_from_slice(&((header_size + stored.len()) as u32).to_be_bytes());
    file[6..10].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    file[14..16].copy_from_slice(&(header_size as u16).to_be_bytes());
    file.extend([0, 3]);
    file.extend([32_000, 1000, entries, border].iter().flat_map(|it| (*it as u32).to_be_bytes()));
    file.push(0);
    file.extend(stored);
    (file, entries)
}

fn branch<'a>(is_list: bool, edges: &'a [i64]) -> Branch<'a> {
    Branch { is_list, count: 1, size: 4, places: &[0], edges }
}

#[test]
fn numbers_and_lists_are_read_in_part() {
    let numbers: Vec<f32> = (0..100).map(|n| n as f32).collect();
    let (file, entries) = basket(&numbers, None);
    let edges = [10, 10 + entries as i64];
    let found = branch(false, &edges).read(&file, 13..15).unwrap();
    assert_eq!(values_of::<f32>(&found.values).unwrap(), [3.0, 4.0]);
    assert!(found.offsets.is_empty());

    let (file, entries) = basket(&numbers, Some(&[2, 2, 50, 100]));
    let edges = [10, 10 + entries as i64];
    let found = branch(true, &edges).read(&file, 11..13).unwrap();
    assert_eq!(found.offsets, [0, 0, 48]);
    assert_eq!(values_of::<f32>(&found.values).unwrap(), &numbers[2..50]);
    assert_eq!(branch(true, &edges).read(&file, 12..12).unwrap().offsets, [0]);

    let beyond = branch(true, &edges).read(&file, 11..15).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Corrupt);
    let before = branch(true, &edges).read(&file, 9..11).unwrap_err();
    assert_eq!(before.kind(), ErrorKind::Corrupt);
}

proptest! {
    /// Whichever bytes change, the arrays read are well-formed, or the read fails.
    #[test]
    fn damaged_baskets_yield_sound_arrays_or_errors(
        ends in prop::collection::vec(0_usize..40, 0..20),
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        is_list: bool,
    ) {
        let mut ends = ends;
        ends.sort_unstable();
        let numbers = vec![1.5; if is_list { ends.last().copied().unwrap_or(0) } else { 20 }];
        let (mut file, entries) = basket(&numbers, is_list.then_some(&ends));
        for (index, value) in at {
            let at = index.index(file.len());
            file[at] = value;
        }
        let edges = [0, entries as i64];
        if let Ok(found) = branch(is_list, &edges).read(&file, 0..entries as i64) {
            let items = if is_list { *found.offsets.last().unwrap() } else { entries as i64 };
            prop_assert_eq!(found.values.len() as i64, 4 * items);
            prop_assert!(found.offsets.is_sorted());
        }
    }
}
