//! Dropping and renaming: new snapshots have the new names, old ones the old.

use std::path::PathBuf;
use std::time::Duration;

use femtobarn::{ErrorKind, Federation, Snapshot, Transaction, TransactionOptions};

use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

/// All containers of a snapshot with the number of their entries.
fn contents(snapshot: &Snapshot) -> Vec<(String, u64)> {
    let mut found = vec![];
    for database in snapshot.databases().unwrap() {
        for container in snapshot.containers(database.id).unwrap() {
            let path = format!("{}/{}", database.name, container.name);
            let entries = snapshot.view(&path).unwrap().entries();
            found.push((path, entries));
        }
    }
    found.sort();
    found
}

fn now(federation: &Federation) -> Vec<(String, u64)> {
    contents(&federation.snapshot(None).unwrap())
}

fn are(paths: &[(&str, u64)]) -> Vec<(String, u64)> {
    paths.iter().map(|(path, entries)| ((*path).to_owned(), *entries)).collect()
}

fn create(transaction: &mut Transaction, path: &str, count: u64) {
    let (database, name) = path.split_once('/').unwrap();
    let database =
        transaction.database(database).or_else(|_| transaction.create_database(database)).unwrap();
    let class = event_class();
    let key = transaction.create_container(database, name, &class, Default::default()).unwrap();
    transaction.extend(key, events(1, 0, count)).unwrap();
}

#[test]
fn renames_and_drops_take_effect_at_their_commit() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    create(&mut transaction, "run7/other", 2);
    create(&mut transaction, "run8/x", 3);
    transaction.commit().unwrap();
    let before = federation.snapshot(None).unwrap();
    let old = are(&[("run7/events", 10), ("run7/other", 2), ("run8/x", 3)]);
    assert_eq!(contents(&before), old);

    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.rename_container(run7, "events", "all").unwrap();
    transaction.extend(key, events(7, 10, 1)).unwrap();
    transaction.drop_container(run7, "other").unwrap();
    create(&mut transaction, "run7/other", 5);
    create(&mut transaction, "run7/events", 1);
    transaction.rename_database("run8", "run9").unwrap();
    create(&mut transaction, "run9/y", 4);
    assert_eq!(transaction.database("run8").unwrap_err().kind(), ErrorKind::NotFound);
    for (path, entries) in
        [("run7/all", 11), ("run7/other", 5), ("run7/events", 1), ("run9/x", 3), ("run9/y", 4)]
    {
        assert_eq!(transaction.view(path).unwrap().entries(), entries, "{path}");
    }
    assert_eq!(transaction.view("run8/x").err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(now(&federation), old);
    transaction.commit().unwrap();
    let new = are(&[
        ("run7/all", 11),
        ("run7/events", 1),
        ("run7/other", 5),
        ("run9/x", 3),
        ("run9/y", 4),
    ]);
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(now(federation), new);
        assert_eq!(contents(&federation.snapshot(Some(before.csn())).unwrap()), old);
    }
    assert_eq!(contents(&before), old);

    let mut transaction = begin(&federation);
    transaction.drop_database("run7").unwrap();
    create(&mut transaction, "run7/new", 1);
    assert_eq!(transaction.view("run7/all").err().unwrap().kind(), ErrorKind::NotFound);
    let csn = transaction.commit().unwrap();
    assert_eq!(now(&federation), are(&[("run7/new", 1), ("run9/x", 3), ("run9/y", 4)]));
    let snapshot = reopened(&folder).snapshot(Some(femtobarn::Csn(csn.0 - 1))).unwrap();
    assert_eq!(contents(&snapshot), new);
}

#[test]
fn a_transaction_drops_and_renames_its_own_creations() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    create(&mut transaction, "a/x", 1);
    create(&mut transaction, "b/x", 2);
    create(&mut transaction, "run7/y", 3);
    let run7 = transaction.database("run7").unwrap();
    transaction.drop_container(run7, "y").unwrap();
    transaction.drop_database("a").unwrap();
    transaction.rename_database("b", "a").unwrap();
    let a = transaction.database("a").unwrap();
    transaction.rename_container(a, "x", "y").unwrap();
    assert_eq!(transaction.view("a/y").unwrap().entries(), 2);
    transaction.commit().unwrap();
    assert_eq!(now(&federation), are(&[("a/y", 2), ("run7/events", 10)]));
    let files = std::fs::read_dir(folder.path().join("test.fed/databases")).unwrap().count();
    assert_eq!(files, 2, "the file of the dropped database is gone");
}

#[test]
fn a_rollback_restores_names() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    create(&mut transaction, "run7/new", 1);
    create(&mut transaction, "run8/new", 2);
    let savepoint = transaction.savepoint().unwrap();
    for _ in 0..2 {
        let run7 = transaction.database("run7").unwrap();
        transaction.rename_container(run7, "events", "all").unwrap();
        transaction.drop_container(run7, "new").unwrap();
        transaction.drop_database("run8").unwrap();
        transaction.rename_database("run7", "run8").unwrap();
        assert_eq!(transaction.view("run8/all").unwrap().entries(), 10);
        transaction.rollback_to(&savepoint).unwrap();
        assert_eq!(transaction.view("run7/events").unwrap().entries(), 10);
        let run7 = transaction.database("run7").unwrap();
        transaction.drop_container(run7, "events").unwrap();
        transaction.drop_database("run7").unwrap();
        transaction.rollback_to(&savepoint).unwrap();
    }
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    transaction.extend(key, events(7, 10, 1)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(now(&federation), are(&[("run7/events", 11), ("run7/new", 1), ("run8/new", 2)]));
}

