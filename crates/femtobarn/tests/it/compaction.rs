//! Compaction makes fewer clusters of the same objects with the same OIDs.

use femtobarn::{CheckLevel, CompactOptions, Csn, ErrorKind, Federation, Profile, VacuumOptions};
use rntuple::Value;

use crate::support::{begin, events, federation, numbers, reopened, with_ten_events};

fn compact(federation: &Federation) -> femtobarn::Compacted {
    let options = CompactOptions::default();
    let report = federation.compact("run7/events", &options, &mut |_| true).unwrap();
    let [one] = &report[..] else { panic!("{report:?}") };
    one.clone()
}

fn append(federation: &Federation, first: u64, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, first, count)).unwrap();
    transaction.commit().unwrap();
}

fn find(federation: &Federation, number: u64) -> Option<u64> {
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    view.find(&[("event", Value::UInt(number))]).unwrap()
}

#[test]
fn compaction_merges_small_clusters_and_keeps_objects() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.create_index(key, "event", &["event"], true).unwrap();
    transaction.commit().unwrap();
    (1..30).for_each(|commit| append(&federation, 10 * commit, 10));
    let mut transaction = begin(&federation);
    let key = transaction.container(database, "events").unwrap();
    let deleted: Vec<u64> = (0..300).step_by(3).collect();
    transaction.delete(key, &deleted).unwrap();
    let before = transaction.commit().unwrap();
    let expected = numbers(&federation, "run7/events");

    let report = compact(&federation);
    assert_eq!((report.clusters_before, report.clusters, report.forgotten), (30, 1, 100));
    assert_eq!(report.csn, Some(Csn(before.0 + 1)));
    assert!(report.bytes < report.bytes_before, "{report:?}");
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(numbers(federation, "run7/events"), expected);
        assert_eq!((find(federation, 100), find(federation, 99)), (Some(100), None));
        let old = federation.snapshot(Some(before)).unwrap().view("run7/events").unwrap();
        assert_eq!((old.live(), old.reader().clusters()), (200, 30));
        let check = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
        assert_eq!(check.problems, []);
    }
    // There is nothing more to gain until something changes.
    assert_eq!(compact(&federation).csn, None);
    append(&federation, 300, 10);
    let mut transaction = begin(&federation);
    let key = transaction.container(database, "events").unwrap();
    transaction.delete(key, &[1, 305]).unwrap();
    transaction.commit().unwrap();
    assert_eq!((find(&federation, 305), find(&federation, 306)), (None, Some(306)));
    let report = compact(&federation);
    assert_eq!((report.clusters, report.forgotten), (1, 2));
    assert_eq!(numbers(&federation, "run7/events").len(), 208);
    let options = VacuumOptions { keep_from: Some(Csn::MAX), ..VacuumOptions::default() };
    let report = federation.tidy(None, &CompactOptions::default(), &options, &mut |_| true);
    let report = report.unwrap();
    assert_eq!(report.containers[0].csn, None);
    assert!(report.vacuum.versions > 30);
    let check = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!((check.problems, check.versions, check.objects), (vec![], 1, 208));
}

#[test]
fn compaction_recompresses_and_is_busy_while_a_writer_is_open() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 50_000);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    transaction.container(database, "events").unwrap();
    let wait = std::time::Duration::ZERO;
    let options =
        CompactOptions { all: true, compression: Some(Profile::Archive), lock_wait: wait };
    let error = federation.compact("run7", &options, &mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    transaction.rollback();
    let error = federation.compact("run7", &options, &mut |_| false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let report = federation.compact("run7", &options, &mut |_| true).unwrap();
    assert!(report[0].bytes < report[0].bytes_before / 2, "{report:?}");
    let federation = reopened(&folder);
    let read = crate::conflicts::numbers_at_once(&federation);
    assert!(read == (0..50_010).collect::<Vec<_>>());
    let error = federation.compact("none", &options, &mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    federation.seal("run7", wait).unwrap();
    let error = federation.compact("run7", &options, &mut |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}
