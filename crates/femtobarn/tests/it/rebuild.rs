//! Rebuilding the catalogue from the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use femtobarn::{
    CheckLevel, CommitRow, CompactOptions, Csn, ErrorKind, Federation, Retention, VacuumOptions,
    rebuild_catalogue,
};
use rntuple::{Array, Primitive};
use tempfile::TempDir;

use super::support::{begin, event_class, events, federation, reopened, with_ten_events};

/// All objects of a snapshot, by container and entry.
fn everything(federation: &Federation, csn: Csn) -> BTreeMap<String, String> {
    let snapshot = federation.snapshot(Some(csn)).unwrap();
    let mut found = BTreeMap::new();
    for database in snapshot.databases().unwrap() {
        found.insert(database.name.clone(), format!("{} {}", database.id, database.state));
        for container in snapshot.containers(database.id).unwrap() {
            let view = snapshot.view_by_id(database.id, container.id).unwrap();
            let path = format!("{}/{}", database.name, container.name);
            found.insert(path.clone(), format!("{} {:?}", container.id, view.class()));
            for entry in view.live_entries(0..view.entries()).unwrap() {
                let value = view.value(entry).unwrap();
                found.insert(format!("{path} {}", view.oid(entry)), format!("{value:?}"));
            }
        }
    }
    found
}

fn path_of(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed")
}

fn remove_catalogue(folder: &TempDir) {
    for suffix in ["", "-wal", "-shm"] {
        let path = path_of(folder).join(format!("catalogue.sqlite{suffix}"));
        drop(std::fs::remove_file(path));
    }
}

/// Commits of every kind; returns the newest.
fn with_a_history(federation: &Federation) -> Csn {
    with_ten_events(federation);
    let mut two = begin(federation);
    let run7 = two.database("run7").unwrap();
    let run8 = two.create_database("run8").unwrap();
    let key = two.container(run7, "events").unwrap();
    two.extend(key, events(7, 10, 5)).unwrap();
    let other = two.create_container(run8, "events", &event_class(), Default::default()).unwrap();
    two.extend(other, events(8, 0, 3)).unwrap();
    two.commit().unwrap();
    let mut change = begin(federation);
    let key = change.container(run7, "events").unwrap();
    change.delete(key, &[2, 12]).unwrap();
    let runs = Array::primitive(Primitive::UInt32, vec![70_u32, 71]);
    let values = Array::Record { length: 2, members: vec![("run".to_owned(), runs)] };
    change.update(key, &[0, 14], values).unwrap();
    change.commit().unwrap();
    let mut names = begin(federation);
    names.rename_container(run8, "events", "old").unwrap();
    names.rename_database("run8", "run9").unwrap();
    names.commit().unwrap();
    let mut drop = begin(federation);
    drop.drop_container(run7, "events").unwrap();
    let key = drop.create_container(run7, "events", &event_class(), Default::default()).unwrap();
    drop.extend(key, events(7, 100, 2)).unwrap();
    drop.commit().unwrap()
}

#[test]
fn a_rebuild_restores_the_history_without_a_catalogue() {
    let (folder, federation) = federation();
    let head = with_a_history(&federation);
    let csns: Vec<Csn> = (1..=head.0).map(Csn).collect();
    let before: Vec<_> = csns.iter().map(|csn| everything(&federation, *csn)).collect();
    let uuid = federation.uuid();
    drop(federation);
    remove_catalogue(&folder);
    let report = rebuild_catalogue(&path_of(&folder), None, &mut |_| true).unwrap();
    assert_eq!((report.head, report.commits), (head, head.0));
    assert_eq!((report.left_out, report.old_catalogue), (vec![], None));
    let federation = reopened(&folder);
    assert_eq!(federation.uuid(), uuid);
    for (csn, before) in csns.iter().zip(before) {
        assert_eq!(everything(&federation, *csn), before, "commit {csn}");
    }
    let mut goes_on = begin(&federation);
    let database = goes_on.database("run7").unwrap();
    let key = goes_on.container(database, "events").unwrap();
    goes_on.extend(key, events(7, 200, 1)).unwrap();
    assert_eq!(goes_on.commit().unwrap(), Csn(head.0 + 1));
}

