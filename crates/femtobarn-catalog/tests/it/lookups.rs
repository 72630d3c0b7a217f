//! Look-ups as of a snapshot, and their errors if they find nothing.

use std::collections::{BTreeMap, BTreeSet};

use femtobarn_catalog::{
    Commit, Csn, DatabaseId, DatabaseState, DroppedDatabase, Error, ErrorKind,
};
use uuid::Uuid;

use crate::federation::{Federation, new_database};

#[test]
fn a_snapshot_sees_the_rows_of_its_commit() {
    let fed = Federation::new();
    let events = fed.container("events");
    let created = fed.catalog.head().unwrap();
    let mut commits: Vec<Csn> = Vec::new();
    for entries in 1..=20 {
        commits.push(fed.publish(events, commits.last().copied(), entries).unwrap());
    }
    let hits = fed.container("hits");
    new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    assert_eq!(fed.entries(events, created), None);
    for (entries, csn) in (1..).zip(&commits) {
        assert_eq!(fed.entries(events, *csn), Some(entries));
        let newest = fed.catalog.newest_versions(fed.database, *csn).unwrap();
        assert_eq!(newest.iter().map(|row| row.entries).collect::<Vec<_>>(), [entries]);
    }
    let then = commits[0];
    assert_eq!(fed.catalog.containers(fed.database, then).unwrap().len(), 1);
    assert_eq!(fed.catalog.containers(fed.database, Csn::MAX).unwrap().len(), 2);
    assert!(fed.catalog.container_by_id(fed.database, hits, then).is_err());
    assert_eq!(fed.catalog.databases(then).unwrap().len(), 1);
    assert!(fed.catalog.database("run8", then).is_err());
    assert_eq!(fed.catalog.versions(fed.database, events).unwrap().len(), 20);
    assert!(fed.catalog.databases(Csn::ZERO).unwrap().is_empty());
}

/// Renames, drops and versions between any two snapshots, compared with the rows of the two.
#[test]
fn changes_between_snapshots_are_those_of_their_rows() {
    let fed = Federation::new();
    let containers = ["events", "hits", "tracks"].map(|name| fed.container(name));
    let [events, hits, _] = containers;
    let first = fed.publish(events, None, 1).unwrap();
    let second = fed.publish(events, Some(first), 2).unwrap();
    let renamed_containers = vec![(fed.database, hits, second, "clusters".to_owned())];
    fed.catalog.commit(Commit { renamed_containers, ..Commit::default() }).unwrap();
    let other = new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    let dropped_containers = vec![(fed.database, events, fed.catalog.head().unwrap())];
    fed.catalog.commit(Commit { dropped_containers, ..Commit::default() }).unwrap();
    fed.container("events");
    let seen = fed.catalog.head().unwrap();
    let dropped_databases = vec![DroppedDatabase { id: other, seen, keeps_file: false }];
    fed.catalog.commit(Commit { dropped_databases, ..Commit::default() }).unwrap();
    let many: Vec<DatabaseId> = (0..200).rev().map(DatabaseId).collect();
    assert_eq!(fed.catalog.dropped_among(&many).unwrap(), [other].into());
    assert_eq!(fed.catalog.dropped_among(&[fed.database]).unwrap(), [].into());
    let head = fed.catalog.head().unwrap().0;
    let all_of = |at: Csn| {
        let databases = fed.catalog.databases(at).unwrap();
        let containers = fed.catalog.containers(fed.database, at).unwrap().into_iter();
        let containers = containers.map(|row| {
            let version = fed.catalog.version(fed.database, row.id, at).unwrap();
            ((row.database, row.id), (row.name, version))
        });
        let databases = databases.into_iter().map(|row| (row.id, row.name));
        (databases.collect::<BTreeMap<_, _>>(), containers.collect::<BTreeMap<_, _>>())
    };
    for (since, at) in (0..=head).flat_map(|since| (since..=head).map(move |at| (since, at))) {
        let (old, new) = (all_of(Csn(since)), all_of(Csn(at)));
        let changed = fed.catalog.containers_changed_since(Csn(since), Csn(at)).unwrap();
        let differ = |ids: Vec<DatabaseId>| {
            ids.into_iter().filter(|id| old.0.get(id) != new.0.get(id)).collect::<BTreeSet<_>>()
        };
        let found: BTreeSet<_> = changed.databases.into_iter().collect();
        let expected = differ(old.0.keys().chain(new.0.keys()).copied().collect());
        assert!(found.is_superset(&expected), "{since} to {at}: {found:?}");
        let found: BTreeSet<_> = changed.containers.into_iter().collect();
        let keys = old.1.keys().chain(new.1.keys()).copied();
        let expected: BTreeSet<_> = keys.filter(|key| old.1.get(key) != new.1.get(key)).collect();
        // A container that was created and dropped between the two is in neither.
        let lasting =
            found.into_iter().filter(|it| old.1.contains_key(it) || new.1.contains_key(it));
        assert_eq!(lasting.collect::<BTreeSet<_>>(), expected, "{since} to {at}");
    }
}

