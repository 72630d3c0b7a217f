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
        BTreeMap::from([("det/gain".to_owned(), SeriesVersion { csn, source: None })])
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
