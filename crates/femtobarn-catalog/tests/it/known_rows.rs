//! The rows of the newest state that a process has in memory, when others change them: every look-up returns the same
//! as a new query.

use std::fs;

use femtobarn_catalog::{Commit, ContainerId, Csn, DatabaseId, LocalCatalogue};
use rusqlite::Connection;

use crate::federation::{Federation, new_container, version};

/// A process that has looked everything up, and another one.
struct Two {
    fed: Federation,
    other: LocalCatalogue,
    events: ContainerId,
    at: Csn,
}

impl Two {
    fn new() -> Self {
        let fed = Federation::new();
        let events = fed.container("events");
        let at = fed.publish(events, None, 1).unwrap();
        let other = LocalCatalogue::open(&fed.folder).unwrap();
        let two = Two { fed, other, events, at };
        assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 1, at));
        two
    }

    fn publish_elsewhere(&mut self, entries: u64) {
        let versions = vec![version(self.fed.database, self.events, Some(self.at), entries)];
        self.at = self.other.commit(Commit { versions, ..Commit::default() }).unwrap();
    }

    /// The names, the entries and the newest commit, as the process finds them by all look-ups.
    fn seen(&self) -> (String, String, u64, Csn) {
        let catalog = &self.fed.catalog;
        let head = catalog.head().unwrap();
        let (database, container, newest) =
            catalog.container_to_write(self.fed.database, self.events).unwrap();
        for at in [head, Csn::MAX] {
            let named = catalog.find_database(&database.name, at).unwrap();
            assert_eq!(named.as_ref(), Some(&database));
            let inner = catalog.find_container(database.id, &container.name, at).unwrap();
            assert_eq!(inner.as_ref(), Some(&container));
            assert_eq!(catalog.version(database.id, container.id, at).unwrap(), newest);
        }
        assert!(catalog.snapshot_exists(head).unwrap());
        (database.name, container.name, newest.unwrap().entries, head)
    }
}

#[test]
fn commits_of_other_processes_are_seen_at_once() {
    let mut two = Two::new();
    for entries in 2..6 {
        two.publish_elsewhere(entries);
        assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), entries, two.at));
        two.at = two.fed.publish(two.events, Some(two.at), 10 * entries).unwrap();
        assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 10 * entries, two.at));
    }
    for number in 0..300 {
        new_container(&two.other, two.fed.database, &format!("other-{number}")).unwrap();
    }
    two.at = two.other.head().unwrap();
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 50, two.at));
}

#[test]
fn names_changed_by_another_process_are_seen() {
    let two = Two::new();
    let (fed, at) = (&two.fed, two.at);
    let rename = Commit {
        renamed_databases: vec![(fed.database, at, "run8".into())],
        renamed_containers: vec![(fed.database, two.events, at, "hits".into())],
        ..Commit::default()
    };
    let renamed = two.other.commit(rename).unwrap();
    assert_eq!(two.seen(), ("run8".to_owned(), "hits".to_owned(), 1, renamed));
    assert_eq!(fed.catalog.find_database("run7", Csn::MAX).unwrap(), None);
    assert!(fed.catalog.find_database("run7", at).unwrap().is_some());
    assert_eq!(fed.catalog.find_container(fed.database, "events", Csn::MAX).unwrap(), None);
    let drop = Commit {
        dropped_containers: vec![(fed.database, two.events, renamed)],
        ..Commit::default()
    };
    two.other.commit(drop).unwrap();
    assert!(fed.catalog.container_to_write(fed.database, two.events).is_err());
}

/// A change that is not a commit.
#[test]
fn an_epoch_that_is_raised_elsewhere_is_seen() {
    let two = Two::new();
    let epoch = || two.fed.catalog.database_by_id(two.fed.database, Csn::MAX).unwrap().epoch;
    for raised in 1..4 {
        two.other.raise_epoch(two.fed.database).unwrap();
        assert_eq!([epoch(), epoch()], [raised, raised]);
        assert_eq!(two.seen().3, two.at);
    }
}