#[test]
fn a_checkpoint_releases_dropped_databases_and_containers() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    create(&mut transaction, "run8/x", 2);
    let run7 = transaction.database("run7").unwrap();
    transaction.rename_container(run7, "events", "all").unwrap();
    transaction.checkpoint().unwrap();
    assert_eq!(now(&federation), are(&[("run7/all", 10), ("run8/x", 2)]));
    transaction.drop_database("run8").unwrap();
    transaction.rename_container(run7, "all", "some").unwrap();
    transaction.checkpoint().unwrap();
    create(&mut transaction, "run8/y", 1);
    transaction.drop_container(run7, "some").unwrap();
    transaction.commit().unwrap();
    assert_eq!(now(&federation), are(&[("run8/y", 1)]));
}

#[test]
fn taken_and_unknown_names_are_refused() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    create(&mut transaction, "run7/new", 1);
    create(&mut transaction, "run8/x", 2);
    let run7 = transaction.database("run7").unwrap();
    for (error, kind) in [
        (transaction.rename_container(run7, "events", "new").unwrap_err(), ErrorKind::Exists),
        (transaction.rename_container(run7, "new", "events").unwrap_err(), ErrorKind::Exists),
        (transaction.rename_container(run7, "even", "x").unwrap_err(), ErrorKind::NotFound),
        (transaction.rename_container(run7, "events", "a/b").unwrap_err(), ErrorKind::Invalid),
        (
            transaction.rename_container(run7, "events", "_femtobarn").unwrap_err(),
            ErrorKind::Invalid,
        ),
        (transaction.rename_database("run7", "run8").unwrap_err(), ErrorKind::Exists),
        (transaction.rename_database("run", "run9").unwrap_err(), ErrorKind::NotFound),
        (transaction.drop_container(run7, "even").unwrap_err(), ErrorKind::NotFound),
        (transaction.drop_database("run").unwrap_err(), ErrorKind::NotFound),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
    }
    transaction.commit().unwrap();
    assert_eq!(now(&federation), are(&[("run7/events", 10), ("run7/new", 1), ("run8/x", 2)]));
}

#[test]
fn a_drop_fails_while_others_write_or_after_they_committed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let other = reopened(&folder);
    let mut writer = begin(&other);
    let run7 = writer.database("run7").unwrap();
    let key = writer.container(run7, "events").unwrap();
    let options = TransactionOptions { lock_wait: Duration::ZERO, ..Default::default() };
    let mut transaction = federation.transaction(options).unwrap();
    assert_eq!(transaction.drop_container(run7, "events").unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(transaction.drop_database("run7").unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(transaction.view("run7/events").unwrap().entries(), 10);
    writer.extend(key, events(7, 10, 1)).unwrap();
    writer.commit().unwrap();
    for error in [
        transaction.drop_container(run7, "events").unwrap_err(),
        transaction.drop_database("run7").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    drop(transaction);
    // A creation takes no lock that a drop waits for, so the commit of the drop has to fail.
    let mut dropper = begin(&federation);
    dropper.drop_database("run7").unwrap();
    let mut creator = begin(&other);
    create(&mut creator, "run7/new", 1);
    creator.commit().unwrap();
    assert_eq!(dropper.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(numbers(&federation, "run7/events").len(), 11);
}

/// A process remembers the name of a container that it wrote to; another process may have renamed it since.
#[test]
fn a_container_is_found_by_its_current_name() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let append = |name: &str| {
        let mut transaction = begin(&federation);
        let run7 = transaction.database("run7")?;
        let key = transaction.container(run7, name)?;
        transaction.extend(key, events(1, 0, 1))?;
        transaction.commit()
    };
    append("events").unwrap();
    let other = Federation::open(federation.folder()).unwrap();
    let mut transaction = begin(&other);
    let run7 = transaction.database("run7").unwrap();
    transaction.rename_container(run7, "events", "all").unwrap();
    transaction.commit().unwrap();
    assert_eq!(append("events").unwrap_err().kind(), ErrorKind::NotFound);
    let mut transaction = begin(&other);
    create(&mut transaction, "run7/events", 2);
    transaction.commit().unwrap();
    append("all").unwrap();
    append("events").unwrap();
    assert_eq!(now(&federation), are(&[("run7/all", 12), ("run7/events", 3)]));
}

#[test]
fn dropped_containers_are_not_retained() {
    let (folder, federation) = federation();
    let open_files = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        let is_it = |path: &PathBuf| {
            path.starts_with(folder.path()) && path.ends_with("databases/dropped.root")
        };
        targets.filter(is_it).count()
    };
    let mut transaction = begin(&federation);
    create(&mut transaction, "dropped/events", 1);
    transaction.commit().unwrap();
    assert_eq!(open_files(), 1, "the next append uses the file");
    let mut transaction = begin(&federation);
    transaction.drop_database("dropped").unwrap();
    transaction.rollback();
    assert_eq!(open_files(), 1, "the drop was rolled back");
    let mut transaction = begin(&federation);
    transaction.drop_database("dropped").unwrap();
    transaction.commit().unwrap();
    assert_eq!(open_files(), 0);
}
