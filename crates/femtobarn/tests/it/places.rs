//! Databases whose files lie in places: folders of the folder of databases, often mount points of other
//! disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{CheckLevel, ErrorKind, Federation, VacuumOptions, rebuild_catalogue, restore};
use tempfile::TempDir;

use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

/// Creates a database in a place, with some events.
fn in_place(federation: &Federation, name: &str, place: &str) {
    let mut transaction = begin(federation);
    let database = transaction.create_database_in(name, Some(place)).unwrap();
    let class = event_class();
    let key = transaction.create_container(database, "events", &class, Default::default()).unwrap();
    transaction.extend(key, events(8, 0, 5)).unwrap();
    transaction.commit().unwrap();
}

fn append(federation: &Federation, name: &str) {
    let mut transaction = begin(federation);
    let database = transaction.database(name).unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(8, 5, 5)).unwrap();
    transaction.commit().unwrap();
}

/// One database without and two with a place.
fn three() -> (TempDir, Federation) {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    in_place(&federation, "run8", "disk1");
    in_place(&federation, "run9", "disk-2.b");
    (folder, federation)
}

fn top(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed")
}

fn assert_all_there(federation: &Federation) {
    assert_eq!(numbers(federation, "run7/events").len(), 10);
    assert_eq!(numbers(federation, "run8/events"), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(federation, "run9/events"), [0, 1, 2, 3, 4]);
    assert_eq!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().problems, []);
}

#[test]
fn a_database_in_a_place_works_like_any_other() {
    let (folder, federation) = three();
    assert!(top(&folder).join("databases/run7.root").is_file());
    assert!(top(&folder).join("databases/disk1/run8.root").is_file());
    assert!(top(&folder).join("databases/disk-2.b/run9.root").is_file());
    drop(federation);
    let federation = reopened(&folder);
    assert_all_there(&federation);
    append(&federation, "run8");
    assert_eq!(numbers(&federation, "run8/events").len(), 10);
    let mut twice = begin(&federation);
    let taken = twice.create_database_in("run8", Some("disk3")).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    federation.seal("run8", Duration::ZERO).unwrap();
    assert_eq!(numbers(&reopened(&folder), "run8/events").len(), 10);
}

#[test]
fn a_place_needs_a_plain_folder_name() {
    let (folder, federation) = federation();
    let mut transaction = begin(&federation);
    for place in ["", ".", "..", ".hidden", "a/b", "../locks", "a b", "ä", &"x".repeat(201)] {
        let error = transaction.create_database_in("run8", Some(place)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{place:?}");
    }
    drop(transaction);
    assert_eq!(fs::read_dir(top(&folder).join("databases")).unwrap().count(), 0);
}

#[test]
fn a_rollback_leaves_no_file_in_a_place() {
    let (folder, federation) = federation();
    let mut transaction = begin(&federation);
    transaction.create_database_in("run8", Some("disk1")).unwrap();
    transaction.rollback();
    assert_eq!(fs::read_dir(top(&folder).join("databases/disk1")).unwrap().count(), 0);
    in_place(&federation, "run8", "disk1");
}

#[test]
fn unknown_files_are_found_only_in_places() {
    let (folder, federation) = three();
    let left = top(&folder).join("databases/disk1/left.root");
    fs::write(&left, [0; 300]).unwrap();
    for elsewhere in ["databases/lost+found", "databases/disk1/deep", "databases/.hidden"] {
        fs::create_dir(top(&folder).join(elsewhere)).unwrap();
        fs::write(top(&folder).join(elsewhere).join("left.root"), [0; 7000]).unwrap();
    }
    let report = federation.check(CheckLevel::Quick, &mut |_| true).unwrap();
    assert_eq!(report.orphan_bytes, 300);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(100_000);
    fs::File::options().write(true).open(&left).unwrap().set_modified(long_ago).unwrap();
    federation.repair(&Default::default(), &mut |_| true).unwrap();
    assert!(!left.exists());
    assert_all_there(&federation);
}

#[test]
fn vacuum_removes_a_dropped_database_from_its_place() {
    let (folder, federation) = three();
    let mut transaction = begin(&federation);
    transaction.drop_database("run8").unwrap();
    transaction.commit().unwrap();
    let file = top(&folder).join("databases/disk1/run8.root");
    assert!(file.exists());
    let head = Some(federation.head().unwrap());
    let options = VacuumOptions { keep_from: head, ..VacuumOptions::default() };
    federation.vacuum(&options, &mut |_| true).unwrap();
    assert!(!file.exists());
    assert_eq!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().problems, []);
}

#[test]
fn the_catalogue_is_rebuilt_from_files_in_places() {
    let (folder, federation) = three();
    let head = federation.head().unwrap();
    drop(federation);
    for suffix in ["", "-wal", "-shm"] {
        drop(fs::remove_file(top(&folder).join(format!("catalogue.sqlite{suffix}"))));
    }
    let report = rebuild_catalogue(&top(&folder), None, &mut |_| true).unwrap();
    assert_eq!((report.head, report.databases, report.left_out), (head, 3, vec![]));
    let federation = reopened(&folder);
    assert_all_there(&federation);
    append(&federation, "run9");
    assert_eq!(numbers(&federation, "run9/events").len(), 10);
}

#[test]
fn backups_keep_places() {
    let (folder, federation) = three();
    let copies = [folder.path().join("full"), folder.path().join("more")];
    federation.backup(&copies[0], None, &mut |_| true).unwrap();
    assert_all_there(&Federation::open(&copies[0]).unwrap());
    append(&federation, "run8");
    in_place(&federation, "run10", "disk3");
    federation.backup(&copies[1], Some(&copies[0]), &mut |_| true).unwrap();
    let chain: Vec<&Path> = copies.iter().map(PathBuf::as_path).collect();
    let restored = restore(&chain, &folder.path().join("new.fed"), &mut |_| true).unwrap();
    assert!(folder.path().join("new.fed/databases/disk3/run10.root").is_file());
    assert_eq!(numbers(&restored, "run8/events").len(), 10);
    assert_eq!(numbers(&restored, "run10/events").len(), 5);
    assert_eq!(restored.check(CheckLevel::Full, &mut |_| true).unwrap().problems, []);
    append(&restored, "run10");
}

#[test]
fn a_database_is_detached_from_a_place_and_attached_again() {
    let (folder, federation) = three();
    let file = top(&folder).join("databases/disk1/run8.root");
    let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
    let error = other.attach(&file, None).unwrap_err();
    assert!(error.to_string().contains("of the federation at"), "{error}");
    let away = folder.path().join("away.root");
    federation.detach("run8", Some(&away), Duration::ZERO).unwrap();
    assert!(!file.exists());
    fs::rename(&away, &file).unwrap();
    federation.attach(&file, Some("run8")).unwrap();
    // It lies where the federation's own files do, so it takes commits.
    append(&federation, "run8");
    assert_eq!(numbers(&reopened(&folder), "run8/events").len(), 10);
}
