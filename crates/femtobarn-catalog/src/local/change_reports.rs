//! The changes that PostgreSQL reports: the rows that each commit touched, and changes without a commit.
//!
//! 1. The row of a commit records the rows that it touched, as the page of recent changes does for SQLite
//!    ([`RecentChanges`](crate::locks::RecentChanges)). A commit without this record, of an older release, touched all
//!    rows.
//! 2. Each change that is not a commit gives a setting a new value, in its transaction. It touched all rows.
//! 3. Commits are reported with their transactions. If a server has lost commits, as a standby that was promoted
//!    without them, other transactions may have their numbers.
//! 4. Threads that ask at the same time share an answer to a query that began after each of them asked.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use uuid::Uuid;

use super::decode;
use crate::commit::CommitTouch;
use crate::error::Result;
use crate::ids::Csn;
use crate::locks::{LogState, TouchedRows};
use crate::numbers::{signed, unsigned};
use crate::sql::{Row, SqlConnection, SqlResult, params};

/// Commits that one query returns at most.
const TOLD_MAX: usize = 257;
const TOLD: &str = "SELECT (SELECT value FROM federation WHERE key = 'changes'), \
    c.csn, c.touched, c.transaction_uuid FROM (SELECT 1) one LEFT JOIN LATERAL \
    (SELECT csn, touched, transaction_uuid FROM commits WHERE csn >= ?1 ORDER BY csn LIMIT 257) c ON true";
const NOTE_CHANGE: &str = "INSERT INTO federation (key, value) VALUES ('changes', ?1) ON CONFLICT (key) \
    DO UPDATE SET value = excluded.value";

/// The answer to a query for commits.
pub(super) struct CommitReport {
    /// The first commit that was asked for.
    pub(super) since: Csn,
    /// The identity of the last change that was not a commit; none if there was none.
    pub(super) last_change: Option<String>,
    /// The commits from `since` on.
    pub(super) commits: Vec<ReportedCommit>,
}

/// A commit as PostgreSQL reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedCommit {
    pub(super) csn: Csn,
    pub(super) transaction: Uuid,
    pub(super) touched: CommitTouch,
}

impl CommitReport {
    /// Asks for the commits from `since` on.
    pub(super) fn read(sql: &SqlConnection, since: Csn) -> SqlResult<Self> {
        let row = |row: &Row<'_>| {
            let last_change: Option<String> = row.get(0)?;
            let Some(csn) = row.get::<Option<i64>>(1)? else { return Ok((last_change, None)) };
            let touched = row.get::<Option<i64>>(2)?;
            let touched =
                touched.map_or(CommitTouch::Rows(TouchedRows::ALL), CommitTouch::of_number);
            let transaction = decode::uuid(row, 3)?;
            Ok((
                last_change,
                Some(ReportedCommit { csn: Csn(unsigned(csn)), transaction, touched }),
            ))
        };
        let mut told = sql.prepare_cached(TOLD)?;
        let rows: Vec<_> = told
            .query_map(params![signed(since.0)], row)?
            .collect::<std::result::Result<_, _>>()?;
        let last_change = rows.first().and_then(|(last_change, _)| last_change.clone());
        let mut commits: Vec<_> = rows.into_iter().filter_map(|(_, commit)| commit).collect();
        commits.sort_unstable_by_key(|commit| commit.csn);
        Ok(CommitReport { since, last_change, commits })
    }

    /// Whether these are all commits from `since` on, including that one.
    pub(super) fn is_whole(&self) -> bool {
        let has_first = match self.commits.first() {
            Some(first) => self.since == Csn::ZERO || first.csn == self.since,
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

/// Records a change that is not a commit, in the transaction that is open on `sql`.
pub(super) fn note_change(sql: &SqlConnection) -> SqlResult<()> {
    sql.prepare_cached(NOTE_CHANGE)?.execute_with_next([Uuid::new_v4().simple().to_string()])
}

/// The newest state; none if PostgreSQL does not report it, and the error if the server cannot be reached.
type ReportedState = Result<Option<LogState>>;

/// The queries for changes that the threads of a process share.
#[derive(Default)]
pub(super) struct ChangeQueries {
    /// Whether this process has committed. A process that only reads sends no queries for changes.
    has_begun: AtomicBool,
    turn: Mutex<ChangeQueryTurn>,
    ended: Condvar,
}

struct ChangeQueryTurn {
    /// The numbers of the last query that has begun and of the last that has ended, with its answer.
    begun: u64,
    ended: u64,
    answer: ReportedState,
    is_running: bool,
}

impl Default for ChangeQueryTurn {
    fn default() -> Self {
        ChangeQueryTurn { begun: 0, ended: 0, answer: Ok(None), is_running: false }
    }
}

impl ChangeQueries {
    /// Sends queries from now on.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// The answer to a query that began after this call, in this thread or another one.
    pub(super) fn together(&self, ask: impl FnOnce() -> ReportedState) -> ReportedState {
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
            let mut asking = RunningQuery { of: self, number: turn.begun, answer: Ok(None) };
            drop(turn);
            asking.answer = ask();
            return asking.answer.clone();
        }
        turn.answer.clone()
    }
}

/// A running query, which ends when this is dropped.
struct RunningQuery<'a> {
    of: &'a ChangeQueries,
    number: u64,
    answer: ReportedState,
}

impl Drop for RunningQuery<'_> {
    fn drop(&mut self) {
        let mut turn = self.of.turn.lock();
        (turn.is_running, turn.ended) = (false, self.number);
        turn.answer = self.answer.clone();
        self.of.ended.notify_all();
    }
}
