//! What remains known after changes.

use super::*;
use crate::commit::NewVersion;
use crate::error::Error;
use crate::rows::{BlobRange, EnvelopeRange};

const DATABASE: DatabaseId = DatabaseId(1);
const EVENTS: ContainerId = ContainerId(1);
const HITS: ContainerId = ContainerId(2);
const ALL: CommitTouch = CommitTouch::Rows(TouchedRows::ALL);

/// The state of the log after this number of changes.
fn state(changes: u64) -> LogState {
    [7, changes, 0, 0, 0, changes]
}

fn known_at(recent: &RecentChanges, at: u64) -> KnownRows {
    let mut known = KnownRows::default();
    assert!(known.advance(&state(at), Some(recent)));
    for id in [EVENTS, HITS] {
        known.keep_container(&rows(id));
    }
    known
}

fn rows(id: ContainerId) -> RowsToWrite {
    let database = DatabaseRow {
        id: DATABASE,
        uuid: uuid::Uuid::nil(),
        name: "run7".into(),
        path: String::new(),
        state: DatabaseState::Open,
        created: Csn(1),
        epoch: 0,
    };
    let container = ContainerRow {
        database: DATABASE,
        id,
        name: id.to_string(),
        class: "Event".into(),
        class_version: 1,
        options: String::new(),
        created: Csn(1),
    };
    (database, container, None)
}

fn version(entries: u64) -> NewVersion {
    NewVersion {
        database: DATABASE,
        container: EVENTS,
        base: None,
        header: EnvelopeRange::default(),
        footer: EnvelopeRange::default(),
        annex: BlobRange::default(),
        record: BlobRange::default(),
        class_version: 1,
        entries,
        deleted: 0,
        bytes: 0,
    }
}

fn which(known: &KnownRows) -> [bool; 2] {
    [EVENTS, HITS].map(|id| known.container(DATABASE, id).is_some())
}

#[test]
fn a_row_is_known_until_a_change_touches_it() {
    let folder = tempfile::tempdir().unwrap();
    let recent = RecentChanges::open(folder.path()).unwrap();
    let change = |from: u64, touched| {
        recent.add((&state(from), &state(from + 1)), Some(Csn(from + 1)), &[touched]);
    };
    change(0, TouchedRows::ALL);
    let mut known = known_at(&recent, 1);
    change(1, TouchedRows::default());
    change(2, TouchedRows::container(DATABASE, HITS));
    assert!(!known.advance(&state(2), Some(&recent)), "the page is of a later state");
    assert!(known.advance(&state(3), Some(&recent)));
    assert_eq!((which(&known), known.head()), ([true, false], Some(Csn(3))));
    change(3, TouchedRows::ALL);
    assert!(known.advance(&state(4), Some(&recent)));
    assert_eq!(which(&known), [false, false]);
}

#[test]
fn known_rows_are_dropped_after_changes_that_are_not_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let recent = RecentChanges::open(folder.path()).unwrap();
    let change = |from: u64, to: u64| {
        recent.add((&state(from), &state(to)), None, &[TouchedRows::default()]);
    };
    change(0, 1);
    let mut known = known_at(&recent, 1);
    // From 2 on: somebody made the second change without a word.
    change(2, 3);
    assert!(known.advance(&state(3), Some(&recent)));
    assert_eq!((which(&known), known.head()), ([false, false], None));
    let mut known = known_at(&recent, 3);
    (3..3 + 256).for_each(|from| change(from, from + 1));
    assert!(known.advance(&state(259), Some(&recent)));
    assert_eq!(which(&known), [true, true]);
    (259..259 + 257).for_each(|from| change(from, from + 1));
    assert!(known.advance(&state(516), Some(&recent)));
    assert_eq!(which(&known), [false, false], "a page has 256 changes");
}

