//! Several processes that write at once.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::{Csn, ErrorKind, LocalCatalogue};

use crate::child::{Player, say};
use crate::federation::{Federation, version};

const COMMITS: u64 = 40;

/// Each adds one to the number of entries, and starts again from the newest version when it lost.
/// If an update got lost, the sum would be too small.
#[test]
fn processes_that_contend_for_one_container_lose_no_update() {
    let fed = Federation::new();
    let events = fed.container("events");
    let before = fed.catalog.head().unwrap();
    let mut players: Vec<_> =
        (0..3).map(|_| Player::start("commit to one container", &fed.folder)).collect();
    for player in &mut players {
        assert_eq!(player.hear().unwrap(), "done");
    }
    let total = COMMITS * players.len() as u64;
    assert_eq!(fed.entries(events, Csn::MAX), Some(total));
    assert_eq!(fed.catalog.head().unwrap(), Csn(before.0 + total));
    let versions = fed.catalog.versions(fed.database, events).unwrap();
    assert!(versions.iter().zip(1..).all(|(version, entries)| version.entries == entries));
}

/// 64 that commit every 100 ms, each with a catalogue of its own as if in another process. When the
/// first has done its rounds, all others have done a good part of theirs, however busy the machine is.
#[test]
fn sixty_four_committers_all_make_progress() {
    const COMMITTERS: usize = 64;
    const PAUSE: Duration = Duration::from_millis(100);
    const ROUNDS: u64 = 20;
    let fed = Federation::new();
    let containers: Vec<_> = (0..COMMITTERS).map(|n| fed.container(&format!("c{n}"))).collect();
    let (barrier, is_over) = (Barrier::new(COMMITTERS), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (number, container) in containers.iter().enumerate() {
            let (fed, barrier, is_over) = (&fed, &barrier, &is_over);
            scope.spawn(move || {
                let catalog = LocalCatalogue::open(&fed.folder).unwrap();
                catalog.head().unwrap();
                barrier.wait();
                std::thread::sleep(PAUSE * number as u32 / COMMITTERS as u32);
                let (mut base, mut entries) = (None, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    entries += 1;
                    let versions = vec![version(fed.database, *container, base, entries)];
                    let commit = femtobarn_catalog::Commit { versions, ..Default::default() };
                    base = Some(catalog.commit(commit).unwrap());
                    is_over.fetch_or(entries == ROUNDS, Ordering::Relaxed);
                    std::thread::sleep(PAUSE.saturating_sub(started.elapsed()));
                }
            });
        }
    });
    let done = containers.iter().map(|id| fed.entries(*id, Csn::MAX).unwrap_or(0));
    let done: Vec<_> = done.collect();
    assert!(done.iter().all(|count| *count >= ROUNDS / 4), "{done:?}");
}

/// Role: adds to the container `events` of `run7` until it has done its share.
pub fn commit_to_one_container(folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    let container = catalog.container(database, "events", Csn::MAX).unwrap().id;
    let mut done = 0;
    while done < COMMITS {
        let base = catalog.version(database, container, Csn::MAX).unwrap();
        let entries = base.map_or(0, |row| row.entries) + 1;
        let versions = vec![version(database, container, base.map(|row| row.csn), entries)];
        match catalog.commit(femtobarn_catalog::Commit { versions, ..Default::default() }) {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
    say("done");
}
