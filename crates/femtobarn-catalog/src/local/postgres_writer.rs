//! The connection that changes a catalogue in PostgreSQL.
//!
//! 1. Every change takes the lock of its catalogue, for its transaction, in a statement of its own. The statements
//!    after it see all commits of earlier holders: so the newest commit plus 1 is a CSN that no other process gives
//!    out, and CSNs become visible in their order.
//! 2. A change is acknowledged when PostgreSQL has committed it, which it does durably.
//! 3. If the answer to a COMMIT is lost, the catalogue is asked over a new connection, in a transaction that has the
//!    lock. The lost transaction then has ended, and its commit can be seen; or it did not have the lock yet, and will
//!    commit nothing ([`barrier`](super::barrier)). Before a commit that was found is acknowledged, the synchronous standby
//!    has it: a server that restarts shows commits that it could not send any more.

use std::cell::RefCell;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::barrier::note_lookup;
use super::commit_writer::ChangeFailure;
use super::connection::CatalogueConnection;
use super::home_check;
use super::postgres_group::{self, GroupOutcome};
use super::role;
use crate::clock;
use crate::commit::{self, Commit};
use crate::error::{Error, Result};
use crate::ids::Csn;
use crate::numbers::signed;
use crate::sql::{
    AtPath, BUSY_WAIT, CommitAnswer, PostgresConnection, PostgresFailure, PostgresRow,
    SqlConnection, SqlFailure, SqlResult, Work, params,
};

/// How a transaction waits: for locks as long as SQLite does, and for its own client less long than that, so that a client
/// that vanished does not block others. COMMIT may wait for a standby as long as it takes: if it were ended, the commit
/// would be there without the standby having it. A server that does not flush commits does so for these.
const SETTINGS: &str = "SELECT set_config('lock_timeout', '30s', true), \
    set_config('idle_in_transaction_session_timeout', '20s', true), \
    set_config('statement_timeout', '0', true), \
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)";
const LOCK: &str = "SELECT pg_advisory_xact_lock(?1)";
/// Gives a transaction something to commit, which waits, as every commit does, until the synchronous standby has all that
/// was committed before.
const MARK: &str = "SELECT pg_logical_emit_message(true, 'femtobarn', ''::text)";
/// How often a change is tried that other transactions blocked, or that lost its connection before its end.
const ATTEMPTS: u32 = 5;
/// How often a group is sent without the lock while others change the barrier.
const UNLOCKED_ATTEMPTS: u32 = 3;
/// The pause before it is tried again, times the attempts so far.
const PAUSE: Duration = Duration::from_millis(10);

/// The writing connection of a process.
pub(super) struct PostgresWriter {
    connection: CatalogueConnection,
    /// The barrier that PostgreSQL returned last.
    barrier: RefCell<String>,
}

impl PostgresWriter {
    pub(super) fn new(connection: CatalogueConnection) -> Self {
        PostgresWriter { connection, barrier: RefCell::default() }
    }

    /// Runs `change` in a transaction that has the lock of the catalogue. Returns the rows of the last statement that `change`
    /// has queued, if any.
    pub(super) fn run(
        &self,
        change: Work<'_>,
    ) -> std::result::Result<Vec<PostgresRow>, ChangeFailure> {
        let CommitAnswer { rows, mut has_waited } = self.run_once(change)?;
        // An administrator may have ended its wait for the standby. Then a later commit waits for both.
        for attempt in 1.. {
            if has_waited {
                break;
            }
            let again = self.run_once(&mut wait_for_standby);
            let again = again.map_err(|failed| ChangeFailure::in_doubt(failed.failure))?;
            if !again.has_waited && attempt == ATTEMPTS {
                let what = "PostgreSQL warns at each commit, so whether its standby has this one is not known; see \
                            its log";
                return Err(ChangeFailure::in_doubt(Error::Unavailable { what: what.to_owned() }));
            }
            has_waited = again.has_waited;
        }
        Ok(rows)
    }

