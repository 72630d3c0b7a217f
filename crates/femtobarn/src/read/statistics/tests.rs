//! Statistics in memory: joined, encoded, damaged.

use proptest::{collection::vec, option, prelude::*};
use rntuple::{Bound, Bounds};

use super::apply_widenings;
use super::run::{ClusterStatistics, Directory, SummarisedCluster};
use crate::annex::Blob;

fn bounds() -> impl Strategy<Value = Bounds> {
    let range = prop_oneof![
        (any::<i64>(), any::<i64>()).prop_map(|(a, b)| (Bound::Int(a), Bound::Int(b))),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| (Bound::UInt(a), Bound::UInt(b))),
        (any::<f64>(), any::<f64>()).prop_map(|(a, b)| (Bound::Float(a), Bound::Float(b))),
    ];
    (option::of(range), any::<bool>()).prop_map(|(range, has_nan)| Bounds { range, has_nan })
}

fn run() -> impl Strategy<Value = ClusterStatistics> {
    let cluster = (0..1000_u64, 0..100_u64, any::<bool>());
    let clusters = vec(cluster, 0..20).prop_map(|clusters| {
        let mut clusters: Vec<SummarisedCluster> = clusters
            .into_iter()
            .map(|(first_entry, entries, is_widening)| SummarisedCluster {
                first_entry,
                entries,
                is_widening,
            })
            .collect();
        clusters.sort();
        clusters.dedup();
        clusters
    });
    clusters.prop_flat_map(|clusters| {
        let column = vec(option::of(bounds()), clusters.len());
        let columns = proptest::collection::btree_map("[a-c.#]{1,3}", column, 0..5);
        columns.prop_map(move |columns| ClusterStatistics { clusters: clusters.clone(), columns })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn statistics_are_read_back_and_every_flipped_bit_is_detected(run in run(), bit in any::<usize>()) {
        let mut disk = vec![0; 8];
        let blob = Blob::write(&mut disk, &run.encode()).unwrap();
        prop_assert_eq!(&ClusterStatistics::read(&disk, &blob).unwrap(), &run);
        let directory = Directory::read(&disk, &blob).unwrap();
        for (name, known) in &run.columns {
            let read = directory.column(&disk, name).unwrap();
            prop_assert_eq!(read.as_ref(), Some(known));
        }
        prop_assert_eq!(directory.column(&disk, "zzzz").unwrap(), None);
        let bit = 64 + bit % (8 * (disk.len() - 8));
        let mut flipped = disk.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(ClusterStatistics::read(&flipped, &blob).is_err());
        if let Ok(directory) = Directory::read(&flipped, &blob) {
            for (name, known) in &run.columns {
                let read = directory.column(&flipped, name);
                prop_assert!(read.is_err() || read.unwrap().as_ref() == Some(known));
            }
        }
    }
}

fn range(least: u64, most: u64) -> Option<Bounds> {
    let range = Some((Bound::UInt(least), Bound::UInt(most)));
    Some(Bounds { range, has_nan: false })
}

fn piece(first_entry: u64, is_widening: bool) -> SummarisedCluster {
    SummarisedCluster { first_entry, entries: 10, is_widening }
}

#[test]
fn replaced_values_widen_known_bounds_and_add_none() {
    let pieces = vec![
        (piece(10, true), range(0, 0)),
        (piece(0, false), range(5, 6)),
        (piece(0, true), range(9, 9)),
        (piece(0, true), None),
        (piece(10, false), None),
        (piece(20, false), range(3, 3)),
        (piece(25, true), range(4, 4)),
        (piece(100, true), range(1, 1)),
    ];
    let found: Vec<_> =
        apply_widenings(pieces).iter().map(|it| (it.first_entry, it.bounds)).collect();
    assert_eq!(found, [(0, range(5, 9)), (10, None), (20, range(3, 4))]);
}

#[test]
fn overlapping_clusters_have_no_bounds() {
    let pieces = vec![(piece(0, false), range(5, 6)), (piece(9, false), range(7, 7))];
    let found: Vec<_> = apply_widenings(pieces).iter().map(|it| (it.entries, it.bounds)).collect();
    assert_eq!(found, [(19, None)]);
}

#[test]
fn joined_bounds_of_a_cluster_are_unknown_unless_all_parts_have_them() {
    let run = |is_widening, columns: &[(&str, Option<Bounds>)]| ClusterStatistics {
        clusters: vec![piece(0, is_widening)],
        columns: columns.iter().map(|(name, known)| ((*name).to_owned(), vec![*known])).collect(),
    };
    let of =
        |runs: &[ClusterStatistics], name: &str| ClusterStatistics::join(runs).columns[name][0];
    let both =
        [run(true, &[("a", range(1, 1))]), run(true, &[("b", range(2, 2)), ("a", range(3, 3))])];
    assert_eq!((of(&both, "a"), of(&both, "b")), (range(1, 3), range(2, 2)));
    let both = [run(false, &[("a", range(1, 1))]), run(false, &[("b", range(2, 2))])];
    assert_eq!((of(&both, "a"), of(&both, "b")), (None, None));
    let both = [run(false, &[("a", range(1, 1))]), run(true, &[("a", range(2, 2))])];
    assert_eq!(ClusterStatistics::join(&both).columns["a"], [range(1, 1), range(2, 2)]);
}
