//! The committed state of the databases and containers that a commit writes or has read: whether they may be changed,
//! and are still in the state that the transaction started from.
//!
//! Names are looked up for error messages only, so that a commit does not pay for them.

use crate::error::Error;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::sql::{OptionalExtension, Row, RowResult, SqlConnection, SqlResult, params};

/// The committed state of a container that a commit writes or has read.
pub(super) struct ContainerStatus {
    database: DatabaseStatus,
    container: ContainerId,
    dropped: Option<i64>,
    head: Option<Csn>,
}

impl ContainerStatus {
    pub(super) fn find(
        connection: &SqlConnection,
        database: DatabaseId,
        container: ContainerId,
    ) -> SqlResult<Self> {
        let found = connection
            .prepare_cached(
                "SELECT d.id, d.state, d.sealed, d.created, d.dropped, c.dropped, \
                 (SELECT v.csn FROM versions v WHERE v.database = ?1 AND v.container = ?2 \
                  ORDER BY v.csn DESC LIMIT 1) \
                 FROM containers c JOIN databases d ON d.id = c.database \
                 WHERE c.database = ?1 AND c.id = ?2",
            )?
            .query_row([database.0, container.0], |row| {
                Ok(ContainerStatus {
                    database: DatabaseStatus::decode(row)?,
                    container,
                    dropped: row.get(5)?,
                    head: row.get::<Option<i64>>(6)?.map(|csn| Csn(unsigned(csn))),
                })
            })
            .optional()?;
        let name = || format!("{container} of database {database}");
        Ok(found.ok_or_else(|| names::not_found("container", &name(), vec![]))?)
    }

    /// Refuses a new version on top of `base` by `csn`, the commit that is being applied.
    pub(super) fn check_writable(
        &self,
        connection: &SqlConnection,
        csn: Csn,
        base: Option<Csn>,
    ) -> SqlResult<()> {
        self.database.check_open(connection, csn)?;
        self.check_not_dropped(connection, csn)?;
        if self.head == Some(csn) {
            let path = self.path(connection)?;
            let what = format!("container {path:?} has two new versions in this commit");
            return Err(Error::invalid(what).into());
        }
        self.check_base(connection, base)
    }

    /// Refuses `csn`, the commit that is being applied, if the container is no longer at the version `base`, which the
    /// transaction has read.
    pub(super) fn check_read(
        &self,
        connection: &SqlConnection,
        csn: Csn,
        base: Option<Csn>,
    ) -> SqlResult<()> {
        let dropped = self.database.dropped.or(self.dropped);
        if dropped != Some(signed(csn.0)) {
            self.database.check_not_dropped(connection, csn)?;
            self.check_not_dropped(connection, csn)?;
        }
        self.check_base(connection, base)
    }

    /// Refuses a transaction that read the container at commit `seen`, and renames or drops it, if it has been
    /// dropped or has a newer version.
    pub(super) fn check_unchanged(
        &self,
        connection: &SqlConnection,
        csn: Csn,
        seen: Csn,
    ) -> SqlResult<()> {
        if self.dropped != Some(signed(csn.0)) {
            self.check_not_dropped(connection, csn)?;
        }
        if self.head > Some(seen) { self.check_base(connection, Some(seen)) } else { Ok(()) }
    }

    /// The version check: the newest version must be `base`.
    fn check_base(&self, connection: &SqlConnection, base: Option<Csn>) -> SqlResult<()> {
        if self.head == base {
            return Ok(());
        }
        Err(Error::Conflict { container: self.path(connection)?, base, head: self.head }.into())
    }

    fn check_not_dropped(&self, connection: &SqlConnection, csn: Csn) -> SqlResult<()> {
        let Some(dropped) = self.dropped else { return Ok(()) };
        Err(is_dropped(&format!("container {:?}", self.path(connection)?), dropped, csn).into())
    }

    fn path(&self, connection: &SqlConnection) -> SqlResult<String> {
        container_path(connection, self.database.id, self.container)
    }
}

