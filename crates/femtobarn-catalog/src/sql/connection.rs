//! A connection, its statements and their rows, in either dialect, with the interface of rusqlite.

use std::sync::Arc;

use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{CachedStatement, ToSql};

use super::postgres::{Parameters, PostgresConnection, PostgresRow};
use super::{SqlFailure, SqlResult, dialect};
use crate::error::Error;

/// The result of decoding a row.
pub(crate) type RowResult<T> = rusqlite::Result<T>;

/// Statements that are run on a connection.
pub(crate) type Work<'a> = &'a mut dyn FnMut(&SqlConnection) -> SqlResult<()>;

/// A connection to the catalogue, for one thread at a time.
pub(crate) enum SqlConnection {
    /// To an SQLite file.
    Sqlite(rusqlite::Connection),
    /// To PostgreSQL.
    Postgres(PostgresConnection),
}

/// A statement that may be run again.
pub(crate) enum Statement<'a> {
    /// A statement of SQLite.
    Sqlite(CachedStatement<'a>),
    /// A statement for PostgreSQL, translated.
    Postgres(&'a PostgresConnection, Arc<str>),
}

/// A row of a statement's answer.
pub(crate) enum Row<'a> {
    /// A row of SQLite.
    Sqlite(&'a rusqlite::Row<'a>),
    /// A row of PostgreSQL.
    Postgres(&'a PostgresRow),
}

/// The rows of a statement's answer.
pub(crate) enum SqlRows<'a> {
    /// Rows of SQLite, fetched one by one.
    Sqlite(rusqlite::Rows<'a>),
    /// All rows of PostgreSQL; the number is that of the next row.
    Postgres(Vec<PostgresRow>, usize),
}

/// SqlRows that are decoded.
pub(crate) struct MappedRows<'a, F> {
    rows: SqlRows<'a>,
    decode: F,
}

/// Values of parameters: an array of one type, or the result of [`params!`](super::params).
pub(crate) trait Params: rusqlite::Params {
    /// Passes all values on.
    fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> SqlResult<()>) -> SqlResult<()>;
}

/// A row that may be missing.
pub(crate) trait OptionalExtension<T> {
    /// `None` in place of the error that there is no row.
    fn optional(self) -> SqlResult<Option<T>>;
}

impl SqlConnection {
    /// The connection, if it is SQLite's.
    pub(crate) fn sqlite(&self) -> Option<&rusqlite::Connection> {
        match self {
            SqlConnection::Sqlite(sqlite) => Some(sqlite),
            SqlConnection::Postgres(_) => None,
        }
    }

    /// The connection, if it is PostgreSQL's.
    pub(crate) fn postgres(&self) -> Option<&PostgresConnection> {
        match self {
            SqlConnection::Sqlite(_) => None,
            SqlConnection::Postgres(postgres) => Some(postgres),
        }
    }

