//! A branch answers as a copy of its base, with the changes that were made to the branch.

use femtobarn::{Csn, ErrorKind, Federation, Overlap};
use femtobarn_conditions::{GlobalTag, Job, JobOptions, Series, Timeline, ValidityRow};
use proptest::{collection::vec, prelude::*};
use rntuple::{Array, Primitive};

use super::support::{begin, branch, commit, extend, federation, new_branch, row, series};

const END: i64 = 20;

#[derive(Clone, Debug)]
enum Change {
    Put {
        version: usize,
        channel: i64,
        since: i64,
        length: i64,
    },
    /// Gives another end and another value to one of the conditions.
    Replace {
        version: usize,
        row: usize,
        length: i64,
    },
    Branch {
        of: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let put =
        (0..4_usize, 0..2_i64, 0..END, 1..END).prop_map(|(version, channel, since, length)| {
            Change::Put { version, channel, since, length }
        });
    let replace = (0..4_usize, 0..20_usize, 0..END)
        .prop_map(|(version, row, length)| Change::Replace { version, row, length });
    prop_oneof![4 => put, 3 => replace, 1 => (0..4_usize).prop_map(|of| Change::Branch { of })]
}

/// The plain model of a version: all conditions in the order of their insertion.
#[derive(Clone, Default)]
struct Version {
    tag: Option<String>,
    /// The first entry of its own container, and the number of entries in it.
    first: u64,
    own: u64,
    /// The validity and the value, with the entry where they are.
    rows: Vec<(ValidityRow, f64)>,
}

impl Version {
    fn at(&self, overlap: Overlap, channel: i64, at: i64) -> Option<f64> {
        let rows = self.rows.iter().enumerate().map(|(rank, (row, value))| (rank, row, *value));
        let begun = rows.filter(|(_, row, _)| row.channel == channel && row.since <= at);
        let begun = begun.filter(|(_, row, _)| row.since < row.until);
        let last = match overlap {
            Overlap::Open => begun.max_by_key(|(rank, row, _)| (row.since, *rank)),
            _ => begun.filter(|(_, row, _)| at < row.until).max_by_key(|(rank, ..)| *rank),
        };
        last.filter(|(_, row, _)| at < row.until).map(|(.., value)| value)
    }

