//! Processes and threads that commit at the same time.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use femtobarn_catalog::{Csn, ErrorKind, LocalCatalogue};

use crate::child::{Player, say};
use crate::federation::{Federation, version};

const COMMITS: u64 = 40;

/// Each process adds one to the number of entries, and retries from the newest version after a conflict. A lost
/// update would make the sum too small.
#[test]
fn processes_that_write_one_container_lose_no_update() {
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

/// 64 committers, each with a catalogue of its own as if in another process, pause for 100 ms after each commit. When
/// the first has had all its turns, every other one has had at least a quarter of its turns, however busy the machine
/// is.
#[test]
fn sixty_four_committers_all_get_their_turns() {
    const COMMITTERS: usize = 64;
    const TURNS: u64 = 20;
    const PAUSE: Duration = Duration::from_millis(100);
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
                    entries += 1;
                    let versions = vec![version(fed.database, *container, base, entries)];
                    let commit = femtobarn_catalog::Commit { versions, ..Default::default() };
                    base = Some(catalog.commit(commit).unwrap());
                    is_over.fetch_or(entries == TURNS, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
    let turns = containers.iter().map(|id| fed.entries(*id, Csn::MAX).unwrap_or(0));
    let turns: Vec<_> = turns.collect();
    assert!(turns.iter().all(|count| *count >= TURNS / 4), "{turns:?}");
}

/// Role: adds to the container `events` of `run7` until it has done its share.
pub(crate) fn commit_to_one_container(folder: &Path) {
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
