//! Rows of the newest state that this process has read or written: a small transaction asks mostly for what the one
//! before it left.
//!
//! 1. The rows are those of one state of the log. In a later state, those remain that no change since has touched, as
//!    the page of recent changes ([`RecentChanges`]) says; if it cannot say that, none does.
//! 2. A row is kept only if the log was in that state from before it was looked up until after that.

use std::collections::HashMap;

use uuid::Uuid;

use super::commit_writer::Effect;
use crate::commit::Commit;
use crate::error::Result;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::{LogState, RecentChanges, RecentPage, TouchedRows};
use crate::rows::{ClassRow, ContainerRow, DatabaseRow, DatabaseState, VersionRow};

/// Rows of one kind that are kept at most; all of them are forgotten when there are more.
const ROWS_MAX: usize = 4096;

/// A container with its database and its newest version.
pub(super) type RowsToWrite = (DatabaseRow, ContainerRow, Option<VersionRow>);

/// The rows.
#[derive(Default)]
pub(super) struct KnownRows {
    state: LogState,
    /// Changes up to that state.
    count: u64,
    /// The newest commit, if it is known.
    head: Option<Csn>,
    /// Whether the users of this catalogue may change it.
    leads: bool,
    database_names: HashMap<String, DatabaseId>,
    databases: HashMap<DatabaseId, DatabaseRow>,
    names: HashMap<(DatabaseId, String), ContainerId>,
    containers: HashMap<(DatabaseId, ContainerId), RowsToWrite>,
    link_targets: HashMap<(DatabaseId, ContainerId), Vec<Uuid>>,
    /// By name and version, or the newest by name.
    classes: HashMap<(String, Option<u32>), ClassRow>,
}

impl KnownRows {
    /// Whether the rows are those of this state, once what was touched since is forgotten. They are not if the page is
    /// of another state, as when another thread is ahead.
    pub(super) fn advance(&mut self, state: &LogState, recent: Option<&RecentChanges>) -> bool {
        if self.state == *state {
            return true;
        }
        let Some(page) = recent.and_then(|recent| recent.page(state)) else { return false };
        self.forget(page.touched(self.count, page.count()));
        (self.state, self.count, self.head) = (*state, page.count(), page.head());
        true
    }

    /// Takes over what commits of this process wrote: the last changes of `page`, after the first `before`.
    pub(super) fn apply<'a>(
        &mut self,
        page: &RecentPage,
        before: u64,
        commits: impl Iterator<Item = (&'a Commit, Csn)>,
    ) {
        if before < self.count {
            return;
        }
        self.forget(page.touched(self.count, before));
        for (commit, csn) in commits {
            if touched(commit).meets(TouchedRows::STRUCTURE) {
                self.forget(TouchedRows::ALL);
            }
            for version in &commit.versions {
                let key = (version.database, version.container);
                if let Some((_, container, newest)) = self.containers.get_mut(&key) {
                    container.class_version = version.class_version;
                    *newest = Some(version.to_row(csn));
                }
            }
        }
        (self.state, self.count, self.head) = (page.state(), page.count(), page.head());
    }

    /// The newest commit.
    pub(super) fn head(&self) -> Option<Csn> {
        self.head
    }

    /// These rows, if the newest state is that as of commit `at`.
    pub(super) fn newest(&self, at: Csn) -> Option<&Self> {
        (at == Csn::MAX || self.head == Some(at)).then_some(self)
    }

    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    pub(super) fn note_leader(&mut self) {
        self.leads = true;
    }

    pub(super) fn database_named(&self, name: &str) -> Option<&DatabaseRow> {
        self.database(*self.database_names.get(name)?)
    }

    pub(super) fn database(&self, id: DatabaseId) -> Option<&DatabaseRow> {
        self.databases.get(&id)
    }

    pub(super) fn container_named(&self, database: DatabaseId, name: &str) -> Option<&RowsToWrite> {
        let id = self.names.get(&(database, name.to_owned()))?;
        self.container(database, *id)
    }

    pub(super) fn container(&self, database: DatabaseId, id: ContainerId) -> Option<&RowsToWrite> {
        self.containers.get(&(database, id))
    }

    pub(super) fn link_targets(&self, database: DatabaseId, id: ContainerId) -> Option<&Vec<Uuid>> {
        self.link_targets.get(&(database, id))
    }

    pub(super) fn class(&self, name: &str, version: Option<u32>) -> Option<&ClassRow> {
        self.classes.get(&(name.to_owned(), version))
    }

