//! The statements of one commit, in the order of the protocol.

use uuid::Uuid;

use super::name_changes::{begin_names, end_names, name_container, name_database};
use super::status::{
    ContainerStatus, check_database_unchanged, check_open, container_path, database_name,
};
use super::{Commit, CommitTouch, NewContainer, NewDatabase, log_slots};
use crate::clock;
use crate::error::Error;
use crate::host;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{ClassRow, VersionRow};
use crate::sql::{OptionalExtension, SqlConnection, SqlFailure, SqlResult, params};

/// SQLite numbers the row itself, by the same rule.
const INSERT_COMMIT: &str = "INSERT INTO commits (transaction_uuid, time_us, message, user_name, host, pid) \
    VALUES (?1, max(?2, coalesce((SELECT time_us FROM commits ORDER BY csn DESC LIMIT 1), ?2)), ?3, ?4, ?5, ?6)";
/// For PostgreSQL. An earlier statement of the transaction has taken the lock of the catalogue, so this one sees all
/// commits.
const INSERT_COMMIT_WITH_CSN: &str = "INSERT INTO commits \
    (csn, transaction_uuid, time_us, message, user_name, host, pid, touched) \
    SELECT coalesce(max(csn), 0) + 1, ?1, \
    greatest(?2, (SELECT time_us FROM commits ORDER BY csn DESC LIMIT 1)), ?3, ?4, ?5, ?6, ?7 FROM commits RETURNING csn";

/// Applies `commit` in the transaction that is open on `connection`. `is_checked` means that the caller has already
/// checked the versions against the newest state.
pub(crate) fn apply(
    connection: &SqlConnection,
    commit: &Commit,
    is_checked: bool,
) -> SqlResult<Csn> {
    let csn = insert_commit(connection, commit)?;
    commit.new_classes.iter().try_for_each(|class| insert_class(connection, csn, class))?;
    end_names(connection, csn, commit)?;
    commit.new_databases.iter().try_for_each(|new| insert_database(connection, csn, new))?;
    commit.new_containers.iter().try_for_each(|new| insert_container(connection, csn, new))?;
    begin_names(connection, csn, commit)?;
    for (database, container, base) in &commit.reads {
        ContainerStatus::find(connection, *database, *container)?
            .check_read(connection, csn, *base)?;
    }
    for version in &commit.versions {
        if !is_checked {
            let status = ContainerStatus::find(connection, version.database, version.container)?;
            status.check_writable(connection, csn, version.base)?;
        }
        insert_version_row(connection, &version.to_row(csn), Some(version.base))?;
    }
    if !commit.writes.is_empty() {
        log_slots::insert_writes(connection, csn, &commit.writes)?;
    }
    for (database, container, targets) in &commit.link_targets {
        append_link_targets(connection, csn, *database, *container, targets)?;
    }
    for (database, path) in &commit.moved {
        move_database(connection, *database, path)?;
    }
    for (database, seen) in &commit.sealed {
        seal_database(connection, csn, *database, *seen)?;
    }
    Ok(csn)
}

/// The clock may step back, but the times of commits must not, because snapshots are found by time.
fn insert_commit(connection: &SqlConnection, commit: &Commit) -> SqlResult<Csn> {
    let (transaction, time_us) = (commit.transaction.as_bytes(), clock::utc_us());
    let author = commit.author.as_ref();
    let user = author.map_or(host::user_name(), |author| &author.user);
    let host = author.map_or(host::host_name(), |author| &author.host);
    let pid = author.map_or_else(host::process_id, |author| author.pid);
    match connection.sqlite() {
        Some(sqlite) => {
            let row = params![transaction, time_us, commit.message, user, host, pid];
            sqlite.prepare_cached(INSERT_COMMIT)?.execute(row)?;
            Ok(Csn(unsigned(sqlite.last_insert_rowid())))
        }
        None => {
            let touched = CommitTouch::of(commit).number();
            let row = params![transaction, time_us, commit.message, user, host, pid, touched];
            let csn = connection.query_row(INSERT_COMMIT_WITH_CSN, row, |row| row.get(0))?;
            Ok(Csn(unsigned(csn)))
        }
    }
}

fn insert_class(connection: &SqlConnection, csn: Csn, class: &ClassRow) -> SqlResult<()> {
    let existing: Option<String> = connection
        .prepare_cached("SELECT definition FROM classes WHERE name = ?1 AND version = ?2")?
        .query_row(params![class.name, class.version], |row| row.get(0))
        .optional()?;
    match existing {
        Some(definition) if definition == class.definition => Ok(()),
        Some(_) => Err(SqlFailure::Refused(Error::Exists {
            what: "class",
            name: format!("{} version {}", class.name, class.version),
            advice: "its definition differs; raise the version to change the class".into(),
        })),
        None => {
            connection
                .prepare_cached(
                    "INSERT INTO classes (name, version, definition, created) \
                     VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![class.name, class.version, class.definition, signed(csn.0)])?;
            Ok(())
        }
    }
}

fn insert_database(connection: &SqlConnection, csn: Csn, new: &NewDatabase) -> SqlResult<()> {
    let taken: Option<u32> = connection
        .prepare_cached(
            "SELECT id FROM databases WHERE id = ?2 OR uuid = ?1 AND dropped IS NULL LIMIT 1",
        )?
        .query_row(params![new.uuid.as_bytes(), new.id.0], |row| row.get(0))
        .optional()?;
    if let Some(id) = taken {
        let name = database_name(connection, DatabaseId(id))?;
        let advice = format!("it has the UUID or the id given for {:?}", new.name);
        return Err(SqlFailure::Refused(Error::Exists { what: "database", name, advice }));
    }
    connection
        .prepare_cached(
            "INSERT INTO databases (id, uuid, path, state, created) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            new.id.0,
            new.uuid.as_bytes(),
            new.path,
            new.state.to_string(),
            signed(csn.0),
        ])?;
    name_database(connection, csn, new.id, &new.name)
}

