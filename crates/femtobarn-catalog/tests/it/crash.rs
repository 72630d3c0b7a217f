//! Processes that are killed in the middle of a commit.

use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::{Catalog, Commit, Csn};

use crate::child::{Player, say};
use crate::federation::{Federation, version};

/// A commit writes the same number of entries to two containers, so a half commit would show.
#[test]
fn a_process_killed_in_a_commit_leaves_all_of_it_or_nothing() {
    let fed = Federation::new();
    let (left, right) = (fed.container("left"), fed.container("right"));
    for round in 0..12 {
        let mut player = Player::start("commit in pairs for ever", &fed.folder);
        let mut acknowledged: Csn = Csn(player.hear().unwrap().parse().unwrap());
        std::thread::sleep(Duration::from_micros(500 + round * 1_700));
        player.kill();
        while let Some(csn) = player.hear() {
            acknowledged = Csn(csn.parse().unwrap());
        }
        let head = fed.catalog.head().unwrap();
        assert!(head >= acknowledged, "round {round}: commit {acknowledged} was lost");
        let all = |container| fed.catalog.versions(fed.database, container).unwrap();
        let (left, right) = (all(left), all(right));
        assert_eq!(left.last().unwrap().csn, head);
        let pair = |(a, b): (&femtobarn_catalog::VersionRow, &femtobarn_catalog::VersionRow)| {
            (a.csn, a.entries) == (b.csn, b.entries)
        };
        assert!(left.len() == right.len() && left.iter().zip(&right).all(pair));
    }
}

/// Role: commits the next number of entries to two containers, and says so when it is durable.
pub fn commit_in_pairs(folder: &Path) {
    let catalog = Catalog::open(folder).unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    let pair =
        ["left", "right"].map(|name| catalog.container(database, name, Csn::MAX).unwrap().id);
    loop {
        let base = catalog.version(database, pair[0], Csn::MAX).unwrap();
        let entries = base.map_or(0, |row| row.entries) + 1;
        let versions = pair.map(|id| version(database, id, base.map(|row| row.csn), entries));
        let commit = Commit { versions: versions.to_vec(), ..Commit::default() };
        say(catalog.commit(commit).unwrap());
    }
}
