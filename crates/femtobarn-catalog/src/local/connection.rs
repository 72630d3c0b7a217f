//! One connection to the catalogue, configured as this crate needs it.
//!
//! A catalogue is in write-ahead-log mode, in which SQLite needs a shared-memory file beside it even to read. On a
//! read-only medium that file cannot be made, so the connection is opened *immutable* there: SQLite takes no locks
//! and ignores the log. That is right as long as there is no log; an immutable connection is closed as soon as one
//! appears.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::{AccessFlags, access};
use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;

use super::wal_index::log_state;
use crate::error::{Error, ErrorKind, Result};
use crate::locks::LogState;
use crate::paths::log_path;
use crate::schema::{
    self, FORMAT_VERSION, FORMAT_WITH_NEW_FILES, FederationIdentity, POSTGRES_TABLES_VERSION,
};
use crate::sql::{AtPath, BUSY_WAIT, PostgresAddress, PostgresConnection, SqlConnection};

/// Pages of the log (of 4 KiB) after which SQLite checkpoints it into the tables. Checkpoints are rarer than with
/// SQLite's default of 1,000, and the log is at most 16 MiB long.
const CHECKPOINT_PAGES: u32 = 4096;
const STATEMENTS_MAX: usize = 64;
/// Memory for the pages that a writer keeps: those of the slots of logged bytes, and others.
const WRITER_CACHE_KIB: i64 = 4096;

/// A connection, and how it was opened.
pub(super) struct CatalogueConnection {
    pub(super) sql: SqlConnection,
    immutable: bool,
    /// Whether the connection reads the log. One that is not immutable does not if another program, such as a shell,
    /// wrote the catalogue, and no process has changed it since.
    has_log: bool,
}

impl CatalogueConnection {
    /// Opens a connection for look-ups.
    pub(super) fn open_reader(path: &Path) -> Result<(Self, FederationIdentity)> {
        Self::open_shared_reader(path).or_else(|error| match error.kind() {
            ErrorKind::Io | ErrorKind::Denied if !is_writable(path) => {
                Self::open_immutable(path, error)
            }
            _ => Err(error),
        })
    }

    /// Opens a connection to PostgreSQL for look-ups.
    pub(super) fn open_postgres_reader(
        path: &Path,
        address: &Arc<PostgresAddress>,
    ) -> Result<(Self, FederationIdentity)> {
        let handle = Self::new_to_postgres(address);
        let identity = handle.identify(path)?;
        Ok((handle, identity))
    }

    /// The first connection to PostgreSQL. Its first statement connects, and fails if the server does not answer.
    pub(super) fn new_to_postgres(address: &Arc<PostgresAddress>) -> Self {
        let sql = SqlConnection::Postgres(PostgresConnection::new(Arc::clone(address)));
        CatalogueConnection { sql, immutable: false, has_log: false }
    }

    /// A connection to PostgreSQL. Its first statement connects, and waits while the server restarts.
    pub(super) fn to_postgres(address: &Arc<PostgresAddress>) -> Self {
        let postgres = PostgresConnection::new(Arc::clone(address));
        postgres.be_patient();
        CatalogueConnection {
            sql: SqlConnection::Postgres(postgres),
            immutable: false,
            has_log: false,
        }
    }

    /// Makes the connection to PostgreSQL.
    pub(super) fn connect(&self, path: &Path) -> Result<()> {
        let connected = self.sql.postgres().map_or(Ok(()), PostgresConnection::connect);
        connected.map_err(|failure| failure.into_error(path))
    }

