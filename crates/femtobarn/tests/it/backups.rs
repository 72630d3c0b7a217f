//! Backups of a federation that is written to, and restoring them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn::{ErrorKind, Federation, restore};

use super::support::{StopOnDrop, begin, events, federation, number, numbers, with_ten_events};

fn append(federation: &Federation, first: u64, count: u64) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, first, count)).unwrap();
    transaction.commit().unwrap();
}

/// The manifest of a backup, as JSON.
fn manifest(backup: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(backup.join("backup.json")).unwrap()).unwrap()
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
fn incremental_backups_hold_changes_and_restore_each_state() {
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
fn incomplete_damaged_and_unrelated_backups_are_refused() {
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
fn a_backup_beside_writers_holds_complete_commits() {
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
        let _ends = StopOnDrop(&is_done);
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
fn bytes_appended_during_the_copy_are_not_in_the_backup() {
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

/// A file once kept for ever the chunk size of its first backup, 16 KiB.
#[test]
fn a_file_that_grew_a_lot_is_stored_in_full_in_larger_chunks() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let other = folder.path().join("test.fed/databases/other.root");
    std::fs::write(&other, [7; 100]).unwrap();
    let folders: Vec<_> = (0..4).map(|n| folder.path().join(format!("backup{n}"))).collect();
    let mut chunk_bytes = vec![];
    for (n, size) in [100, 60 << 20, 270 << 20, (270 << 20) + 1].into_iter().enumerate() {
        std::fs::File::options().write(true).open(&other).unwrap().set_len(size).unwrap();
        let since = n.checked_sub(1).map(|before| &*folders[before]);
        let made = federation.backup(&folders[n], since, &mut |_| true).unwrap();
        let files = manifest(&folders[n])["files"].take();
        let is_it = |file: &&serde_json::Value| file["path"] == "databases/other.root";
        let of = files.as_array().unwrap().iter().find(is_it).unwrap();
        chunk_bytes.push(of["chunk_bytes"].as_u64().unwrap() >> 10);
        // Bytes past the end of the earlier file are stored in any case.
        assert_eq!(made.stored >= size, n < 3, "{made:?}");
    }
    assert_eq!(chunk_bytes, [16, 16, 128, 128]);
    let chain: Vec<&Path> = folders.iter().map(|folder| &**folder).collect();
    let place = folder.path().join("restored");
    restore(&chain, &place, &mut |_| true).unwrap();
    let (there, here) = (place.join("databases/other.root"), other);
    assert!(std::fs::read(there).unwrap() == std::fs::read(here).unwrap());
}

#[test]
fn a_backup_of_format_1_is_restored_and_continued() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 800_000);
    let path = |name: &str| folder.path().join(name);
    federation.backup(&path("full"), None, &mut |_| true).unwrap();
    // The first format had chunks of 4 MiB and did not say so.
    let mut first = manifest(&path("full"));
    first["format"] = 1.into();
    for file in first["files"].as_array_mut().unwrap() {
        let bytes = std::fs::read(path("full").join(file["path"].as_str().unwrap())).unwrap();
        let chunks = bytes.chunks(4 << 20).map(twox_hash::XxHash3_64::oneshot);
        file["chunks"] = chunks.collect::<Vec<_>>().into();
        file.as_object_mut().unwrap().remove("chunk_bytes");
    }
    std::fs::write(path("full/backup.json"), first.to_string()).unwrap();
    append(&federation, 800_010, 1);
    let more = federation.backup(&path("more"), Some(&path("full")), &mut |_| true).unwrap();
    assert!(more.stored < more.bytes, "{more:?}");
    for (count, chain) in [(800_010, &["full"][..]), (800_011, &["full", "more"])] {
        let chain: Vec<_> = chain.iter().map(|name| path(name)).collect();
        let chain: Vec<&Path> = chain.iter().map(|path| &**path).collect();
        let restored = restore(&chain, &path(&format!("{count}.fed")), &mut |_| true).unwrap();
        let view = restored.snapshot(None).unwrap().view("run7/events").unwrap();
        assert_eq!(view.entries(), count);
    }
}

#[test]
fn a_manifest_with_unsorted_chunks_is_refused() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    append(&federation, 10, 800_000);
    let path = |name: &str| folder.path().join(name);
    federation.backup(&path("full"), None, &mut |_| true).unwrap();
    append(&federation, 800_010, 10_000);
    federation.backup(&path("more"), Some(&path("full")), &mut |_| true).unwrap();
    let mut odd = manifest(&path("more"));
    let files = odd["files"].as_array_mut().unwrap();
    let lists = files.iter_mut().filter_map(|file| file["stored"].as_array_mut());
    let stored = lists.max_by_key(|stored| stored.len()).unwrap();
    assert!(stored.len() > 1);
    stored.reverse();
    std::fs::write(path("more/backup.json"), odd.to_string()).unwrap();
    let error = restore(&[&path("full"), &path("more")], &path("r"), &mut |_| true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