#[test]
fn a_damaged_catalogue_is_moved_away_and_sealed_databases_stay_sealed() {
    let (folder, federation) = federation();
    with_a_history(&federation);
    federation.seal("run9", std::time::Duration::ZERO).unwrap();
    let head = federation.head().unwrap();
    let before = everything(&federation, head);
    drop(federation);
    let catalogue = path_of(&folder).join("catalogue.sqlite");
    std::fs::write(&catalogue, b"nothing of any use").unwrap();
    let report = rebuild_catalogue(&path_of(&folder), Some("again"), &mut |_| true).unwrap();
    assert_eq!(std::fs::read(report.old_catalogue.unwrap()).unwrap(), b"nothing of any use");
    let federation = reopened(&folder);
    assert_eq!(federation.name(), "again");
    assert_eq!(everything(&federation, federation.head().unwrap()), before);
}

/// Commits up to one, without their times, which their records have as of a moment before.
fn commits(federation: &Federation, until: Csn) -> Vec<CommitRow> {
    let mut commits = federation.history(100).unwrap();
    commits.retain(|commit| commit.csn <= until);
    commits.iter_mut().for_each(|commit| commit.time_us = 0);
    commits
}

#[test]
fn a_rebuild_restores_tags_retention_the_name_and_authors() {
    let folder = tempfile::tempdir().unwrap();
    let federation = Federation::create(&path_of(&folder), "lhc").unwrap();
    let head = with_a_history(&federation);
    federation.tag("first", Some(Csn(1)), "ten events").unwrap();
    federation.tag("dropped", Some(Csn(2)), "").unwrap();
    federation.tag("newest", None, "").unwrap();
    federation.seal("run9", std::time::Duration::ZERO).unwrap();
    let sealed = federation.tag("sealed", None, "it has no commit record").unwrap();
    federation.untag("dropped").unwrap();
    let retention = Retention { keep_commits: Some(3), keep_days: None };
    federation.set_retention(retention).unwrap();
    let (tags, before) = (federation.tags().unwrap(), commits(&federation, sealed.csn));
    assert!(before.iter().all(|commit| commit.pid == std::process::id()));
    drop(federation);
    remove_catalogue(&folder);
    let report = rebuild_catalogue(&path_of(&folder), None, &mut |_| true).unwrap();
    assert_eq!((report.tags, &report.left_out[..]), (3, &[][..]));
    let federation = reopened(&folder);
    assert_eq!((federation.name(), federation.tags().unwrap()), ("lhc", tags));
    assert_eq!(federation.retention().unwrap(), retention);
    assert_eq!(commits(&federation, sealed.csn), before);
    assert_eq!(everything(&federation, head).len(), everything(&federation, sealed.csn).len());
    federation.untag("sealed").unwrap();
    drop(federation);
    remove_catalogue(&folder);
    rebuild_catalogue(&path_of(&folder), Some("again"), &mut |_| true).unwrap();
    let names: Vec<_> = reopened(&folder).tags().unwrap().into_iter().map(|tag| tag.name).collect();
    assert_eq!(names, ["first", "newest"]);
}

#[test]
fn a_rebuild_continues_without_tags_if_their_file_is_damaged() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    federation.tag("first", None, "").unwrap();
    drop(federation);
    let path = path_of(&folder).join("retained.json");
    let mut text = std::fs::read(&path).unwrap();
    *text.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &text).unwrap();
    remove_catalogue(&folder);
    let report = rebuild_catalogue(&path_of(&folder), None, &mut |_| true).unwrap();
    assert!(report.left_out[0].starts_with("retained.json"), "{:?}", report.left_out);
    assert_eq!((report.left_out.len(), report.tags), (1, 0));
    assert_eq!(std::fs::read(&path).unwrap(), text, "it is left for people to look at");
    assert_eq!(everything(&reopened(&folder), Csn(1)).len(), 12);
}

