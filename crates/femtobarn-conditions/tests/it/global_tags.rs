//! Global tags: versions of series under a name.

use std::collections::BTreeMap;

use femtobarn::{Csn, ErrorKind, Federation, Overlap};
use femtobarn_conditions::{GlobalTag, GlobalTagState, Job, JobOptions, SeriesVersion, TagChange};

use super::support::{commit, federation, row};

fn entry_at_50(federation: &Federation, tag: &str) -> Option<u64> {
    let options = JobOptions { global_tag: Some(tag.to_owned()), csn: None };
    let job = Job::open(federation, &options).unwrap();
    job.series("det/gain").unwrap().at(0, 50).unwrap().entry
}

fn change(federation: &Federation, name: &str, change: TagChange) -> femtobarn::Result<GlobalTag> {
    GlobalTag::change(federation, name, &change)
}

fn new() -> TagChange {
    TagChange { create: Some(None), ..Default::default() }
}

fn to_state(state: GlobalTagState) -> TagChange {
    TagChange { state: Some(state), ..Default::default() }
}

#[test]
fn a_frozen_tag_never_changes() {
    let (_folder, federation) = federation();
    let first = commit(&federation, "gain", Overlap::Newest, &[row(0, 0, 100, 0)]);
    change(&federation, "prod", new()).unwrap();
    let frozen = change(&federation, "prod", to_state(GlobalTagState::Frozen)).unwrap();
    assert!(frozen.csn.unwrap() >= first);
    commit(&federation, "gain", Overlap::Newest, &[row(0, 40, 60, 1)]);
    assert_eq!(entry_at_50(&federation, "prod"), Some(0));
    for refused in [
        to_state(GlobalTagState::Open),
        TagChange { csn: Some(None), ..Default::default() },
        TagChange { only_listed: Some(true), ..Default::default() },
    ] {
        assert_eq!(change(&federation, "prod", refused).unwrap_err().kind(), ErrorKind::Denied);
    }
}

#[test]
fn a_copy_starts_as_the_original_and_changes_alone() {
    let (_folder, federation) = federation();
    let first = commit(&federation, "gain", Overlap::Newest, &[row(0, 0, 100, 0)]);
    commit(&federation, "gain", Overlap::Newest, &[row(0, 40, 60, 1)]);
    let listed = |csn: Option<Csn>| {
        BTreeMap::from([("det/gain".to_owned(), SeriesVersion { csn, ..Default::default() })])
    };
    change(&federation, "a", TagChange { set: listed(Some(first)), ..new() }).unwrap();
    let copied = TagChange { create: Some(Some("a".to_owned())), ..Default::default() };
    let copy = change(&federation, "b", copied).unwrap();
    assert_eq!(copy.series, listed(Some(first)));
    change(&federation, "b", TagChange { set: listed(None), ..Default::default() }).unwrap();
    assert_eq!(entry_at_50(&federation, "a"), Some(0));
    assert_eq!(entry_at_50(&federation, "b"), Some(1));
    let snapshot = federation.snapshot(None).unwrap();
    assert_eq!(GlobalTag::history(&snapshot, "b").unwrap().len(), 2);
    let names: Vec<_> =
        GlobalTag::all(&snapshot).unwrap().into_iter().map(|tag| tag.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_deleted_tag_frees_its_name_and_stays_in_the_history() {
    let (_folder, federation) = federation();
    let first = commit(&federation, "gain", Overlap::Newest, &[row(0, 0, 100, 0)]);
    let at_first = TagChange { csn: Some(Some(first)), ..new() };
    change(&federation, "a", at_first).unwrap();
    let of_a = TagChange { create: Some(Some("a".to_owned())), ..Default::default() };
    change(&federation, "b", of_a.clone()).unwrap();
    change(&federation, "a", to_state(GlobalTagState::Locked)).unwrap();
    let denied = change(&federation, "a", to_state(GlobalTagState::Deleted)).unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied);
    change(&federation, "a", to_state(GlobalTagState::Open)).unwrap();
    let deleted = change(&federation, "a", to_state(GlobalTagState::Deleted)).unwrap();
    assert_eq!(deleted.state, GlobalTagState::Deleted);

    let snapshot = federation.snapshot(None).unwrap();
    assert_eq!(GlobalTag::look_up(&snapshot, "a").unwrap(), None);
    let names: Vec<_> = GlobalTag::all(&snapshot).unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["b"]);
    assert_eq!(entry_at_50(&federation, "b"), Some(0));
    for refused in [to_state(GlobalTagState::Open), TagChange { ..of_a }] {
        let name = if refused.create.is_some() { "c" } else { "a" };
        assert_eq!(change(&federation, name, refused).unwrap_err().kind(), ErrorKind::NotFound);
    }

    commit(&federation, "gain", Overlap::Newest, &[row(0, 40, 60, 1)]);
    assert_eq!(change(&federation, "a", new()).unwrap().csn, None);
    assert_eq!(entry_at_50(&federation, "a"), Some(1));
    let history = GlobalTag::history(&federation.snapshot(None).unwrap(), "a").unwrap();
    let states: Vec<_> = history.iter().map(|it| it.state.name()).collect();
    assert_eq!(states, ["open", "locked", "open", "deleted", "open"]);
}
