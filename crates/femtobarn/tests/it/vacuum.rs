//! Vacuum deletes unneeded versions and reuses their space, and changes nothing else.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn::{
    CheckLevel, ContainerKey, Csn, DatabaseId, ErrorKind, Federation, Snapshot, Transaction,
    VacuumOptions, VacuumReport,
};
use rntuple::{Array, Primitive};
use tempfile::TempDir;

use crate::support::{StopOnDrop, begin, event_class, events, federation, numbers, reopened};

/// Events of a container: so many that their pages are large enough to be reused.
const EVENTS: u64 = 20_000;

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed/databases/run7.root")
}

/// Bytes that a file takes on the disk.
fn stored(folder: &TempDir) -> u64 {
    path(folder).metadata().unwrap().blocks() * 512
}

fn open(federation: &Federation) -> (Transaction, ContainerKey) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    (transaction, key)
}

/// Gives all events new numbers.
fn renumber(federation: &Federation, from: u64) -> Csn {
    let (mut transaction, key) = open(federation);
    update_all(&mut transaction, key, from);
    transaction.commit().unwrap()
}

fn update_all(transaction: &mut Transaction, key: ContainerKey, from: u64) {
    let entries: Vec<u64> = (0..EVENTS).collect();
    let values = numbered(entries.iter().map(|entry| entry + from).collect());
    transaction.update(key, &entries, values).unwrap();
}

fn numbered(values: Vec<u64>) -> Array {
    Array::Record {
        length: values.len(),
        members: vec![("event".to_owned(), Array::primitive(Primitive::UInt64, values))],
    }
}