#[test]
fn a_snapshot_is_found_by_its_time() {
    let fed = Federation::new();
    for number in 0..40 {
        fed.container(&format!("c{number}"));
    }
    let mut history = fed.catalog.history(u64::MAX).unwrap();
    history.reverse();
    assert_eq!(history.len(), 41);
    assert!(history.is_sorted_by_key(|row| (row.csn, row.time_us)));
    for row in &history {
        let newest = history.iter().rfind(|other| other.time_us <= row.time_us).unwrap();
        assert_eq!(fed.catalog.snapshot_at_time(row.time_us).unwrap(), newest.csn);
    }
    assert_eq!(fed.catalog.snapshot_at_time(history[0].time_us - 1).unwrap(), Csn::ZERO);
    assert_eq!(fed.catalog.snapshot_at_time(i64::MAX).unwrap(), history[40].csn);
    assert_eq!(fed.catalog.history(2).unwrap().len(), 2);
}

#[test]
fn a_transaction_whose_answer_was_lost_can_be_looked_up() {
    let fed = Federation::new();
    let start = fed.catalog.head().unwrap();
    let transaction = Uuid::new_v4();
    let commit = femtobarn_catalog::Commit { transaction, ..Default::default() };
    let csn = fed.catalog.commit(commit).unwrap();
    assert_eq!(fed.catalog.find_commit(transaction, start).unwrap(), Some(csn));
    assert_eq!(fed.catalog.find_commit(transaction, csn).unwrap(), None);
    assert_eq!(fed.catalog.find_commit(Uuid::new_v4(), start).unwrap(), None);
    let other = Uuid::new_v4();
    let commit = femtobarn_catalog::Commit { transaction: other, ..Default::default() };
    let next = fed.catalog.commit(commit).unwrap();
    let of = [(transaction, csn), (other, start), (Uuid::new_v4(), start)];
    let found = fed.catalog.find_commits(&of.into_iter().collect()).unwrap();
    assert_eq!(found, [(other, next)].into_iter().collect(), "each after its own commit");
}

#[test]
fn an_error_for_an_unknown_name_suggests_similar_ones() {
    let fed = Federation::new();
    fed.container("events");
    fed.container("event_index");
    let error = fed.catalog.container(fed.database, "evnets", Csn::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), "container \"evnets\" does not exist; did you mean \"events\"?");
    let error = fed.catalog.database("RUN7", Csn::MAX).unwrap_err();
    assert!(error.to_string().ends_with("did you mean \"run7\"?"), "{error}");
    let error = fed.catalog.database("cosmics", Csn::MAX).unwrap_err();
    assert_eq!(error.to_string(), "database \"cosmics\" does not exist");
    let error = fed.catalog.database_by_id(DatabaseId(9), Csn::MAX).unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "database", .. }));
    assert_eq!(fed.catalog.database_by_uuid(Uuid::new_v4()).unwrap(), None);
}

#[test]
fn find_returns_none_for_an_unknown_name() {
    let fed = Federation::new();
    let created = fed.catalog.head().unwrap();
    let events = fed.container("events");
    let found = fed.catalog.find_container(fed.database, "events", Csn::MAX).unwrap();
    assert_eq!(found.map(|row| row.id), Some(events));
    assert_eq!(fed.catalog.find_container(fed.database, "evnets", Csn::MAX).unwrap(), None);
    assert_eq!(fed.catalog.find_container(fed.database, "events", created).unwrap(), None);
    let found = fed.catalog.find_database("run7", Csn::MAX).unwrap();
    assert_eq!(found.map(|row| row.id), Some(fed.database));
    assert_eq!(fed.catalog.find_database("RUN7", Csn::MAX).unwrap(), None);
}

#[test]
fn a_class_is_found_by_name_and_version() {
    let fed = Federation::new();
    let classes = [1, 2].map(|version| femtobarn_catalog::ClassRow {
        name: "Event".into(),
        version,
        definition: format!("{{\"version\":{version}}}"),
    });
    let new_classes = classes.to_vec();
    fed.catalog.commit(femtobarn_catalog::Commit { new_classes, ..Default::default() }).unwrap();
    assert_eq!(fed.catalog.classes().unwrap(), classes);
    let error = fed.catalog.class("Event", Some(3)).unwrap_err();
    assert!(error.to_string().contains("\"Event version 2\""), "{error}");
    let error = fed.catalog.class("Evnt", None).unwrap_err();
    assert!(error.to_string().ends_with("did you mean \"Event\"?"), "{error}");
}

#[test]
fn readers_do_not_wait_behind_a_commit() {
    let fed = Federation::new();
    let head = fed.catalog.head().unwrap();
    let writer = rusqlite::Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM classes;").unwrap();
    let started = std::time::Instant::now();
    assert_eq!(fed.catalog.head().unwrap(), head);
    assert_eq!(fed.catalog.databases(head).unwrap().len(), 1);
    assert!(started.elapsed().as_secs() < 5);
}
