//! What PostgreSQL tells of changes: which rows each commit touched, and how many changes there were without a commit.
//!
//! 1. A commit's row says what it touched, as the page of recent changes does for SQLite
//!    ([`RecentChanges`](crate::locks::RecentChanges)); one that says nothing, as of an older release, touched everything.
//! 2. Changes that are no commits are counted in a setting, in the transaction of each. They touched everything.
//! 3. Threads that ask at the same time share an answer, which was begun after each of them asked.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::ids::Csn;
use crate::locks::{LogState, TouchedRows};
use crate::numbers::{signed, unsigned};
use crate::sql::{Row, SqlConnection, SqlResult, params};

/// Commits that are told at once.
const TOLD_MAX: usize = 257;
const TOLD: &str = "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM federation WHERE key = 'changes'), 0), \
    c.csn, c.touched FROM (SELECT 1) one LEFT JOIN LATERAL \
    (SELECT csn, touched FROM commits WHERE csn >= ?1 ORDER BY csn LIMIT 257) c ON true";
const NOTE_CHANGE: &str = "INSERT INTO federation (key, value) VALUES ('changes', '1') ON CONFLICT (key) \
    DO UPDATE SET value = CAST(CAST(federation.value AS INTEGER) + 1 AS TEXT)";

/// What was told.
pub(super) struct ToldCommits {
    /// The first commit that was asked for.
    pub(super) since: Csn,
    /// Changes without a commit so far.
    pub(super) changes: u64,
    /// The commits from then on, and what they touched.
    pub(super) commits: Vec<(Csn, TouchedRows)>,
}

impl ToldCommits {
    /// Asks for the commits from `since` on.
    pub(super) fn read(sql: &SqlConnection, since: Csn) -> SqlResult<Self> {
        let row = |row: &Row<'_>| {
            let commit = row.get::<Option<i64>>(1)?.map(|csn| Csn(unsigned(csn)));
            let touched = row.get::<Option<i64>>(2)?;
            let touched = touched.map_or(TouchedRows::ALL, TouchedRows::of_number);
            Ok((unsigned(row.get(0)?), commit.map(|csn| (csn, touched))))
        };
        let mut told = sql.prepare_cached(TOLD)?;
        let rows: Vec<_> = told
            .query_map(params![signed(since.0)], row)?
            .collect::<std::result::Result<_, _>>()?;
        let changes = rows.first().map_or(0, |(changes, _)| *changes);
        let mut commits: Vec<_> = rows.into_iter().filter_map(|(_, commit)| commit).collect();
        commits.sort_unstable_by_key(|(csn, _)| *csn);
        Ok(ToldCommits { since, changes, commits })
    }

    /// Whether these are all commits from the first one on, which is there.
    pub(super) fn is_whole(&self) -> bool {
        let has_first = match self.commits.first() {
            Some((first, _)) => self.since == Csn::ZERO || *first == self.since,
            None => self.since == Csn::ZERO,
        };
        has_first && self.commits.len() < TOLD_MAX
    }
}

/// The newest commit.
pub(super) fn newest_csn(sql: &SqlConnection) -> SqlResult<Csn> {
    let newest = "SELECT coalesce(max(csn), 0) FROM commits";
    sql.prepare_cached(newest)?.query_row([], |row| row.get(0).map(|csn| Csn(unsigned(csn))))
}

/// Counts a change that is no commit, in the transaction that is open on `sql`.
pub(super) fn note_change(sql: &SqlConnection) -> SqlResult<()> {
    sql.prepare_cached(NOTE_CHANGE)?.execute_with_next([])
}

/// The newest state; none if PostgreSQL does not tell it, and the error if it cannot be reached.
type ToldState = Result<Option<LogState>>;

/// The question that threads of a process share.
#[derive(Default)]
pub(super) struct ToldChanges {
    /// Whether this process has committed: one that only reads asks for rows alone.
    has_begun: AtomicBool,
    turn: Mutex<ToldQuestions>,
    ended: Condvar,
}

struct ToldQuestions {
    /// Questions that were begun, and the last that has ended, with its answer.
    begun: u64,
    ended: u64,
    answer: ToldState,
    is_running: bool,
}

impl Default for ToldQuestions {
    fn default() -> Self {
        ToldQuestions { begun: 0, ended: 0, answer: Ok(None), is_running: false }
    }
}

impl ToldChanges {
    /// From now on questions are asked.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// The answer to a question that was begun after this call, by this thread or another one.
    pub(super) fn together(&self, ask: impl FnOnce() -> ToldState) -> ToldState {
        if !self.has_begun.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut turn = self.turn.lock();
        let number = turn.begun + 1;
        while turn.ended < number {
            if turn.is_running {
                self.ended.wait(&mut turn);
                continue;
            }
            (turn.is_running, turn.begun) = (true, turn.begun + 1);
            let mut asking = AskingTurn { of: self, number: turn.begun, answer: Ok(None) };
            drop(turn);
            asking.answer = ask();
            return asking.answer.clone();
        }
        turn.answer.clone()
    }
}

/// The duty to end a question, which is fulfilled when this is dropped.
struct AskingTurn<'a> {
    of: &'a ToldChanges,
    number: u64,
    answer: ToldState,
}

impl Drop for AskingTurn<'_> {
    fn drop(&mut self) {
        let mut turn = self.of.turn.lock();
        (turn.is_running, turn.ended) = (false, self.number);
        turn.answer = self.answer.clone();
        self.of.ended.notify_all();
    }
}
