//! Statements over a connection that is made when it is needed, and made again when it was lost.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use postgres_protocol::Oid;
use postgres_protocol::message::backend::DataRowBody;
use rusqlite::types::ValueRef;

use super::address::{PostgresAddress, ServerKind};
use super::failure::{Cause, PostgresFailure};
use super::parameters::{Parameters, oid};
use super::statements::QueuedStatement;
use super::wire::{PostgresWire, StatementAnswer};
use crate::clock;

/// How long a new connection is waited for if an earlier one was lost: a server restarts, or its standby is promoted.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for the first connection.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of statements that are sent before answers are read; the buffers of both sides must have room for them.
const QUEUED_BYTES_MAX: usize = 32 << 10;
/// The process of a server, and its kind: whether it takes changes, and whether it is a standby.
const KIND: &str =
    "SELECT pg_backend_pid(), current_setting('transaction_read_only'), pg_is_in_recovery()";
/// For a connection that keeps its statements: the server plans each statement once, by the keys of its tables,
/// whatever their contents are then. It would plan statements with lists of keys each time, which takes longer than
/// running them. A session whose machine vanished in the middle of a message may have the catalogue's lock, and the
/// server has no time limit for it. So the server probes connections that are idle, and ends such a session after 20
/// seconds, before other sessions give up their wait for the lock. A process that is only stopped in the middle of a
/// message has no limit.
const SESSION: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off; \
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
/// Statements whose translations are kept.
const STATEMENTS_MAX: usize = 512;
const LOST_IN_TRANSACTION: &str =
    "the connection was lost in the middle of a transaction, which was not committed";

type PgResult<T> = Result<T, PostgresFailure>;

/// A connection to the catalogue.
pub(crate) struct PostgresConnection {
    address: Arc<PostgresAddress>,
    /// None before the first statement, and after the connection was lost.
    wire: RefCell<Option<PostgresWire>>,
    /// Statements that are not sent yet.
    queued: RefCell<Vec<QueuedStatement>>,
    transaction: Cell<TransactionPhase>,
    was_connected: Cell<bool>,
    kind: Cell<ServerKind>,
    translated: RefCell<HashMap<String, Arc<str>>>,
}

/// The progress of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TransactionPhase {
    /// No transaction is open: each statement is one.
    None,
    /// Its beginning is queued.
    Queued,
    /// The server has its beginning.
    Sent,
}

/// The answer to a COMMIT.
pub(crate) struct CommitAnswer {
    /// The rows of the statement before it, if that was sent together with it.
    pub(crate) rows: Vec<PostgresRow>,
    /// Whether the server has waited for its synchronous standby, if it has one. It warns if the wait was cancelled.
    pub(crate) has_waited: bool,
}

/// A COMMIT that failed.
pub(crate) struct CommitFailure {
    pub(crate) failure: PostgresFailure,
    /// Whether the server may have committed nevertheless.
    pub(crate) is_in_doubt: bool,
}

/// A row of an answer.
pub(crate) struct PostgresRow {
    columns: Arc<[Oid]>,
    body: DataRowBody,
    cells: Vec<Option<Range<usize>>>,
}

impl PostgresConnection {
    /// A connection to this server, which is made by the first statement.
    pub(crate) fn new(address: Arc<PostgresAddress>) -> Self {
        PostgresConnection {
            address,
            wire: RefCell::default(),
            queued: RefCell::default(),
            transaction: Cell::new(TransactionPhase::None),
            was_connected: Cell::new(false),
            kind: Cell::new(ServerKind::Writable),
            translated: RefCell::default(),
        }
    }

    /// Connects, if that was not done yet.
    pub(crate) fn connect(&self) -> PgResult<()> {
        self.with_wire(|_| Ok(()))
    }

    /// Makes the next connection wait as long as after a lost one.
    pub(crate) fn be_patient(&self) {
        self.was_connected.set(true);
    }

    pub(crate) fn address(&self) -> &PostgresAddress {
        &self.address
    }

    /// Whether the server accepts no changes, as a standby.
    pub(crate) fn is_read_only(&self) -> bool {
        self.kind.get() != ServerKind::Writable
    }