fn insert_container(connection: &SqlConnection, csn: Csn, new: &NewContainer) -> SqlResult<()> {
    check_open(connection, csn, new.database)?;
    let taken = connection
        .prepare_cached("SELECT 1 FROM containers WHERE database = ?1 AND id = ?2")?
        .exists([new.database.0, new.id.0])?;
    if taken {
        let name = container_path(connection, new.database, new.id)?;
        let advice = format!("it has the id given for {:?}", new.name);
        return Err(SqlFailure::Refused(Error::Exists { what: "container", name, advice }));
    }
    connection
        .prepare_cached(
            "INSERT INTO containers (database, id, class, class_version, options, created) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            new.database.0,
            new.id.0,
            new.class,
            new.class_version,
            new.options,
            signed(csn.0),
        ])?;
    name_container(connection, csn, new.database, new.id, &new.name)
}

/// Inserts the row of a version without any check. In PostgreSQL the column `base` has the version before it, or 0, and
/// is unique within the container; it is null for a version that was not committed here.
pub(crate) fn insert_version_row(
    connection: &SqlConnection,
    row: &VersionRow,
    base: Option<Option<Csn>>,
) -> SqlResult<()> {
    let values = params![
        row.database.0,
        row.container.0,
        signed(row.csn.0),
        signed(row.header.offset),
        signed(row.header.size),
        signed(row.header.length),
        signed(row.footer.offset),
        signed(row.footer.size),
        signed(row.footer.length),
        signed(row.annex.offset),
        signed(row.annex.size),
        signed(row.record.offset),
        signed(row.record.size),
        row.class_version,
        signed(row.entries),
        signed(row.deleted),
        signed(row.bytes),
        base.map(|base| signed(base.unwrap_or_default().0)),
    ];
    match connection.sqlite() {
        Some(sqlite) => {
            sqlite.prepare_cached(INSERT_VERSION)?.execute(&values[..values.len() - 1])?;
            Ok(())
        }
        None => connection.prepare_cached(INSERT_VERSION_WITH_BASE)?.execute_with_next(values),
    }
}

const INSERT_VERSION: &str = "INSERT INTO versions (database, container, csn, \
    header_offset, header_size, header_length, footer_offset, footer_size, footer_length, \
    annex_offset, annex_size, record_offset, record_size, class_version, entries, deleted, bytes) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
const INSERT_VERSION_WITH_BASE: &str = "INSERT INTO versions (database, container, csn, \
    header_offset, header_size, header_length, footer_offset, footer_size, footer_length, \
    annex_offset, annex_size, record_offset, record_size, class_version, entries, deleted, bytes, base) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

fn append_link_targets(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    container: ContainerId,
    targets: &[Uuid],
) -> SqlResult<()> {
    let first: i64 = connection
        .prepare_cached(
            "SELECT coalesce(max(position) + 1, 0) FROM link_targets \
             WHERE database = ?1 AND container = ?2",
        )?
        .query_row([database.0, container.0], |row| row.get(0))?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO link_targets (database, container, position, target, csn) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (position, target) in (first..).zip(targets) {
        insert.execute(params![
            database.0,
            container.0,
            position,
            target.as_bytes(),
            signed(csn.0)
        ])?;
    }
    Ok(())
}

fn move_database(connection: &SqlConnection, database: DatabaseId, path: &str) -> SqlResult<()> {
    let changed = connection
        .prepare_cached("UPDATE databases SET path = ?2 WHERE id = ?1")?
        .execute(params![database.0, path])?;
    match changed {
        1 => Ok(()),
        _ => Err(SqlFailure::Refused(names::not_found("database", &database.to_string(), vec![]))),
    }
}

/// Refuses to seal a database that is sealed, attached or dropped, or has changed since commit `seen`.
fn seal_database(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    seen: Csn,
) -> SqlResult<()> {
    check_open(connection, csn, database)?;
    check_database_unchanged(connection, csn, database, seen)?;
    connection
        .prepare_cached("UPDATE databases SET sealed = ?2 WHERE id = ?1")?
        .execute(params![database.0, signed(csn.0)])?;
    // A sealed database has no writers, so its free space is not needed any more.
    connection
        .prepare_cached("DELETE FROM free_extents WHERE database = ?1")?
        .execute([database.0])?;
    Ok(())
}
