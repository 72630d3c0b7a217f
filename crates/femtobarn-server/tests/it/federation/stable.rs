//! Open files do not change, and the same commits give the same bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn::{CompactOptions, VacuumOptions};
use femtobarn_catalog::LocalCatalogue;
use femtobarn_server::physical::{FederationStorage, Opaque, OpenMode, PosixStorage, Storage};
use rntuple::Reader;

use super::{Stage, all_of, at, entries, event, events};

fn vacuum(stage: &Stage) {
    let keep_from = Some(stage.federation.head().unwrap());
    let options = VacuumOptions { keep_from, ..VacuumOptions::default() };
    stage.federation.vacuum(&options, &mut |_| true).unwrap();
}

/// Updates so many events that vacuum frees nearly all earlier bytes.
fn overwrite(stage: &Stage, round: u64) {
    let mut transaction = stage.begin();
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let all: Vec<u64> = (300 * round..1000).collect();
    let values: Vec<u64> = all.iter().map(|n| n + 77).collect();
    transaction.update(key, &all, events(&values)).unwrap();
    transaction.checkpoint().unwrap();
    transaction.delete(key, &all[..300]).unwrap();
    transaction.commit().unwrap();
    stage.federation.compact("run7", &CompactOptions::default(), &mut |_| true).unwrap();
}

#[test]
fn an_open_file_does_not_change_while_others_commit_or_vacuum() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..1000);
    let head = stage.federation.head().unwrap();
    let file = stage.open("/run7.root", "").unwrap();
    let before = all_of(&*file);
    for round in 0..3 {
        overwrite(&stage, round);
        vacuum(&stage);
        stage.append(0..2000);
        assert!(all_of(&*file) == before);
    }
    // The snapshot is before the horizon now, but kept while the file is open.
    assert!(stage.bytes("/run7.root", &format!("fb.csn={head}")) == before);
    drop(file);
    vacuum(&stage);
    assert!(stage.open("/run7.root", &format!("fb.csn={head}")).is_err());
}

#[test]
fn the_same_commits_give_the_same_bytes() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..1000);
    let head = stage.federation.head().unwrap();
    let before = stage.bytes("/run7.root", "");
    // A transaction commits in another database, and one writes to this database without a commit.
    let mut transaction = stage.begin();
    transaction.create_database("other").unwrap();
    transaction.commit().unwrap();
    assert!(stage.bytes("/run7.root", "") == before);
    stage.append(1000..5000);
    let mut unfinished = stage.begin();
    let database = unfinished.database("run7").unwrap();
    let key = unfinished.container(database, "events").unwrap();
    for n in 0..50_000 {
        unfinished.append_value(key, event(n)).unwrap();
    }
    assert!(stage.bytes("/run7.root", &format!("fb.csn={head}")) == before);
    // A server that has just started.
    let place = stage.folder.path().join("test.fed");
    let catalogue = Arc::new(LocalCatalogue::open(&place).unwrap());
    let files = Arc::new(PosixStorage::new(&place).unwrap());
    let again = FederationStorage::new(catalogue, files);
    let opaque = format!("fb.csn={head}");
    let opaque = Opaque(opaque.as_bytes());
    let file = again.open(&at("/run7.root"), OpenMode::default(), opaque);
    assert!(all_of(&*file.unwrap()) == before);
}

#[test]
fn a_commit_changes_the_id_of_the_file() {
    let stage = Stage::new().with_ten_events();
    let head = stage.federation.head().unwrap();
    let metadata =
        |opaque: &str| stage.shown.metadata(&at("/run7.root"), Opaque(opaque.as_bytes()));
    let before = stage.open("/run7.root", "").unwrap();
    assert!(!before.can_be_reopened());
    let id = before.metadata().unwrap().id;
    assert_eq!(metadata("").unwrap().id, id);
    stage.append(10..20);
    assert_eq!(before.metadata().unwrap().id, id);
    assert_ne!(metadata("").unwrap().id, id);
    assert_eq!(metadata(&format!("fb.csn={head}")).unwrap().id, id);
}

#[test]
fn reads_without_blocking_give_the_same_bytes() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..1000);
    let file = stage.open("/run7.root", "").unwrap();
    let bytes = all_of(&*file);
    let mut buffer = vec![0; 10_000];
    for offset in (0..bytes.len() + 20_000).step_by(777) {
        if let Some(read) = file.try_read_at(offset as u64, &mut buffer).unwrap() {
            let start = offset.min(bytes.len());
            let end = bytes.len().min(start + buffer.len());
            assert!(buffer[..read] == bytes[start..end]);
        }
    }
    assert!(file.descriptor().is_none());
    assert_eq!(file.try_read_at(u64::MAX, &mut buffer), Ok(Some(0)));
}

#[test]
fn readers_see_a_whole_commit_while_others_write() {
    const COMMITS: u64 = 60;
    const EACH: u64 = 50;
    let stage = Stage::new().with_ten_events();
    let is_written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for commit in 0..COMMITS {
                stage.append(10 + commit * EACH..10 + (commit + 1) * EACH);
            }
            is_written.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_written.load(Ordering::Acquire) {
                    let file = stage.open("/run7.root", "").unwrap();
                    let bytes = Arc::new(all_of(&*file));
                    let found = entries(&Reader::open(bytes, "events").unwrap());
                    assert!((found.len() as u64 - 10).is_multiple_of(EACH));
                    assert!(found.len() >= last, "the snapshot never goes back");
                    assert!(found.iter().enumerate().all(|(n, one)| *one == event(n as u64)));
                    last = found.len();
                }
            });
        }
    });
    assert_eq!(
        entries(&stage.reader("/run7.root", "", "events")).len() as u64,
        10 + COMMITS * EACH
    );
}
