//! Renames and drops: the names that snapshots see, and the conflicts with other commits.

use femtobarn_catalog::{
    Commit, ContainerId, Csn, DatabaseId, DatabaseState, DroppedDatabase, ErrorKind, Result,
};

use crate::federation::{Federation, container, database, new_container, new_database, version};

#[test]
fn a_snapshot_sees_the_names_of_its_commit() {
    let fed = Federation::new();
    let events = fed.container("events");
    let before = fed.publish(events, None, 1).unwrap();
    let renamed = rename(&fed, events, before, "old_events").unwrap();
    let db_renamed = rename_database(&fed, renamed, "run7a").unwrap();

    let row = |name, at| fed.catalog.container(fed.database, name, at);
    assert_eq!(row("events", before).unwrap().id, events);
    assert!(row("old_events", before).is_err());
    assert_eq!(row("old_events", renamed).unwrap().id, events);
    let error = row("old_event", renamed).unwrap_err();
    assert!(error.to_string().contains("did you mean \"old_events\"?"), "{error}");
    assert!(row("events", Csn::MAX).is_err());
    let by_id = |at| fed.catalog.container_by_id(fed.database, events, at).unwrap().name;
    assert_eq!((by_id(before), by_id(Csn::MAX)), ("events".into(), "old_events".into()));
    assert_eq!(fed.catalog.containers(fed.database, before).unwrap()[0].name, "events");
    assert_eq!(fed.catalog.containers(fed.database, renamed).unwrap()[0].name, "old_events");

    assert_eq!(fed.catalog.database("run7", renamed).unwrap().id, fed.database);
    assert!(fed.catalog.database("run7", db_renamed).is_err());
    assert_eq!(fed.catalog.database("run7a", db_renamed).unwrap().id, fed.database);
    assert_eq!(fed.catalog.databases(renamed).unwrap()[0].name, "run7");
    fed.publish(events, Some(before), 2).unwrap();
}

#[test]
fn a_name_is_free_again_when_its_owner_is_renamed_or_dropped() {
    let fed = Federation::new();
    let first = fed.container("events");
    let renamed = rename(&fed, first, fed.catalog.head().unwrap(), "events_1").unwrap();
    let second = fed.container("events");
    assert_eq!(rename(&fed, first, renamed, "events").unwrap_err().kind(), ErrorKind::Exists);
    drop_container(&fed, second, fed.catalog.head().unwrap()).unwrap();
    let third = fed.container("events");
    let at = |at| fed.catalog.container(fed.database, "events", at).map(|row| row.id).ok();
    assert_eq!(at(renamed), None);
    assert_eq!(at(Csn(renamed.0 + 1)), Some(second));
    assert_eq!(at(Csn(renamed.0 + 2)), None);
    assert_eq!(at(Csn::MAX), Some(third));

    let head = fed.catalog.head().unwrap();
    drop_database(&fed, fed.database, head).unwrap();
    let again = new_database(&fed.catalog, "run7", DatabaseState::Open).unwrap();
    assert_eq!(fed.catalog.database("run7", head).unwrap().id, fed.database);
    assert_eq!(fed.catalog.database("run7", Csn::MAX).unwrap().id, again);
}