    /// Whether a commit has one new version and no other change, and its container takes that: its database is open,
    /// and its newest version is the one that the new one follows.
    pub(super) fn admits(&self, commit: &Commit) -> bool {
        let [new] = commit.versions[..] else { return false };
        let rows = self.container(new.database, new.container);
        touched(commit) != TouchedRows::ALL
            && rows.is_some_and(|(database, _, newest)| {
                database.state == DatabaseState::Open
                    && newest.as_ref().map(|version| version.csn) == new.base
            })
    }

    pub(super) fn keep_database(&mut self, row: &DatabaseRow) {
        make_room(&mut self.databases);
        self.databases.insert(row.id, row.clone());
        make_room(&mut self.database_names);
        self.database_names.insert(row.name.clone(), row.id);
    }

    pub(super) fn keep_container(&mut self, rows: &RowsToWrite) {
        let (database, row, _) = rows;
        self.keep_database(database);
        make_room(&mut self.names);
        self.names.insert((row.database, row.name.clone()), row.id);
        make_room(&mut self.containers);
        self.containers.insert((row.database, row.id), rows.clone());
    }

    pub(super) fn keep_link_targets(
        &mut self,
        database: DatabaseId,
        id: ContainerId,
        targets: &[Uuid],
    ) {
        make_room(&mut self.link_targets);
        self.link_targets.insert((database, id), targets.to_vec());
    }

    pub(super) fn keep_class(&mut self, version: Option<u32>, row: &ClassRow) {
        make_room(&mut self.classes);
        self.classes.insert((row.name.clone(), version), row.clone());
    }

    fn forget(&mut self, touched: TouchedRows) {
        if touched.meets(TouchedRows::STRUCTURE) {
            self.leads = false;
            self.database_names.clear();
            self.databases.clear();
            self.names.clear();
            self.containers.clear();
            self.link_targets.clear();
            self.classes.clear();
        } else if touched != TouchedRows::default() {
            self.containers
                .retain(|(database, id), _| !touched.meets(TouchedRows::container(*database, *id)));
        }
    }
}

fn make_room<K, V>(rows: &mut HashMap<K, V>) {
    if rows.len() >= ROWS_MAX {
        rows.clear();
    }
}

/// What a commit touches.
fn touched(commit: &Commit) -> TouchedRows {
    let has_versions_alone = commit.new_databases.is_empty()
        && commit.new_containers.is_empty()
        && commit.new_classes.is_empty()
        && commit.link_targets.is_empty()
        && commit.sealed.is_empty()
        && commit.moved.is_empty()
        && commit.renamed_databases.is_empty()
        && commit.renamed_containers.is_empty()
        && commit.dropped_databases.is_empty()
        && commit.dropped_containers.is_empty();
    if !has_versions_alone {
        return TouchedRows::ALL;
    }
    let of = commit.versions.iter().map(|new| TouchedRows::container(new.database, new.container));
    of.fold(TouchedRows::default(), TouchedRows::and)
}

/// The commits of a group that were not refused.
pub(super) fn published<'a>(
    group: &'a [Commit],
    results: &'a [Result<Csn>],
) -> impl Iterator<Item = (&'a Commit, Csn)> {
    group.iter().zip(results).filter_map(|(commit, result)| Some((commit, *result.as_ref().ok()?)))
}

/// What a group of commits changed.
pub(super) fn effect(group: &[Commit], results: &[Result<Csn>]) -> Effect {
    let published = published(group, results);
    let (changes, csns): (Vec<_>, Vec<_>) =
        published.map(|(commit, csn)| (touched(commit), csn)).unzip();
    Effect { head: csns.last().copied(), changes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::DatabaseState;

    const DATABASE: DatabaseId = DatabaseId(1);
    const EVENTS: ContainerId = ContainerId(1);
    const HITS: ContainerId = ContainerId(2);

    /// The state of the log after so many changes.
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
    fn nothing_is_known_after_changes_that_are_not_on_the_page() {
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
    fn a_page_that_counts_anew_forgets_what_was_known() {
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

    #[test]
    fn a_refused_group_tells_that_a_change_before_it_is_not_on_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let recent = RecentChanges::open(folder.path()).unwrap();
        recent.add((&state(0), &state(1)), None, &[TouchedRows::default()]);
        let mut known = known_at(&recent, 1);
        recent.add((&state(2), &state(3)), None, &[]);
        assert!(known.advance(&state(3), Some(&recent)));
        assert_eq!(which(&known), [false, false]);
    }

    #[test]
    fn a_page_that_is_lost_or_torn_says_nothing_and_its_successor_nothing_of_before() {
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
}