#[test]
fn known_rows_are_dropped_when_the_page_counts_anew() {
    let folder = tempfile::tempdir().unwrap();
    let recent = RecentChanges::open(folder.path()).unwrap();
    let change = |from: u64| {
        let states = (&state(from), &state(from + 1));
        recent.add(states, Some(Csn(from + 1)), &[TouchedRows::default()]);
    };
    change(0);
    let mut known = known_at(&recent, 1);
    // That of a page which was lost.
    known.count = u64::MAX;
    change(1);
    assert!(known.advance(&state(2), Some(&recent)));
    assert_eq!((which(&known), known.head()), ([false, false], Some(Csn(2))));
}

fn told(since: u64, changes: u64, touched: &[(u64, CommitTouch)]) -> CommitReport {
    let commit = |(csn, touched): &(u64, CommitTouch)| ReportedCommit {
        csn: Csn(*csn),
        transaction: Uuid::from_u128((*csn).into()),
        touched: *touched,
    };
    let commits = touched.iter().map(commit).collect();
    let last_change = (changes > 0).then(|| format!("change {changes}"));
    CommitReport { since: Csn(since), last_change, commits }
}

/// A commit of this process.
fn own_commit(csn: u64) -> Commit {
    let transaction = Uuid::from_u128(csn.into());
    Commit { transaction, versions: vec![version(7)], ..Commit::default() }
}

#[test]
fn a_row_is_known_until_a_commit_in_postgresql_touches_it() {
    let mut known = KnownRows::default();
    let first = known.take_over(&told(0, 0, &[(1, ALL)])).unwrap();
    let keep = |known: &mut KnownRows| {
        [EVENTS, HITS].iter().for_each(|id| known.keep_container(&rows(*id)));
    };
    keep(&mut known);
    let hits = (2, CommitTouch::Container(DATABASE, HITS));
    let second = known.take_over(&told(1, 0, &[(1, ALL), hits])).unwrap();
    assert_eq!((which(&known), known.head()), ([true, false], Some(Csn(2))));
    assert!(known.has_reached(&first) && known.state != first && known.state == second);
    let late = told(1, 0, &[(1, ALL)]);
    let none = told(2, 0, &[]);
    for missing in [late, told(3, 0, &[(3, hits.1)]), none, told(2, 0, &[(4, hits.1)])] {
        assert_eq!(known.take_over(&missing), None);
    }
    known.take_over(&told(2, 1, &[hits])).unwrap();
    assert_eq!(which(&known), [false, false], "a change that was no commit");
    keep(&mut known);
    known.begin_anew(Csn(900));
    assert_eq!((which(&known), known.told_until()), ([false, false], Csn(900)));
}

/// Of those of others, many have the same bit in a set.
#[test]
fn a_row_stays_known_when_commits_touch_only_other_containers() {
    let mut known = KnownRows::default();
    let before = known.take_over(&told(0, 0, &[(1, ALL)])).unwrap();
    [EVENTS, HITS].iter().for_each(|id| known.keep_container(&rows(*id)));
    let others =
        (0..200).map(|n| (n + 2, CommitTouch::Container(DatabaseId(2), ContainerId(n as u32))));
    let hits = (202, CommitTouch::Container(DATABASE, HITS));
    let all: Vec<_> = std::iter::once((1, ALL)).chain(others).chain([hits]).collect();
    known.take_over(&told(1, 0, &all)).unwrap();
    assert_eq!(which(&known), [true, false]);
    known.keep_since(&before, |known| known.keep_container(&rows(HITS)));
    assert_eq!(which(&known), [true, false], "it was looked up before");
    let sets = all
        .iter()
        .map(|(csn, _)| (csn + 201, CommitTouch::Rows(TouchedRows::container(DATABASE, HITS))));
    let sets: Vec<_> = [hits].into_iter().chain(sets.skip(1)).collect();
    known.keep_container(&rows(HITS));
    known.take_over(&told(202, 0, &sets)).unwrap();
    assert_eq!(which(&known), [true, false], "as of commits of two containers");
}

