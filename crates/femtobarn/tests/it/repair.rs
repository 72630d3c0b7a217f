//! Repair mends damage as far as no data are lost, and reports the rest.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use femtobarn::{
    CheckLevel, Csn, Federation, ProblemKind, RepairOptions, RepairReport, VacuumOptions,
};
use rntuple::Value;
use tempfile::TempDir;

use crate::support::{begin, events, federation, numbers, reopened, with_ten_events};

/// Offset, within a key, of the name of its class.
const NAME_IN_KEY: usize = 34;
/// Offset, within a key, of the last byte of its own position in the file.
const POSITION_IN_KEY: usize = 25;
/// Bytes of the header of an extent's key.
const KEY_BYTES: usize = rntuple::tfile::RBLOB_KEY_LENGTH;

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed/databases/run7.root")
}

fn repair(federation: &Federation, salvage: bool) -> RepairReport {
    let options = RepairOptions { salvage, lock_wait: Duration::ZERO, ..Default::default() };
    let dry = RepairOptions { dry_run: true, ..options.clone() };
    let head = federation.head().unwrap();
    let would = federation.repair(&dry, &mut |_| true).unwrap();
    assert_eq!(federation.head().unwrap(), head);
    let report = federation.repair(&options, &mut |_| true).unwrap();
    assert_eq!(would.done.len(), report.done.len(), "{would:?} {report:?}");
    report
}

fn problems(federation: &Federation) -> Vec<ProblemKind> {
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    report.problems.iter().map(|problem| problem.kind).collect()
}

/// Vacuums all older versions, and fails unless the rest is sound.
fn assert_sound_without_history(federation: &Federation) {
    let keep_from = Some(federation.head().unwrap());
    let options = VacuumOptions { keep_from, ..VacuumOptions::default() };
    federation.vacuum(&options, &mut |_| true).unwrap();
    assert_eq!(problems(federation), []);
}

fn append(federation: &Federation, first: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, first, 10)).unwrap();
    transaction.commit().unwrap();
}

fn find(federation: &Federation, number: u64) -> Option<u64> {
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    view.find(&[("event", Value::UInt(number))]).unwrap()
}

fn flip(path: &Path, at: u64) {
    let disk = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    disk.read_exact_at(&mut byte, at).unwrap();
    disk.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// The newest version of `run7/events`.
fn newest(federation: &Federation) -> femtobarn_catalog::VersionRow {
    let catalog = federation.catalog();
    let database = catalog.database("run7", Csn::MAX).unwrap();
    let container = catalog.container(database.id, "events", Csn::MAX).unwrap();
    catalog.version(database.id, container.id, Csn::MAX).unwrap().unwrap()
}

/// The offset of a blob that the newest annex names, such as `/statistics/0/blob`.
fn blob(folder: &TempDir, federation: &Federation, pointer: &str) -> u64 {
    let annex = newest(federation).annex;
    let bytes = fs::read(file(folder)).unwrap();
    let bytes = &bytes[annex.offset as usize..][..annex.size as usize];
    let start = bytes.iter().position(|byte| *byte == b'{').unwrap();
    let mut texts = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter();
    let annex: serde_json::Value = texts.next().unwrap().unwrap();
    let found = annex.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {annex}"));
    found["offset"].as_u64().unwrap()
}

/// 40 events with an index; with `deletes`, the third and fourth are deleted.
fn indexed(deletes: bool) -> (TempDir, Federation) {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.create_index(key, "event", &["event"], true).unwrap();
    transaction.commit().unwrap();
    (1..4).for_each(|commit| append(&federation, 10 * commit));
    if deletes {
        let mut transaction = begin(&federation);
        let key = transaction.container(database, "events").unwrap();
        transaction.delete(key, &[2, 3]).unwrap();
        transaction.commit().unwrap();
    }
    (folder, federation)
}

#[test]
fn damaged_key_chains_are_closed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    for commit in 1..4 {
        append(&reopened(&folder), 10 * commit);
    }
    let path = file(&folder);
    let whole = fs::read(&path).unwrap();
    let names = whole.windows(6).enumerate().filter(|(_, bytes)| bytes == b"\x05RBlob");
    let keys: Vec<usize> = names.map(|(at, _)| at - NAME_IN_KEY).collect();
    assert!(keys.len() >= 3, "{keys:?}");
    let federation = reopened(&folder);
    let mut mended = 0;
    for at in keys.iter().flat_map(|key| *key..key + KEY_BYTES) {
        fs::write(&path, &whole).unwrap();
        flip(&path, at as u64);
        if problems(&federation).is_empty() {
            continue;
        }
        let report = repair(&federation, false);
        assert_eq!((report.done.len(), report.left.len()), (1, 0), "byte {at}: {report:?}");
        assert_eq!(problems(&federation), [], "byte {at}");
        assert_eq!(numbers(&federation, "run7/events"), (0..40).collect::<Vec<_>>());
        mended += 1;
    }
    assert!(mended >= 2 * keys.len(), "{mended}");
    // The bytes that a killed writer left after the last key.
    for (size, byte) in [(5000, 0), (20, 0), (3000, 7)] {
        let mut longer = whole.clone();
        longer.resize(whole.len() + size, byte);
        fs::write(&path, &longer).unwrap();
        assert_eq!(problems(&federation), [ProblemKind::Chain]);
        assert_eq!(repair(&federation, false).left, []);
        assert_eq!(problems(&federation), []);
    }
    append(&federation, 40);
    drop(federation);
    let federation = reopened(&folder);
    federation.seal("run7", Duration::ZERO).unwrap();
    crate::support::assert_chain(&path);
    assert_eq!(numbers(&federation, "run7/events"), (0..50).collect::<Vec<_>>());
}

