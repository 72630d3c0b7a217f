//! The tables of the catalogue.
//!
//! Invariants:
//! 1. The rows of `commits`, `versions`, `classes` and `link_targets` are only ever added; vacuum alone deletes
//!    versions.
//! 2. Ids come from `sequences`, in transactions of their own, so that they are never re-used.
//! 3. No row is updated by every commit; on a server such a row would be a bottleneck.
//! 4. A CSN is the largest one plus 1, taken under the write lock. Commits are never deleted, so this gives the same
//!    numbers as AUTOINCREMENT, without its table, of which every commit would write a page.
//! 5. `versions` is ordered by (database, container, csn), so that the newest version as of a CSN is found in one
//!    descent of one tree.
//! 6. A name is valid from commit `since` until before commit `until`, or still if that is null. No two databases, and
//!    no two containers of a database, have one name at the same time. A database or container exists as of a CSN if
//!    and only if it has a name then.
//! 7. `free_extents` are ranges of files that writers may take, from the given epoch of the database on; those
//!    with epoch null are not released yet. Taking a range deletes its row.
//!
//! Other modules use plain SQL; only this one has the features of one dialect. For SQLite: `STRICT`, `WITHOUT ROWID`
//! and the pragmas. For PostgreSQL: a schema for each federation; all tables from the beginning, except those of logged
//! bytes, which it does not need; two more indexes; and the rows that commits touched.

use rusqlite::ffi;
use uuid::Uuid;

use crate::clock;
use crate::error::Error;
use crate::sql::{SqlConnection, SqlFailure, SqlResult, params, table_definitions};

/// The version of the tables that this crate writes.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// The version of a catalogue that has [`REPLICA_TABLES`].
pub(crate) const FORMAT_WITH_REPLICAS: u32 = 3;
/// The version of a catalogue that follows another one, or was succeeded by one, and so accepts no changes.
pub(crate) const FORMAT_WITH_ROLES: u32 = 4;
/// The version of a catalogue with [`LOG_SLOTS_TABLES`]; the version before has `logged_writes` alone.
pub(crate) const FORMAT_WITH_LOG_SLOTS: u32 = 6;
/// The version of a catalogue whose tables have had the first bytes of a file: a release that does not know this would
/// lose the bytes if the file is lost. The newest version that this crate reads.
pub(crate) const FORMAT_WITH_NEW_FILES: u32 = 7;
/// The version of PostgreSQL's tables that this crate writes, and the newest that it reads. Version 1 lacked
/// [`SERVER_TABLES`], and version 2 the rows that commits touch. Programs that know version 3 do not change the barrier in their
/// look-ups. It is stored in the setting [`TABLES_SETTING`].
pub(crate) const POSTGRES_TABLES_VERSION: u32 = 4;
/// `FBrn`: identifies a catalogue to `file` and to this crate.
const APPLICATION_ID: i32 = 0x4642_726e;

/// The identity of a federation, from the `federation` table.
#[derive(Clone, Debug)]
pub(crate) struct FederationIdentity {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) format: u32,
    /// The version of the tables, if the catalogue is in PostgreSQL.
    pub(crate) tables: Option<u32>,
}

const INSERT_SETTING: &str = "INSERT INTO federation (key, value) VALUES (?1, ?2)";
const TABLES_SETTING: &str = "postgresql_tables";

/// Makes the tables of a new federation in an empty SQLite database.
pub(crate) fn create(connection: &rusqlite::Connection, name: &str, uuid: Uuid) -> SqlResult<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    use_write_ahead_log(connection)?;
    connection.execute_batch(&format!("BEGIN; {TABLES} COMMIT;"))?;
    for (key, value) in first_settings(name, uuid) {
        connection.execute(INSERT_SETTING, params![key, value])?;
    }
    Ok(())
}