#[test]
fn a_version_of_this_process_is_known_once_its_commit_is_seen_in_postgresql() {
    let mut known = KnownRows::default();
    known.take_over(&told(0, 0, &[(1, ALL)])).unwrap();
    known.keep_container(&rows(EVENTS));
    let commit = own_commit(3);
    known.note_own(std::slice::from_ref(&commit));
    let entries = |known: &KnownRows| {
        known.container(DATABASE, EVENTS).map(|(_, _, newest)| newest.map(|it| it.entries))
    };
    assert_eq!(entries(&known), Some(None));
    let other = (2, CommitTouch::Container(DATABASE, HITS));
    let all = [(1, ALL), other, (3, CommitTouch::of(&commit))];
    known.take_over(&told(1, 0, &all)).unwrap();
    assert_eq!((entries(&known), known.own.len()), (Some(Some(7)), 0));
    // Another commit of a transaction with the same id.
    known.note_own(&[own_commit(4)]);
    let other = CommitTouch::Rows(TouchedRows::container(DATABASE, EVENTS));
    known.take_over(&told(3, 0, &[(3, CommitTouch::of(&commit)), (4, other)])).unwrap();
    assert_eq!((entries(&known), known.own.len()), (None, 0));
}

#[test]
fn what_failed_commits_would_have_written_is_forgotten() {
    let mut known = KnownRows::default();
    let group = [own_commit(2), own_commit(3)];
    known.note_own(&group);
    known.forget_failed(&group, &Ok(vec![Err(Error::Moving), Ok(Csn(2))]));
    assert_eq!(known.own.keys().collect::<Vec<_>>(), [&group[1].transaction]);
    known.forget_failed(&group, &Err(Error::Moving));
    assert!(known.own.is_empty());
}

#[test]
fn known_rows_are_dropped_after_a_refused_group_that_follows_a_missing_change() {
    let folder = tempfile::tempdir().unwrap();
    let recent = RecentChanges::open(folder.path()).unwrap();
    recent.add((&state(0), &state(1)), None, &[TouchedRows::default()]);
    let mut known = known_at(&recent, 1);
    recent.add((&state(2), &state(3)), None, &[]);
    assert!(known.advance(&state(3), Some(&recent)));
    assert_eq!(which(&known), [false, false]);
}

#[test]
fn a_lost_or_torn_page_is_ignored_and_its_successor_drops_known_rows() {
    let folder = tempfile::tempdir().unwrap();
    let recent = RecentChanges::open(folder.path()).unwrap();
    let first = (&state(0), &state(1));
    recent.add(first, None, &[TouchedRows::ALL]);
    let mut known = known_at(&recent, 1);
    let path = folder.path().join("recent");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(recent.page(&state(1)).is_none());
    recent.add((&state(1), &state(2)), None, &[TouchedRows::default()]);
    assert!(known.advance(&state(2), Some(&recent)));
    assert_eq!(which(&known), [false, false]);
}

#[test]
fn a_row_that_was_touched_while_it_was_looked_up_is_not_kept() {
    let mut known = KnownRows::default();
    let first = (1, ALL);
    let before = known.take_over(&told(0, 0, &[first])).unwrap();
    let keep = |known: &mut KnownRows, before: &LogState| {
        known.keep_since(before, |known| {
            [EVENTS, HITS].iter().for_each(|id| known.keep_container(&rows(*id)));
        });
        which(known)
    };
    let hits = (2, CommitTouch::Container(DATABASE, HITS));
    known.take_over(&told(1, 0, &[first, hits])).unwrap();
    assert_eq!(keep(&mut known, &before), [true, false]);
    let own = own_commit(3);
    known.note_own(std::slice::from_ref(&own));
    let before = known.take_over(&told(2, 0, &[hits])).unwrap();
    known.forget(TouchedRows::ALL);
    known.take_over(&told(2, 0, &[hits, (3, CommitTouch::of(&own))])).unwrap();
    assert_eq!(keep(&mut known, &before), [false, true], "one of this process");
    let before = known.take_over(&told(3, 0, &[(3, CommitTouch::of(&own))])).unwrap();
    known.take_over(&told(3, 0, &[(3, CommitTouch::of(&own)), (4, ALL)])).unwrap();
    assert_eq!(keep(&mut known, &before), [false, false], "any row");
    let before = known.take_over(&told(4, 0, &[(4, ALL)])).unwrap();
    known.take_over(&told(4, 1, &[(4, ALL)])).unwrap();
    assert_eq!(keep(&mut known, &before), [false, false], "a change that was no commit");
    let many: Vec<_> =
        (4..4 + 200).map(|csn| (csn, CommitTouch::Rows(TouchedRows::default()))).collect();
    let before = known.take_over(&told(4, 1, &many)).unwrap();
    let mut last = 203;
    for _ in 0..6 {
        let more: Vec<_> = (last..last + 200)
            .map(|csn| (csn, CommitTouch::Rows(TouchedRows::default())))
            .collect();
        known.take_over(&told(last, 1, &more)).unwrap();
        last += 199;
    }
    assert_eq!(keep(&mut known, &before), [false, false], "more than are remembered");
}

