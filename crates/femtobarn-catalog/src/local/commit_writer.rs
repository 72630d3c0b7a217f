//! The connection that changes the catalogue: one SQL transaction in the process's turn to commit, which is made
//! durable after the turn.
//!
//! 1. A change is acknowledged when it is durable.
//! 2. The rows that a change touched are on the page of recent changes before the turn ends.

use std::cell::Cell;
use std::path::Path;
use std::result::Result as StdResult;

use super::connection::CatalogueConnection;
use super::log::SharedLog;
use super::wal_index::{is_next, log_state};
use crate::error::Result;
use crate::ids::Csn;
use crate::locks::{CommitTurns, LogState, RecentChanges, RecentPage, TouchedRows};
use crate::paths::LOCKS_FOLDER;
use crate::sql::{SqlConnection, SqlFailure, SqlResult};

/// The writing connection of a process.
pub(super) struct CommitWriter {
    pub(super) connection: CatalogueConnection,
    turns: CommitTurns,
    log: SharedLog,
    /// Whether the last change waited for other processes.
    has_waited: Cell<bool>,
    /// `None` if the page cannot be written; then the rows that processes keep in memory are not used.
    recent: Option<RecentChanges>,
}

/// The effect of a transaction's changes, in their order.
pub(super) struct Effect {
    /// The newest commit; `None` if unknown.
    pub(super) head: Option<Csn>,
    /// The rows that each change touched.
    pub(super) changes: Vec<TouchedRows>,
}

/// The page of recent changes after a change, and the number of changes before it.
pub(super) type NotedChange = (RecentPage, u64);

/// A change that failed.
pub(super) struct ChangeFailure {
    pub(super) failure: SqlFailure,
    /// Whether the final COMMIT failed, or the sync after it, so that the change may be on the disk.
    pub(super) is_in_doubt: bool,
}

impl Effect {
    /// The effect of a change that is not analysed.
    pub(super) fn unknown() -> Self {
        Effect { head: None, changes: vec![TouchedRows::ALL] }
    }

    /// Whether it changed rows that processes keep.
    pub(super) fn touches_rows(&self) -> bool {
        self.changes.iter().any(|change| *change != TouchedRows::default())
    }

    /// The effect of a change to rows that no process keeps in memory.
    pub(super) fn none() -> Self {
        Effect { head: None, changes: vec![TouchedRows::default()] }
    }
}

impl ChangeFailure {
    /// A failure before the change could reach the disk.
    pub(super) fn before_commit(failure: impl Into<SqlFailure>) -> Self {
        ChangeFailure { failure: failure.into(), is_in_doubt: false }
    }

    /// A failure after which the change may be on the disk.
    pub(super) fn in_doubt(failure: impl Into<SqlFailure>) -> Self {
        ChangeFailure { failure: failure.into(), is_in_doubt: true }
    }
}

impl CommitWriter {
    /// Opens the connection, and the files of the turn to commit.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connection = CatalogueConnection::open_writer(path)?;
        let locks = path.with_file_name(LOCKS_FOLDER);
        let turns = CommitTurns::open(&locks)?;
        let recent = RecentChanges::open(&locks).ok();
        let (log, has_waited) = (SharedLog::open(path)?, Cell::new(false));
        Ok(CommitWriter { connection, turns, log, has_waited, recent })
    }

    /// Runs `change` in the process's turn to commit, frees the turn, and then makes the change durable.
    pub(super) fn run(
        &self,
        change: &mut dyn FnMut(&SqlConnection) -> SqlResult<Effect>,
    ) -> StdResult<Option<NotedChange>, ChangeFailure> {
        let turn = self.turns.wait().map_err(ChangeFailure::before_commit)?;
        self.has_waited.set(turn.has_waited);
        let numbers = self.log.numbers();
        let sql = &self.connection.sql;
        if numbers.is_torn {
            self.log.mend(sql).map_err(ChangeFailure::before_commit)?;
        }
        let total_changes = || sql.sqlite().map_or(0, rusqlite::Connection::total_changes);
        let changes = total_changes();
        let mut before = None;
        let effect = transact(sql, &mut |sql| {
            before = log_state(sql);
            change(sql)
        })?;
        // SQLite does not count changes of the schema; the sync of the next commit makes them durable, too.
        if total_changes() == changes {
            return Ok(None);
        }
        let noted = self.note_recent(before, &effect);
        let change_number = self.log.record_change(numbers);
        self.log.write_ahead(sql);
        drop(turn);
        match self.log.make_durable(change_number) {
            Ok(()) => Ok(noted),
            Err(error) => {
                // Another process may be about to commit on top of this one. If mending fails, its commit fails, too.
                drop(self.turns.wait().and_then(|_turn| self.log.mend(sql)));
                Err(ChangeFailure::in_doubt(error))
            }
        }
    }

    /// Whether the last change waited for other processes.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.get()
    }

    /// Adds a change to the page of recent changes. If that fails, the page is invalid until the next change.
    fn note_recent(&self, before: Option<LogState>, effect: &Effect) -> Option<NotedChange> {
        let (before, after) = (before?, log_state(&self.connection.sql)?);
        if before == after {
            return None;
        }
        let Effect { head, changes } = effect;
        // A program that does not take turns may have changed the catalogue after this transaction.
        let (before, head) =
            if is_next(&before, &after) { (before, *head) } else { (LogState::default(), None) };
        Some(self.recent.as_ref()?.add((&before, &after), head, changes))
    }
}

fn transact(
    sql: &SqlConnection,
    change: &mut dyn FnMut(&SqlConnection) -> SqlResult<Effect>,
) -> StdResult<Effect, ChangeFailure> {
    let run = |statement: &str| sql.prepare_cached(statement).and_then(|mut s| s.execute([]));
    run("BEGIN IMMEDIATE").map_err(ChangeFailure::before_commit)?;
    let outcome = change(sql)
        .map_err(ChangeFailure::before_commit)
        .and_then(|effect| run("COMMIT").map(|_| effect).map_err(ChangeFailure::in_doubt));
    if !sql.is_autocommit() {
        // The first error is the relevant one; if this fails too, the caller notices the open transaction.
        let _ = run("ROLLBACK");
    }
    outcome
}