/// Makes the schema and the tables of a new federation in PostgreSQL, in the transaction that is open on `connection`.
pub(crate) fn create_in_postgres(
    connection: &SqlConnection,
    schema: &str,
    name: &str,
    uuid: Uuid,
) -> SqlResult<()> {
    let encoding: String =
        connection.query_row("SELECT current_setting('server_encoding')", [], |row| row.get(0))?;
    if encoding != "UTF8" {
        let what = format!(
            "the database has the encoding {encoding}, which cannot hold every name; make one with              CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        );
        return Err(Error::invalid(what).into());
    }
    let tables = table_definitions(&format!("{TABLES}{REPLICA_TABLES}"));
    let more = format!("{POSTGRES_INDEXES}{SERVER_TABLES}{TOUCHED}");
    connection.execute_batch(&format!("CREATE SCHEMA \"{schema}\"; {tables}{more}"))?;
    let more = [
        (TABLES_SETTING, POSTGRES_TABLES_VERSION.to_string()),
        (ARCHIVE_SETTING, Uuid::new_v4().to_string()),
    ];
    for (key, value) in first_settings(name, uuid).into_iter().chain(more) {
        connection.prepare_cached(INSERT_SETTING)?.execute(params![key, value])?;
    }
    Ok(())
}

/// Upgrades the tables of an older catalogue in PostgreSQL to this crate's version, in the transaction that is open on
/// `connection`.
pub(crate) fn upgrade_in_postgres(connection: &SqlConnection) -> SqlResult<()> {
    let find = "SELECT CAST(value AS INTEGER) FROM federation WHERE key = ?1 FOR UPDATE";
    let version: u32 = connection.query_row(find, [TABLES_SETTING], |row| row.get(0))?;
    if version > POSTGRES_TABLES_VERSION {
        // A later release has raised the version while this one waited for the lock.
        let what = format!(
            "the catalogue's tables have version {version} by now, and this release reads up to version \
             {POSTGRES_TABLES_VERSION}; upgrade femtobarn"
        );
        return Err(Error::Unsupported { what }.into());
    }
    // From version 3 on nothing is missing. Only the owner of the tables may run these statements.
    if version < 3 {
        connection.execute_batch(&format!("{SERVER_TABLES}{TOUCHED}"))?;
    }
    let raise = "UPDATE federation SET value = ?2 WHERE key = ?1";
    let version = POSTGRES_TABLES_VERSION.to_string();
    connection.execute(raise, params![TABLES_SETTING, version])?;
    Ok(())
}

fn first_settings(name: &str, uuid: Uuid) -> [(&'static str, String); 5] {
    [
        ("uuid", uuid.to_string()),
        ("name", name.to_owned()),
        ("format", FORMAT_VERSION.to_string()),
        ("created_us", clock::utc_us().to_string()),
        ("horizon", "0".to_owned()),
    ]
}

/// Puts SQLite into write-ahead-log mode. Where that fails, SQLite silently keeps a rollback journal, with which a loss
/// of power may undo the last commit; here that is an error.
pub(crate) fn use_write_ahead_log(connection: &rusqlite::Connection) -> SqlResult<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(SqlFailure::Sqlite(rusqlite::Error::SqliteFailure(
        ffi::Error::new(ffi::SQLITE_IOERR),
        Some(format!("the write-ahead log cannot be made, journal mode is still {mode:?}")),
    )))
}

/// Whether SQLite is in write-ahead-log mode.
pub(crate) fn has_write_ahead_log(connection: &rusqlite::Connection) -> SqlResult<bool> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    Ok(mode == "wal")
}

/// Raises the format of a catalogue; releases that do not know the new format refuse the catalogue.
pub(crate) fn raise_format(connection: &SqlConnection, format: u32) -> SqlResult<()> {
    let raise = "UPDATE federation SET value = CAST(CAST(?1 AS INTEGER) AS TEXT) \
                 WHERE key = 'format' AND CAST(value AS INTEGER) < ?1";
    connection.prepare_cached(raise)?.execute([format])?;
    Ok(())
}

/// Whether the catalogue has the table `logged_writes`.
pub(crate) fn has_logged_writes(connection: &SqlConnection) -> SqlResult<bool> {
    has_table(connection, "logged_writes")
}

/// Whether the catalogue has [`LOG_SLOTS_TABLES`].
pub(crate) fn has_log_slots(connection: &SqlConnection) -> SqlResult<bool> {
    has_table(connection, "log_slots")
}

/// Whether the catalogue has an optional table. In PostgreSQL only those of copies exist, and always do.
pub(crate) fn has_table(connection: &SqlConnection, name: &str) -> SqlResult<bool> {
    if connection.postgres().is_some() {
        return Ok(name == "replicas");
    }
    let find = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection.prepare_cached(find)?.exists([name])
}

/// Whether a database of PostgreSQL has a schema.
pub(crate) fn has_schema(connection: &SqlConnection, name: &str) -> SqlResult<bool> {
    let find = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?1";
    connection.prepare_cached(find)?.exists([name])
}

