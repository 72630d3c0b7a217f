//! Catalogues that are copied while other threads commit, and catalogues rebuilt from their rows.

use std::fs;

use femtobarn_catalog::{
    ClassRow, Commit, ContainerRecord, Contents, Csn, DatabaseState, ErrorKind, LocalCatalogue,
    Retention,
};
use uuid::Uuid;

use crate::federation::{Federation, container, database, new_database, version};
use crate::names::{drop_container, drop_database, rename};

/// A federation with rows of every kind.
fn rich() -> Federation {
    let fed = Federation::new();
    let (events, hits) = (fed.container("events"), fed.container("hits"));
    let class = ClassRow { name: "Event".into(), version: 1, definition: "{}".into() };
    let commit = Commit {
        message: "first".into(),
        new_classes: vec![class],
        versions: vec![version(fed.database, events, None, 1)],
        link_targets: vec![(fed.database, events, vec![Uuid::new_v4(), Uuid::new_v4()])],
        ..Commit::default()
    };
    let first = fed.catalog.commit(commit).unwrap();
    let second = rename(&fed, events, first, "tracks").unwrap();
    drop_container(&fed, hits, second).unwrap();
    let run8 = new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    drop_database(&fed, run8, fed.catalog.head().unwrap()).unwrap();
    let run9 = new_database(&fed.catalog, "run9", DatabaseState::Open).unwrap();
    let sealed = vec![(run9, fed.catalog.head().unwrap())];
    fed.catalog.commit(Commit { sealed, ..Commit::default() }).unwrap();
    let attached = database(&fed.catalog, "nano", DatabaseState::Attached);
    let mut inside = container(&fed.catalog, attached.id, "Events");
    inside.id.0 = 4_000_000_000;
    let versions = vec![version(attached.id, inside.id, None, 9)];
    let new_databases = vec![attached];
    let new_containers = vec![inside];
    let commit = Commit { new_databases, new_containers, versions, ..Commit::default() };
    fed.catalog.commit(commit).unwrap();
    fed.catalog.create_tag("one", first, "kept").unwrap();
    let retention = Retention { keep_commits: Some(3), keep_days: None };
    fed.catalog.set_retention(retention).unwrap();
    fed.catalog.raise_horizon(second).unwrap();
    fed
}

#[test]
fn a_catalogue_restored_from_its_rows_is_equal_and_takes_commits() {
    let fed = rich();
    let contents = fed.catalog.contents().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("databases")).unwrap();
    fs::write(folder.path().join("databases/run7.root"), "what is left").unwrap();
    assert_eq!(LocalCatalogue::create(folder.path(), "lhc").unwrap_err().kind(), ErrorKind::Exists);
    let again = LocalCatalogue::create_with(folder.path(), "lhc", fed.catalog.uuid()).unwrap();
    again.restore(&contents).unwrap();
    assert_eq!(again.contents().unwrap(), contents);
    assert_eq!(again.uuid(), fed.catalog.uuid());
    for csn in 0..=fed.catalog.head().unwrap().0 {
        let at = Csn(csn);
        assert_eq!(again.databases(at).unwrap(), fed.catalog.databases(at).unwrap());
        let containers = |catalog: &LocalCatalogue| catalog.containers(fed.database, at).unwrap();
        assert_eq!(containers(&again), containers(&fed.catalog));
        let exists = |catalog: &LocalCatalogue| catalog.snapshot_exists(at).unwrap();
        assert_eq!(exists(&again), exists(&fed.catalog));
    }
    assert_eq!(again.reserve_database().unwrap(), fed.catalog.reserve_database().unwrap());
    let number = again.reserve_container().unwrap();
    assert!(
        number.0 > 2 && number.0 < 100,
        "it must not follow the id in an attached file: {number}"
    );
    let csn = again.commit(Commit::default()).unwrap();
    assert_eq!(csn, Csn(fed.catalog.head().unwrap().0 + 1));
    let error = LocalCatalogue::create_with(folder.path(), "lhc", Uuid::new_v4()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
}

#[test]
fn rows_that_contradict_each_other_are_refused_as_a_whole() {
    let fed = rich();
    let contents = fed.catalog.contents().unwrap();
    let refuse = |change: &dyn Fn(&mut Contents), text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let catalog = LocalCatalogue::create_with(folder.path(), "lhc", Uuid::new_v4()).unwrap();
        let mut contents = contents.clone();
        change(&mut contents);
        let error = catalog.restore(&contents).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(catalog.contents().unwrap(), Contents::default());
    };
    refuse(&|contents| drop(contents.commits.pop()), "contradict");
    refuse(&|contents| contents.versions.extend_from_within(..1), "contradict");
    refuse(&|contents| contents.databases[2].sealed = None, "its row has no sealing commit");
    refuse(&|contents| contents.containers[0].row.name = "a/b".into(), "must not contain '/'");
    assert_eq!(fed.catalog.restore(&contents).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_container_without_a_history_of_names_always_had_its_name() {
    let fed = rich();
    let mut contents = fed.catalog.contents().unwrap();
    let hits = |record: &&mut ContainerRecord| record.row.name == "hits";
    contents.containers.iter_mut().find(hits).unwrap().names.clear();
    let folder = tempfile::tempdir().unwrap();
    let again = LocalCatalogue::create_with(folder.path(), "lhc", Uuid::new_v4()).unwrap();
    again.restore(&contents).unwrap();
    assert_eq!(again.contents().unwrap(), fed.catalog.contents().unwrap());
}

#[test]
fn a_log_without_its_catalogue_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("catalogue.sqlite-wal"), "of another one").unwrap();
    let error = LocalCatalogue::create_with(folder.path(), "lhc", Uuid::new_v4()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("catalogue.sqlite-wal"), "{error}");
    assert_eq!(LocalCatalogue::create(folder.path(), "lhc").unwrap_err().kind(), ErrorKind::Exists);
}

#[test]
fn a_copy_shows_one_commit_while_others_commit() {
    let fed = Federation::new();
    let (left, right) = (fed.container("left"), fed.container("right"));
    let copies = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let committing = scope.spawn(|| {
            let mut base = None;
            for entries in 1..=150 {
                let versions = [left, right].map(|id| version(fed.database, id, base, entries));
                let commit = Commit { versions: versions.to_vec(), ..Commit::default() };
                base = Some(fed.catalog.commit(commit).unwrap());
            }
        });
        for number in 0..4 {
            let folder = copies.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            let csn = fed.catalog.backup_to(&folder.join("catalogue.sqlite")).unwrap();
            let copy = LocalCatalogue::open(&folder).unwrap();
            assert_eq!((copy.head().unwrap(), copy.uuid()), (csn, fed.catalog.uuid()));
            let all = |id| copy.versions(fed.database, id).unwrap();
            let csns = |id| all(id).iter().map(|row| row.csn).collect::<Vec<_>>();
            assert_eq!(csns(left), csns(right));
            assert!(csns(left).last().is_none_or(|last| *last == csn));
            assert!(copy.commit(Commit::default()).unwrap() == Csn(csn.0 + 1));
        }
        committing.join().unwrap();
    });
    let error = fed.catalog.backup_to(&copies.path().join("0/catalogue.sqlite")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let error = fed.catalog.backup_to(&copies.path().join("none/catalogue.sqlite")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}