#[test]
fn sealing_keeps_live_bytes_behind_a_damaged_key() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    append(&reopened(&folder), 10);
    let bytes = fs::read(file(&folder)).unwrap();
    let last = bytes.windows(6).rposition(|bytes| bytes == b"\x05RBlob").unwrap();
    // The key has a wrong position now.
    flip(&file(&folder), (last - NAME_IN_KEY + POSITION_IN_KEY) as u64);
    let federation = reopened(&folder);
    federation.seal("run7", Duration::ZERO).unwrap();
    crate::support::assert_chain(&file(&folder));
    let sealed = fs::File::open(file(&folder)).unwrap();
    let mut keys = rntuple::tfile::KeyChain::of_file(&sealed).unwrap();
    assert!(keys.all(|key| !key.unwrap().1.gap));
    assert_eq!(numbers(&federation, "run7/events"), (0..20).collect::<Vec<_>>());
    assert_eq!(problems(&federation), []);
}

#[test]
fn keys_of_a_database_with_an_open_transaction_are_left() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let size = fs::metadata(file(&folder)).unwrap().len();
    let disk = OpenOptions::new().write(true).open(file(&folder)).unwrap();
    disk.write_all_at(&[0; 5000], size).unwrap();
    let federation = reopened(&folder);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    transaction.container(database, "events").unwrap();
    let options = RepairOptions { lock_wait: Duration::ZERO, ..Default::default() };
    let report = federation.repair(&options, &mut |_| true).unwrap();
    let [left] = &report.left[..] else { panic!("{report:?}") };
    assert_eq!((report.done.len(), left.kind), (0, ProblemKind::Chain));
    transaction.rollback();
    assert_eq!(repair(&federation, false).left, []);
}

