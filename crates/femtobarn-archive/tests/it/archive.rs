//! Databases between the disk and a store: every movement, its refusals, and the state after a crash.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use femtobarn_archive::{Error, Recaller, WantedBy, staging_path};
use femtobarn_catalog::{
    DatabaseId, DiskState, ErrorKind, FilePin, ReplicaRow, ReplicaState, ResidenceState,
    StoredObject, Successor, clock,
};

use crate::sealed::{Sealed, on};

const WAIT: Duration = Duration::from_secs(10);
/// Every disk is fuller than that.
const TOO_FULL: &str = "[disk]\nhigh_percent = 0.0001\nlow_percent = 0.0001\n";

fn state(of: &Sealed, database: DatabaseId) -> ResidenceState {
    of.catalogue.residence(database).unwrap().state()
}

/// Where a folder store writes an object, before it has its name.
fn part_of(object: &Path) -> PathBuf {
    let name = object.file_name().unwrap().to_str().unwrap();
    object.with_file_name(format!(".part-{name}"))
}

fn by(user: &str) -> WantedBy<'_> {
    WantedBy { user, ..WantedBy::default() }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_database_goes_to_a_store_and_comes_back() {
    let of = Sealed::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let run7 = of.database("run7", &bytes);
    let archive = of.archive();
    assert_eq!(state(&of, run7), ResidenceState::Online);
    let copy = archive.migrate(run7, "disk2", &mut *on()).unwrap();
    assert_eq!((copy.size, copy.state), (3_000_000, ReplicaState::Complete));
    assert_eq!(state(&of, run7), ResidenceState::Both);
    assert_eq!(archive.migrate(run7, "disk2", &mut *on()).unwrap(), copy, "made once");
    assert_eq!(of.objects().len(), 1);
    assert_eq!(archive.evict(run7, &mut *on()).unwrap(), 3_000_000);
    assert_eq!((state(&of, run7), of.files()), (ResidenceState::Nearline, vec![]));
    assert_eq!(archive.evict(run7, &mut *on()).unwrap(), 0, "again");
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    assert_eq!(state(&of, run7), ResidenceState::Both);
    assert!(fs::read(of.file("run7")).unwrap() == bytes);
    assert_eq!(of.files(), ["run7.root"]);
}

#[test]
fn the_only_copy_and_pinned_or_open_files_stay() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Denied);
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    let pin = |until_us| FilePin { holder: "ann".to_owned(), until_us };
    archive.pin(run7, &pin(None)).unwrap();
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Denied);
    assert!(archive.unpin(run7, "ann").unwrap());
    assert!(!archive.unpin(run7, "ann").unwrap());
    let gone = DatabaseId(run7.0 + 1000);
    archive.pin_all(&[gone, run7], &pin(None)).unwrap();
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Denied);
    archive.unpin_all(&[gone, run7], "ann").unwrap();
    let pins = || of.catalogue.residence(run7).unwrap().pins;
    assert!(pins().is_empty());
    archive.pin(run7, &pin(Some(clock::utc_us() - 1))).unwrap();
    let of_bob = FilePin { holder: "bob".to_owned(), until_us: None };
    archive.pin_all(&[run7], &of_bob).unwrap();
    assert_eq!(pins(), [of_bob], "ann's has ended");
    archive.unpin_all(&[run7], "bob").unwrap();
    archive.pin(run7, &pin(Some(clock::utc_us() - 1))).unwrap();
    let reader = File::open(of.file("run7")).unwrap();
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Busy);
    assert_eq!(state(&of, run7), ResidenceState::Both);
    drop(reader);
    archive.evict(run7, &mut *on()).unwrap();
    assert_eq!(kind(archive.discard(run7, "disk2", &mut *on())), ErrorKind::Denied);
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    archive.discard(run7, "disk2", &mut *on()).unwrap();
    assert_eq!((state(&of, run7), of.objects().len()), (ResidenceState::Online, 0));
    assert_eq!(kind(archive.discard(run7, "disk2", &mut *on())), ErrorKind::NotFound);
    assert_eq!(kind(archive.migrate(run7, "tape", &mut *on())), ErrorKind::NotFound);
}

