//! Several processes that write at once.

use std::path::Path;

use femtobarn_catalog::{Catalog, Csn, ErrorKind};

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

/// Role: adds to the container `events` of `run7` until it has done its share.
pub fn commit_to_one_container(folder: &Path) {
    let catalog = Catalog::open(folder).unwrap();
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
