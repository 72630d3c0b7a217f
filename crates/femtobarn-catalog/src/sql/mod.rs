//! SQL in two dialects: SQLite's, in a file of the federation's folder, and PostgreSQL's.
//!
//! 1. A statement is written once, in SQLite's dialect, with parameters `?1`, `?2`; `dialect` translates it for
//!    PostgreSQL, which gets `$1`, BIGINT for INTEGER, and tables with the name of their schema.
//! 2. Rows and parameters have the values of rusqlite: integers of 64 bits, text, bytes and null.
//! 3. A statement does not know which catalogue it runs on. It fails with a [`SqlFailure`], to which the connection's
//!    owner adds the catalogue's path.
//!
//! Modules, from below: `postgres`, the client of PostgreSQL's protocol; `dialect`; `connection`, the enums of two.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use rusqlite::ErrorCode;

use crate::error::{Error, Result};

mod connection;
mod dialect;
pub(crate) mod postgres;

pub(crate) use connection::{
    OptionalExtension, Params, Row, RowResult, SqlConnection, Statement, Work, once,
};
pub(crate) use dialect::table_definitions;
pub(crate) use postgres::{
    CommitAnswer, Parameters, PostgresAddress, PostgresConnection, PostgresFailure, PostgresRow,
};
pub(crate) use rusqlite::types::{FromSql, ValueRef};
pub(crate) use rusqlite::{ToSql, params};

/// How long SQLite itself waits for its locks. The turn to commit is taken first, so SQLite waits only for programs
/// that do not take turns, such as the `sqlite3` shell. The wait for PostgreSQL's lock is as long.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(30);

/// The result of running SQL.
pub(crate) type SqlResult<T> = std::result::Result<T, SqlFailure>;

/// Why SQL failed.
#[derive(Debug)]
pub(crate) enum SqlFailure {
    /// SQLite's own error, without the path of the catalogue.
    Sqlite(rusqlite::Error),
    /// PostgreSQL's own error, or an unreachable server.
    Postgres(PostgresFailure),
    /// An error of this crate that a statement detected, such as a conflict.
    Refused(Error),
}

impl SqlFailure {
    /// The error of the catalogue at `path`.
    pub(crate) fn at(self, path: &Path) -> Error {
        match self {
            SqlFailure::Sqlite(source) => sqlite_error(path, source),
            SqlFailure::Postgres(failure) => failure.into_error(path),
            SqlFailure::Refused(error) => error,
        }
    }

    /// Whether rows contradict a constraint of the tables.
    pub(crate) fn is_constraint(&self) -> bool {
        match self {
            SqlFailure::Sqlite(error) => {
                error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
            }
            SqlFailure::Postgres(failure) => failure.is_constraint(),
            SqlFailure::Refused(_) => false,
        }
    }
}

impl From<PostgresFailure> for SqlFailure {
    fn from(failure: PostgresFailure) -> Self {
        SqlFailure::Postgres(failure)
    }
}

impl From<rusqlite::Error> for SqlFailure {
    fn from(source: rusqlite::Error) -> Self {
        SqlFailure::Sqlite(source)
    }
}

impl From<Error> for SqlFailure {
    fn from(error: Error) -> Self {
        SqlFailure::Refused(error)
    }
}

/// Adds the path of the catalogue to an error of SQL.
pub(crate) trait AtPath<T> {
    /// The result, with an error of the catalogue at `path`.
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> AtPath<T> for rusqlite::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| sqlite_error(path, error))
    }
}

impl<T> AtPath<T> for SqlResult<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|failure| failure.at(path))
    }
}

/// SQLite's error about the catalogue at `path`.
fn sqlite_error(path: &Path, source: rusqlite::Error) -> Error {
    let what = || format!("catalogue {}", path.display());
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::corrupt(path, source.to_string())
        }
        Some(ErrorCode::DiskFull) => Error::Full { path: path.to_owned() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Busy { what: what(), holder: None, waited: BUSY_WAIT }
        }
        Some(ErrorCode::ReadOnly) => {
            Error::denied(format!("{} is read-only here; nothing was committed", what()))
        }
        Some(ErrorCode::PermissionDenied) => Error::denied(format!("{}: {source}", what())),
        Some(ErrorCode::CannotOpen) if access(path, AccessFlags::R_OK) == Err(Errno::EACCES) => {
            Error::denied(format!("{} may not be read: {}", what(), Errno::EACCES.desc()))
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            Error::Io { what: what(), source: Arc::new(source) }
        }
        _ => Error::internal(format!("{}: {source}", what())),
    }
}