#[test]
fn migration_and_eviction_continue_after_a_crash() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    let mut copy = archive.migrate(run7, "disk2", &mut *on()).unwrap();
    // Killed while migrating: the row exists, the object perhaps, but not under the name of the next attempt.
    copy.state = ReplicaState::Migrating;
    of.catalogue.record_replica(&copy).unwrap();
    fs::rename(of.store().join(&copy.key), part_of(&of.store().join(&copy.key))).unwrap();
    assert_eq!(state(&of, run7), ResidenceState::Migrating);
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Denied);
    let second = archive.migrate(run7, "disk2", &mut *on()).unwrap();
    assert_ne!(second.key, copy.key);
    let left = StoredObject { store: "disk2".to_owned(), key: copy.key };
    assert_eq!(of.catalogue.discarded_objects().unwrap(), [left]);
    assert_eq!((archive.sweep(&mut *on()).unwrap(), of.objects().len()), (1, 1));
    // Killed between the catalogue and the removal of the file.
    let row = of.row(run7);
    of.catalogue.record_eviction(&row, 1).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    assert_eq!((state(&of, run7), of.files().len()), (ResidenceState::Both, 1));
    of.catalogue.record_eviction(&row, 1).unwrap();
    assert_eq!(archive.evict(run7, &mut *on()).unwrap(), 5);
    // Killed while staging, with a part of the file.
    of.catalogue.record_disk_state(run7, DiskState::Staging).unwrap();
    fs::write(staging_path(&of.file("run7")), b"sev").unwrap();
    assert_eq!(state(&of, run7), ResidenceState::Staging);
    assert_eq!(archive.evict(run7, &mut *on()).unwrap(), 0);
    assert_eq!(of.files(), [""; 0], "the part is removed");
    fs::write(staging_path(&of.file("run7")), b"sev").unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven");
    assert_eq!(of.files(), ["run7.root"]);
}

#[test]
fn a_stopped_movement_changes_neither_disk_nor_store() {
    let of = Sealed::new();
    let run7 = of.database("run7", &vec![7; 1 << 20]);
    let archive = of.archive();
    assert_eq!(kind(archive.migrate(run7, "disk2", &mut |_| false)), ErrorKind::Closed);
    assert_eq!((state(&of, run7), of.objects().len()), (ResidenceState::Online, 0));
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    assert_eq!(kind(archive.stage(run7, WAIT, &mut |_| false)), ErrorKind::Closed);
    assert_eq!((state(&of, run7), of.files()), (ResidenceState::Nearline, vec![]));
}

#[test]
fn the_objects_of_a_purged_database_are_swept() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    of.drop_database(run7);
    let kept = of.catalogue.raise_horizon(of.catalogue.head().unwrap()).unwrap();
    let purgeable = of.catalogue.purgeable(&kept).unwrap();
    assert_eq!(purgeable.databases.len(), 1);
    let vacuumed = femtobarn_catalog::Vacuumed {
        kept,
        versions: vec![],
        freed: vec![],
        purged_databases: vec![run7],
        purged_containers: vec![],
    };
    of.catalogue.vacuum(&vacuumed).unwrap();
    assert_eq!(of.objects().len(), 1);
    assert_eq!((archive.sweep(&mut *on()).unwrap(), of.objects().len()), (1, 0));
}

#[test]
fn rules_make_due_copies_and_evict_from_a_full_disk() {
    let of = Sealed::new();
    let rules = |high: f64| {
        format!(
            "[stores.disk2]\nkind = 'folder'\npath = '{}'\n\
             [[rules]]\ndatabases = 'raw-*'\nstores = ['disk2']\n\
             [[rules]]\ndatabases = 'late-*'\nstores = ['disk2']\nafter_seconds = 3600\n\
             [[rules]]\ndatabases = 'kept-*'\nstores = ['disk2']\nkeep_on_disk = true\n\
             [disk]\nhigh_percent = {high}\nlow_percent = 0.0001",
            of.store().display()
        )
    };
    of.settings(&rules(100.0));
    for name in ["raw-1", "raw-2", "late-1", "kept-1", "other"] {
        of.database(name, name.as_bytes());
    }
    let applied = of.archive().apply_rules(&mut *on()).unwrap();
    let copied: Vec<&str> = applied.migrated.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((copied, applied.evicted.len()), (vec!["raw-1", "raw-2", "kept-1"], 0));
    // Every disk is fuller than that.
    of.settings(&rules(0.0001));
    let applied = of.archive().apply_rules(&mut *on()).unwrap();
    let evicted: Vec<&str> = applied.evicted.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((evicted, applied.migrated.len()), (vec!["raw-1", "raw-2"], 0));
    assert_eq!(applied.failed, []);
}