#[test]
fn a_rebuild_does_not_revive_a_commit_that_was_refused() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut refused = begin(&federation);
    let run7 = refused.database("run7").unwrap();
    let key = refused.container(run7, "events").unwrap();
    refused.extend(key, events(7, 10, 5)).unwrap();
    let run8 = refused.create_database("run8").unwrap();
    let other = refused.create_container(run8, "events", &event_class(), Default::default());
    refused.extend(other.unwrap(), events(8, 0, 3)).unwrap();
    let mut first = begin(&federation);
    first.create_database("run8").unwrap();
    let head = first.commit().unwrap();
    assert_eq!(refused.commit().unwrap_err().kind(), ErrorKind::Exists);
    let before = everything(&federation, head);
    drop(federation);
    remove_catalogue(&folder);
    rebuild_catalogue(&path_of(&folder), None, &mut |_| true).unwrap();
    let federation = reopened(&folder);
    assert_eq!(federation.head().unwrap(), head);
    assert_eq!(everything(&federation, head), before);
    assert!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().is_sound());
}

#[test]
fn a_transaction_prepared_in_one_of_two_files_is_left_out() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let before_two = std::fs::read(path_of(&folder).join("databases/run7.root")).unwrap();
    let mut two = begin(&federation);
    let run7 = two.database("run7").unwrap();
    let key = two.container(run7, "events").unwrap();
    two.extend(key, events(7, 10, 5)).unwrap();
    let run8 = two.create_database("run8").unwrap();
    let other = two.create_container(run8, "events", &event_class(), Default::default()).unwrap();
    two.extend(other, events(8, 0, 3)).unwrap();
    two.commit().unwrap();
    drop(federation);
    // As if the power had failed after the second file was synced and before the first.
    std::fs::write(path_of(&folder).join("databases/run7.root"), before_two).unwrap();
    remove_catalogue(&folder);
    let report = rebuild_catalogue(&path_of(&folder), None, &mut |_| true).unwrap();
    assert_eq!((report.head, report.databases), (Csn(1), 1));
    assert!(report.left_out[0].contains("run8.root"), "{:?}", report.left_out);
    assert_eq!(everything(&reopened(&folder), Csn(1)).len(), 12);
}

#[test]
fn a_rebuild_fails_without_commit_records() {
    let (folder, federation) = federation();
    drop(federation);
    let kind = |path: &Path| {
        rebuild_catalogue(path, None, &mut |_| true).map_err(|error| error.kind()).unwrap_err()
    };
    assert_eq!(kind(&path_of(&folder)), ErrorKind::NotFound);
    assert!(path_of(&folder).join("catalogue.sqlite").exists(), "the catalogue is not moved away");
    let stopped = {
        with_ten_events(&reopened(&folder));
        rebuild_catalogue(&path_of(&folder), None, &mut |_| false)
    };
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(everything(&reopened(&folder), Csn(1)).len(), 12);
}

#[test]
fn a_rebuild_leaves_out_versions_that_vacuum_freed() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    for n in 0..20 {
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.extend(key, events(7, 10 + 500 * n, 500)).unwrap();
        transaction.commit().unwrap();
    }
    federation.tag("third", Some(Csn(3)), "").unwrap();
    federation.tag("tenth", Some(Csn(10)), "").unwrap();
    let retained = path_of(&folder).join("retained.json");
    let earlier = std::fs::read(&retained).unwrap();
    federation.untag("tenth").unwrap();
    let all = |_: &femtobarn::Progress| true;
    federation.compact("run7", &CompactOptions::default(), &mut { all }).unwrap();
    let head = federation.head().unwrap();
    let kept = [Csn(3), head];
    let before = kept.map(|csn| everything(&federation, csn));
    let options = VacuumOptions { keep_from: Some(head), ..Default::default() };
    federation.vacuum(&options, &mut { all }).unwrap();
    drop(federation);
    remove_catalogue(&folder);
    std::fs::write(&retained, earlier).unwrap();
    let report = rebuild_catalogue(&path_of(&folder), None, &mut { all }).unwrap();
    assert!(report.left_out[0].starts_with("tag \"tenth\""), "{:?}", report.left_out);
    let federation = reopened(&folder);
    assert_eq!(kept.map(|csn| everything(&federation, csn)), before);
    assert_eq!(federation.tags().unwrap().len(), 1);
    let report = federation.check(CheckLevel::Full, &mut { all }).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(federation.snapshot(Some(Csn(10))).err().unwrap().kind(), ErrorKind::NotFound);
}
