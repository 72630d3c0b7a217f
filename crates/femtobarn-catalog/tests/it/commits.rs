//! The changes that a commit publishes, and the reasons to refuse it.

use std::sync::Barrier;

use femtobarn_catalog::{
    Author, ClassRow, Commit, ContainerId, Csn, DatabaseId, DatabaseState, Error, ErrorKind,
};
use uuid::Uuid;

use crate::federation::{Federation, container, database, new_database, version};

#[test]
fn a_commit_publishes_all_its_rows_under_one_csn() {
    let fed = Federation::new();
    let new = container(&fed.catalog, fed.database, "events");
    let id = new.id;
    let target = Uuid::new_v4();
    let transaction = Uuid::new_v4();
    let csn = fed
        .catalog
        .commit(Commit {
            transaction,
            message: "run 7".into(),
            new_containers: vec![new],
            new_classes: vec![class("Event", 1, "{}")],
            versions: vec![version(fed.database, id, None, 5)],
            link_targets: vec![(fed.database, id, vec![target])],
            ..Commit::default()
        })
        .unwrap();
    assert_eq!(fed.catalog.head().unwrap(), csn);
    let row = fed.catalog.commit_by_csn(csn).unwrap();
    assert_eq!((row.transaction, row.message.as_str()), (transaction, "run 7"));
    assert_eq!(row.pid, std::process::id());
    assert!(!row.user.is_empty() && !row.host.is_empty());
    let committed = fed.catalog.version(fed.database, id, csn).unwrap().unwrap();
    assert_eq!((committed.csn, committed.entries, committed.bytes), (csn, 5, 40));
    assert_eq!(committed.footer.offset, 1 << 40);
    assert_eq!(fed.catalog.link_targets(fed.database, id).unwrap(), [target]);
    assert_eq!(fed.catalog.class("Event", None).unwrap(), class("Event", 1, "{}"));
}