    /// Looks for a server that accepts changes, if that of this connection does not. If none answers, the connection
    /// stays.
    pub(crate) fn look_for_primary(&self) {
        if self.is_read_only()
            && !self.is_in_transaction()
            && let Ok(wire) = self.try_hosts()
        {
            *self.wire.borrow_mut() = Some(wire);
        }
    }

    /// Whether a transaction is open.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.get() != TransactionPhase::None
    }

    /// The statement as PostgreSQL takes it.
    pub(crate) fn translated(&self, sql: &str, translate: impl FnOnce() -> String) -> Arc<str> {
        if let Some(known) = self.translated.borrow().get(sql) {
            return Arc::clone(known);
        }
        let translation: Arc<str> = translate().into();
        let mut translated = self.translated.borrow_mut();
        if translated.len() >= STATEMENTS_MAX {
            translated.clear();
        }
        translated.insert(sql.to_owned(), Arc::clone(&translation));
        translation
    }

    /// Queues the beginning of a transaction, which the statement `begin` is.
    pub(crate) fn begin(&self, begin: &str) -> PgResult<()> {
        self.queued.borrow_mut().clear();
        self.transaction.set(TransactionPhase::Queued);
        self.queue(&Arc::from(begin), Parameters::none())
    }

    /// Queues a statement whose answer is not needed. If it fails, the next one fails.
    pub(crate) fn queue(&self, statement: &Arc<str>, parameters: Parameters) -> PgResult<()> {
        let statement = QueuedStatement { sql: Arc::clone(statement), parameters };
        let queued_bytes = self.queued.borrow().iter().map(QueuedStatement::size).sum::<usize>();
        // A server that waits for a lock does not read.
        let is_too_much = queued_bytes + statement.size() > QUEUED_BYTES_MAX;
        if self.is_in_transaction() && is_too_much && queued_bytes > 0 {
            self.send_queued()?;
        }
        self.queued.borrow_mut().push(statement);
        Ok(())
    }

    /// Runs a statement behind those that are queued; its rows, and how many it changed.
    pub(crate) fn run(
        &self,
        statement: &Arc<str>,
        parameters: Parameters,
    ) -> PgResult<(Vec<PostgresRow>, usize)> {
        self.queue(statement, parameters)?;
        let answer = self.send_queued()?;
        let changed = answer.changed();
        Ok((self.rows(answer)?, changed))
    }

    /// Sends the queued statements, and returns the answer to the last one.
    fn send_queued(&self) -> PgResult<StatementAnswer> {
        let statements = self.queued.take();
        // A connection that could not be made was waited for.
        let was_connected = self.wire.borrow().is_some();
        let mut ran = self.with_wire(|wire| wire.run(&statements));
        if was_connected && self.transaction.get() != TransactionPhase::Sent && is_lost(&ran) {
            ran = self.with_wire(|wire| wire.run(&statements));
        }
        if self.is_in_transaction() {
            self.transaction.set(TransactionPhase::Sent);
        }
        ran.map(|[_, last]| last)
    }

    /// Runs statements without parameters, which semicolons separate, in the transaction that is open, or in one of their
    /// own.
    pub(crate) fn run_script(&self, script: &str) -> PgResult<()> {
        if self.transaction.get() == TransactionPhase::Queued {
            self.run(&Arc::from("SELECT 1"), Parameters::none())?;
        }
        self.with_wire(|wire| wire.run_script(script)).map(drop)
    }

    /// Runs the queued statements and ends the transaction. If the connection has ended before, nothing is in doubt: a new one
    /// is made, unless the server had the beginning of the transaction.
    pub(crate) fn commit(&self) -> Result<CommitAnswer, CommitFailure> {
        let failed = |failure, is_in_doubt| CommitFailure { failure, is_in_doubt };
        let mut statements = self.queued.take();
        let (sql, parameters) = (Arc::from("COMMIT"), Parameters::none());
        statements.push(QueuedStatement { sql, parameters });
        self.wire.borrow_mut().take_if(|wire| wire.has_ended());
        let mut was_sent = false;
        let ended = self.with_wire(|wire| {
            was_sent = true;
            wire.run(&statements)
        });
        self.transaction.set(TransactionPhase::None);
        match ended {
            Ok([before, answer]) if answer.tag == "COMMIT" => {
                let has_waited = !answer.has_warning;
                let rows = self.rows(before).map_err(|failure| failed(failure, true))?;
                Ok(CommitAnswer { rows, has_waited })
            }
            // The server rolls a transaction back in which a statement failed.
            Ok(_) => {
                let lost = Cause::Lost(LOST_IN_TRANSACTION.to_owned());
                Err(failed(self.failure(lost), false))
            }
            Err(failure) => {
                let is_in_doubt = was_sent && failure.is_lost();
                Err(failed(failure, is_in_doubt))
            }
        }
    }

    /// Undoes the transaction, also one in which a statement that was sent with COMMIT has failed: the server then
    /// skips COMMIT. If the server cannot be reached, the connection is closed, with the same effect.
    pub(crate) fn roll_back(&self) {
        self.queued.borrow_mut().clear();
        self.transaction.set(TransactionPhase::None);
        let mut wire = self.wire.borrow_mut();
        if let Some(connected) = wire.as_mut()
            && connected.is_in_transaction()
            && (connected.run_script("ROLLBACK").is_err() || connected.is_in_transaction())
        {
            *wire = None;
        }
    }

    fn with_wire<T>(&self, run: impl FnOnce(&mut PostgresWire) -> PgResult<T>) -> PgResult<T> {
        let mut slot = self.wire.borrow_mut();
        if self.kind.get() == ServerKind::Standby
            && self.transaction.get() != TransactionPhase::Sent
            && !self.address.is_read_only()
        {
            // Others of this process read newer commits by now.
            *slot = None;
        }
        let wire = match &mut *slot {
            Some(wire) => wire,
            None if self.transaction.get() == TransactionPhase::Sent => {
                return Err(self.failure(Cause::Lost(LOST_IN_TRANSACTION.to_owned())));
            }
            empty => empty.insert(self.connected()?),
        };
        let ran = run(wire);
        if is_lost(&ran) {
            *slot = None;
        }
        ran
    }

    /// A new connection. While the server starts, or no server accepts changes, it waits.
    fn connected(&self) -> PgResult<PostgresWire> {
        let patience = if self.was_connected.get() { PATIENCE } else { FIRST_PATIENCE };
        let began = clock::now();
        loop {
            match self.try_hosts() {
                Ok(wire) => {
                    self.was_connected.set(true);
                    return Ok(wire);
                }
                Err(failure) if failure.is_passing() && began.elapsed() < patience => {
                    thread::sleep(PAUSE);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Connects to the first host that accepts changes, or otherwise to one that may be read.
    fn try_hosts(&self) -> PgResult<PostgresWire> {
        let (mut last, mut to_read) = (None, None);
        for (number, (host, port)) in self.address.hosts.iter().enumerate() {
            let connected =
                PostgresWire::connect(&self.address, host, *port).and_then(|mut wire| {
                    let answer = wire.run_script(KIND)?;
                    if is_of_process(&answer, wire.process()) {
                        wire.keep_statements();
                        // A server that knows none of these plans as it likes.
                        drop(wire.run_script(SESSION));
                    }
                    Ok((wire, kind_of(&answer)))
                });
            match connected {
                Ok((wire, ServerKind::Writable)) => {
                    return Ok(self.noted(wire, number, ServerKind::Writable));
                }
                Ok((wire, kind)) if self.address.may_read_from(number, kind) => {
                    to_read.get_or_insert((wire, number, kind));
                }
                Ok(_) => {
                    let what = if self.address.must_be_writable {
                        "it is a standby, which takes no changes"
                    } else {
                        "only a standby does, which may lack what was read before; to read it, open the \
                         federation again"
                    };
                    last = Some(self.failure(Cause::Lost(what.to_owned())));
                }
                // Of several failures, a temporary one decides: the caller waits.
                Err(failure) if last.as_ref().is_none_or(|last| !last.is_passing()) => {
                    last = Some(failure);
                }
                Err(_) => {}
            }
        }
        if let Some((wire, number, kind)) = to_read {
            return Ok(self.noted(wire, number, kind));
        }
        Err(last.unwrap_or_else(|| self.failure(Cause::Lost("its URL names no host".to_owned()))))
    }

    fn noted(&self, wire: PostgresWire, host: usize, kind: ServerKind) -> PostgresWire {
        self.kind.set(kind);
        self.address.note(host, kind);
        wire
    }

    fn rows(&self, answer: StatementAnswer) -> PgResult<Vec<PostgresRow>> {
        let StatementAnswer { columns, rows, .. } = answer;
        let row = |body: DataRowBody| {
            let cells = cells(body.buffer(), columns.len())?;
            Some(PostgresRow { columns: Arc::clone(&columns), body, cells })
        };
        let rows: Option<Vec<PostgresRow>> = rows.into_iter().map(row).collect();
        rows.ok_or_else(|| self.failure(Cause::Malformed("a row that ends too early".to_owned())))
    }

    fn failure(&self, cause: Cause) -> PostgresFailure {
        PostgresFailure { server: Arc::clone(&self.address.shown), cause }
    }
}

/// The kind of a server that has answered [`KIND`], in the form of texts.
fn kind_of(answer: &StatementAnswer) -> ServerKind {
    let ends_with = |end: &[u8]| answer.rows.iter().any(|row| row.buffer().ends_with(end));
    // Each text has its length before it.
    match (ends_with(b"on\0\0\0\x01t"), ends_with(b"on\0\0\0\x01f")) {
        (true, _) => ServerKind::Standby,
        (_, true) => ServerKind::ReadOnly,
        _ => ServerKind::Writable,
    }
}

/// Whether the server that has answered [`KIND`] has this process.
fn is_of_process(answer: &StatementAnswer, process: i32) -> bool {
    let number = process.to_string();
    let text = [&(number.len() as u32).to_be_bytes()[..], number.as_bytes()].concat();
    answer.rows.iter().any(|row| row.buffer().starts_with(&text))
}

fn is_lost<T>(result: &PgResult<T>) -> bool {
    result.as_ref().is_err_and(PostgresFailure::is_lost)
}

/// Where the cells of a row are in its bytes; none if they do not fit.
fn cells(row: &[u8], count: usize) -> Option<Vec<Option<Range<usize>>>> {
    let (mut cells, mut at) = (Vec::with_capacity(count), 0_usize);
    for _ in 0..count {
        let length = row.get(at..at.checked_add(4)?)?;
        let length = i32::from_be_bytes(length.try_into().ok()?);
        at += 4;
        let Ok(length) = usize::try_from(length) else {
            cells.push(None);
            continue;
        };
        let end = at.checked_add(length).filter(|end| *end <= row.len())?;
        cells.push(Some(at..end));
        at = end;
    }
    Some(cells)
}

impl PostgresRow {
    /// The value of a column; none if there is no such column.
    pub(crate) fn value(&self, column: usize) -> Option<ValueRef<'_>> {
        let Some(range) = self.cells.get(column)? else { return Some(ValueRef::Null) };
        let bytes = &self.body.buffer()[range.clone()];
        Some(match *self.columns.get(column)? {
            oid::INT8 => ValueRef::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
            oid::INT4 => ValueRef::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            oid::INT2 => ValueRef::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            oid::BOOL => ValueRef::Integer((bytes != [0]).into()),
            oid::BYTEA => ValueRef::Blob(bytes),
            _ => ValueRef::Text(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_end_too_early_are_refused() {
        let row = [0, 0, 0, 2, 7, 7, 255, 255, 255, 255];
        assert_eq!(cells(&row, 2).unwrap(), [Some(4..6), None]);
        assert_eq!(cells(&row, 3), None);
        assert_eq!(cells(&row[..5], 1), None);
        assert_eq!(cells(&[127, 255, 255, 255, 0], 1), None);
    }
}