#[test]
fn a_database_that_several_users_request_is_staged_once() {
    let of = Sealed::new();
    let run7 = of.database("run7", &vec![7; 1 << 20]);
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let recaller = Recaller::new(archive.into());
    thread::scope(|scope| {
        for user in ["ann", "bob", "cid"] {
            let recaller = &recaller;
            scope.spawn(move || {
                while recaller.recall(run7, by(user)).unwrap().is_some() {
                    thread::yield_now();
                }
            });
        }
    });
    // The file appears a moment before that is recorded.
    while recaller.counts().waiting > 0 {
        thread::yield_now();
    }
    let counts = recaller.counts();
    assert_eq!((counts.done, counts.failed), (1, 0));
    assert_eq!(state(&of, run7), ResidenceState::Both);
}

#[test]
fn a_failed_recall_reports_its_reason_to_waiting_users() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    fs::write(&of.objects()[0], b"other").unwrap();
    let recaller = Recaller::new(archive.into());
    let error = loop {
        match recaller.recall(run7, by("ann")) {
            Ok(Some(_)) => thread::yield_now(),
            Ok(None) => panic!("bytes of something else were taken"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("adler32"), "{error}");
    assert_eq!((state(&of, run7), of.files()), (ResidenceState::Lost, vec![]));
}

#[test]
fn a_copy_recorded_as_lost_is_recalled_when_it_returns() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let (object, elsewhere) = (&of.objects()[0], of.top().join("elsewhere"));
    fs::rename(object, &elsewhere).unwrap();
    assert_eq!(kind(archive.stage(run7, WAIT, &mut *on())), ErrorKind::NotFound);
    assert_eq!(state(&of, run7), ResidenceState::Lost);
    fs::rename(&elsewhere, object).unwrap();
    let recaller = Recaller::new(archive.into());
    while recaller.recall(run7, by("ann")).unwrap().is_some() {
        thread::yield_now();
    }
    assert_eq!(state(&of, run7), ResidenceState::Both);
}

#[test]
fn a_file_that_the_disk_lost_comes_back() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    fs::remove_file(of.file("run7")).unwrap();
    assert_eq!(kind(archive.discard(run7, "disk2", &mut *on())), ErrorKind::Denied);
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven");
}

#[test]
fn a_killed_migration_does_not_hide_a_good_copy() {
    let of = Sealed::new();
    let rule = "[[rules]]\ndatabases = '*'\nstores = ['disk2']\n";
    of.settings(&format!("{}{rule}{}", of.folder_store(), TOO_FULL));
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    let copy = archive.migrate(run7, "disk2", &mut *on()).unwrap();
    // Into a store that is no longer in the settings.
    let (store, key) = ("disk3".to_owned(), "other".to_owned());
    let killed = ReplicaRow { store, key, state: ReplicaState::Migrating, ..copy };
    of.catalogue.record_replica(&killed).unwrap();
    fs::remove_file(of.file("run7")).unwrap();
    assert_eq!(state(&of, run7), ResidenceState::Migrating);
    let recaller = Recaller::new(archive.into());
    assert!(recaller.recall(run7, by("ann")).unwrap().is_some());
    while recaller.recall(run7, by("ann")).unwrap().is_some() {
        thread::yield_now();
    }
    assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven");
    let applied = of.archive().apply_rules(&mut *on()).unwrap();
    assert_eq!(applied.evicted, [("run7".to_owned(), 5)]);
}

#[test]
fn a_copy_that_is_gone_does_not_count_when_the_file_is_to_leave() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    fs::remove_file(&of.objects()[0]).unwrap();
    assert_eq!(kind(archive.evict(run7, &mut *on())), ErrorKind::Denied);
    assert_eq!((state(&of, run7), of.files().len()), (ResidenceState::Online, 1));
}

#[test]
fn a_restored_catalogue_removes_no_objects_of_its_original() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    // As restoring a backup does.
    of.catalogue.begin_new_epochs().unwrap();
    archive.discard(run7, "disk2", &mut *on()).unwrap();
    assert_eq!((archive.sweep(&mut *on()).unwrap(), of.objects().len()), (0, 1));
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.discard(run7, "disk2", &mut *on()).unwrap();
    assert_eq!(of.objects().len(), 1, "its own was removed");
}