#[test]
fn the_second_of_two_commits_from_one_version_is_refused() {
    let fed = Federation::new();
    let events = fed.container("events");
    let first = fed.publish(events, None, 1).unwrap();
    let second = fed.publish(events, Some(first), 2).unwrap();
    let error = fed.publish(events, Some(first), 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(
        error.to_string(),
        format!(
            "container \"run7/events\" is at commit {second} but this transaction started from \
             commit {first}; run the transaction again"
        )
    );
    assert_eq!(fed.publish(events, None, 3).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fed.catalog.head().unwrap(), second);
    assert_eq!(fed.entries(events, Csn::MAX), Some(2));
}

#[test]
fn a_refused_commit_leaves_nothing_behind() {
    let fed = Federation::new();
    let events = fed.container("events");
    fed.publish(events, None, 1).unwrap();
    let head = fed.catalog.head().unwrap();
    let refused = fed.catalog.commit(Commit {
        new_databases: vec![database(&fed.catalog, "other", DatabaseState::Open)],
        new_containers: vec![container(&fed.catalog, fed.database, "hits")],
        new_classes: vec![class("Hit", 1, "{}")],
        versions: vec![version(fed.database, events, None, 2)],
        ..Commit::default()
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fed.catalog.head().unwrap(), head);
    assert_eq!(fed.catalog.databases(Csn::MAX).unwrap().len(), 1);
    assert_eq!(fed.catalog.containers(fed.database, Csn::MAX).unwrap().len(), 1);
    assert!(fed.catalog.classes().unwrap().is_empty());
}

#[test]
fn a_change_of_a_declared_read_refuses_the_commit() {
    let fed = Federation::new();
    let (read, written) = (fed.container("calibration"), fed.container("events"));
    let base = fed.publish(read, None, 1).unwrap();
    let commit = |base, written_base| Commit {
        versions: vec![version(fed.database, written, written_base, 1)],
        reads: vec![(fed.database, read, Some(base))],
        ..Commit::default()
    };
    let first = fed.catalog.commit(commit(base, None)).unwrap();
    fed.publish(read, Some(base), 2).unwrap();
    let error = fed.catalog.commit(commit(base, Some(first))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("run7/calibration"), "{error}");
}

#[test]
fn a_name_that_is_taken_refuses_the_commit() {
    let fed = Federation::new();
    fed.container("events");
    let again = container(&fed.catalog, fed.database, "events");
    let commit = Commit { new_containers: vec![again], ..Commit::default() };
    let error = fed.catalog.commit(commit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(
        error.to_string(),
        "container \"events\" exists already; open it, or choose another name"
    );
    let error = new_database(&fed.catalog, "run7", DatabaseState::Open).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let twice = database(&fed.catalog, "run8", DatabaseState::Open);
    let other = femtobarn_catalog::NewDatabase { name: "run9".into(), ..twice.clone() };
    let commit = Commit { new_databases: vec![twice, other], ..Commit::default() };
    assert_eq!(fed.catalog.commit(commit).unwrap_err().kind(), ErrorKind::Exists);
}

#[test]
fn a_class_may_be_declared_again_but_not_changed() {
    let fed = Federation::new();
    let declare = |row| fed.catalog.commit(Commit { new_classes: vec![row], ..Commit::default() });
    declare(class("Event", 1, "{\"a\":1}")).unwrap();
    declare(class("Event", 1, "{\"a\":1}")).unwrap();
    let error = declare(class("Event", 1, "{\"a\":2}")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("raise the version"), "{error}");
    declare(class("Event", 2, "{\"a\":2}")).unwrap();
    assert_eq!(fed.catalog.class("Event", None).unwrap().version, 2);
    assert_eq!(fed.catalog.class("Event", Some(1)).unwrap().definition, "{\"a\":1}");
}

#[test]
fn a_sealed_database_takes_no_more_commits() {
    let fed = Federation::new();
    let events = fed.container("events");
    let last = fed.publish(events, None, 1).unwrap();
    let sealing = || Commit {
        versions: vec![version(fed.database, events, Some(last), 1)],
        sealed: vec![(fed.database, last)],
        moved: vec![(fed.database, "archive/run7.root".into())],
        ..Commit::default()
    };
    let csn = fed.catalog.commit(sealing()).unwrap();
    let row = fed.catalog.database("run7", csn).unwrap();
    assert_eq!((row.state, row.path.as_str()), (DatabaseState::Sealed, "archive/run7.root"));
    assert_eq!(fed.catalog.database("run7", last).unwrap().state, DatabaseState::Open);
    let error = fed.publish(events, Some(csn), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("was sealed by commit"), "{error}");
    assert_eq!(fed.catalog.commit(sealing()).unwrap_err().kind(), ErrorKind::Closed);
    let new = container(&fed.catalog, fed.database, "more");
    let commit = Commit { new_containers: vec![new], ..Commit::default() };
    assert_eq!(fed.catalog.commit(commit).unwrap_err().kind(), ErrorKind::Closed);
}

/// A container committed while its file was being completed was once missing in that file.
#[test]
fn a_database_that_changed_since_its_sealer_looked_is_not_sealed() {
    let fed = Federation::new();
    let events = fed.container("events");
    let seen = fed.publish(events, None, 1).unwrap();
    let more = fed.container("more");
    let head = fed.publish(more, None, 1).unwrap();
    let seal = |seen| {
        fed.catalog.commit(Commit { sealed: vec![(fed.database, seen)], ..Commit::default() })
    };
    let error = seal(seen).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("run7/more"), "{error}");
    fed.publish(more, Some(head), 2).unwrap();
    seal(fed.catalog.head().unwrap()).unwrap();
}

#[test]
fn only_the_attaching_commit_adds_versions_to_an_attached_database() {
    let fed = Federation::new();
    let attached = database(&fed.catalog, "nano", DatabaseState::Attached);
    let id = attached.id;
    let events = container(&fed.catalog, id, "Events");
    let (container, uuid) = (events.id, attached.uuid);
    let commit = Commit {
        new_databases: vec![attached],
        new_containers: vec![events],
        versions: vec![version(id, container, None, 1000)],
        ..Commit::default()
    };
    let csn = fed.catalog.commit(commit).unwrap();
    let row = fed.catalog.database_by_uuid(uuid).unwrap().unwrap();
    assert_eq!(row.state, DatabaseState::Attached);
    let versions = vec![version(id, container, Some(csn), 1001)];
    let error = fed.catalog.commit(Commit { versions, ..Commit::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn an_invalid_commit_is_refused_with_the_reason() {
    let fed = Federation::new();
    let events = fed.container("events");
    let invalid = |commit: Commit| {
        let error = fed.catalog.commit(commit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    let mut new = container(&fed.catalog, fed.database, "a.b");
    let commit = Commit { new_containers: vec![new.clone()], ..Commit::default() };
    assert!(invalid(commit).contains("use '_' instead"));
    new.name = "x".repeat(201);
    let commit = Commit { new_containers: vec![new], ..Commit::default() };
    assert!(invalid(commit).contains("1 to 200 bytes"));
    let link_targets = vec![(fed.database, events, vec![Uuid::nil()])];
    assert!(invalid(Commit { link_targets, ..Commit::default() }).contains("but no new version"));
    let message = "x".repeat(65 * 1024);
    assert!(invalid(Commit { message, ..Commit::default() }).contains("at most 65536"));
    let mut one = version(fed.database, events, None, 1);
    one.bytes = 1 << 63;
    assert!(invalid(Commit { versions: vec![one], ..Commit::default() }).contains("2^63"));
    let one = version(fed.database, events, None, 1);
    let commit = Commit { versions: vec![one, one], ..Commit::default() };
    assert!(invalid(commit).contains("two new versions"));
    let versions = vec![version(DatabaseId(99), ContainerId(1), None, 1)];
    let error = fed.catalog.commit(Commit { versions, ..Commit::default() }).unwrap_err();
    assert!(matches!(error, Error::NotFound { what: "container", .. }), "{error}");
}

#[test]
fn link_targets_are_appended_and_never_move() {
    let fed = Federation::new();
    let events = fed.container("events");
    let targets: Vec<Uuid> = (0..5).map(|_| Uuid::new_v4()).collect();
    let link = |base, added: &[Uuid]| {
        fed.catalog.commit(Commit {
            versions: vec![version(fed.database, events, base, 1)],
            link_targets: vec![(fed.database, events, added.to_vec())],
            ..Commit::default()
        })
    };
    let first = link(None, &targets[..2]).unwrap();
    link(Some(first), &targets[2..]).unwrap();
    assert_eq!(fed.catalog.link_targets(fed.database, events).unwrap(), targets);
}

#[test]
fn each_of_several_committing_threads_gets_its_own_answer() {
    let fed = Federation::new();
    let containers: Vec<_> = (0..8).map(|n| fed.container(&format!("events_{n}"))).collect();
    let shared = fed.container("shared");
    let barrier = Barrier::new(containers.len());
    let results: Vec<_> = std::thread::scope(|scope| {
        let commit = |own| {
            let (fed, barrier) = (&fed, &barrier);
            scope.spawn(move || {
                let mut base = None;
                for entries in 1..=50 {
                    base = Some(fed.publish(own, base, entries).unwrap());
                }
                barrier.wait();
                fed.publish(shared, None, 1)
            })
        };
        let running: Vec<_> = containers.iter().map(|own| commit(*own)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(containers.iter().all(|own| fed.entries(*own, Csn::MAX) == Some(50)));
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 7));
    assert!(lost.iter().all(|r| r.as_ref().unwrap_err().kind() == ErrorKind::Conflict));
    let head = fed.catalog.head().unwrap();
    assert_eq!(head, *won[0].as_ref().unwrap(), "refused commits left a CSN behind");
}

#[test]
fn ids_are_reserved_only_once() {
    let fed = Federation::new();
    let one = fed.catalog.reserve_container().unwrap();
    let many = fed.catalog.reserve_containers(3).unwrap();
    assert_eq!(many, [1, 2, 3].map(|more| ContainerId(one.0 + more)));
    assert!(fed.catalog.reserve_containers(0).unwrap().is_empty());
    let error = fed.catalog.reserve_containers(u32::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(fed.catalog.reserve_container().unwrap(), ContainerId(one.0 + 4));
}

fn class(name: &str, version: u32, definition: &str) -> ClassRow {
    ClassRow { name: name.into(), version, definition: definition.into() }
}

#[test]
fn several_commits_are_published_together_and_refused_one_by_one() {
    let fed = Federation::new();
    let before = fed.catalog.head().unwrap();
    let author = Author { user: "anna".into(), host: "tau".into(), pid: 7 };
    let commit = |message: &str| Commit {
        message: message.into(),
        author: Some(author.clone()),
        ..Commit::default()
    };
    let nameless = ClassRow { name: String::new(), version: 1, definition: "{}".into() };
    let refused = Commit { new_classes: vec![nameless], ..commit("refused") };
    let results = fed.catalog.commit_all(vec![commit("first"), refused, commit("second")]);
    let [Ok(first), Err(error), Ok(second)] = &results[..] else { panic!("{results:?}") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!((first.0, second.0), (before.0 + 1, before.0 + 2));
    let newest = fed.catalog.commit_by_csn(*second).unwrap();
    assert_eq!((newest.message.as_str(), newest.user.as_str()), ("second", "anna"));
    assert_eq!((newest.host.as_str(), newest.pid), ("tau", 7));
    assert!(fed.catalog.commit_all(vec![]).is_empty());
}