#[test]
fn one_commit_may_swap_two_names_and_pass_one_on() {
    let fed = Federation::new();
    let (a, b) = (fed.container("a"), fed.container("b"));
    let seen = fed.catalog.head().unwrap();
    let swap = |id, name: &str| (fed.database, id, seen, name.to_owned());
    let renamed_containers = vec![swap(a, "b"), swap(b, "a")];
    fed.catalog.commit(Commit { renamed_containers, ..Commit::default() }).unwrap();
    let id = |name| fed.catalog.container(fed.database, name, Csn::MAX).unwrap().id;
    assert_eq!((id("a"), id("b")), (b, a));
    let new = container(&fed.catalog, fed.database, "a");
    let new_id = new.id;
    let commit = Commit {
        dropped_containers: vec![(fed.database, b, fed.catalog.head().unwrap())],
        new_containers: vec![new],
        ..Commit::default()
    };
    fed.catalog.commit(commit).unwrap();
    assert_eq!(id("a"), new_id);
    let twice = vec![swap(a, "x"), swap(a, "y")];
    let seen_now = fed.catalog.head().unwrap();
    let twice = twice.into_iter().map(|(d, c, _, name)| (d, c, seen_now, name)).collect();
    let commit = Commit { renamed_containers: twice, ..Commit::default() };
    assert_eq!(fed.catalog.commit(commit).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn dropped_names_stay_in_older_snapshots_only() {
    let fed = Federation::new();
    let (events, hits) = (fed.container("events"), fed.container("hits"));
    let seen = fed.publish(events, None, 1).unwrap();
    let dropped = drop_container(&fed, events, seen).unwrap();
    assert_eq!(fed.catalog.containers(fed.database, seen).unwrap().len(), 2);
    assert_eq!(fed.catalog.containers(fed.database, dropped).unwrap()[0].id, hits);
    assert_eq!(fed.catalog.newest_versions(fed.database, seen).unwrap().len(), 1);
    assert!(fed.catalog.newest_versions(fed.database, dropped).unwrap().is_empty());
    let error = fed.publish(events, Some(seen), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        format!(
            "container \"run7/events\" was dropped by commit {dropped}; run the transaction again"
        )
    );
    let uuid = fed.catalog.database_by_id(fed.database, seen).unwrap().uuid;
    let gone = drop_database(&fed, fed.database, dropped).unwrap();
    assert!(fed.catalog.databases(gone).unwrap().is_empty());
    assert!(fed.catalog.container_by_id(fed.database, hits, gone).is_err());
    assert!(fed.catalog.containers(fed.database, gone).unwrap().is_empty());
    assert_eq!(fed.catalog.container_by_id(fed.database, hits, dropped).unwrap().id, hits);
    assert_eq!(fed.catalog.database_by_uuid(uuid).unwrap(), None);
    assert!(fed.catalog.database_by_uuid_at(uuid, dropped).unwrap().is_some());
    let error = fed.publish(hits, None, 1).unwrap_err();
    assert!(error.to_string().contains("database \"run7\" was dropped"), "{error}");
    let error = drop_database(&fed, fed.database, gone).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    // The same file is attached again under a new id.
    let mut back = database(&fed.catalog, "run7", DatabaseState::Attached);
    back.uuid = uuid;
    let commit = Commit { new_databases: vec![back.clone()], ..Commit::default() };
    fed.catalog.commit(commit).unwrap();
    assert_eq!(fed.catalog.database_by_uuid(uuid).unwrap().unwrap().id, back.id);
}

#[test]
fn a_change_since_the_transaction_looked_is_a_conflict() {
    let fed = Federation::new();
    let events = fed.container("events");
    let seen = fed.catalog.head().unwrap();
    let conflict = |outcome: Result<Csn>, text: &str| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    let first = fed.publish(events, None, 1).unwrap();
    conflict(rename(&fed, events, seen, "tracks"), "\"run7/events\" is at commit");
    conflict(drop_container(&fed, events, seen), "\"run7/events\" is at commit");
    conflict(drop_database(&fed, fed.database, seen), "\"run7/events\" is at commit");
    let renamed = rename(&fed, events, first, "tracks").unwrap();
    conflict(rename(&fed, events, first, "hits"), "was named by commit");
    conflict(drop_database(&fed, fed.database, first), "created, renamed or dropped by commit");
    let db_renamed = rename_database(&fed, renamed, "run7a").unwrap();
    conflict(rename_database(&fed, renamed, "run7b"), "was named by commit");
    conflict(drop_database(&fed, fed.database, renamed), "was named by commit");
    // New versions do not prevent a rename of their database.
    fed.publish(events, Some(first), 2).unwrap();
    rename_database(&fed, db_renamed, "run7c").unwrap();
    let head = fed.catalog.head().unwrap();
    drop_database(&fed, fed.database, head).unwrap();
}

#[test]
fn a_transaction_may_rename_containers_that_it_writes_and_drop_those_that_it_read() {
    let fed = Federation::new();
    let (events, hits) = (fed.container("events"), fed.container("hits"));
    let base = fed.publish(events, None, 1).unwrap();
    let commit = Commit {
        versions: vec![version(fed.database, events, Some(base), 2)],
        renamed_containers: vec![(fed.database, events, base, "tracks".into())],
        reads: vec![(fed.database, hits, None)],
        dropped_containers: vec![(fed.database, hits, base)],
        ..Commit::default()
    };
    let csn = fed.catalog.commit(commit).unwrap();
    assert_eq!(fed.entries(events, csn), Some(2));
    let both = Commit {
        versions: vec![version(fed.database, events, Some(csn), 3)],
        dropped_containers: vec![(fed.database, events, csn)],
        ..Commit::default()
    };
    assert_eq!(fed.catalog.commit(both).unwrap_err().kind(), ErrorKind::Invalid);
    let names = fed.catalog.containers(fed.database, csn).unwrap();
    assert_eq!(names.into_iter().map(|row| row.name).collect::<Vec<_>>(), ["tracks"]);
    let reads = vec![(fed.database, hits, None)];
    let error = fed.catalog.commit(Commit { reads, ..Commit::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn a_sealed_database_can_be_renamed_but_its_containers_cannot() {
    let fed = Federation::new();
    let events = fed.container("events");
    let seen = fed.catalog.head().unwrap();
    let sealed = vec![(fed.database, seen)];
    let csn = fed.catalog.commit(Commit { sealed, ..Commit::default() }).unwrap();
    assert_eq!(rename(&fed, events, csn, "tracks").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(drop_container(&fed, events, csn).unwrap_err().kind(), ErrorKind::Closed);
    let renamed = rename_database(&fed, csn, "archive").unwrap();
    assert_eq!(fed.catalog.database("archive", renamed).unwrap().state, DatabaseState::Sealed);
    drop_database(&fed, fed.database, renamed).unwrap();
}

#[test]
fn a_snapshot_sees_the_class_version_of_its_commit() {
    let fed = Federation::new();
    let events = fed.container("events");
    let first = fed.publish(events, None, 1).unwrap();
    let mut evolved = version(fed.database, events, Some(first), 1);
    evolved.class_version = 2;
    let commit = Commit { versions: vec![evolved], ..Commit::default() };
    let second = fed.catalog.commit(commit).unwrap();
    let version_at =
        |at| fed.catalog.container_by_id(fed.database, events, at).unwrap().class_version;
    assert_eq!((version_at(first), version_at(second), version_at(Csn::MAX)), (1, 2, 2));
}

#[test]
fn invalid_and_taken_names_are_refused() {
    let fed = Federation::new();
    let events = fed.container("events");
    let seen = fed.catalog.head().unwrap();
    assert_eq!(rename(&fed, events, seen, "a.b").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(rename_database(&fed, seen, "a/b").unwrap_err().kind(), ErrorKind::Invalid);
    let missing = ContainerId(99);
    assert_eq!(rename(&fed, missing, seen, "x").unwrap_err().kind(), ErrorKind::NotFound);
    new_container(&fed.catalog, fed.database, "hits").unwrap();
    assert_eq!(rename(&fed, events, seen, "hits").unwrap_err().kind(), ErrorKind::Exists);
}

pub(crate) fn rename(fed: &Federation, id: ContainerId, seen: Csn, name: &str) -> Result<Csn> {
    let renamed_containers = vec![(fed.database, id, seen, name.to_owned())];
    fed.catalog.commit(Commit { renamed_containers, ..Commit::default() })
}

fn rename_database(fed: &Federation, seen: Csn, name: &str) -> Result<Csn> {
    let renamed_databases = vec![(fed.database, seen, name.to_owned())];
    fed.catalog.commit(Commit { renamed_databases, ..Commit::default() })
}

pub(crate) fn drop_container(fed: &Federation, id: ContainerId, seen: Csn) -> Result<Csn> {
    let dropped_containers = vec![(fed.database, id, seen)];
    fed.catalog.commit(Commit { dropped_containers, ..Commit::default() })
}

pub(crate) fn drop_database(fed: &Federation, id: DatabaseId, seen: Csn) -> Result<Csn> {
    let dropped_databases = vec![DroppedDatabase { id, seen, keeps_file: false }];
    fed.catalog.commit(Commit { dropped_databases, ..Commit::default() })
}