/// The versions were read before the lock was there, so the header of a new key was written over a commit that came between.
#[test]
fn commits_made_while_a_repair_waits_for_its_lock_are_kept() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10);
    let path = file(&folder);
    let bytes = fs::read(&path).unwrap();
    let name = bytes.windows(6).rposition(|bytes| bytes == b"\x05RBlob").unwrap();
    let key = name - NAME_IN_KEY;
    // The key claims to end where the next commit is going to be written.
    let end = newest(&federation).record;
    let payload = end.offset + end.size - (key + KEY_BYTES) as u64;
    let header = rntuple::tfile::rblob_key_header(key as u64, payload, Default::default()).unwrap();
    let disk = OpenOptions::new().write(true).open(&path).unwrap();
    disk.write_all_at(&header, key as u64).unwrap();
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let events_key = transaction.container(database, "events").unwrap();
    transaction.extend(events_key, events(7, 20, 10)).unwrap();
    let report = thread::scope(|scope| {
        let other = reopened(&folder);
        let repairing =
            scope.spawn(move || other.repair(&RepairOptions::default(), &mut |_| true).unwrap());
        let locks = federation.catalog().locks();
        while locks.waiting().unwrap().is_empty() {
            assert!(!repairing.is_finished(), "it waits for the transaction");
            thread::sleep(Duration::from_millis(1));
        }
        transaction.commit().unwrap();
        repairing.join().unwrap()
    });
    assert_eq!((report.done.len(), report.left.len()), (1, 0), "{report:?}");
    assert_eq!(numbers(&reopened(&folder), "run7/events"), (0..30).collect::<Vec<_>>());
    assert_eq!(problems(&reopened(&folder)), []);
}

#[test]
fn only_orphans_without_commits_are_removed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let whole = fs::read(file(&folder)).unwrap();
    let key = whole.windows(6).position(|bytes| bytes == b"\x05RBlob").unwrap() - NAME_IN_KEY;
    let databases = folder.path().join("test.fed/databases");
    let put = |name: &str, bytes: &[u8], hours: u64| {
        let path = databases.join(name);
        fs::write(&path, bytes).unwrap();
        let time = SystemTime::now() - Duration::from_secs(3600 * hours);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        path
    };
    let front = put("front.root", &whole[..key], 2);
    let blank = put("blank.root", &[0; 300], 2);
    let kept = [
        put("new.root", &[0; 300], 0),
        put("commits.root", &whole, 2),
        put("notes.txt", b"my notes", 2),
    ];
    let federation = reopened(&folder);
    let report = repair(&federation, false);
    assert_eq!((report.done.len(), report.left.len()), (2, 3), "{report:?}");
    assert!(!front.exists() && !blank.exists() && kept.iter().all(|path| path.exists()));
    // While a transaction creates a database, its file is not in the catalogue, but is not an orphan.
    put("blank.root", &[0; 300], 2);
    let mut transaction = begin(&federation);
    transaction.create_database("run8").unwrap();
    assert!(repair(&federation, false).done.is_empty() && blank.exists());
    transaction.rollback();
    assert_eq!(repair(&federation, false).done.len(), 1);
}

#[test]
fn damaged_indexes_statistics_and_records_are_rebuilt() {
    for (damaged, deletes) in [
        ("/statistics/0/blob", true),
        ("/indexes/0/runs/0/blob", true),
        ("record", true),
        ("annex", false),
    ] {
        let (folder, federation) = indexed(deletes);
        let expected = numbers(&federation, "run7/events");
        let row = newest(&federation);
        let at = match damaged {
            "record" => row.record.offset + row.record.size / 2,
            "annex" => row.annex.offset + row.annex.size / 2,
            pointer => blob(&folder, &federation, pointer) + 3,
        };
        drop(federation);
        flip(&file(&folder), at);
        let federation = reopened(&folder);
        let report = repair(&federation, false);
        assert_eq!(report.done.len(), 1, "{damaged}: {report:?}");
        assert!(report.done[0].starts_with("run7/events: "), "{report:?}");
        // Older snapshots still have the damage.
        let past = report.left.iter().all(|it| it.advice.contains("until a vacuum"));
        assert!(!report.left.is_empty() && past, "{damaged}: {report:?}");
        assert_eq!(repair(&federation, false).done, Vec::<String>::new());
        assert_eq!(numbers(&federation, "run7/events"), expected);
        assert_eq!(find(&federation, 25), Some(25));
        let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!(view.indexes().unwrap().len(), 1);
        view.statistics("event").unwrap();
        drop(view);
        assert_sound_without_history(&federation);
        append(&federation, 40);
        assert_eq!(find(&federation, 45), Some(45));
        assert_eq!(problems(&federation), []);
    }
}