    /// A statement, which the connection caches.
    pub(crate) fn prepare_cached(&self, sql: &str) -> SqlResult<Statement<'_>> {
        Ok(match self {
            SqlConnection::Sqlite(sqlite) => Statement::Sqlite(sqlite.prepare_cached(sql)?),
            SqlConnection::Postgres(postgres) => {
                let translate = || dialect::translate(sql, postgres.address().schema());
                Statement::Postgres(postgres, postgres.translated(sql, translate))
            }
        })
    }

    /// Runs a statement; returns the number of rows that it changed.
    pub(crate) fn execute(&self, sql: &str, parameters: impl Params) -> SqlResult<usize> {
        match self {
            SqlConnection::Sqlite(sqlite) => Ok(sqlite.execute(sql, parameters)?),
            SqlConnection::Postgres(_) => self.prepare_cached(sql)?.execute(parameters),
        }
    }

    /// The first row of a statement's answer, decoded.
    pub(crate) fn query_row<T>(
        &self,
        sql: &str,
        parameters: impl Params,
        decode: impl FnOnce(&Row<'_>) -> RowResult<T>,
    ) -> SqlResult<T> {
        self.prepare_cached(sql)?.query_row(parameters, decode)
    }

    /// Runs statements without parameters, separated by semicolons.
    pub(crate) fn execute_batch(&self, sql: &str) -> SqlResult<()> {
        match self {
            SqlConnection::Sqlite(sqlite) => Ok(sqlite.execute_batch(sql)?),
            SqlConnection::Postgres(postgres) => {
                Ok(postgres.run_script(&dialect::translate(sql, postgres.address().schema()))?)
            }
        }
    }

    /// Whether no transaction is open.
    pub(crate) fn is_autocommit(&self) -> bool {
        match self {
            SqlConnection::Sqlite(sqlite) => sqlite.is_autocommit(),
            SqlConnection::Postgres(postgres) => !postgres.is_in_transaction(),
        }
    }

    /// Runs look-ups that all see one state of the catalogue.
    pub(crate) fn in_one_state<T>(
        &self,
        look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> SqlResult<T> {
        match self {
            SqlConnection::Sqlite(sqlite) => {
                let _same_state = sqlite.unchecked_transaction()?;
                look_up(self)
            }
            SqlConnection::Postgres(postgres) => {
                postgres.begin("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")?;
                let found = look_up(self);
                postgres.roll_back();
                found
            }
        }
    }
}

impl Statement<'_> {
    /// Runs the statement; returns the number of rows that it changed.
    pub(crate) fn execute(&mut self, parameters: impl Params) -> SqlResult<usize> {
        match self {
            Statement::Sqlite(statement) => Ok(statement.execute(parameters)?),
            Statement::Postgres(postgres, sql) => Ok(postgres.run(sql, encoded(&parameters)?)?.1),
        }
    }

    /// Runs a statement whose result is not needed: PostgreSQL gets it with the next statement, which then fails for
    /// both.
    pub(crate) fn execute_with_next(&mut self, parameters: impl Params) -> SqlResult<()> {
        match self {
            Statement::Sqlite(statement) => Ok(statement.execute(parameters).map(drop)?),
            Statement::Postgres(postgres, sql) => Ok(postgres.queue(sql, encoded(&parameters)?)?),
        }
    }

    /// All rows of a statement that only PostgreSQL runs, decoded.
    pub(crate) fn query_with<T>(
        &mut self,
        parameters: Parameters,
        decode: impl Fn(&Row<'_>) -> RowResult<T>,
    ) -> SqlResult<Vec<T>> {
        let Statement::Postgres(postgres, sql) = self else { return Err(not_postgres()) };
        let (rows, _) = postgres.run(sql, parameters)?;
        Ok(rows.iter().map(|row| decode(&Row::Postgres(row))).collect::<RowResult<_>>()?)
    }

    /// As [`execute_with_next`](Self::execute_with_next), for a statement that only PostgreSQL runs.
    pub(crate) fn queue_with(&mut self, parameters: Parameters) -> SqlResult<()> {
        let Statement::Postgres(postgres, sql) = self else { return Err(not_postgres()) };
        Ok(postgres.queue(sql, parameters)?)
    }

    /// Whether the statement returns a row.
    pub(crate) fn exists(&mut self, parameters: impl Params) -> SqlResult<bool> {
        match self {
            Statement::Sqlite(statement) => Ok(statement.exists(parameters)?),
            Statement::Postgres(postgres, sql) => {
                Ok(!postgres.run(sql, encoded(&parameters)?)?.0.is_empty())
            }
        }
    }

    /// The first row, decoded.
    pub(crate) fn query_row<T>(
        &mut self,
        parameters: impl Params,
        decode: impl FnOnce(&Row<'_>) -> RowResult<T>,
    ) -> SqlResult<T> {
        let mut rows = self.query(parameters)?;
        let first = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok(decode(&first)?)
    }

    /// The rows.
    pub(crate) fn query(&mut self, parameters: impl Params) -> SqlResult<SqlRows<'_>> {
        Ok(match self {
            Statement::Sqlite(statement) => SqlRows::Sqlite(statement.query(parameters)?),
            Statement::Postgres(postgres, sql) => {
                SqlRows::Postgres(postgres.run(sql, encoded(&parameters)?)?.0, 0)
            }
        })
    }

    /// The rows, decoded.
    pub(crate) fn query_map<T, F: FnMut(&Row<'_>) -> RowResult<T>>(
        &mut self,
        parameters: impl Params,
        decode: F,
    ) -> SqlResult<MappedRows<'_, F>> {
        Ok(MappedRows { rows: self.query(parameters)?, decode })
    }
}