    fn run_once(&self, change: Work<'_>) -> std::result::Result<CommitAnswer, ChangeFailure> {
        let sql = &self.connection.sql;
        let Some(postgres) = sql.postgres() else {
            let error = Error::internal("a writer of PostgreSQL with another connection");
            return Err(ChangeFailure::before_commit(error));
        };
        match begin(sql, postgres).and_then(|()| change(sql)) {
            Ok(()) => match postgres.commit() {
                Ok(answer) => Ok(answer),
                Err(failed) => {
                    postgres.roll_back();
                    let (failure, is_in_doubt) = (failed.failure.into(), failed.is_in_doubt);
                    Err(ChangeFailure { failure, is_in_doubt })
                }
            },
            Err(failure) => {
                postgres.roll_back();
                Err(ChangeFailure::before_commit(failure))
            }
        }
    }

    /// Publishes commits in one transaction; each succeeds or fails by itself, unless the transaction fails.
    pub(super) fn publish(&self, path: &Path, group: &[Commit]) -> Result<Vec<Result<Csn>>> {
        let (mut attempts, began) = (0, clock::now());
        let mut is_together = postgres_group::is_of_small_commits(group);
        loop {
            attempts += 1;
            let mut results = vec![];
            let ran = if is_together {
                self.publish_together(group)
            } else {
                self.publish_one_by_one(path, group, &mut results).map(|()| None)
            };
            let failed = match ran {
                Ok(Some(GroupOutcome::Published(csns))) => {
                    return Ok(csns.into_iter().map(Ok).collect());
                }
                Ok(Some(GroupOutcome::Overtaken(_))) if attempts < UNLOCKED_ATTEMPTS => continue,
                Ok(Some(_)) => {
                    is_together = false;
                    continue;
                }
                Ok(None) => return Ok(results),
                Err(failed) => failed,
            };
            match failed.failure {
                failure if failed.is_in_doubt => match self.published(group, results) {
                    Ok(Some(results)) => return Ok(results),
                    Ok(None) if attempts < ATTEMPTS => {}
                    Ok(None) => return Err(failure.at(path)),
                    Err(failure) => return Err(unknown(failure.at(path), group)),
                },
                // A server that cannot be reached was waited for already.
                failure
                    if attempts < ATTEMPTS
                        && began.elapsed() < BUSY_WAIT
                        && may_succeed_again(&failure) => {}
                // The server refused a row of one commit, such as for a NUL in its message; this does not concern the
                // others.
                SqlFailure::Postgres(failure)
                    if is_together && group.len() > 1 && failure.is_of_values() =>
                {
                    is_together = false;
                    continue;
                }
                failure => return Err(failure.at(path)),
            }
            thread::sleep(PAUSE * attempts);
        }
    }

    /// Publishes a group of small commits in one round trip, or none of them.
    fn publish_together(
        &self,
        group: &[Commit],
    ) -> std::result::Result<Option<GroupOutcome>, ChangeFailure> {
        let known = self.barrier.borrow().clone();
        let rows = self.run(&mut |sql| postgres_group::queue(sql, group, &known))?;
        let outcome = postgres_group::outcome(&rows, group, &known);
        let outcome = outcome.map_err(ChangeFailure::in_doubt)?;
        if let GroupOutcome::Overtaken(now) = &outcome {
            self.barrier.borrow_mut().clone_from(now);
        }
        Ok(Some(outcome))
    }

    /// Publishes each commit by itself, in one transaction that has the lock from the beginning.
    fn publish_one_by_one(
        &self,
        path: &Path,
        group: &[Commit],
        results: &mut Vec<Result<Csn>>,
    ) -> std::result::Result<(), ChangeFailure> {
        let ran = self.run(&mut |sql| {
            role::check_leader(sql)?;
            *results = apply_all(sql, path, group)?;
            Ok(())
        });
        ran.map(drop)
    }

    /// The results of a group whose answer was lost, if it was published. They are those of its commits one by one; there are
    /// none if it was published together.
    fn published(
        &self,
        group: &[Commit],
        results: Vec<Result<Csn>>,
    ) -> SqlResult<Option<Vec<Result<Csn>>>> {
        let began = clock::now();
        loop {
            let mut found = None;
            let looked = self.run(&mut |sql| {
                found = if results.is_empty() {
                    let csns = postgres_group::find(sql, group)?;
                    csns.map(|csns| csns.into_iter().map(Ok).collect())
                } else {
                    was_published(sql, group, &results)?.then(|| results.clone())
                };
                if found.is_some() { wait_for_standby(sql) } else { note_lookup(sql) }
            });
            match looked {
                Ok(_) => return Ok(found),
                Err(failed)
                    if may_succeed_again(&failed.failure) && began.elapsed() < BUSY_WAIT =>
                {
                    thread::sleep(PAUSE);
                }
                Err(failed) => return Err(failed.failure),
            }
        }
    }
}

