//! Rows of the newest state that this process has read or written: a small transaction mostly needs the rows that the
//! previous one wrote.
//!
//! 1. The rows are those of one state of the log. In a later state, the rows remain that no change since has touched
//!    according to the page of recent changes ([`RecentChanges`]); if the page does not cover all changes, no row
//!    remains. In PostgreSQL, the state is the newest commit, and commits record the rows that they touched
//!    ([`CommitReport`]).
//! 2. A row is kept only if no change touched it from before it was looked up until after that.
//! 3. If PostgreSQL does not have the last commit that it has reported, all rows are forgotten: it has lost commits,
//!    and other transactions may have their numbers.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use super::change_reports::{CommitReport, ReportedCommit};
use super::commit_writer::Effect;
use crate::commit::{Commit, CommitTouch, NewVersion};
use crate::error::Result;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::{LogState, RecentChanges, RecentPage, TouchedRows};
use crate::rows::{ClassRow, ContainerRow, DatabaseRow, DatabaseState, VersionRow};

/// Rows of one kind that are kept at most; all of them are forgotten when there are more.
const ROWS_MAX: usize = 4096;

/// Words of the state of a catalogue in PostgreSQL: the newest commit, and the number of times that this process has
/// forgotten all rows for another reason than a commit, such as a change that was not a commit.
const TOLD_CSN: usize = 0;
const GENERATION: usize = 1;

/// Commits whose touched rows are remembered.
const TOUCHED_MAX: usize = 1024;

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
    /// What transactions of this process touch in PostgreSQL, and the versions that they make, until it reports their
    /// commits. Those that have failed are removed.
    own: HashMap<Uuid, (CommitTouch, Vec<NewVersion>)>,
    /// The transaction of the last commit that PostgreSQL has reported.
    last_transaction: Option<Uuid>,
    /// The last change without a commit that it has reported.
    last_change: Option<String>,
    /// The commit after which all commits are in `told` or `followed`.
    remembered_from: Csn,
    /// The rows that the last reported commits touched, except the commits in `followed`.
    told: VecDeque<(Csn, TouchedRows)>,
    /// The containers that got versions from the last commits that are of this process, or that touched only one
    /// container.
    followed: VecDeque<(Csn, (DatabaseId, ContainerId))>,
    /// Containers that were touched since the look-up of the row that is being kept now.
    meanwhile: (TouchedRows, Vec<(DatabaseId, ContainerId)>),
}

impl KnownRows {
    /// Forgets the rows that were touched since, and returns whether the rows are those of this state. They are not if
    /// the page is of another state, as when another thread is ahead.
    pub(super) fn advance(&mut self, state: &LogState, recent: Option<&RecentChanges>) -> bool {
        if self.state == *state {
            return true;
        }
        let Some(page) = recent.and_then(|recent| recent.page(state)) else { return false };
        self.forget(page.touched(self.count, page.count()));
        (self.state, self.count, self.head) = (*state, page.count(), page.head());
        true
    }

