//! Backups of a federation that is written to, and what is restored from them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn::{ErrorKind, Federation, restore};

use super::support::{EndsOthers, begin, events, federation, number, numbers, with_ten_events};

fn append(federation: &Federation, first: u64, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, first, count)).unwrap();
    transaction.commit().unwrap();
}

/// Flips a bit of a file, in the middle.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_full_backup_is_a_federation_and_can_be_restored() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let copy = folder.path().join("copy");
    let report = federation.backup(&copy, None, &mut |_| true).unwrap();
    assert_eq!((report.csn, report.files), (federation.head().unwrap(), 2));
    append(&federation, 10, 5);
    let restored = restore(&[&copy], &folder.path().join("restored.fed"), &mut |_| true).unwrap();
    for found in [Federation::open(&copy).unwrap(), restored] {
        assert_eq!(found.uuid(), federation.uuid());
        assert_eq!(numbers(&found, "run7/events"), (0..10).collect::<Vec<_>>());
        append(&found, 10, 1);
        assert_eq!(numbers(&found, "run7/events").len(), 11);
    }
}

#[test]
fn incremental_backups_hold_what_changed_and_restore_each_state() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 800_000);
    let folders: Vec<_> = (0..3).map(|n| folder.path().join(format!("backup{n}"))).collect();
    let full = federation.backup(&folders[0], None, &mut |_| true).unwrap();
    for n in 1..3 {
        append(&federation, 800_009 + n as u64, 1);
        let made = federation.backup(&folders[n], Some(&folders[n - 1]), &mut |_| true).unwrap();
        // One appended object took the whole chunk of 4 MiB that it lies in, and the whole catalogue.
        assert!(made.stored < 200 << 10, "{made:?}, of {full:?}");
    }
    for n in 1..=3 {
        let chain: Vec<&Path> = folders[..n].iter().map(|folder| &**folder).collect();
        let place = folder.path().join(format!("restored{n}"));
        let restored = restore(&chain, &place, &mut |_| true).unwrap();
        let view = restored.snapshot(None).unwrap().view("run7/events").unwrap();
        let last = 800_010 + n as u64 - 2;
        assert_eq!(view.entries(), last + 1);
        assert_eq!(number(&view.value(last).unwrap()), last);
    }
}

#[test]
fn what_is_no_good_is_refused() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = |name: &str| folder.path().join(name);
    federation.backup(&path("full"), None, &mut |_| true).unwrap();
    append(&federation, 10, 1);
    federation.backup(&path("more"), Some(&path("full")), &mut |_| true).unwrap();
    let kind = |backups: &[&str]| {
        let paths: Vec<_> = backups.iter().map(|name| path(name)).collect();
        let paths: Vec<&Path> = paths.iter().map(|path| &**path).collect();
        let place = tempfile::tempdir().unwrap();
        restore(&paths, place.path(), &mut |_| true).err().map(|error| error.kind())
    };
    assert_eq!(kind(&["full", "more"]), None);
    assert_eq!(kind(&["more"]), Some(ErrorKind::Invalid));
    assert_eq!(kind(&["more", "full"]), Some(ErrorKind::Invalid));
    assert_eq!(kind(&["full", "full"]), Some(ErrorKind::Invalid));
    assert_eq!(kind(&[]), Some(ErrorKind::Invalid));
    assert_eq!(kind(&["none"]), Some(ErrorKind::NotFound));
    let again = federation.backup(&path("full"), None, &mut |_| true);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Exists);
    let stopped = federation.backup(&path("stopped"), None, &mut |_| false);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kind(&["stopped"]), Some(ErrorKind::NotFound));
    damage(&path("full/databases/run7.root"));
    assert_eq!(kind(&["full"]), Some(ErrorKind::Corrupt));
}

#[test]
fn a_backup_beside_writers_holds_whole_commits() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = || {
            let mut next = 10;
            while !is_done.load(Ordering::Relaxed) {
                append(&federation, next, 100);
                next += 100;
            }
        };
        scope.spawn(write);
        let _ends = EndsOthers(&is_done);
        let mut before: Option<std::path::PathBuf> = None;
        let mut chain: Vec<std::path::PathBuf> = vec![];
        for n in 0..4 {
            let place = folder.path().join(format!("backup{n}"));
            federation.backup(&place, before.as_deref(), &mut |_| true).unwrap();
            chain.push(place.clone());
            let paths: Vec<&Path> = chain.iter().map(|path| &**path).collect();
            let there = folder.path().join(format!("restored{n}"));
            let restored = restore(&paths, &there, &mut |_| true).unwrap();
            let found = numbers(&restored, "run7/events");
            assert_eq!(found.len() % 100, 10, "commits are whole");
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
            before = Some(place);
        }
    });
}

#[test]
fn what_is_added_to_a_file_while_it_is_copied_is_not_in_the_backup() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 900_000);
    let file = folder.path().join("test.fed/databases/run7.root");
    let bytes = || std::fs::metadata(&file).unwrap().len();
    let before = bytes();
    let copy = folder.path().join("copy");
    let mut next = 900_010;
    let made = federation.backup(&copy, None, &mut |_| {
        append(&federation, next, 200_000);
        next += 200_000;
        true
    });
    assert!(bytes() > before);
    assert_eq!(std::fs::metadata(copy.join("databases/run7.root")).unwrap().len(), before);
    assert_eq!(made.unwrap().csn.0 + (next - 900_010) / 200_000, federation.head().unwrap().0);
    let restored = restore(&[&copy], &folder.path().join("restored"), &mut |_| true).unwrap();
    assert_eq!(numbers(&restored, "run7/events"), (0..900_010).collect::<Vec<_>>());
}