/// A standby without the last commits was promoted, or a backup restored; others may have the numbers of what was lost.
#[test]
fn known_rows_are_dropped_once_postgresql_has_lost_a_commit() {
    let none = CommitTouch::Rows(TouchedRows::default());
    for others in [0, 1] {
        let mut known = KnownRows::default();
        known.take_over(&told(0, 0, &[(1, ALL)])).unwrap();
        let before = known.take_over(&told(1, 0, &[(1, none), (2, none)])).unwrap();
        known.keep_container(&rows(EVENTS));
        let mut now = told(2, 0, &[(2, none)][..others]);
        now.commits.iter_mut().for_each(|other| other.transaction = Uuid::nil());
        assert_eq!(known.take_over(&now), None);
        known.begin_anew(Csn(1));
        assert_eq!((which(&known), known.told_until()), ([false, false], Csn(1)));
        let after = known.take_over(&told(1, 0, &[(1, none)])).unwrap();
        assert!(known.has_reached(&after) && known.has_reached(&before));
        // What a thread found before that.
        known.keep_since(&before, |known| known.keep_container(&rows(EVENTS)));
        assert_eq!(which(&known), [false, false]);
        known.keep_since(&after, |known| known.keep_container(&rows(EVENTS)));
        assert_eq!(which(&known), [true, false]);
    }
}

/// PostgreSQL has reported the commit before the lost one to this process.
#[test]
fn a_lost_commit_of_this_process_is_not_taken_for_the_one_with_its_number() {
    let mut known = KnownRows::default();
    known.take_over(&told(0, 0, &[(1, ALL)])).unwrap();
    known.keep_container(&rows(EVENTS));
    known.note_own(&[own_commit(2)]);
    let mut other = told(1, 0, &[(1, ALL), (2, CommitTouch::of(&own_commit(2)))]);
    other.commits[1].transaction = Uuid::nil();
    known.take_over(&other).unwrap();
    assert_eq!(which(&known), [false, false]);
    let many: Vec<_> = (2..ROWS_MAX as u64 + 2).map(own_commit).collect();
    known.note_own(&many);
    known.note_own(&[own_commit(1)]);
    assert_eq!(known.own.len(), ROWS_MAX + 1, "one that is never published is forgotten at last");
    known.note_own(&[own_commit(0), own_commit(1)]);
    assert_eq!(known.own.len(), 1);
}

#[test]
fn known_rows_are_dropped_once_postgresql_has_another_change_in_place_of_a_lost_one() {
    let mut known = KnownRows::default();
    let first = [(1, ALL)];
    let before = known.take_over(&told(0, 2, &first)).unwrap();
    known.keep_container(&rows(EVENTS));
    known.take_over(&told(1, 1, &first)).unwrap();
    assert_eq!(which(&known), [false, false]);
    known.keep_since(&before, |known| known.keep_container(&rows(EVENTS)));
    assert_eq!(which(&known), [false, false]);
}
