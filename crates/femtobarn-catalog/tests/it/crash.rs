//! Processes that are killed in the middle of a commit, and disks that fail during one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use femtobarn_catalog::{Commit, Csn, ErrorKind, LocalCatalogue};
use uuid::Uuid;

use crate::child::{Player, prepare, say};
use crate::federation::{Federation, version};

/// A commit writes the same number of entries to two containers, so a half commit would show.
#[test]
fn a_process_killed_in_a_commit_leaves_a_whole_commit_or_none() {
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
        // A server completes the statements that the process had sent, unless a look-up is before them.
        assert_eq!(fed.catalog.find_commit(Uuid::new_v4(), Csn::ZERO).unwrap(), None);
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

/// Role: commits ever larger numbers of entries to two containers, and reports each durable commit.
pub(crate) fn commit_in_pairs(folder: &Path) {
    commit_in_pairs_to("run7", folder);
}

pub(crate) fn commit_in_pairs_to(database: &str, folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    let database = catalog.database(database, Csn::MAX).unwrap().id;
    let pair =
        ["left", "right"].map(|name| catalog.container(database, name, Csn::MAX).unwrap().id);
    loop {
        let base = catalog.version(database, pair[0], Csn::MAX).unwrap();
        let entries = base.map_or(0, |row| row.entries) + 1;
        let versions = pair.map(|id| version(database, id, base.map(|row| row.csn), entries));
        let (transaction, versions) = (Uuid::new_v4(), versions.to_vec());
        let commit = Commit { transaction, versions, ..Commit::default() };
        say(catalog.commit(commit).unwrap());
    }
}

/// From the tenth sync on, the disk fails. Commits that were acknowledged before survive.
#[test]
fn commits_are_refused_after_a_failed_sync() {
    let inject =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=fdatasync,fsync:error=EIO:when=10+"];
    let works = Command::new("strace").args(inject).arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: there is no strace that can inject faults");
    }
    let fed = Federation::new();
    let mut command = Command::new("strace");
    command.args(inject).arg(std::env::current_exe().unwrap());
    let mut player = Player::run(prepare(command, "commit on a failing disk", &fed.folder));
    let acknowledged = Csn(player.hear().unwrap().parse().unwrap());
    let error = player.hear().unwrap();
    assert!(error.starts_with("Io: ") && error.contains("catalogue.sqlite"), "{error}");
    let error = player.hear().unwrap();
    assert!(
        error.starts_with("Closed: ") && error.contains("open the federation again"),
        "{error}"
    );
    assert!(fed.catalog.head().unwrap() >= acknowledged);
    fed.container("events");
}

/// Role: commits until a commit fails, then tries once more; reports both errors.
pub(crate) fn commit_on_a_failing_disk(folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    let mut acknowledged = catalog.head().unwrap();
    let error = loop {
        match catalog.commit(Commit::default()) {
            Ok(csn) => acknowledged = csn,
            Err(error) => break error,
        }
    };
    say(acknowledged);
    say(format!("{:?}: {error}", error.kind()));
    let error = catalog.commit(Commit::default()).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Io);
    say(format!("{:?}: {error}", error.kind()));
}