    fn answers(&self, overlap: Overlap) -> Vec<Option<f64>> {
        moments().map(|(channel, at)| self.at(overlap, channel, at)).collect()
    }
}

fn moments() -> impl Iterator<Item = (i64, i64)> {
    (0..2).flat_map(|channel| (0..2 * END).map(move |at| (channel, at)))
}

/// The series of a global tag as of a commit.
fn open(federation: &Federation, tag: Option<&str>, csn: Option<Csn>) -> std::sync::Arc<Series> {
    let options = JobOptions { global_tag: tag.map(str::to_owned), csn };
    Job::open(federation, &options).unwrap().series("det/gain").unwrap()
}

fn answers(series: &Series) -> Vec<Option<f64>> {
    let value = |entry: u64| {
        let Array::Record { members, .. } = series.fetch(&["value"], &[entry]).unwrap() else {
            panic!()
        };
        let Array::Primitive { values, .. } = &members[0].1 else { panic!() };
        rntuple::values_of::<f64>(values).unwrap()[0]
    };
    moments().map(|(channel, at)| series.at(channel, at).unwrap().entry.map(value)).collect()
}

/// Makes a change in the federation and in the model.
fn apply(
    federation: &Federation,
    versions: &mut Vec<Version>,
    change: &Change,
    value: f64,
    overlap: Overlap,
) {
    let (Change::Put { version, .. }
    | Change::Replace { version, .. }
    | Change::Branch { of: version }) = change;
    let place = version % versions.len();
    if let Change::Branch { .. } = change {
        let mut copy = versions[place].clone();
        let tag = format!("b{}", versions.len());
        new_branch(federation, &tag, copy.tag.as_deref());
        (copy.first, copy.own, copy.tag) = (copy.first + copy.own, 0, Some(tag));
        versions.push(copy);
        return;
    }
    let version = &mut versions[place];
    let mut transaction = begin(federation);
    let key = match &version.tag {
        None => series(&mut transaction, "gain", overlap),
        Some(tag) => branch(&mut transaction, tag, "gain"),
    };
    let no_entry = version.tag.as_ref().map(|_| -1);
    match *change {
        Change::Put { channel, since, length, .. } => {
            let new = row(channel, since, since + length, version.first + version.own);
            extend(&mut transaction, key, &[new], vec![value], no_entry);
            version.own += 1;
            version.rows.push((new, value));
        }
        Change::Replace { row, length, .. } if !version.rows.is_empty() => {
            let row = row % version.rows.len();
            let (old, old_value) = &mut version.rows[row];
            old.until = old.until.min(old.since + length);
            *old_value = value;
            if old.entry >= version.first {
                let members = vec![
                    ("until".to_owned(), Array::primitive(Primitive::Int64, vec![old.until])),
                    ("value".to_owned(), Array::primitive(Primitive::Float64, vec![value])),
                ];
                let values = Array::Record { length: 1, members };
                transaction.update(key, &[old.entry - version.first], values).unwrap();
            } else {
                extend(&mut transaction, key, &[*old], vec![value], Some(old.entry as i64));
                old.entry = version.first + version.own;
                version.own += 1;
            }
        }
        _ => {}
    }
    transaction.commit().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn branches_answer_as_changed_copies_as_of_every_commit(
        changes in vec(change(), 1..14),
        overlap in prop_oneof![Just(Overlap::Newest), Just(Overlap::Open)],
    ) {
        let (_folder, federation) = federation();
        commit(&federation, "gain", overlap, &[]);
        let mut versions = vec![Version::default()];
        let mut expected = vec![];
        for (change, value) in changes.iter().zip(1_u8..) {
            apply(&federation, &mut versions, change, f64::from(value), overlap);
            let head = federation.snapshot(None).unwrap().csn();
            for version in &versions {
                expected.push((version.tag.clone(), head, version.answers(overlap)));
            }
        }
        for (tag, csn, expected) in expected {
            let found = answers(&open(&federation, tag.as_deref(), Some(csn)));
            prop_assert_eq!(found, expected, "{:?} as of {}", tag, csn);
        }
    }
}

#[test]
fn windows_of_a_branch_answer_as_the_whole() {
    const ROWS: u64 = 60_000;
    for (overlap, is_replaced) in
        [(Overlap::Newest, true), (Overlap::Open, false), (Overlap::Open, true)]
    {
        let (_folder, federation) = federation();
        let mut rows: Vec<_> =
            (0..ROWS).map(|n| row(0, n as i64 * 10, n as i64 * 10 + 10, n)).collect();
        commit(&federation, "gain", overlap, &rows);
        new_branch(&federation, "mc", None);
        let corrections: Vec<_> = (0..500)
            .map(|n| {
                let since = (n * 7919 % ROWS) as i64 * 10 + 3;
                row(0, since, since + 20, ROWS + n)
            })
            .collect();
        let mut transaction = begin(&federation);
        let key = branch(&mut transaction, "mc", "gain");
        extend(&mut transaction, key, &corrections, vec![0.0; 500], Some(-1));
        if is_replaced {
            let ended = row(0, 300_000, 300_004, ROWS + 500);
            extend(&mut transaction, key, &[ended], vec![0.0], Some(30_000));
            rows[30_000].until = 300_004;
        }
        transaction.commit().unwrap();
        rows.extend(corrections);
        let whole = Timeline::resolve(rows, overlap, i64::MIN..i64::MAX);
        let found = open(&federation, Some("mc"), None);
        let at = |entry: Option<u64>| {
            entry.map(|entry| if is_replaced && entry == 30_000 { ROWS + 500 } else { entry })
        };
        for moment in (-20..ROWS as i64 * 10 + 50).step_by(7).chain(299_990..300_020) {
            let expected = at(whole.at(0, moment).entry);
            assert_eq!(found.at(0, moment).unwrap().entry, expected, "{overlap:?} at {moment}");
        }
    }
}

#[test]
fn damaged_branch_is_an_error() {
    let (_folder, federation) = federation();
    commit(&federation, "gain", Overlap::Newest, &[row(0, 0, 10, 0)]);
    new_branch(&federation, "mc", None);
    let mut transaction = begin(&federation);
    let key = branch(&mut transaction, "mc", "gain");
    // Entry 1 is the branch's own first one, which would replace itself.
    extend(&mut transaction, key, &[row(0, 0, 5, 1)], vec![0.0], Some(1));
    transaction.commit().unwrap();
    let options = JobOptions { global_tag: Some("mc".to_owned()), csn: None };
    let job = Job::open(&federation, &options).unwrap();
    let error = job.series("det/gain").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let found = GlobalTag::find(&federation.snapshot(None).unwrap(), "mc").unwrap();
    assert_eq!(found.changed_series().collect::<Vec<_>>(), ["det/gain"]);
}