/// Whether the commits of a group that got these results one by one were published.
fn was_published(
    sql: &SqlConnection,
    group: &[Commit],
    results: &[Result<Csn>],
) -> SqlResult<bool> {
    let find = "SELECT 1 FROM commits WHERE csn = ?1 AND transaction_uuid = ?2";
    let published = group.iter().zip(results);
    let first =
        published.filter_map(|(commit, result)| Some((commit, result.as_ref().ok()?))).next();
    let Some((commit, csn)) = first else { return Ok(true) };
    sql.prepare_cached(find)?.exists(params![signed(csn.0), commit.transaction.as_bytes()])
}

/// Lets the COMMIT of the transaction that is open on `sql` wait until the synchronous standby has all earlier ones.
pub(super) fn wait_for_standby(sql: &SqlConnection) -> SqlResult<()> {
    sql.prepare_cached(MARK)?.execute([]).map(drop)
}

/// Whether the same change may succeed if it is tried again.
fn may_succeed_again(failure: &SqlFailure) -> bool {
    let is_passing = |failure: &PostgresFailure| failure.is_lost() || failure.is_contention();
    matches!(failure, SqlFailure::Postgres(failure) if is_passing(failure))
}

fn unknown(error: Error, group: &[Commit]) -> Error {
    let transaction = group.first().map(|commit| commit.transaction).unwrap_or_default();
    Error::Unavailable {
        what: format!(
            "whether transaction {transaction} was committed is not known, because its answer was lost, and \
             {error}"
        ),
    }
}

/// Queues the beginning of a transaction and the lock of the catalogue.
fn begin(sql: &SqlConnection, postgres: &PostgresConnection) -> SqlResult<()> {
    // At other levels all statements would see the state of the first one, before it had the lock.
    postgres.begin("BEGIN ISOLATION LEVEL READ COMMITTED")?;
    sql.prepare_cached(SETTINGS)?.execute_with_next([])?;
    sql.prepare_cached(LOCK)?.execute_with_next([lock_of(postgres.address().schema())])
}

/// The number of a catalogue's lock, which is the same in all processes and releases: FNV-1a of its schema. Two catalogues
/// of a database that share one only wait for each other.
fn lock_of(schema: &str) -> i64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    schema.bytes().fold(0xcbf2_9ce4_8422_2325, add).cast_signed()
}

fn apply_all(sql: &SqlConnection, path: &Path, group: &[Commit]) -> SqlResult<Vec<Result<Csn>>> {
    match group {
        [one] => Ok(vec![Ok(apply(sql, path, one)?)]),
        several => several.iter().map(|each| apply_in_savepoint(sql, path, each)).collect(),
    }
}

fn apply(sql: &SqlConnection, path: &Path, commit: &Commit) -> SqlResult<Csn> {
    if sql.postgres().is_some() {
        home_check::check(sql, path, commit)?;
    }
    commit::apply(sql, commit, false)
}

/// Applies one of several commits, all of which the transaction publishes but for those that are refused.
pub(super) fn apply_in_savepoint(
    sql: &SqlConnection,
    path: &Path,
    commit: &Commit,
) -> SqlResult<Result<Csn>> {
    sql.prepare_cached("SAVEPOINT one")?.execute_with_next([])?;
    let release = || sql.prepare_cached("RELEASE one")?.execute([]);
    // The outcome of queued statements is known before the commit has a result.
    let applied = apply(sql, path, commit).and_then(|csn| release().map(|_| csn));
    if applied.is_err() {
        let is_lost = matches!(&applied, Err(SqlFailure::Postgres(failure)) if failure.is_lost());
        if sql.is_autocommit() || is_lost {
            // SQLite has rolled back the whole transaction, as it does when the disk is full.
            return applied.map(Ok);
        }
        sql.prepare_cached("ROLLBACK TO one")?.execute([])?;
        release()?;
    }
    Ok(applied.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes of all releases must take the same lock.
    #[test]
    fn the_lock_of_a_catalogue_has_the_same_number_for_ever() {
        assert_eq!(lock_of(""), 0xcbf2_9ce4_8422_2325_u64.cast_signed());
        assert_eq!(lock_of("a"), 0xaf63_dc4c_8601_ec8c_u64.cast_signed());
    }
}