/// Refuses a database in which, after commit `seen`, a commit other than `csn` created, renamed or dropped a
/// container, or gave one a version.
pub(super) fn check_database_unchanged(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
    seen: Csn,
) -> SqlResult<()> {
    // One step down the tree for each container, however long its history.
    let changed = connection
        .prepare_cached(
            "SELECT container, head FROM (SELECT c.id AS container, \
             (SELECT max(v.csn) FROM versions v WHERE v.database = ?1 AND v.container = c.id \
              AND v.csn < ?3) AS head FROM containers c WHERE c.database = ?1) AS newest \
             WHERE head > ?2 LIMIT 1",
        )?
        .query_row(params![database.0, signed(seen.0), signed(csn.0)], |row| {
            Ok((ContainerId(row.get(0)?), Csn(unsigned(row.get(1)?))))
        })
        .optional()?;
    if let Some((container, head)) = changed {
        let container = container_path(connection, database, container)?;
        return Err(Error::Conflict { container, base: Some(seen), head: Some(head) }.into());
    }
    let named = connection
        .prepare_cached(
            "SELECT container, CASE WHEN until > since THEN until ELSE since END FROM container_names \
             WHERE database = ?1 AND (since > ?2 AND since < ?3 OR until > ?2 AND until < ?3) \
             LIMIT 1",
        )?
        .query_row(params![database.0, signed(seen.0), signed(csn.0)], |row| {
            Ok((ContainerId(row.get(0)?), row.get::<i64>(1)?))
        })
        .optional()?;
    let Some((container, by)) = named else { return Ok(()) };
    let path = container_path(connection, database, container)?;
    let what = format!("container {path:?} was created, renamed or dropped by commit {by}");
    Err(Error::changed(what).into())
}

/// Refuses a database that takes no commits: sealed, attached or dropped.
pub(super) fn check_open(
    connection: &SqlConnection,
    csn: Csn,
    database: DatabaseId,
) -> SqlResult<()> {
    live_database(connection, database)?.check_open(connection, csn)
}

/// The committed state of a database.
pub(super) fn live_database(
    connection: &SqlConnection,
    database: DatabaseId,
) -> SqlResult<DatabaseStatus> {
    let found = connection
        .prepare_cached("SELECT id, state, sealed, created, dropped FROM databases WHERE id = ?1")?
        .query_row([database.0], DatabaseStatus::decode)
        .optional()?;
    let missing = || names::not_found("database", &database.to_string(), vec![]);
    Ok(found.ok_or_else(missing)?)
}

/// The last name of a database, for error messages.
pub(super) fn database_name(connection: &SqlConnection, database: DatabaseId) -> SqlResult<String> {
    let name = connection
        .prepare_cached(
            "SELECT name FROM database_names WHERE database = ?1 ORDER BY since DESC LIMIT 1",
        )?
        .query_row([database.0], |row| row.get(0))
        .optional()?;
    Ok(name.unwrap_or_else(|| database.to_string()))
}

/// The last name of a container with that of its database, for error messages.
pub(super) fn container_path(
    connection: &SqlConnection,
    database: DatabaseId,
    container: ContainerId,
) -> SqlResult<String> {
    let name: Option<String> = connection
        .prepare_cached(
            "SELECT name FROM container_names WHERE database = ?1 AND container = ?2 \
             ORDER BY since DESC LIMIT 1",
        )?
        .query_row([database.0, container.0], |row| row.get(0))
        .optional()?;
    let name = name.unwrap_or_else(|| container.to_string());
    Ok(format!("{}/{name}", database_name(connection, database)?))
}

/// The committed state of a database that a commit changes.
pub(super) struct DatabaseStatus {
    id: DatabaseId,
    attached: bool,
    sealed: Option<i64>,
    created: i64,
    dropped: Option<i64>,
}

impl DatabaseStatus {
    fn decode(row: &Row<'_>) -> RowResult<Self> {
        Ok(DatabaseStatus {
            id: DatabaseId(row.get(0)?),
            attached: row.get_ref(1)?.as_str()? == "attached",
            sealed: row.get(2)?,
            created: row.get(3)?,
            dropped: row.get(4)?,
        })
    }

    /// An attached database takes changes only from the commit that attaches it.
    fn check_open(&self, connection: &SqlConnection, csn: Csn) -> SqlResult<()> {
        self.check_not_dropped(connection, csn)?;
        if let Some(sealed) = self.sealed {
            let name = database_name(connection, self.id)?;
            return Err(Error::closed(format!(
                "database {name:?} was sealed by commit {sealed} and takes no more changes; \
                 write to another database"
            ))
            .into());
        }
        if self.attached && self.created != signed(csn.0) {
            let name = database_name(connection, self.id)?;
            return Err(Error::closed(format!(
                "database {name:?} is an attached file and takes no changes; write to another \
                 database"
            ))
            .into());
        }
        Ok(())
    }

    pub(super) fn check_not_dropped(&self, connection: &SqlConnection, csn: Csn) -> SqlResult<()> {
        let Some(dropped) = self.dropped else { return Ok(()) };
        let what = format!("database {:?}", database_name(connection, self.id)?);
        Err(is_dropped(&what, dropped, csn).into())
    }
}

/// The error for a dropped object. If `csn` itself dropped it, running the transaction again would not help, so that is
/// not a conflict.
fn is_dropped(what: &str, dropped: i64, csn: Csn) -> Error {
    if dropped == signed(csn.0) {
        Error::invalid(format!("{what} is dropped and changed by one commit"))
    } else {
        Error::changed(format!("{what} was dropped by commit {dropped}"))
    }
}