#[test]
fn a_leader_that_was_succeeded_removes_no_objects() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    of.catalogue.discard_replica(&of.row(run7), "disk2", true).unwrap();
    let successor = Successor {
        generation: 1,
        promotion: "of the copy".to_owned(),
        url: "root://new//lhc.fed".to_owned(),
    };
    of.catalogue.yield_to(&successor).unwrap();
    assert_eq!(kind(archive.sweep(&mut *on())), ErrorKind::Denied);
    assert_eq!(kind(archive.apply_rules(&mut *on())), ErrorKind::Denied);
    assert_eq!((of.objects().len(), of.catalogue.discarded_objects().unwrap().len()), (1, 1));
    // Objects that it wrote may be its successor's, if it leads again.
    of.catalogue.lead_again().unwrap();
    assert_eq!((archive.sweep(&mut *on()).unwrap(), of.objects().len()), (1, 1));
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.discard(run7, "disk2", &mut *on()).unwrap();
    assert_eq!(of.objects().len(), 1, "its own was removed");
}

#[test]
fn a_snapshot_of_a_dropped_database_can_be_staged() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    of.drop_database(run7);
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    assert_eq!(fs::read(of.file("run7")).unwrap(), b"seven");
}

#[test]
fn waiting_for_another_process_can_be_stopped() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let owner = of.catalogue.locks().owner();
    let _held = owner.lock_database_exclusive(run7, WAIT).unwrap();
    let stopped = archive.stage(run7, Duration::from_secs(1000), &mut |_| false);
    assert_eq!(kind(stopped), ErrorKind::Closed);
    let busy = archive.stage(run7, Duration::from_millis(10), &mut *on());
    assert_eq!(kind(busy), ErrorKind::Busy);
    let busy = archive.stage(run7, Duration::from_millis(1200), &mut *on());
    let Err(Error::Catalogue(femtobarn_catalog::Error::Busy { waited, .. })) = busy else {
        panic!("{busy:?}")
    };
    assert!(waited >= Duration::from_millis(1200), "the whole time is told: {waited:?}");
}

/// The watch was once called only after the operation's wait in the queue had ended, and then the operation was queued
/// again behind the others.
#[test]
fn a_waiting_operation_keeps_its_place_while_its_watch_is_called() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
    let held = of.catalogue.locks().owner().lock_database_exclusive(run7, WAIT).unwrap();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = clock::now() + WAIT;
        while !is_so() {
            assert!(clock::now() < deadline, "{what} took too long");
            thread::sleep(Duration::from_millis(2));
        }
    };
    let asked = &AtomicUsize::new(0);
    let waiting = |count| of.catalogue.locks().waiting().unwrap().len() == count;
    thread::scope(|scope| {
        let mut watch = |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            true
        };
        let evicted = scope.spawn(move || archive.evict(run7, &mut watch));
        until("asking", &|| asked.load(Ordering::Relaxed) > 0 && waiting(1));
        let behind = scope.spawn(|| {
            let owner = of.catalogue.locks().owner();
            let _lock = owner.lock_database_exclusive(run7, WAIT).unwrap();
            of.file("run7").exists()
        });
        until("queueing", &|| waiting(2));
        let before = asked.load(Ordering::Relaxed);
        until("asking again", &|| asked.load(Ordering::Relaxed) > before + 1);
        drop(held);
        assert_eq!(evicted.join().unwrap().unwrap(), 5);
        assert!(!behind.join().unwrap(), "who came later had the lock first");
    });
}

#[test]
fn a_missing_file_without_copies_is_not_taken_for_an_evicted_one() {
    let of = Sealed::new();
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    let elsewhere = of.top().join("elsewhere");
    fs::rename(of.file("run7"), &elsewhere).unwrap();
    assert_eq!(kind(archive.stage(run7, WAIT, &mut *on())), ErrorKind::NotFound);
    assert_eq!(state(&of, run7), ResidenceState::Online);
    fs::rename(&elsewhere, of.file("run7")).unwrap();
    archive.migrate(run7, "disk2", &mut *on()).unwrap();
}