impl SqlRows<'_> {
    /// The next row.
    pub(crate) fn next(&mut self) -> RowResult<Option<Row<'_>>> {
        Ok(match self {
            SqlRows::Sqlite(rows) => rows.next()?.map(Row::Sqlite),
            SqlRows::Postgres(rows, next) => {
                *next += 1;
                rows.get(*next - 1).map(Row::Postgres)
            }
        })
    }
}

impl<T, F: FnMut(&Row<'_>) -> RowResult<T>> Iterator for MappedRows<'_, F> {
    type Item = RowResult<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next().transpose()?;
        Some(row.and_then(|row| (self.decode)(&row)))
    }
}

impl Row<'_> {
    /// The value of a column; columns count from 0.
    pub(crate) fn get<T: FromSql>(&self, column: usize) -> RowResult<T> {
        match self {
            Row::Sqlite(row) => row.get(column),
            Row::Postgres(_) => {
                let value = self.get_ref(column)?;
                T::column_result(value).map_err(|error| {
                    rusqlite::Error::FromSqlConversionFailure(
                        column,
                        value.data_type(),
                        Box::new(error),
                    )
                })
            }
        }
    }

    /// The value of a column in the row's own memory.
    pub(crate) fn get_ref(&self, column: usize) -> RowResult<ValueRef<'_>> {
        match self {
            Row::Sqlite(row) => row.get_ref(column),
            Row::Postgres(row) => {
                row.value(column).ok_or(rusqlite::Error::InvalidColumnIndex(column))
            }
        }
    }
}

/// Passes a function with a result, to be called once, to `run`. That has no type parameters, and so is compiled once.
pub(crate) fn once<T>(
    work: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    run: impl FnOnce(Work<'_>) -> Result<(), Error>,
) -> Result<T, Error> {
    let (mut work, mut value) = (Some(work), None);
    run(&mut |sql| {
        let work =
            work.take().ok_or_else(|| Error::internal("statements that were run already"))?;
        value = Some(work(sql)?);
        Ok(())
    })?;
    value.ok_or_else(|| Error::internal("statements that were not run"))
}

fn not_postgres() -> SqlFailure {
    Error::internal("a statement for PostgreSQL on another connection").into()
}

fn encoded(parameters: &impl Params) -> SqlResult<Parameters> {
    let mut encoded = Parameters::none();
    parameters.each(&mut |value| {
        encoded.add(&value.to_sql()?);
        Ok(())
    })?;
    Ok(encoded)
}

impl<T> OptionalExtension<T> for SqlResult<T> {
    fn optional(self) -> SqlResult<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(SqlFailure::Sqlite(rusqlite::Error::QueryReturnedNoRows)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

impl Params for &[&dyn ToSql] {
    fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> SqlResult<()>) -> SqlResult<()> {
        self.iter().try_for_each(|value| take(*value))
    }
}

impl Params for [&(dyn ToSql + Send + Sync); 0] {
    fn each(&self, _: &mut dyn FnMut(&dyn ToSql) -> SqlResult<()>) -> SqlResult<()> {
        Ok(())
    }
}

/// Implements [`Params`] for arrays of these lengths; the type of an empty array could not be inferred.
macro_rules! arrays {
    ($($length:literal)*) => {$(
        impl<T: ToSql> Params for [T; $length] {
            fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> SqlResult<()>) -> SqlResult<()> {
                self.iter().try_for_each(|value| take(value))
            }
        }
    )*};
}
arrays!(1 2 3);
