//! What a commit writes to or has read, as it is committed now: may it be changed, and is it still
//! what the transaction started from?

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::catalog::numbers::{signed, unsigned};
use crate::error::{Attempt, Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;

/// A container that a commit writes or has read.
pub(super) struct Target {
    database: DatabaseStatus,
    container: String,
    head: Option<Csn>,
}

impl Target {
    pub(super) fn find(
        connection: &Connection,
        database: DatabaseId,
        container: ContainerId,
    ) -> Attempt<Self> {
        let found = connection
            .prepare_cached(
                "SELECT d.name, d.state, d.sealed, d.created, c.name, \
                 (SELECT v.csn FROM versions v WHERE v.database = ?1 AND v.container = ?2 \
                  ORDER BY v.csn DESC LIMIT 1) \
                 FROM containers c JOIN databases d ON d.id = c.database \
                 WHERE c.database = ?1 AND c.id = ?2",
            )?
            .query_row([database.0, container.0], |row| {
                Ok(Target {
                    database: DatabaseStatus::decode(row)?,
                    container: row.get(4)?,
                    head: row.get::<_, Option<i64>>(5)?.map(|csn| Csn(unsigned(csn))),
                })
            })
            .optional()?;
        let name = || format!("{container} of database {database}");
        Ok(found.ok_or_else(|| names::not_found("container", &name(), vec![]))?)
    }

    /// Whether `csn`, the commit that is being applied, may give it a version after `base`.
    pub(super) fn check_writable(&self, csn: Csn, base: Option<Csn>) -> Result<()> {
        self.database.check_open(csn)?;
        if self.head == Some(csn) {
            let path = self.path();
            return Err(Error::invalid(format!("container {path:?} is in this commit twice")));
        }
        self.check_base(base)
    }

    /// The version check.
    pub(super) fn check_base(&self, base: Option<Csn>) -> Result<()> {
        if self.head == base {
            return Ok(());
        }
        Err(Error::Conflict { container: self.path(), base, head: self.head })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.database.name, self.container)
    }
}

/// Refuses a database of which a container got a version after `seen`, by another commit than `csn`.
pub(super) fn check_unchanged(
    connection: &Connection,
    csn: Csn,
    database: DatabaseId,
    seen: Csn,
) -> Attempt<()> {
    let changed = connection
        .prepare_cached(
            "SELECT d.name || '/' || c.name, v.csn FROM versions v \
             JOIN containers c ON c.database = v.database AND c.id = v.container \
             JOIN databases d ON d.id = v.database \
             WHERE v.database = ?1 AND v.csn > ?2 AND v.csn < ?3 LIMIT 1",
        )?
        .query_row(params![database.0, signed(seen.0), signed(csn.0)], |row| {
            let (container, head) = (row.get(0)?, Csn(unsigned(row.get(1)?)));
            Ok(Error::Conflict { container, base: Some(seen), head: Some(head) })
        })
        .optional()?;
    Ok(changed.map_or(Ok(()), Err)?)
}

/// Refuses a database that takes no commits.
pub(super) fn check_open(connection: &Connection, csn: Csn, database: DatabaseId) -> Attempt<()> {
    let found = connection
        .prepare_cached("SELECT name, state, sealed, created FROM databases WHERE id = ?1")?
        .query_row([database.0], DatabaseStatus::decode)
        .optional()?;
    let missing = || names::not_found("database", &database.to_string(), vec![]);
    Ok(found.ok_or_else(missing)?.check_open(csn)?)
}

struct DatabaseStatus {
    name: String,
    attached: bool,
    sealed: Option<i64>,
    created: i64,
}

impl DatabaseStatus {
    fn decode(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(DatabaseStatus {
            name: row.get(0)?,
            attached: row.get::<_, String>(1)? == "attached",
            sealed: row.get(2)?,
            created: row.get(3)?,
        })
    }

    /// The commit that attaches a database may fill it; no later one may.
    fn check_open(&self, csn: Csn) -> Result<()> {
        if let Some(sealed) = self.sealed {
            return Err(Error::closed(format!(
                "database {:?} was sealed by commit {sealed} and takes no more changes; \
                 write to another database",
                self.name
            )));
        }
        if self.attached && self.created != signed(csn.0) {
            return Err(Error::closed(format!(
                "database {:?} is an attached file and takes no changes; write to another database",
                self.name
            )));
        }
        Ok(())
    }
}