    /// Takes over the rows that commits of this process wrote: the last changes of `page`, after the first `before`.
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
            if commit.touched().meets(TouchedRows::STRUCTURE) {
                self.forget(TouchedRows::ALL);
            }
            commit.versions.iter().for_each(|version| self.follow(version.to_row(csn)));
        }
        (self.state, self.count, self.head) = (page.state(), page.count(), page.head());
    }

    /// The last commit that PostgreSQL has reported.
    pub(super) fn told_until(&self) -> Csn {
        Csn(self.state[TOLD_CSN])
    }

    /// Whether the rows are those of a state of PostgreSQL, or of a newer one.
    pub(super) fn has_reached(&self, state: &LogState) -> bool {
        let order = |state: &LogState| (state[GENERATION], state[TOLD_CSN]);
        order(&self.state) >= order(state)
    }

    /// Forgets the rows that the reported commits touched, and returns the new state; none if the report does not begin
    /// at the known state, or PostgreSQL has lost that state.
    pub(super) fn take_over(&mut self, told: &CommitReport) -> Option<LogState> {
        if !told.is_whole() || told.since != self.told_until() || self.is_lost(told) {
            return None;
        }
        if told.last_change != self.last_change {
            self.forget(TouchedRows::ALL);
            self.state[GENERATION] += 1;
            self.last_change.clone_from(&told.last_change);
        }
        for ReportedCommit { csn, transaction, touched } in &told.commits {
            self.last_transaction = Some(*transaction);
            if *csn == self.told_until() {
                continue;
            }
            match self.own.remove(transaction) {
                Some((noted, versions)) if noted == *touched => {
                    let keys = versions.iter().map(|version| (version.database, version.container));
                    self.followed.extend(keys.map(|key| (*csn, key)));
                    versions.iter().for_each(|version| self.follow(version.to_row(*csn)));
                }
                _ => self.forget_touched(*csn, *touched),
            }
            self.state[TOLD_CSN] = csn.0;
        }
        let forgotten = [shorten(&mut self.told), shorten(&mut self.followed)];
        self.remembered_from = forgotten.into_iter().fold(self.remembered_from, Csn::max);
        self.head = Some(self.told_until());
        Some(self.state)
    }

    /// Forgets the rows that a commit touched whose versions are not known.
    fn forget_touched(&mut self, csn: Csn, touched: CommitTouch) {
        match touched {
            CommitTouch::Container(database, container) => {
                self.containers.remove(&(database, container));
                self.followed.push_back((csn, (database, container)));
            }
            CommitTouch::Rows(rows) => {
                self.told.push_back((csn, rows));
                self.forget(rows);
            }
        }
    }

    /// Whether PostgreSQL now has another commit with the number of the last one that it had reported.
    fn is_lost(&self, told: &CommitReport) -> bool {
        let same = told.commits.iter().find(|commit| commit.csn == self.told_until());
        let known = self.last_transaction;
        same.is_some_and(|same| known.is_some_and(|known| known != same.transaction))
    }

    /// Runs `keep` on rows that were looked up after `before` was the newest state, unless a change has touched them
    /// since.
    pub(super) fn keep_since(&mut self, before: &LogState, keep: impl FnOnce(&mut Self)) {
        let since = Csn(before[TOLD_CSN]);
        let touched = self.told.iter().filter(|(csn, _)| *csn > since);
        let touched = touched.fold(TouchedRows::default(), |all, (_, touched)| all.and(*touched));
        let is_told = self.remembered_from <= since;
        let is_same = self.state[GENERATION] == before[GENERATION];
        if !is_told || !is_same || touched.meets(TouchedRows::STRUCTURE) {
            return;
        }
        let followed = self.followed.iter().filter(|(csn, _)| *csn > since);
        self.meanwhile = (touched, followed.map(|(_, key)| *key).collect());
        keep(self);
        self.meanwhile = Default::default();
    }

    /// Forgets all rows, because PostgreSQL does not report the rows touched until commit `csn`, which exists. It may
    /// be older than the last reported one.
    pub(super) fn begin_anew(&mut self, csn: Csn) {
        let generation = self.state[GENERATION] + 1;
        *self = KnownRows::default();
        (self.state[TOLD_CSN], self.state[GENERATION]) = (csn.0, generation);
    }

    /// Notes the versions that commits of this process are about to write to PostgreSQL.
    pub(super) fn note_own(&mut self, commits: &[Commit]) {
        if self.own.len() > ROWS_MAX {
            self.own.clear();
        }
        for commit in commits {
            let has_id = !commit.transaction.is_nil();
            if has_id && !commit.touched().meets(TouchedRows::STRUCTURE) {
                let noted = (CommitTouch::of(commit), commit.versions.clone());
                self.own.insert(commit.transaction, noted);
            }
        }
    }

    /// Forgets what was noted of commits that failed, since PostgreSQL does not report them. If one was in doubt, and is
    /// reported, the rows that it touched are forgotten then.
    pub(super) fn forget_failed(&mut self, commits: &[Commit], results: &Result<Vec<Result<Csn>>>) {
        for (number, commit) in commits.iter().enumerate() {
            let result = results.as_ref().map(|results| results.get(number));
            if !matches!(result, Ok(Some(Ok(_)))) {
                self.own.remove(&commit.transaction);
            }
        }
    }

    /// Takes over the newest version of a container.
    fn follow(&mut self, version: VersionRow) {
        let key = (version.database, version.container);
        if let Some((_, container, newest)) = self.containers.get_mut(&key) {
            container.class_version = version.class_version;
            *newest = Some(version);
        }
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

    /// Whether a commit has one new version and no other change, and its container accepts that: its database is open,
    /// and its newest version is the one that the new one follows.
    pub(super) fn admits(&self, commit: &Commit) -> bool {
        let [new] = commit.versions[..] else { return false };
        let rows = self.container(new.database, new.container);
        commit.touched() != TouchedRows::ALL
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
        let (touched, containers) = &self.meanwhile;
        if touched.meets(TouchedRows::container(row.database, row.id))
            || containers.contains(&(row.database, row.id))
        {
            return;
        }
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

/// Removes the oldest commits if there are many, and returns the last of these.
fn shorten<T>(of: &mut VecDeque<(Csn, T)>) -> Csn {
    let many = of.len().saturating_sub(TOUCHED_MAX);
    of.drain(..many).next_back().map_or(Csn::ZERO, |(csn, _)| csn)
}

fn make_room<K, V>(rows: &mut HashMap<K, V>) {
    if rows.len() >= ROWS_MAX {
        rows.clear();
    }
}

/// The commits of a group that were not refused.
pub(super) fn published<'a>(
    group: &'a [Commit],
    results: &'a [Result<Csn>],
) -> impl Iterator<Item = (&'a Commit, Csn)> {
    group.iter().zip(results).filter_map(|(commit, result)| Some((commit, *result.as_ref().ok()?)))
}

/// The effect of a group of commits.
pub(super) fn effect(group: &[Commit], results: &[Result<Csn>]) -> Effect {
    let published = published(group, results);
    let (changes, csns): (Vec<_>, Vec<_>) =
        published.map(|(commit, csn)| (commit.touched(), csn)).unzip();
    Effect { head: csns.last().copied(), changes }
}

#[cfg(test)]
mod tests;
