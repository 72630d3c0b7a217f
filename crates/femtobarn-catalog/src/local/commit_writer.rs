//! The connection that changes the catalogue: one SQL transaction in the process's turn to commit, which is made
//! durable after the turn.
//!
//! 1. A change is acknowledged when it is durable. Other processes that read it wait for that, too, since it is
//!    announced before it is appended ([`log`](super::log)).
//! 2. The rows that a change touched are on the page of recent changes before the turn ends.

use std::cell::Cell;
use std::path::Path;
use std::result::Result as StdResult;

use super::connection::CatalogueConnection;
use super::log::SharedLog;
use super::wal_index::{changes_between, log_state};
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
        let progress = self.log.progress();
        progress.record_lost_change();
        let sql = &self.connection.sql;
        if progress.numbers().is_torn {
            self.log.mend(sql).map_err(ChangeFailure::before_commit)?;
        }
        let total_changes = || sql.sqlite().map_or(0, rusqlite::Connection::total_changes);
        let changes = total_changes();
        let (mut before, mut announced) = (None, None);
        let transacted = transact(sql, &mut |sql| {
            before = log_state(sql);
            let effect = change(sql)?;
            // SQLite does not count changes of the schema; the sync of the next commit makes them durable, too.
            if total_changes() != changes {
                announced = Some(progress.announce_change());
            }
            Ok(effect)
        });
        let Some(change_number) = announced else { return transacted.map(|_| None) };
        let effect = transacted.inspect_err(|_| self.settle(change_number, before))?;
        let noted = self.note_recent(before, &effect);
        progress.record_change(change_number);
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

    /// Settles an announced change whose COMMIT failed, in its turn; `before` is the state of the log before it. Even
    /// if no process can read the change, all of it may be in the log, where SQLite finds it after a kill of all
    /// processes.
    fn settle(&self, change: u64, before: Option<LogState>) {
        let sql = &self.connection.sql;
        let after = log_state(sql);
        let is_unreadable = before.zip(after).is_some_and(|(b, a)| changes_between(&b, &a) == 0);
        let durable = self.log.make_durable(change).or_else(|_| self.log.mend(sql));
        // Readers go on without a change that they cannot read. One that they can read makes them mend the log.
        if durable.is_err() && is_unreadable {
            self.log.progress().withdraw_change();
        } else {
            self.log.progress().record_change(change);
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
        let is_next = changes_between(&before, &after) == 1;
        let (before, head) = if is_next { (before, *head) } else { (LogState::default(), None) };
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::error::Error;
    use crate::local::LocalCatalogue;
    use crate::locks::LogNumbers;
    use crate::sql::SqlResult;

    /// A catalogue, its folder, and a table in which COMMIT refuses rows.
    fn catalogue() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("lhc.fed");
        drop(LocalCatalogue::create(&place, "lhc").unwrap());
        let path = place.join("catalogue.sqlite");
        let table = "CREATE TABLE late (id INTEGER PRIMARY KEY, other INTEGER \
            REFERENCES late DEFERRABLE INITIALLY DEFERRED)";
        let made = CommitWriter::open(&path).unwrap().run(&mut |sql| {
            sql.execute_batch(table)?;
            insert(sql)
        });
        assert!(made.is_ok());
        (folder, path)
    }

    fn insert(sql: &SqlConnection) -> SqlResult<Effect> {
        sql.execute("INSERT INTO late DEFAULT VALUES", [])?;
        Ok(Effect::none())
    }

    /// COMMIT finds that no row has the number.
    fn insert_too_late(sql: &SqlConnection) -> SqlResult<Effect> {
        sql.execute("INSERT INTO late (other) VALUES (1000)", [])?;
        Ok(Effect::none())
    }

    #[test]
    fn a_change_that_fails_before_its_commit_is_not_announced() {
        let (_folder, path) = catalogue();
        let writer = CommitWriter::open(&path).unwrap();
        let before = writer.log.progress().numbers();
        let refused = writer.run(&mut |sql| {
            insert(sql)?;
            Err(Error::invalid("refused").into())
        });
        assert!(refused.is_err_and(|failed| !failed.is_in_doubt));
        assert!(writer.run(&mut |_| Ok(Effect::none())).is_ok());
        assert_eq!(writer.log.progress().numbers(), before);
        assert!(writer.run(&mut insert).is_ok());
        let next = before.written + 1;
        let LogNumbers { written, durable, appending, .. } = writer.log.progress().numbers();
        assert_eq!([written, durable, appending], [next; 3]);
    }

    /// The announced change stayed above the durable one: readers waited for it, and found nothing that they could
    /// sync.
    #[test]
    fn readers_go_on_after_a_commit_that_failed_whether_the_log_can_be_synced_or_not() {
        let (_folder, path) = catalogue();
        let mut writer = CommitWriter::open(&path).unwrap();
        let reader = SharedLog::open(&path).unwrap();
        let last = writer.log.progress().numbers().written;
        assert!(writer.run(&mut insert_too_late).is_err_and(|failed| failed.is_in_doubt));
        let LogNumbers { written, durable, appending, is_torn, .. } = reader.progress().numbers();
        assert_eq!(([written, durable, appending], is_torn), ([last + 1; 3], false), "synced");
        writer.log.fail_syncs();
        assert!(writer.run(&mut insert_too_late).is_err_and(|failed| failed.is_in_doubt));
        let LogNumbers { written, durable, appending, is_torn, .. } = reader.progress().numbers();
        assert_eq!(([written, durable, appending], is_torn), ([last + 1; 3], true), "withdrawn");
        reader.wait_durable().unwrap();
        let other = CommitWriter::open(&path).unwrap();
        assert!(other.run(&mut insert).is_ok());
        let LogNumbers { written, durable, appending, is_torn, .. } = reader.progress().numbers();
        assert_eq!(([written, durable, appending], is_torn), ([last + 2; 3], false), "mended");
    }

    /// A client was told of a commit that was appended after the wait, and that a loss of power could still undo.
    #[test]
    fn a_look_up_of_a_commit_waits_for_what_was_appended_meanwhile() {
        let (folder, path) = catalogue();
        let catalogue = LocalCatalogue::open(&folder.path().join("lhc.fed")).unwrap();
        let other = CommitWriter::open(&path).unwrap();
        let appended = catalogue.connections.current().unwrap().read_durable(|_| {
            let _turn = other.turns.wait()?;
            let change = other.log.progress().announce_change();
            other.log.progress().record_change(change);
            Ok(change)
        });
        assert_eq!(other.log.progress().numbers().durable, appended.unwrap());
    }

    /// Each reader synced the log until the next change.
    #[test]
    fn an_announced_change_of_a_killed_committer_is_recorded_by_the_next_process() {
        let (_folder, path) = catalogue();
        let killed = CommitWriter::open(&path).unwrap();
        let reader = SharedLog::open(&path).unwrap();
        let turn = killed.turns.wait().unwrap();
        let announced = killed.log.progress().announce_change();
        reader.wait_durable().unwrap();
        assert!(reader.progress().numbers().durable < announced, "it is being appended");
        drop(turn);
        reader.wait_durable().unwrap();
        let LogNumbers { written, durable, appending, .. } = reader.progress().numbers();
        assert_eq!([written, durable, appending], [announced; 3]);

        let announced = killed.log.progress().announce_change();
        let other = CommitWriter::open(&path).unwrap();
        assert!(other.run(&mut |_| Err(Error::invalid("refused").into())).is_err());
        assert_eq!(
            reader.progress().numbers().written,
            announced,
            "before anything else is announced"
        );
    }
}
