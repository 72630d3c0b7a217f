//! Look-ups. Those with an argument `at` see the federation as of that commit.

use uuid::Uuid;

use super::LocalCatalogue;
use super::decode::{
    class_row, commit_row, container_at, container_row, database_row, number, uuid, version_at,
    version_row,
};
use super::known_rows::{KnownRows, RowsToWrite};
use crate::error::Result;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::NewestRows;
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{ClassRow, CommitRow, ContainerRow, DatabaseRow, VersionRow};
use crate::sql::{
    OptionalExtension, Params, Row, RowResult, SqlConnection, SqlResult, ValueRef, params,
};

/// `?1` is the CSN of the snapshot, here and in [`CONTAINER`].
const DATABASE: &str = "SELECT d.id, d.uuid, n.name, d.path, \
    CASE WHEN d.sealed <= ?1 THEN 'sealed' ELSE d.state END, d.created, d.epoch \
    FROM database_names n JOIN databases d ON d.id = n.database \
    WHERE n.since <= ?1 AND (n.until IS NULL OR n.until > ?1)";
const CONTAINER: &str = "SELECT c.database, c.id, n.name, c.class, \
    coalesce((SELECT v.class_version FROM versions v WHERE v.database = c.database \
     AND v.container = c.id AND v.csn <= ?1 ORDER BY v.csn DESC LIMIT 1), c.class_version), \
    c.options, c.created FROM container_names n \
    JOIN containers c ON c.database = n.database AND c.id = n.container \
    JOIN databases d ON d.id = n.database AND (d.dropped IS NULL OR d.dropped > ?1) \
    WHERE n.since <= ?1 AND (n.until IS NULL OR n.until > ?1)";
/// Of all databases or containers that ever had the name, the one that got it last as of the snapshot: no other can
/// have the name then, however often it was reassigned.
const NEWEST_OF_DATABASE_NAME: &str = "n.name = ?2 AND n.since = \
    (SELECT max(since) FROM database_names WHERE name = ?2 AND since <= ?1)";
const NEWEST_OF_CONTAINER_NAME: &str = "n.database = ?2 AND n.name = ?3 AND n.since = \
    (SELECT max(since) FROM container_names WHERE database = ?2 AND name = ?3 AND since <= ?1)";
/// The newest state of a database, of a container and, if there is one, of its version. Their columns begin at 0,
/// [`CONTAINER_AT`] and [`VERSION_AT`].
const TO_WRITE: &str = "SELECT d.id, d.uuid, m.name, d.path, \
    CASE WHEN d.sealed IS NULL THEN d.state ELSE 'sealed' END, d.created, d.epoch, \
    c.database, c.id, n.name, c.class, coalesce(v.class_version, c.class_version), c.options, c.created, \
    v.database, v.container, v.csn, v.header_offset, v.header_size, v.header_length, \
    v.footer_offset, v.footer_size, v.footer_length, v.annex_offset, v.annex_size, \
    v.record_offset, v.record_size, v.class_version, v.entries, v.deleted, v.bytes \
    FROM databases d \
    JOIN database_names m ON m.database = d.id AND m.until IS NULL \
    JOIN containers c ON c.database = d.id AND c.id = ?2 \
    JOIN container_names n ON n.database = d.id AND n.container = c.id AND n.until IS NULL \
    LEFT JOIN versions v ON v.database = d.id AND v.container = c.id AND v.csn = \
     (SELECT max(csn) FROM versions WHERE database = ?1 AND container = ?2) \
    WHERE d.id = ?1 AND d.dropped IS NULL";
const CONTAINER_AT: usize = 7;
const VERSION_AT: usize = 14;
pub(super) const VERSION: &str = "SELECT v.database, v.container, v.csn, \
    v.header_offset, v.header_size, v.header_length, \
    v.footer_offset, v.footer_size, v.footer_length, v.annex_offset, v.annex_size, \
    v.record_offset, v.record_size, v.class_version, v.entries, v.deleted, v.bytes \
    FROM versions v";
pub(super) const COMMIT: &str =
    "SELECT csn, transaction_uuid, time_us, message, user_name, host, pid FROM commits";

impl LocalCatalogue {
    /// The newest commit; [`Csn::ZERO`] before the first one.
    pub fn head(&self) -> Result<Csn> {
        let look_up = |sql: &SqlConnection| {
            let csn = "SELECT coalesce(max(csn), 0) FROM commits";
            Ok(Csn(sql.prepare_cached(csn)?.query_row([], |row| number(row, 0))?))
        };
        let connections = self.connections.current()?;
        connections.recall_only(KnownRows::head, || connections.read(look_up))
    }

