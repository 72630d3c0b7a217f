//! Snapshots by commit, tag and time, and how pins and tags keep them from vacuum.

use femtobarn::{At, Csn, ErrorKind, Federation, Retention};

use crate::support::{begin, events, federation, reopened, with_ten_events};

fn append(federation: &Federation) -> Csn {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let first = transaction.entries(key).unwrap();
    transaction.extend(key, events(7, first, 1)).unwrap();
    transaction.commit().unwrap()
}

fn entries(federation: &Federation, at: &At) -> u64 {
    federation.snapshot_at(at).unwrap().view("run7/events").unwrap().entries()
}

#[test]
fn a_snapshot_is_found_by_commit_tag_and_time() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    for _ in 0..5 {
        append(&federation);
    }
    federation.tag("winter26-v2", Some(Csn(3)), "for the paper").unwrap();
    federation.tag("now", None, "").unwrap();
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(entries(federation, &At::Newest), 15);
        assert_eq!(entries(federation, &At::Commit(Csn(2))), 11);
        assert_eq!(entries(federation, &At::Tag("winter26-v2".into())), 12);
        let history = federation.history(10).unwrap();
        let row = history.iter().find(|row| row.csn == Csn(4)).unwrap();
        let same: Vec<_> = history.iter().filter(|other| other.time_us == row.time_us).collect();
        let newest = same.iter().map(|row| row.csn.0).max().unwrap();
        assert_eq!(entries(federation, &At::Time(row.time_us)), 9 + newest);
        let tags = federation.tags().unwrap();
        let tags: Vec<_> = tags.iter().map(|tag| (tag.name.as_str(), tag.csn.0)).collect();
        assert_eq!(tags, [("winter26-v2", 3), ("now", 6)]);
    }
    federation.untag("now").unwrap();
    for (at, said) in [
        (At::Tag("now".into()), "now"),
        (At::Tag("winter26-v3".into()), "winter26-v2"),
        (At::Commit(Csn(7)), "commit 7 does not exist; the newest is 6"),
    ] {
        let error = federation.snapshot_at(&at).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn pinned_and_tagged_snapshots_are_kept() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    for _ in 0..5 {
        append(&federation);
    }
    federation.tag("kept", Some(Csn(2)), "").unwrap();
    federation.set_retention(Retention { keep_commits: Some(2), keep_days: None }).unwrap();
    assert_eq!(federation.retention().unwrap().keep_commits, Some(2));
    let view = federation.snapshot(Some(Csn(3))).unwrap().view("run7/events").unwrap();
    let other = reopened(&folder);
    let catalog = other.catalog().local().unwrap();
    let kept = catalog.raise_horizon(catalog.retained_from().unwrap()).unwrap();
    assert_eq!((kept.horizon, kept.csns), (Csn(5), vec![Csn(2), Csn(3)]));
    assert_eq!(view.entries(), 12);
    for (csn, exists) in [(1, false), (2, true), (3, false), (4, false), (5, true), (6, true)] {
        assert_eq!(other.snapshot(Some(Csn(csn))).is_ok(), exists, "{csn}");
    }
    drop(view);
    catalog.raise_horizon(Csn(5)).unwrap();
    assert_eq!(other.snapshot(Some(Csn(3))).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(entries(&other, &At::Tag("kept".into())), 11);
}
