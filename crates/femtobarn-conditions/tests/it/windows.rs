//! Series that are read window by window answer as if they were read whole.

use femtobarn::{Federation, Overlap};
use femtobarn_conditions::{Series, Timeline, ValidityRow};

use super::support::{begin, commit, federation, row, series};

const ROWS: u64 = 60_000;
const STEP: i64 = 10;

/// Validities in the order of time, for one channel or four, and after them corrections all over.
fn ordered(channels: u64, is_endless: bool) -> (Vec<ValidityRow>, Vec<ValidityRow>) {
    let rows = (0..ROWS).map(|entry| {
        let since = (entry / channels) as i64 * STEP;
        let until = if is_endless { i64::MAX } else { since + STEP };
        row((entry % channels) as i64, since, until, entry)
    });
    let corrections = (0..500_u64).map(|n| {
        let since = (n * 7919 % (ROWS / channels)) as i64 * STEP + 3;
        row((n % channels) as i64, since, since + 2 * STEP, ROWS + n)
    });
    (rows.collect(), corrections.collect())
}

fn open(federation: &Federation, name: &str) -> Series {
    let view = federation.snapshot(None).unwrap().view(&format!("det/{name}")).unwrap();
    Series::open(vec![view]).unwrap()
}

fn assert_same(found: &Series, rows: &[ValidityRow], overlap: Overlap, channels: i64) {
    let whole = Timeline::resolve(rows.to_vec(), overlap, i64::MIN..i64::MAX);
    let end = (ROWS as i64) * STEP + 100;
    let mut cursor = found.cursor();
    for channel in 0..channels {
        for at in (-20..end).step_by(997) {
            let expected = whole.at(channel, at);
            assert_eq!(
                cursor.at(channel, at).unwrap().entry,
                expected.entry,
                "channel {channel} at {at}"
            );
            let interval = found.interval(channel, at).unwrap();
            assert_eq!(interval, expected, "channel {channel} at {at}");
        }
        let range = 1000..30_000;
        let found = found.intervals(channel, range.clone()).unwrap();
        let expected: Vec<_> = whole.intervals(channel, &range).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(found.channels(i64::MIN..i64::MAX).unwrap(), (0..channels).collect::<Vec<_>>());
}

#[test]
fn windows_of_a_growing_series_answer_as_the_whole() {
    for (name, overlap, channels, is_endless) in [
        ("newest", Overlap::Newest, 4, false),
        ("one", Overlap::Newest, 1, false),
        ("open", Overlap::Open, 1, true),
        ("opens", Overlap::Open, 4, true),
    ] {
        let (_folder, federation) = federation();
        let (rows, corrections) = ordered(channels, is_endless);
        for part in rows.chunks(20_000).chain([&corrections[..]]) {
            commit(&federation, name, overlap, part);
        }
        let all = [rows, corrections].concat();
        assert_same(&open(&federation, name), &all, overlap, channels as i64);
    }
}

#[test]
fn a_look_up_reads_little_of_a_series_in_the_order_of_time() {
    for (name, overlap, is_endless) in
        [("newest", Overlap::Newest, false), ("open", Overlap::Open, true)]
    {
        let (_folder, federation) = federation();
        commit(&federation, name, overlap, &ordered(1, is_endless).0);
        let found = open(&federation, name);
        assert_eq!(found.at(0, 300_005).unwrap().entry, Some(30_000));
        let whole = ROWS * 24;
        assert!(found.held_bytes() < whole / 2, "{name}: {} of {whole} bytes", found.held_bytes());
    }
}

#[test]
fn deleted_and_shortened_conditions_are_not_valid() {
    let (_folder, federation) = federation();
    let rows = ordered(1, false).0;
    commit(&federation, "gain", Overlap::Newest, &rows);
    let mut transaction = begin(&federation);
    let key = series(&mut transaction, "gain", Overlap::Newest);
    transaction.delete(key, &[100, 40_000]).unwrap();
    transaction.commit().unwrap();
    let found = open(&federation, "gain");
    for (at, entry) in [(999, Some(99)), (1005, None), (1010, Some(101)), (400_001, None)] {
        assert_eq!(found.at(0, at).unwrap().entry, entry, "at {at}");
    }
    assert_eq!(found.interval(0, 400_001).unwrap().since, 400_000);
}

/// The object that was valid before all deleted ones is in none of the clusters around the moment.
#[test]
fn condition_is_valid_again_where_many_later_ones_were_deleted() {
    let (_folder, federation) = federation();
    commit(&federation, "gain", Overlap::Open, &ordered(1, true).0);
    let mut transaction = begin(&federation);
    let key = series(&mut transaction, "gain", Overlap::Open);
    transaction.delete(key, &(10_000..50_000).collect::<Vec<_>>()).unwrap();
    transaction.commit().unwrap();
    let found = open(&federation, "gain");
    for (at, entry) in [(99_995, 9_999), (300_000, 9_999), (499_999, 9_999), (500_000, 50_000)] {
        assert_eq!(found.at(0, at).unwrap().entry, Some(entry), "at {at}");
    }
}

#[test]
fn an_empty_series_has_gaps_only() {
    let (_folder, federation) = federation();
    commit(&federation, "gain", Overlap::Newest, &[]);
    let found = open(&federation, "gain");
    for at in [i64::MIN, 0, i64::MAX] {
        assert_eq!(found.at(0, at).unwrap().entry, None);
    }
    assert!(found.channels(i64::MIN..i64::MAX).unwrap().is_empty());
}

#[test]
fn threads_that_need_a_window_at_once_share_one_reading() {
    let (_folder, federation) = federation();
    commit(&federation, "gain", Overlap::Newest, &ordered(4, false).0);
    let found = open(&federation, "gain");
    std::thread::scope(|scope| {
        for channel in 0..4 {
            let found = &found;
            scope.spawn(move || {
                let mut cursor = found.cursor();
                for at in 0..150_000 {
                    let entry = (at / STEP * 4 + channel) as u64;
                    assert_eq!(cursor.at(channel, at).unwrap().entry, Some(entry));
                }
            });
        }
    });
}