    /// All databases, ordered by id.
    pub fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>> {
        let sql = format!("{DATABASE} ORDER BY d.id");
        self.all(&sql, [signed(at.0)], database_row)
    }

    /// The database `name`, or `None`. Does not search for similar names.
    pub fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>> {
        let look_up = || {
            let sql = format!("{DATABASE} AND {NEWEST_OF_DATABASE_NAME}");
            self.one(&sql, params![signed(at.0), name], database_row)
        };
        self.connections.current()?.recall(
            |known| known.newest(at)?.database_named(name).cloned().map(Some),
            look_up,
            |known, found| keep_database(known, found, at),
        )
    }

    /// The database that has this name now, if any, and a commit not older than its row.
    pub fn find_current_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)> {
        let found = self.find_database(name, Csn::MAX)?;
        Ok((found, self.head()?))
    }

    /// The databases that have or had this name, including dropped ones.
    pub fn databases_once_named(&self, name: &str) -> Result<Vec<DatabaseId>> {
        let sql = "SELECT DISTINCT database FROM database_names WHERE name = ?1";
        self.all(sql, [name], |row| Ok(DatabaseId(row.get(0)?)))
    }

    /// The database `name`. If there is none, the error lists similar names, at a cost linear in the databases.
    pub fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow> {
        match self.find_database(name, at)? {
            Some(row) => Ok(row),
            None => {
                let existing = self.databases(at)?.into_iter().map(|row| row.name).collect();
                Err(names::not_found("database", name, existing))
            }
        }
    }

    /// The database with this id.
    pub fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow> {
        let look_up = || {
            let sql = format!("{DATABASE} AND n.database = ?2");
            self.one(&sql, params![signed(at.0), id.0], database_row)
        };
        let found = self.connections.current()?.recall(
            |known| known.newest(at)?.database(id).cloned().map(Some),
            look_up,
            |known, found| keep_database(known, found, at),
        );
        found?.ok_or_else(|| names::not_found("database", &id.to_string(), vec![]))
    }

    /// The newest state of the database with this UUID, if this federation has it.
    pub fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>> {
        self.database_by_uuid_at(uuid, Csn::MAX)
    }

    /// The database with this UUID, if the snapshot has it.
    pub fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>> {
        let sql = format!("{DATABASE} AND d.uuid = ?2");
        self.one(&sql, params![signed(at.0), uuid.as_bytes()], database_row)
    }

    /// The containers of a database, ordered by id.
    pub fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>> {
        let sql = format!("{CONTAINER} AND n.database = ?2 ORDER BY c.id");
        self.all(&sql, params![signed(at.0), database.0], container_row)
    }

    /// The container `name` in a database, or `None`. Does not search for similar names.
    pub fn find_container(
        &self,
        database: DatabaseId,
        name: &str,
        at: Csn,
    ) -> Result<Option<ContainerRow>> {
        let look_up = || {
            let sql = format!("{CONTAINER} AND {NEWEST_OF_CONTAINER_NAME}");
            self.one(&sql, params![signed(at.0), database.0, name], container_row)
        };
        let find = |known: &KnownRows| {
            let (_, row, _) = known.newest(at)?.container_named(database, name)?;
            Some(Some(row.clone()))
        };
        // The row is kept by the look-up of its version, which follows.
        self.connections.current()?.recall_only(find, look_up)
    }

    /// The container `name` in a database. If there is none, the error lists similar names, at a cost linear in the
    /// containers.
    pub fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow> {
        match self.find_container(database, name, at)? {
            Some(row) => Ok(row),
            None => {
                let rows = self.containers(database, at)?;
                let existing = rows.into_iter().map(|row| row.name).collect();
                Err(names::not_found("container", name, existing))
            }
        }
    }

    /// The container with this id.
    pub fn container_by_id(
        &self,
        database: DatabaseId,
        id: ContainerId,
        at: Csn,
    ) -> Result<ContainerRow> {
        let look_up = || {
            let sql = format!("{CONTAINER} AND n.database = ?2 AND n.container = ?3");
            self.one(&sql, params![signed(at.0), database.0, id.0], container_row)
        };
        let find = |known: &KnownRows| {
            let (_, row, _) = known.newest(at)?.container(database, id)?;
            Some(Some(row.clone()))
        };
        self.connections.current()?.recall_only(find, look_up)?.ok_or_else(|| {
            names::not_found("container", &format!("{id} of database {database}"), vec![])
        })
    }

    /// A container with its database and its newest version, in one look-up, because every transaction that appends
    /// begins with this.
    pub fn container_to_write(
        &self,
        database: DatabaseId,
        id: ContainerId,
    ) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)> {
        match self.rows_to_write(database, id)? {
            Some(found) => Ok(found),
            None => {
                self.database_by_id(database, Csn::MAX)?;
                let name = format!("{id} of database {database}");
                Err(names::not_found("container", &name, vec![]))
            }
        }
    }

    /// A container with its database and its newest version, and the newest commit, if this process has them in memory
    /// and `at` is that commit or [`Csn::MAX`].
    pub fn known_container(
        &self,
        database: DatabaseId,
        id: ContainerId,
        at: Csn,
    ) -> Result<Option<NewestRows>> {
        let find = |known: &KnownRows| {
            let (database, container, version) = known.newest(at)?.container(database, id)?.clone();
            let (container, head) = (Some(container), known.head()?);
            Some(Some(NewestRows { database, container, version, head }))
        };
        self.connections.current()?.recall_only(find, || Ok(None))
    }

    fn rows_to_write(&self, database: DatabaseId, id: ContainerId) -> Result<Option<RowsToWrite>> {
        let decode = |row: &Row<'_>| {
            let is_written = row.get_ref(VERSION_AT + 2)? != ValueRef::Null;
            let version = is_written.then(|| version_at(row, VERSION_AT)).transpose()?;
            Ok((database_row(row)?, container_at(row, CONTAINER_AT)?, version))
        };
        self.connections.current()?.recall(
            |known| known.container(database, id).cloned().map(Some),
            || self.one(TO_WRITE, [database.0, id.0], decode),
            |known, found| found.iter().for_each(|rows| known.keep_container(rows)),
        )
    }

    /// A database with its containers, and a commit not newer than these. A transaction that drops the database
    /// passes that commit on, so that later changes are a conflict.
    pub fn database_to_drop(
        &self,
        id: DatabaseId,
    ) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)> {
        let seen = self.head()?;
        Ok((seen, self.database_by_id(id, Csn::MAX)?, self.containers(id, Csn::MAX)?))
    }

    /// The newest version of a container, dropped or not; `None` before its first version.
    pub fn version(
        &self,
        database: DatabaseId,
        container: ContainerId,
        at: Csn,
    ) -> Result<Option<VersionRow>> {
        // A reader of the newest version of a container will also look up the container.
        if self.connections.current()?.is_newest(at)?
            && let Some((_, _, version)) = self.rows_to_write(database, container)?
            && version.is_none_or(|version| version.csn <= at)
        {
            return Ok(version);
        }
        let sql = format!(
            "{VERSION} WHERE v.database = ?1 AND v.container = ?2 AND v.csn <= ?3 \
             ORDER BY v.csn DESC LIMIT 1"
        );
        self.one(&sql, params![database.0, container.0, signed(at.0)], version_row)
    }

    /// The newest version of every container that a database has in the snapshot, ordered by container.
    pub fn newest_versions(&self, database: DatabaseId, at: Csn) -> Result<Vec<VersionRow>> {
        let sql = format!(
            "{VERSION} JOIN containers c ON v.database = c.database AND v.container = c.id \
             WHERE c.database = ?1 AND (c.dropped IS NULL OR c.dropped > ?2) AND v.csn = \
             (SELECT n.csn FROM versions n WHERE n.database = c.database AND n.container = c.id \
              AND n.csn <= ?2 ORDER BY n.csn DESC LIMIT 1) ORDER BY c.id"
        );
        self.all(&sql, params![database.0, signed(at.0)], version_row)
    }

    /// All versions of a container, the oldest first.
    pub fn versions(
        &self,
        database: DatabaseId,
        container: ContainerId,
    ) -> Result<Vec<VersionRow>> {
        let sql = format!("{VERSION} WHERE v.database = ?1 AND v.container = ?2 ORDER BY v.csn");
        self.all(&sql, params![database.0, container.0], version_row)
    }

    /// All versions of all classes, ordered by name and version.
    pub fn classes(&self) -> Result<Vec<ClassRow>> {
        let sql = "SELECT name, version, definition FROM classes ORDER BY name, version";
        self.all(sql, [], class_row)
    }

    /// A version of a class, or its newest one.
    pub fn class(&self, name: &str, version: Option<u32>) -> Result<ClassRow> {
        let sql = "SELECT name, version, definition FROM classes \
                   WHERE name = ?1 AND (CAST(?2 AS INTEGER) IS NULL OR version = ?2) ORDER BY version DESC LIMIT 1";
        let found = self.connections.current()?.recall(
            |known| known.class(name, version).cloned().map(Some),
            || self.one(sql, params![name, version], class_row),
            |known, found| found.iter().for_each(|row| known.keep_class(version, row)),
        )?;
        if let Some(row) = found {
            return Ok(row);
        }
        let classes = self.classes()?;
        match version.filter(|_| classes.iter().any(|class| class.name == name)) {
            Some(version) => {
                let existing = classes.iter().filter(|class| class.name == name);
                let existing = existing.map(versioned).collect();
                Err(names::not_found("class", &format!("{name} version {version}"), existing))
            }
            None => {
                let mut existing: Vec<_> = classes.into_iter().map(|class| class.name).collect();
                existing.dedup();
                Err(names::not_found("class", name, existing))
            }
        }
    }

    /// The databases that a container links to; a stored link holds a position in this list.
    pub fn link_targets(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<Uuid>> {
        let sql = "SELECT target FROM link_targets WHERE database = ?1 AND container = ?2 \
                   ORDER BY position";
        self.connections.current()?.recall(
            |known| known.link_targets(database, container).cloned(),
            || self.all(sql, params![database.0, container.0], |row| uuid(row, 0)),
            |known, targets| known.keep_link_targets(database, container, targets),
        )
    }

    /// The newest commits, the newest first.
    pub fn history(&self, limit: u64) -> Result<Vec<CommitRow>> {
        self.all(&format!("{COMMIT} ORDER BY csn DESC LIMIT ?1"), [signed(limit)], commit_row)
    }

    /// The commit with this sequence number.
    pub fn commit_by_csn(&self, csn: Csn) -> Result<CommitRow> {
        self.one(&format!("{COMMIT} WHERE csn = ?1"), [signed(csn.0)], commit_row)?
            .ok_or_else(|| names::not_found("commit", &csn.to_string(), vec![]))
    }

    /// The newest commit made at or before `time_us`, in microseconds since 1970; 0 if there is none.
    pub fn snapshot_at_time(&self, time_us: i64) -> Result<Csn> {
        self.read(|sql| Ok(Csn(unsigned(newest_until(sql, time_us)?))))
    }

    pub(super) fn read<T>(
        &self,
        look_up: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.connections.current()?.read(look_up)
    }

    pub(super) fn one<T>(
        &self,
        statement: &str,
        parameters: impl Params,
        decode: impl FnOnce(&Row<'_>) -> RowResult<T>,
    ) -> Result<Option<T>> {
        self.read(|sql| sql.prepare_cached(statement)?.query_row(parameters, decode).optional())
    }

    pub(super) fn all<T>(
        &self,
        statement: &str,
        parameters: impl Params,
        decode: impl FnMut(&Row<'_>) -> RowResult<T>,
    ) -> Result<Vec<T>> {
        self.read(|sql| all(sql, statement, parameters, decode))
    }
}

/// Keeps a database that was looked up as of commit `at` in memory, if `at` is the newest.
fn keep_database(known: &mut KnownRows, found: &Option<DatabaseRow>, at: Csn) {
    if let (Some(row), true) = (found, known.newest(at).is_some()) {
        known.keep_database(row);
    }
}

/// All rows of a statement, decoded.
pub(super) fn all<T>(
    sql: &SqlConnection,
    statement: &str,
    parameters: impl Params,
    decode: impl FnMut(&Row<'_>) -> RowResult<T>,
) -> SqlResult<Vec<T>> {
    let mut statement = sql.prepare_cached(statement)?;
    let rows = statement.query_map(parameters, decode)?;
    Ok(rows.collect::<RowResult<_>>()?)
}

/// The newest commit not later than `time_us`. Times ascend with the CSN, so bisection finds it without an index that
/// every commit would have to update. Sequence numbers may have gaps.
fn newest_until(sql: &SqlConnection, time_us: i64) -> SqlResult<i64> {
    let max = sql.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
    let mut next = sql
        .prepare_cached("SELECT csn, time_us FROM commits WHERE csn >= ?1 ORDER BY csn LIMIT 1")?;
    // Commits up to `found` are early enough; commits after `last` are too late.
    let (mut found, mut last): (i64, i64) = (0, max);
    while found < last {
        let middle = found + (last - found + 1) / 2;
        let (csn, at_us): (i64, i64) =
            next.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if at_us <= time_us {
            found = csn;
        } else {
            last = middle - 1;
        }
    }
    // `found` is always 0 or the number of a commit, even where numbers have gaps.
    Ok(found)
}

fn versioned(class: &ClassRow) -> String {
    format!("{} version {}", class.name, class.version)
}