#[test]
fn objects_and_deletions_are_salvaged_only_with_the_option() {
    for damaged in ["footer", "annex", "/deletions/0/blob"] {
        let (folder, federation) = indexed(true);
        let row = newest(&federation);
        let at = match damaged {
            "footer" => row.footer.offset + row.footer.size / 2,
            "annex" => row.annex.offset + row.annex.size / 2,
            pointer => blob(&folder, &federation, pointer),
        };
        drop(federation);
        flip(&file(&folder), at);
        let federation = reopened(&folder);
        let report = repair(&federation, false);
        let [left, ..] = &report.left[..] else { panic!("{damaged}: {report:?}") };
        assert!(report.done.is_empty() && left.advice.contains("salvage"), "{report:?}");
        let report = repair(&federation, true);
        assert!(report.done[0].contains("reverted to commit"), "{report:?}");
        // The deletion is undone: all earlier objects are there.
        assert_eq!(numbers(&federation, "run7/events"), (0..40).collect::<Vec<_>>());
        assert_eq!(find(&federation, 3), Some(3));
        append(&federation, 40);
        assert_sound_without_history(&federation);
        assert_eq!(numbers(&reopened(&folder), "run7/events"), (0..50).collect::<Vec<_>>());
    }
}

#[test]
fn a_lost_page_is_reported_or_its_container_reverted() {
    for (first, kept) in [(30, 30), (10, 10), (0, 0)] {
        let (folder, federation) = indexed(true);
        drop(federation);
        let bytes = fs::read(file(&folder)).unwrap();
        let page: Vec<u8> = (first..first + 10_u64).flat_map(u64::to_le_bytes).collect();
        let at = bytes.windows(page.len()).position(|window| window == page).unwrap();
        flip(&file(&folder), at as u64 + 9);
        let federation = reopened(&folder);
        assert!(repair(&federation, false).done.is_empty());
        let report = repair(&federation, true);
        if kept == 0 {
            assert!(report.done.is_empty());
            let no_version = |it: &femtobarn::Problem| it.advice.contains("no version");
            assert!(report.left.iter().any(no_version), "{report:?}");
            continue;
        }
        let lost = format!("{} objects", 40 - kept);
        assert!(report.done[0].contains(&lost), "{report:?}");
        assert_eq!(numbers(&federation, "run7/events"), (0..kept).collect::<Vec<_>>());
        append(&federation, kept);
        assert_sound_without_history(&federation);
        // New objects do not get the entries of the lost ones.
        assert_eq!(find(&federation, kept + 5), Some(45));
    }
}

#[test]
fn a_wrong_catalogue_row_is_corrected_from_the_commit_record() {
    for set in ["entries = 9", "deleted = 1", "footer_offset = footer_offset + 8"] {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        drop(federation);
        let catalogue = folder.path().join("test.fed/catalogue.sqlite");
        let sql = rusqlite::Connection::open(catalogue).unwrap();
        assert_eq!(sql.execute(&format!("UPDATE versions SET {set}"), []).unwrap(), 1);
        drop(sql);
        let federation = reopened(&folder);
        assert_eq!(repair(&federation, false).done.len(), 1, "{set}");
        assert_eq!(numbers(&federation, "run7/events"), (0..10).collect::<Vec<_>>());
        assert_sound_without_history(&federation);
    }
}

#[test]
fn an_intact_federation_is_not_changed() {
    let (folder, federation) = indexed(true);
    federation.seal("run7", Duration::ZERO).unwrap();
    let before = fs::read(file(&folder)).unwrap();
    assert_eq!(repair(&federation, true), RepairReport::default());
    assert_eq!(fs::read(file(&folder)).unwrap(), before);
    let stopped = federation.repair(&RepairOptions::default(), &mut |_| false);
    assert_eq!(stopped.unwrap_err().kind(), femtobarn::ErrorKind::Closed);
}
