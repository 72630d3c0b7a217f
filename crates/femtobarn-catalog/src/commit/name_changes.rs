//! The names that a commit assigns and ends. It ends names before it assigns new ones, so that one commit can pass a
//! name from one database or container to another, or swap two names.

use super::status::{
    ContainerStatus, check_database_unchanged, check_open, container_path, database_name,
    live_database,
};
use super::{Commit, DroppedDatabase};
use crate::error::Error;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::numbers::signed;
use crate::sql::{OptionalExtension, SqlConnection, SqlResult, params};

/// Ends the names of all renamed and dropped databases and containers.
pub(super) fn end_names(connection: &SqlConnection, csn: Csn, commit: &Commit) -> SqlResult<()> {
    for (database, seen, _) in &commit.renamed_databases {
        end_database_name(connection, csn, *database, *seen)?;
    }
    for (database, container, seen, _) in &commit.renamed_containers {
        end_container_name(connection, csn, *database, *container, *seen)?;
    }
    for (database, container, seen) in &commit.dropped_containers {
        end_container_name(connection, csn, *database, *container, *seen)?;
        let drop = "UPDATE containers SET dropped = ?3 WHERE database = ?1 AND id = ?2";
        connection.prepare_cached(drop)?.execute(params![
            database.0,
            container.0,
            signed(csn.0)
        ])?;
    }
    commit.dropped_databases.iter().try_for_each(|dropped| drop_database(connection, csn, dropped))
}

/// Gives all renamed databases and containers their new names.
pub(super) fn begin_names(connection: &SqlConnection, csn: Csn, commit: &Commit) -> SqlResult<()> {
    for (database, _, name) in &commit.renamed_databases {
        name_database(connection, csn, *database, name)?;
    }
    for (database, container, _, name) in &commit.renamed_containers {
        name_container(connection, csn, *database, *container, name)?;
    }
    Ok(())
}

/// Names a database; refuses a name that another one has.
pub(super) fn name_database(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    name: &str,
) -> SqlResult<()> {
    let taken = connection
        .prepare_cached(
            "SELECT until IS NULL FROM database_names WHERE name = ?1 ORDER BY since DESC LIMIT 1",
        )?
        .query_row([name], |row| row.get(0))
        .optional()?;
    if taken == Some(true) {
        return Err(taken_name("database", name, "choose another name").into());
    }
    connection
        .prepare_cached("INSERT INTO database_names (database, name, since) VALUES (?1, ?2, ?3)")?
        .execute(params![database.0, name, signed(csn.0)])?;
    Ok(())
}

/// Names a container; refuses a name that another container of the database has.
pub(super) fn name_container(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    container: ContainerId,
    name: &str,
) -> SqlResult<()> {
    let taken = connection
        .prepare_cached(
            "SELECT until IS NULL FROM container_names WHERE database = ?1 AND name = ?2 \
             ORDER BY since DESC LIMIT 1",
        )?
        .query_row(params![database.0, name], |row| row.get(0))
        .optional()?;
    if taken == Some(true) {
        return Err(taken_name("container", name, "open it, or choose another name").into());
    }
    connection
        .prepare_cached(
            "INSERT INTO container_names (database, container, name, since) \
             VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![database.0, container.0, name, signed(csn.0)])?;
    Ok(())
}

fn taken_name(what: &'static str, name: &str, advice: &str) -> Error {
    Error::Exists { what, name: name.to_owned(), advice: advice.to_owned() }
}

fn drop_database(connection: &SqlConnection, csn: Csn, dropped: &DroppedDatabase) -> SqlResult<()> {
    live_database(connection, dropped.id)?.check_not_dropped(connection, csn)?;
    check_database_unchanged(connection, csn, dropped.id, dropped.seen)?;
    end_database_name(connection, csn, dropped.id, dropped.seen)?;
    connection
        .prepare_cached("UPDATE databases SET dropped = ?2, keeps_file = ?3 WHERE id = ?1")?
        .execute(params![dropped.id.0, signed(csn.0), dropped.keeps_file])?;
    Ok(())
}

fn end_database_name(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    seen: Csn,
) -> SqlResult<()> {
    live_database(connection, database)?.check_not_dropped(connection, csn)?;
    let since: Option<i64> = connection
        .prepare_cached(
            "UPDATE database_names SET until = ?2 WHERE database = ?1 AND until IS NULL \
             RETURNING since",
        )?
        .query_row(params![database.0, signed(csn.0)], |row| row.get(0))
        .optional()?;
    let name = || database_name(connection, database).map(|name| format!("database {name:?}"));
    check_name_ended(since, csn, seen, name)
}

fn end_container_name(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    container: ContainerId,
    seen: Csn,
) -> SqlResult<()> {
    check_open(connection, csn, database)?;
    ContainerStatus::find(connection, database, container)?
        .check_unchanged(connection, csn, seen)?;
    let since: Option<i64> = connection
        .prepare_cached(
            "UPDATE container_names SET until = ?3 \
             WHERE database = ?1 AND container = ?2 AND until IS NULL RETURNING since",
        )?
        .query_row(params![database.0, container.0, signed(csn.0)], |row| row.get(0))
        .optional()?;
    let path = || {
        container_path(connection, database, container).map(|path| format!("container {path:?}"))
    };
    check_name_ended(since, csn, seen, path)
}

/// Refuses to end a name that was assigned after commit `seen`, or that this commit has ended already.
///
/// `since` is the commit that assigned the name; `None` if this commit has ended it.
fn check_name_ended(
    since: Option<i64>,
    csn: Csn,
    seen: Csn,
    what: impl FnOnce() -> SqlResult<String>,
) -> SqlResult<()> {
    match since {
        None => {
            let what = format!("{} is renamed or dropped twice in this commit", what()?);
            Err(Error::invalid(what).into())
        }
        Some(since) if since > signed(seen.0) && since != signed(csn.0) => Err(Error::changed(
            format!("{} was named by commit {since}, after this transaction began", what()?),
        )
        .into()),
        Some(_) => Ok(()),
    }
}
