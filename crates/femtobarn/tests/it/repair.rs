//! Repair: what can be mended is, nothing that was committed is lost, and the rest is reported.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use femtobarn::{CheckLevel, Csn, Federation, ProblemKind, RepairOptions, RepairReport, Severity};
use rntuple::Value;
use tempfile::TempDir;

use crate::support::{begin, events, federation, numbers, reopened, with_ten_events};

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed/databases/run7.root")
}

fn repair(federation: &Federation, salvage: bool) -> RepairReport {
    let options = RepairOptions { salvage, orphan_age: Duration::ZERO, ..RepairOptions::default() };
    federation.repair(&options, &mut |_| true).unwrap()
}

fn append(federation: &Federation, first: u64, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, first, count)).unwrap();
    transaction.commit().unwrap();
}

fn damage(folder: &TempDir, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path(folder)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x41], at).unwrap();
}

/// What the annex of the newest version says.
fn annex(folder: &TempDir, federation: &Federation) -> serde_json::Value {
    const PREAMBLE: usize = 24;
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let range = view.version().annex;
    let bytes = fs::read(path(folder)).unwrap();
    let bytes = &bytes[range.offset as usize..][PREAMBLE..range.size as usize];
    serde_json::from_slice(bytes).unwrap()
}

fn check(federation: &Federation) -> Vec<ProblemKind> {
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    let mut kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_sound_federation_is_left_as_it_is() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let head = federation.head().unwrap();
    let report = repair(&federation, true);
    assert_eq!((report.repaired, report.left, report.is_complete), (vec![], vec![], true));
    assert_eq!(federation.head().unwrap(), head);
}

#[test]
fn what_killed_writers_left_is_marked_and_removed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let size = fs::metadata(path(&folder)).unwrap().len();
    let file = OpenOptions::new().write(true).open(path(&folder)).unwrap();
    file.write_all_at(&[0; 5000], size).unwrap();
    let federation = reopened(&folder);
    append(&federation, 10, 10);
    let databases = folder.path().join("test.fed/databases");
    // The file of a transaction that did not come to its commit, and one of another federation.
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    with_ten_events(&other);
    let mut transaction = begin(&other);
    transaction.create_database("left").unwrap();
    fs::copy(folder.path().join("other.fed/databases/left.root"), databases.join("left.root"))
        .unwrap();
    fs::copy(folder.path().join("other.fed/databases/run7.root"), databases.join("theirs.root"))
        .unwrap();
    // While somebody creates a database, no file is nobody's.
    let mut busy = begin(&federation);
    busy.create_database("new").unwrap();
    let report = repair(&federation, false);
    assert_eq!(report.repaired.len(), 1, "{report:?}");
    busy.rollback();
    let report = repair(&federation, false);
    assert!(!databases.join("left.root").exists());
    assert!(databases.join("theirs.root").exists());
    assert_eq!(report.repaired.len(), 1, "{report:?}");
    assert_eq!(check(&federation), [ProblemKind::OrphanFile]);
    assert_eq!(numbers(&federation, "run7/events").len(), 20);
}

#[test]
fn a_damaged_row_of_the_catalogue_is_taken_from_the_commit_record() {
    for set in ["entries = 9", "footer_offset = footer_offset + 8", "deleted = 1"] {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        append(&federation, 10, 10);
        drop(federation);
        let catalogue = folder.path().join("test.fed/catalogue.sqlite");
        let sql = rusqlite::Connection::open(catalogue).unwrap();
        let lie = format!("UPDATE versions SET {set} WHERE csn = 2");
        assert_eq!(sql.execute(&lie, []).unwrap(), 1);
        drop(sql);
        let federation = reopened(&folder);
        let report = repair(&federation, false);
        assert_eq!(report.repaired.len(), 1, "{set}: {report:?}");
        assert_eq!(federation.head().unwrap(), Csn(3));
        assert_eq!(numbers(&federation, "run7/events"), (0..20).collect::<Vec<_>>());
        // The damaged snapshot stays what it is.
        assert!(report.left.iter().all(|problem| problem.place.csn == Some(Csn(2))));
    }
}

#[test]
fn a_damaged_page_is_reported_and_the_last_whole_version_salvaged_when_asked() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 10);
    append(&federation, 20, 10);
    let page: Vec<u8> = (20..30_u64).flat_map(u64::to_le_bytes).collect();
    let bytes = fs::read(path(&folder)).unwrap();
    let at = bytes.windows(page.len()).position(|window| window == page).unwrap();
    damage(&folder, at as u64 + 3);
    let report = repair(&federation, false);
    assert_eq!(report.repaired, []);
    let worst = report.left.iter().map(|problem| problem.severity).max();
    assert_eq!(worst, Some(Severity::Damage));
    let report = repair(&federation, true);
    assert!(report.repaired[0].what.contains("commit 2: it has 20 of 30"), "{report:?}");
    let federation = reopened(&folder);
    assert_eq!(numbers(&federation, "run7/events"), (0..20).collect::<Vec<_>>());
    append(&federation, 20, 5);
    assert_eq!(numbers(&federation, "run7/events").len(), 25);
}

#[test]
fn damaged_statistics_are_left_out_and_damaged_indexes_made_anew() {
    for of in ["statistics", "indexes"] {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.create_index(key, "event", &["event"], true).unwrap();
        transaction.commit().unwrap();
        let annex = annex(&folder, &federation);
        let blob = match of {
            "statistics" => &annex["statistics"][0]["blob"],
            _ => &annex["indexes"][0]["runs"][0]["blob"],
        };
        damage(&folder, blob["offset"].as_u64().unwrap() + 9);
        let federation = reopened(&folder);
        let kinds = check(&federation);
        let kind = match of {
            "statistics" => ProblemKind::Statistics,
            _ => ProblemKind::Index,
        };
        assert_eq!(kinds, [kind]);
        let report = repair(&federation, false);
        assert_eq!(report.repaired.len(), 2, "{of}: {report:?}");
        assert_eq!(numbers(&federation, "run7/events"), (0..10).collect::<Vec<_>>());
        let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!(view.find(&[("event", Value::UInt(7))]).unwrap(), Some(7));
        append(&federation, 10, 10);
        let report = federation.check(CheckLevel::Quick, &mut |_| true).unwrap();
        assert_eq!(report.problems, []);
    }
}
