//! Compaction: the same entries in fewer clusters.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::Index};

use rntuple::{Compaction, Compression, ErrorKind, Type, Value, WriteOptions, compact};

use crate::evolution::{event, rows_of, tracks};
use crate::revision_complete::{Made, assert_counted};
use crate::round_trips::{assert_holds, options, tables};
use crate::values::cases;

impl Made {
    fn compact(&mut self, compaction: &Compaction<'_>) -> rntuple::Revised {
        let (mut told, reader) = (vec![0], self.reader());
        let mut progress = |entries| told.push(entries);
        let revised =
            compact(&reader, &mut self.store, self.footer, compaction, &mut progress).unwrap();
        assert!(told.is_sorted() && told.last() == Some(&reader.entries()), "{told:?}");
        assert_eq!(revised.clusters_before, reader.clusters());
        self.footer = revised.footer;
        assert_eq!(revised.clusters, self.reader().clusters());
        revised
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn compaction_keeps_live_entries_and_blanks_dead_ones(
        (of, rows) in tables(1..40),
        options in vec(options(), 3),
        cuts in vec(any::<Index>(), 4),
        dead in vec(any::<Index>(), 0..4),
        all: bool,
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
        cuts.sort_unstable();
        let mut made = Made::new(&of, &rows[..cuts[0]], options[0]);
        for (at, cut) in cuts.windows(2).enumerate() {
            made.append(&of, &rows[cut[0]..cut[1]], options[at % 2]);
        }
        let before = made.reader();
        let mut expected = rows_of(&before);
        let mut bounds: Vec<u64> =
            dead.iter().map(|at| at.index(expected.len() + 1) as u64).collect();
        bounds.sort_unstable();
        let dead: Vec<Range<u64>> = bounds.chunks_exact(2).map(|ends| ends[0]..ends[1]).collect();
        for range in &dead {
            expected[range.start as usize..range.end as usize].fill(Value::zero(&of).unwrap());
        }
        let revised = made.compact(&Compaction { options: options[2], dead: &dead, all });
        assert_holds(&made.reader(), &of, &expected);
        if revised.bytes > 0 {
            assert_counted(&made);
        }
        assert_holds(&before, &of, &rows[..before.entries() as usize]);
        let summarised: u64 = revised.summaries.iter().map(|of| of.entries).sum();
        prop_assert!(summarised <= before.entries() && (!all || summarised == before.entries()));

        // An appender continues the compacted version.
        made.append(&of, &rows, options[1]);
        expected.extend(rows);
        assert_holds(&made.reader(), &of, &expected);
    }
}

fn events(entries: Range<u64>) -> Vec<Value> {
    entries.map(event).collect()
}

#[test]
fn small_clusters_are_merged_and_large_ones_keep_their_pages() {
    let options = WriteOptions { page_size: 1 << 10, cluster_size: 16 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &events(0..5000), options);
    let full = made.reader().clusters();
    for at in 0..60 {
        made.append(&tracks(), &events(5000 + 10 * at..5010 + 10 * at), options);
    }
    let rows = rows_of(&made.reader());
    let size = made.store.len();
    let revised = made.compact(&Compaction { options, ..Default::default() });
    assert_eq!(revised.clusters_before, full + 60);
    assert!(revised.clusters <= full + 1, "{} clusters of {full}", revised.clusters);
    let (small, written) = (60 * 400, made.store.len() - size);
    assert_eq!(revised.bytes, written);
    assert!(written < small, "{written} bytes for about {small} of small clusters");
    assert_eq!(rows_of(&made.reader()), rows);
    assert_counted(&made);

    let again = made.compact(&Compaction { options, ..Default::default() });
    assert_eq!((again.bytes, again.clusters), (0, again.clusters_before));
}

#[test]
fn page_lists_of_full_clusters_are_kept() {
    let options = WriteOptions { page_size: 16, cluster_size: 128, ..Default::default() };
    let mut made = Made::new(&tracks(), &events(0..20_000), options);
    let groups = made.reader().footer().cluster_groups.clone();
    assert!(groups.len() >= 2, "{} groups", groups.len());
    (0..20).for_each(|at| made.append(&tracks(), &events(at..at + 1), options));
    let rows = rows_of(&made.reader());
    let revised = made.compact(&Compaction { options, ..Default::default() });
    assert!(revised.clusters < revised.clusters_before);
    let found = made.reader().footer().cluster_groups.clone();
    assert_eq!(found[..groups.len() - 1], groups[..groups.len() - 1]);
    assert_eq!(rows_of(&made.reader()), rows);
    assert_counted(&made);
}

#[test]
fn all_clusters_are_rewritten_with_new_compression() {
    let plain = WriteOptions { cluster_size: 32 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &events(0..20_000), plain);
    let stored = |made: &Made| {
        let reader = made.reader();
        reader.check_locations().unwrap();
        reader.stored_bytes()
    };
    let (rows, before) = (rows_of(&made.reader()), stored(&made));
    let options = WriteOptions { compression: Compression::Zstd { level: 3 }, ..plain };
    made.compact(&Compaction { options, all: true, ..Default::default() });
    let after = stored(&made);
    assert!(after < before / 2, "{after} of {before} bytes");
    assert_eq!(rows_of(&made.reader()), rows);
    assert_counted(&made);
}

#[test]
fn values_of_dead_entries_are_not_stored() {
    let options = WriteOptions { page_size: 1 << 10, cluster_size: 16 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &events(0..5000), options);
    let dead = 100..4900;
    let compaction = Compaction { options, dead: &[dead], ..Default::default() };
    made.compact(&compaction);
    let reader = made.reader();
    let array = reader.read(&reader.select(&["tracks"]).unwrap(), 0..5000).unwrap();
    assert_eq!(array.value(102).unwrap().member("tracks"), Some(&Value::List(vec![])));
    assert_eq!(array.value(4902).unwrap().member("tracks"), event(4902).member("tracks"));
    assert_counted(&made);
    let beyond = 4999..5001;
    let compaction = Compaction { options, dead: &[beyond], ..Default::default() };
    let refused = compact(&reader, &mut made.store, made.footer, &compaction, &mut |_| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

/// The greatest quantised number, rounded to single precision, once exceeded its range and could not be
/// rewritten.
#[test]
fn the_bounds_of_a_quantised_range_can_be_rewritten() {
    use rntuple::{Precision, Primitive};
    let (min, max) = (-100.1, 100.1);
    let precision = Precision::Quantised { bits: 20, min, max };
    let of = Type::Record {
        class: String::new(),
        members: vec![("x".to_owned(), Type::Reduced(Primitive::Float32, precision))],
    };
    let row = |x: f64| Value::Record(vec![("x".to_owned(), Value::Float(x))]);
    let rows = [row(100.099_95), row(-100.099_95), row(0.0)];
    let options = WriteOptions::default();
    let mut made = Made::new(&of, &rows, options);
    let before = rows_of(&made.reader());
    assert_eq!(before[0], row(f64::from(max as f32)), "the end of the range");
    made.compact(&Compaction { options, all: true, ..Default::default() });
    assert_eq!(rows_of(&made.reader()), before);
}