/// A federation whose events were renumbered `updates` times.
fn with_updates(updates: u64) -> (TempDir, Federation) {
    let (folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("run7").unwrap();
    let class = event_class();
    let key = transaction.create_container(database, "events", &class, Default::default());
    transaction.extend(key.unwrap(), events(7, 0, EVENTS)).unwrap();
    transaction.commit().unwrap();
    for update in 1..=updates {
        renumber(&federation, update);
    }
    (folder, federation)
}

fn vacuum(federation: &Federation, keep_from: Csn) -> VacuumReport {
    let options = VacuumOptions { keep_from: Some(keep_from), ..VacuumOptions::default() };
    federation.vacuum(&options, &mut |_| true).unwrap()
}

/// Fails unless the events as of a commit are numbered from `from` on.
fn assert_numbers(federation: &Federation, csn: Csn, from: u64) {
    assert_numbers_of(&federation.snapshot(Some(csn)).unwrap(), from);
}

fn assert_numbers_of(snapshot: &Snapshot, from: u64) {
    let view = snapshot.view("run7/events").unwrap();
    let array = view.read(&view.select(&["event"]).unwrap(), 0..EVENTS).unwrap();
    let Some(Array::Primitive { values, .. }) = array.member("event") else { panic!() };
    let expected = (from..from + EVENTS).flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    assert!(values[..] == expected[..], "commit {}", snapshot.csn());
}

fn assert_sound(federation: &Federation) {
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn a_vacuum_that_is_stopped_leaves_all_snapshots() {
    let (_folder, federation) = with_updates(3);
    let head = federation.head().unwrap();
    let options = VacuumOptions { keep_from: Some(head), ..VacuumOptions::default() };
    let report = federation.vacuum(&options, &mut |_| false).unwrap();
    let done = (report.is_complete, report.horizon, report.versions, report.version_bytes);
    assert_eq!(done, (false, Csn(0), 0, 0));
    for csn in 2..=head.0 {
        assert_numbers(&federation, Csn(csn), csn - 1);
    }
    assert_eq!(vacuum(&federation, head).versions, 3);
}

#[test]
fn snapshots_that_are_pinned_or_tagged_while_a_vacuum_plans_are_kept() {
    let (_folder, federation) = with_updates(4);
    let head = federation.head().unwrap();
    let options = VacuumOptions { keep_from: Some(head), ..VacuumOptions::default() };
    let mut reader = None;
    let mut tagged = |_: &femtobarn::Progress| {
        reader.get_or_insert_with(|| {
            federation.tag("kept", Some(Csn(2)), "").unwrap();
            federation.snapshot(Some(Csn(4))).unwrap()
        });
        true
    };
    let report = federation.vacuum(&options, &mut tagged).unwrap();
    assert_eq!((report.is_complete, report.versions), (true, 2));
    assert_eq!((report.horizon, &report.kept[..]), (head, &[Csn(2), Csn(4)][..]));
    assert_numbers_of(&reader.unwrap(), 3);
    assert_numbers(&federation, Csn(2), 1);
    assert_sound(&federation);
}

#[test]
fn unneeded_versions_are_deleted_and_their_space_is_reused() {
    let (folder, federation) = with_updates(8);
    let before = stored(&folder);
    federation.tag("kept", Some(Csn(3)), "").unwrap();
    let read = federation.snapshot(Some(Csn(5))).unwrap();
    let report = vacuum(&federation, federation.head().unwrap());
    assert_eq!((report.horizon, &report.kept[..]), (Csn(9), &[Csn(3), Csn(5)][..]));
    assert_eq!((report.versions, report.is_complete), (6, true));
    assert_eq!(report.skipped, []);
    // The numbers of all events were written six times.
    assert!(report.version_bytes > 6 * 8 * EVENTS, "{report:?}");
    assert!(stored(&folder) + 5 * 8 * EVENTS < before, "{} of {before}", stored(&folder));
    assert_sound(&federation);
    for csn in [3, 5, 9] {
        assert_numbers(&federation, Csn(csn), csn - 1);
    }
    let error = federation.snapshot(Some(Csn(4))).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    drop(read);

    // New versions are written where the old ones were.
    let size = path(&folder).metadata().unwrap().len();
    for update in 9..13 {
        renumber(&federation, update);
        assert_numbers(&federation, federation.head().unwrap(), update);
    }
    assert!(path(&folder).metadata().unwrap().len() < size + 8 * EVENTS, "{size}");
    assert_sound(&federation);
    let federation = reopened(&folder);
    assert_numbers(&federation, Csn(3), 2);
    let report = vacuum(&federation, federation.head().unwrap());
    assert_eq!(report.kept, [Csn(3)]);
    assert_sound(&federation);
    federation.seal("run7", std::time::Duration::ZERO).unwrap();
    assert_sound(&federation);
    crate::support::assert_chain(&path(&folder));
}

#[test]
fn a_dry_run_and_full_retention_change_nothing() {
    let (folder, federation) = with_updates(3);
    let (mut transaction, key) = open(&federation);
    transaction.extend(key, events(8, EVENTS, 200_000)).unwrap();
    transaction.rollback();
    let bytes = std::fs::read(path(&folder)).unwrap();
    let head = federation.head().unwrap();
    let options =
        VacuumOptions { dry_run: true, keep_from: Some(head), ..VacuumOptions::default() };
    let report = federation.vacuum(&options, &mut |_| true).unwrap();
    assert_eq!((report.versions, report.horizon), (3, head));
    assert!(report.version_bytes > 3 * 8 * EVENTS);
    // Bytes that only deleted versions use were once subtracted from the garbage, which does not contain them.
    let garbage = report.garbage_bytes;
    assert!(garbage > 12 * 150_000, "{report:?}");
    let report = federation.vacuum(&VacuumOptions::default(), &mut |_| true).unwrap();
    assert_eq!((report.versions, report.horizon), (0, Csn::ZERO));
    assert_eq!(report.garbage_bytes, garbage);
    for csn in 1..=4 {
        assert_numbers(&federation, Csn(csn), csn - 1);
    }
    assert!(std::fs::read(path(&folder)).unwrap().len() >= bytes.len() - (64 << 10));
}

#[test]
fn space_of_a_rollback_is_freed_when_no_transaction_is_open() {
    let (folder, federation) = with_updates(0);
    let (mut transaction, key) = open(&federation);
    transaction.extend(key, events(8, 0, 200_000)).unwrap();
    // A transaction has the database open, so bytes without a version may belong to it.
    let report = vacuum(&federation, Csn::ZERO);
    assert_eq!((report.busy.clone(), report.garbage_bytes), (vec!["run7".to_owned()], 0));
    transaction.rollback();
    let before = stored(&folder);
    let report = vacuum(&federation, Csn::ZERO);
    assert!(report.garbage_bytes > 12 * 150_000, "{report:?}");
    assert!(stored(&folder) + 12 * 150_000 < before);
    let size = path(&folder).metadata().unwrap().len();
    let (mut transaction, key) = open(&federation);
    transaction.extend(key, events(7, EVENTS, 100_000)).unwrap();
    transaction.commit().unwrap();
    assert!(path(&folder).metadata().unwrap().len() < size + (128 << 10));
    assert_sound(&federation);
    assert_eq!(crate::conflicts::numbers_at_once(&federation).len() as u64, EVENTS + 100_000);
}

#[test]
fn the_file_of_a_dropped_database_is_removed() {
    let (folder, federation) = with_updates(1);
    let mut transaction = begin(&federation);
    transaction.drop_database("run7").unwrap();
    let dropped = transaction.commit().unwrap();
    assert_numbers(&federation, Csn(2), 1);
    let report = vacuum(&federation, Csn(2));
    assert_eq!((report.databases, path(&folder).exists()), (0, true));
    let report = vacuum(&federation, dropped);
    assert_eq!((report.databases, report.files), (1, vec![path(&folder)]));
    assert!(!path(&folder).exists());
    assert_sound(&federation);
}

#[test]
fn lock_files_of_databases_that_are_gone_are_removed() {
    let (folder, federation) = with_updates(1);
    let run7 = federation.catalog().database("run7", Csn::MAX).unwrap().id;
    let mut transaction = begin(&federation);
    transaction.create_database("abandoned").unwrap();
    drop(transaction);
    let mut transaction = begin(&federation);
    let run8 = transaction.create_database("run8").unwrap();
    transaction.commit().unwrap();
    let lock_files = || {
        let entries = std::fs::read_dir(folder.path().join("test.fed/locks")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| Some(DatabaseId(name.parse().ok()?))).collect::<BTreeSet<_>>()
    };
    let mut transaction = begin(&federation);
    transaction.drop_database("run7").unwrap();
    let dropped = transaction.commit().unwrap();
    assert!(lock_files().contains(&run7));
    assert!(lock_files().contains(&run8));
    // As one of another user, this cannot be opened for writing; the rest of the vacuum is done all the same.
    std::fs::create_dir(folder.path().join("test.fed/locks/4000000")).unwrap();
    let report = vacuum(&federation, dropped);
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!((report.databases, skipped), (1, vec!["lock file 4000000"]));
    assert_eq!(lock_files(), [run8, DatabaseId(4_000_000)].into());
}

#[test]
fn remains_of_staging_a_purged_database_are_removed() {
    let (folder, federation) = with_updates(1);
    let catalog = federation.catalog().local().unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    // The process was killed while the file was being staged from a store.
    std::fs::remove_file(path(&folder)).unwrap();
    std::fs::write(femtobarn_archive::staging_path(&path(&folder)), b"a part").unwrap();
    catalog.record_disk_state(database, femtobarn_catalog::DiskState::Staging).unwrap();
    let mut transaction = begin(&federation);
    transaction.drop_database("run7").unwrap();
    let dropped = transaction.commit().unwrap();
    assert_eq!(vacuum(&federation, dropped).databases, 1);
    let left = std::fs::read_dir(folder.path().join("test.fed/databases")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_next_vacuum_continues_a_killed_one() {
    let (folder, federation) = with_updates(4);
    let head = federation.head().unwrap();
    // Killed after the catalogue forgot the versions, before the ranges were released.
    let catalog = federation.catalog().local().unwrap();
    let kept = catalog.raise_horizon(head).unwrap();
    let database = catalog.database("run7", head).unwrap().id;
    let (_, versions) = catalog.versions_by_need(database, &kept).unwrap();
    assert_eq!(versions.len(), 4);
    let page = femtobarn_catalog::BlobRange { offset: 1 << 40, size: 4096 };
    let vacuumed = femtobarn_catalog::Vacuumed {
        kept,
        versions: versions.iter().map(|it| (it.database, it.container, it.csn)).collect(),
        freed: vec![(database, vec![page])],
        purged_databases: vec![],
        purged_containers: vec![],
    };
    catalog.vacuum(&vacuumed).unwrap();
    drop(federation);
    let federation = reopened(&folder);
    assert!(!federation.catalog().local().unwrap().free_extents(database).unwrap()[0].is_released);
    let before = stored(&folder);
    let report = vacuum(&federation, head);
    assert!(report.garbage_bytes > 3 * 8 * EVENTS, "{report:?}");
    assert!(stored(&folder) + 3 * 8 * EVENTS < before);
    let extents = federation.catalog().local().unwrap().free_extents(database).unwrap();
    assert!(extents.iter().all(|extent| extent.is_released));
    assert_numbers(&federation, head, 4);
}

#[test]
fn a_writer_reuses_space_that_it_wrote_before() {
    let (_folder, federation) = with_updates(2);
    // The transaction writes into the extent that has the old versions.
    let (mut transaction, key) = open(&federation);
    update_all(&mut transaction, key, 3);
    let report = vacuum(&federation, federation.head().unwrap());
    assert!(report.versions > 0, "{report:?}");
    for update in 4..6 {
        update_all(&mut transaction, key, update);
    }
    let csn = transaction.commit().unwrap();
    assert_numbers(&federation, csn, 5);
    assert_sound(&federation);
}

#[test]
fn readers_and_writers_do_not_notice_a_vacuum() {
    let (_folder, federation) = with_updates(2);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let _ends = StopOnDrop(&is_done);
            for update in 3..23 {
                renumber(&federation, update);
            }
        });
        let reader = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let snapshot = federation.snapshot(None).unwrap();
                let view = snapshot.view("run7/events").unwrap();
                for entry in [0, 1, EVENTS / 2, EVENTS - 1] {
                    let number = crate::support::number(&view.value(entry).unwrap());
                    assert_eq!(number, entry + snapshot.csn().0 - 1);
                }
                assert_numbers_of(&snapshot, snapshot.csn().0 - 1);
            }
        });
        let mut versions = 0;
        while !is_done.load(Ordering::Relaxed) {
            versions += vacuum(&federation, Csn::MAX).versions;
        }
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(versions > 0);
    });
    assert_sound(&federation);
    assert_eq!(numbers(&federation, "run7/events")[7], 29);
}