/// A shell, or an earlier release.
#[test]
fn a_change_by_a_program_without_the_page_is_seen() {
    let mut two = Two::new();
    let sql = Connection::open(two.fed.folder.join("catalogue.sqlite")).unwrap();
    sql.execute("UPDATE database_names SET name = 'run9'", []).unwrap();
    assert_eq!(two.seen(), ("run9".to_owned(), "events".to_owned(), 1, two.at));
    two.publish_elsewhere(2);
    assert_eq!(two.seen(), ("run9".to_owned(), "events".to_owned(), 2, two.at));
    sql.execute("UPDATE container_names SET name = 'cells'", []).unwrap();
    two.publish_elsewhere(3);
    assert_eq!(two.seen(), ("run9".to_owned(), "cells".to_owned(), 3, two.at));
}

#[test]
fn the_page_of_recent_changes_may_be_lost_or_damaged() {
    let mut two = Two::new();
    let path = two.fed.folder.join("locks/recent");
    for (entries, damage) in (2..).zip([&b""[..], b"garbage", &[0x5a; 4096], &[0; 4096]]) {
        fs::write(&path, damage).unwrap();
        assert_eq!(two.seen().2, entries - 1);
        two.publish_elsewhere(entries);
        assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), entries, two.at));
    }
    fs::remove_file(&path).unwrap();
    two.publish_elsewhere(10);
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 10, two.at));
    let third = LocalCatalogue::open(&two.fed.folder).unwrap();
    let versions = vec![version(two.fed.database, two.events, Some(two.at), 11)];
    two.at = third.commit(Commit { versions, ..Commit::default() }).unwrap();
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 11, two.at));
}

/// A group of which all commits are refused may write the log, but makes no change.
#[test]
fn a_group_that_is_refused_does_not_hide_a_change_before_it() {
    let mut two = Two::new();
    // A page that has seen versions alone.
    fs::write(two.fed.folder.join("locks/recent"), b"").unwrap();
    two.publish_elsewhere(2);
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 2, two.at));
    let sql = Connection::open(two.fed.folder.join("catalogue.sqlite")).unwrap();
    sql.execute("UPDATE database_names SET name = 'run9'", []).unwrap();
    let refused = || {
        let versions = vec![version(two.fed.database, two.events, None, 3)];
        Commit { versions, ..Commit::default() }
    };
    let results = two.other.commit_all(vec![refused(), refused()]);
    assert!(results.iter().all(Result::is_err));
    let database = two.fed.catalog.database_by_id(two.fed.database, Csn::MAX).unwrap();
    assert_eq!(database.name, "run9");
    assert_eq!(two.seen(), ("run9".to_owned(), "events".to_owned(), 2, two.at));
}

/// A catalogue that a shell has made from a dump, until its first change here.
#[test]
fn look_ups_in_a_catalogue_without_a_log_make_no_index_of_one() {
    let fed = Federation::new();
    let path = fed.folder.join("catalogue.sqlite");
    let Federation { catalog, database, folder, keep: _keep } = fed;
    drop(catalog);
    let sql = Connection::open(&path).unwrap();
    sql.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(sql);
    let catalog = LocalCatalogue::open(&folder).unwrap();
    let head = catalog.head().unwrap();
    assert_eq!(catalog.database_by_id(database, head).unwrap().name, "run7");
    assert!(!folder.join("catalogue.sqlite-shm").exists());
    for name in ["events", "hits"] {
        new_container(&catalog, database, name).unwrap();
        assert!(catalog.find_container(database, name, Csn::MAX).unwrap().is_some());
    }
    drop(catalog);
    assert!(!folder.join("catalogue.sqlite-shm").exists());
}

/// A refused commit does not change the rows in memory.
#[test]
fn a_refused_commit_keeps_known_rows() {
    let mut two = Two::new();
    let stale = two.at;
    two.publish_elsewhere(2);
    assert!(two.fed.publish(two.events, Some(stale), 3).is_err());
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 2, two.at));
    let none = DatabaseId(99);
    let unknown =
        Commit { versions: vec![version(none, two.events, None, 1)], ..Commit::default() };
    assert!(two.fed.catalog.commit(unknown).is_err());
    assert_eq!(two.seen(), ("run7".to_owned(), "events".to_owned(), 2, two.at));
}