/// Whether the catalogue has an index.
pub(crate) fn has_index(connection: &SqlConnection, name: &str) -> SqlResult<bool> {
    if let Some(postgres) = connection.postgres() {
        let find = "SELECT 1 FROM pg_indexes WHERE schemaname = ?1 AND indexname = ?2";
        return connection.prepare_cached(find)?.exists([postgres.address().schema(), name]);
    }
    let find = "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1";
    connection.prepare_cached(find)?.exists([name])
}

/// Reads the `federation` table; `None` if a setting is missing or unreadable.
pub(crate) fn identity(connection: &SqlConnection) -> SqlResult<Option<FederationIdentity>> {
    let mut statement = connection.prepare_cached("SELECT key, value FROM federation")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let settings: std::collections::HashMap<String, String> = rows.collect::<Result<_, _>>()?;
    let read = || {
        Some(FederationIdentity {
            uuid: settings.get("uuid")?.parse().ok()?,
            name: settings.get("name")?.clone(),
            format: settings.get("format")?.parse().ok()?,
            tables: settings.get(TABLES_SETTING).and_then(|version| version.parse().ok()),
        })
    };
    Ok(read())
}

const TABLES: &str = "
CREATE TABLE federation (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sequences (
    name TEXT    NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sequences (name, last) VALUES ('database', 0), ('container', 0);

CREATE TABLE commits (
    csn         INTEGER PRIMARY KEY,
    transaction_uuid BLOB NOT NULL,
    time_us     INTEGER NOT NULL,
    message     TEXT    NOT NULL,
    user_name   TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL
) STRICT;

CREATE TABLE tags (
    name       TEXT    NOT NULL PRIMARY KEY,
    csn        INTEGER NOT NULL REFERENCES commits (csn),
    created_us INTEGER NOT NULL,
    message    TEXT    NOT NULL,
    user_name  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_csn ON tags (csn);

CREATE TABLE kept_snapshots (
    csn INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE databases (
    id      INTEGER PRIMARY KEY,
    uuid    BLOB    NOT NULL,
    path    TEXT    NOT NULL,
    state   TEXT    NOT NULL CHECK (state IN ('open', 'attached')),
    created INTEGER NOT NULL REFERENCES commits (csn),
    sealed  INTEGER REFERENCES commits (csn),
    dropped INTEGER REFERENCES commits (csn),
    keeps_file INTEGER NOT NULL DEFAULT 0,
    epoch   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX databases_by_uuid ON databases (uuid);
CREATE INDEX databases_by_path ON databases (path);

CREATE TABLE database_names (
    database INTEGER NOT NULL REFERENCES databases (id),
    name     TEXT    NOT NULL,
    since    INTEGER NOT NULL REFERENCES commits (csn),
    until    INTEGER REFERENCES commits (csn),
    PRIMARY KEY (database, since),
    UNIQUE (name, since)
) STRICT, WITHOUT ROWID;

CREATE TABLE containers (
    database      INTEGER NOT NULL REFERENCES databases (id),
    id            INTEGER NOT NULL,
    class         TEXT    NOT NULL,
    class_version INTEGER NOT NULL,
    options       TEXT    NOT NULL,
    created       INTEGER NOT NULL REFERENCES commits (csn),
    dropped       INTEGER REFERENCES commits (csn),
    PRIMARY KEY (database, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE container_names (
    database  INTEGER NOT NULL,
    container INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    since     INTEGER NOT NULL REFERENCES commits (csn),
    until     INTEGER REFERENCES commits (csn),
    PRIMARY KEY (database, container, since),
    UNIQUE (database, name, since),
    FOREIGN KEY (database, container) REFERENCES containers (database, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE free_extents (
    database INTEGER NOT NULL REFERENCES databases (id),
    start    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    epoch    INTEGER,
    PRIMARY KEY (database, start)
) STRICT, WITHOUT ROWID;
CREATE INDEX free_extents_by_size ON free_extents (database, size);

CREATE TABLE versions (
    database      INTEGER NOT NULL,
    container     INTEGER NOT NULL,
    csn           INTEGER NOT NULL REFERENCES commits (csn),
    header_offset INTEGER NOT NULL,
    header_size   INTEGER NOT NULL,
    header_length INTEGER NOT NULL,
    footer_offset INTEGER NOT NULL,
    footer_size   INTEGER NOT NULL,
    footer_length INTEGER NOT NULL,
    annex_offset  INTEGER NOT NULL,
    annex_size    INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    record_size   INTEGER NOT NULL,
    class_version INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    deleted       INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    PRIMARY KEY (database, container, csn),
    FOREIGN KEY (database, container) REFERENCES containers (database, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE classes (
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    definition TEXT    NOT NULL,
    created    INTEGER NOT NULL REFERENCES commits (csn),
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE link_targets (
    database  INTEGER NOT NULL,
    container INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    target    BLOB    NOT NULL,
    csn       INTEGER NOT NULL REFERENCES commits (csn),
    PRIMARY KEY (database, container, position),
    FOREIGN KEY (database, container) REFERENCES containers (database, id)
) STRICT, WITHOUT ROWID;
";

/// Additional indexes in PostgreSQL: a version follows another one only once; transactions by their UUID.
const POSTGRES_INDEXES: &str = "
ALTER TABLE versions ADD COLUMN base BIGINT;
ALTER TABLE versions ADD CONSTRAINT versions_by_base UNIQUE (database, container, base);
CREATE INDEX commits_by_transaction ON commits (transaction_uuid);
";

/// The rows that each commit touched, as a number of `TouchedRows`; null if its writer did not record it.
const TOUCHED: &str = "ALTER TABLE commits ADD COLUMN IF NOT EXISTS touched BIGINT;";

/// The tables of the servers of a federation that has several, in PostgreSQL alone.
const SERVER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS servers (
    name       TEXT COLLATE \"C\" NOT NULL PRIMARY KEY,
    url        TEXT   NOT NULL,
    storage    TEXT   NOT NULL,
    epoch      BIGINT NOT NULL,
    state      TEXT   NOT NULL CHECK (state IN ('active', 'draining', 'left')),
    lease_until_us BIGINT NOT NULL,
    free_bytes BIGINT NOT NULL,
    load       BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS homes (
    database BIGINT NOT NULL PRIMARY KEY,
    server   TEXT COLLATE \"C\" NOT NULL,
    epoch    BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS homes_by_server ON homes (server);
";

/// The tables of bytes that are durable here before they are in the database files: bytes of commits that have a slot,
/// and bytes of other commits. A catalogue gets both with the first commit with such bytes; a catalogue of format 5 has
/// the second.
pub(crate) const LOG_SLOTS_TABLES: &str = "
CREATE TABLE log_slots (
    slot   INTEGER PRIMARY KEY,
    csn    INTEGER NOT NULL,
    writes BLOB    NOT NULL
) STRICT;
INSERT INTO log_slots (slot, csn, writes) VALUES (-1, 0, x'');

CREATE TABLE IF NOT EXISTS logged_writes (
    id       INTEGER PRIMARY KEY,
    database INTEGER NOT NULL,
    start    INTEGER NOT NULL,
    bytes    BLOB    NOT NULL
) STRICT;
";

/// The setting for the id with which the names of this catalogue's objects in stores begin.
pub(crate) const ARCHIVE_SETTING: &str = "archive";

/// The tables of copies in stores. A catalogue gets them with its first copy or pin.
pub(crate) const REPLICA_TABLES: &str = "
CREATE TABLE replicas (
    database   INTEGER NOT NULL REFERENCES databases (id),
    store      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('migrating', 'complete', 'lost')),
    size       INTEGER NOT NULL,
    checksum   TEXT    NOT NULL,
    as_of      INTEGER NOT NULL,
    tape       TEXT,
    position   INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    PRIMARY KEY (database, store)
) STRICT, WITHOUT ROWID;

CREATE TABLE disk_states (
    database   INTEGER PRIMARY KEY REFERENCES databases (id),
    state      TEXT    NOT NULL CHECK (state IN ('staging', 'evicted')),
    changed_us INTEGER NOT NULL
) STRICT;

CREATE TABLE file_pins (
    database INTEGER NOT NULL REFERENCES databases (id),
    holder   TEXT    NOT NULL,
    until_us INTEGER,
    PRIMARY KEY (database, holder)
) STRICT, WITHOUT ROWID;

CREATE TABLE discarded_objects (
    store TEXT NOT NULL,
    key   TEXT NOT NULL,
    PRIMARY KEY (store, key)
) STRICT, WITHOUT ROWID;
";