    /// Opens a connection for commits. Its COMMIT does not sync the log; [`super::log`] does that.
    pub(super) fn open_writer(path: &Path) -> Result<Self> {
        let sql = open_shared(path)?;
        schema::use_write_ahead_log(&sql).at(path)?;
        // A new log is made when the catalogue is first read, and its file is opened next.
        sql.query_row("PRAGMA schema_version", [], |_| Ok(())).at(path)?;
        sql.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).at(path)?;
        // Checkpoints still sync.
        sql.pragma_update(None, "synchronous", "normal").at(path)?;
        Ok(CatalogueConnection { sql: SqlConnection::Sqlite(sql), immutable: false, has_log: true })
    }

    /// Disables the checkpoint that closing this connection would run: less of the log may be on the disk than can
    /// be read.
    pub(super) fn disable_checkpoint_on_close(&self) {
        let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        if let Some(sqlite) = self.sql.sqlite() {
            // Cannot fail on an open connection.
            let _ = sqlite.set_db_config(no_checkpoint, true);
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        match &self.sql {
            SqlConnection::Sqlite(sqlite) => {
                self.immutable || sqlite.is_readonly(rusqlite::MAIN_DB).unwrap_or(true)
            }
            SqlConnection::Postgres(postgres) => postgres.is_read_only(),
        }
    }

    /// Looks for a server of PostgreSQL that accepts changes, if this connection's server does not.
    pub(super) fn look_for_primary(&self) {
        if let Some(postgres) = self.sql.postgres() {
            postgres.look_for_primary();
        }
    }

    /// The state of the log, if this connection reads it.
    pub(super) fn log_state(&self) -> Option<LogState> {
        if self.has_log { log_state(&self.sql) } else { None }
    }

    /// Whether this connection may miss newer commits.
    pub(super) fn is_stale(&self, path: &Path) -> bool {
        !self.has_log && self.sql.sqlite().is_some() && log_size(path) > 0
    }

    fn open_shared_reader(path: &Path) -> Result<(Self, FederationIdentity)> {
        let sql = open_shared(path)?;
        let has_log = schema::has_write_ahead_log(&sql);
        let query_only = sql.pragma_update(None, "query_only", true);
        let sql = SqlConnection::Sqlite(sql);
        let mut handle = CatalogueConnection { sql, immutable: false, has_log: false };
        let identity = handle.identify(path)?;
        handle.has_log = has_log.at(path)?;
        query_only.at(path)?;
        Ok((handle, identity))
    }

    fn open_immutable(path: &Path, refused: Error) -> Result<(Self, FederationIdentity)> {
        if log_size(path) > 0 {
            return Err(Error::Unsupported {
                what: format!(
                    "catalogue {} cannot be read on a read-only medium, because its last commits are \
                     still in its write-ahead log ({refused}); open it once where it can be written, \
                     or copy the folder there",
                    path.display()
                ),
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let sql = rusqlite::Connection::open_with_flags(immutable_uri(path), flags).at(path)?;
        let sql = SqlConnection::Sqlite(sql);
        let handle = CatalogueConnection { sql, immutable: true, has_log: false };
        let identity = handle.identify(path)?;
        Ok((handle, identity))
    }

    fn identify(&self, path: &Path) -> Result<FederationIdentity> {
        match schema::identity(&self.sql).at(path) {
            Ok(Some(identity)) if identity.format > FORMAT_WITH_NEW_FILES => {
                Err(Error::Unsupported {
                    what: format!(
                        "catalogue {} has format version {}, and this release reads up to version \
                     {FORMAT_WITH_NEW_FILES}; upgrade femtobarn",
                        path.display(),
                        identity.format
                    ),
                })
            }
            Ok(Some(identity)) if identity.format < FORMAT_VERSION => Err(Error::Unsupported {
                what: format!(
                    "catalogue {} has format version {} of a pre-release; export the federation with \
                     that release, and import it into a new one",
                    path.display(),
                    identity.format
                ),
            }),
            Ok(Some(FederationIdentity { tables: Some(version), .. }))
                if version > POSTGRES_TABLES_VERSION =>
            {
                Err(Error::Unsupported {
                    what: format!(
                        "the catalogue that {} names has tables of version {version}, and this release \
                         reads up to version {POSTGRES_TABLES_VERSION}; upgrade femtobarn",
                        path.display()
                    ),
                })
            }
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err(Error::corrupt(
                path,
                "its federation table lacks the UUID, the name or the format",
            )),
            Err(Error::Internal { .. }) if self.sql.sqlite().is_some() => {
                Err(Error::corrupt(path, "it is an SQLite database, but not a catalogue"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Opens for reading and writing; SQLite itself falls back to reading.
fn open_shared(path: &Path) -> Result<rusqlite::Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<rusqlite::Connection> {
        let sql = rusqlite::Connection::open_with_flags(path, flags)?;
        sql.busy_timeout(BUSY_WAIT)?;
        sql.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // Otherwise SQLite parses a cached statement again for each new parameter value.
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        sql.pragma_update(None, "foreign_keys", true)?;
        sql.pragma_update(None, "synchronous", "full")?;
        sql.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        Ok(sql)
    };
    open().at(path)
}

/// Whether the catalogue and its log may be written here. True also on a full or failing disk, which is not a read-only
/// medium.
fn is_writable(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    [path, folder].iter().all(|each| access(*each, AccessFlags::W_OK).is_ok())
}

fn log_size(path: &Path) -> u64 {
    fs::metadata(log_path(path)).map_or(0, |metadata| metadata.len())
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?immutable=1"
}
