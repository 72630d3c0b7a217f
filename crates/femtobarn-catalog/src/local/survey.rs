//! All rows, including dropped ones, for maintenance, dumps and statistics.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::vec::IntoIter;

use uuid::Uuid;

use super::LocalCatalogue;
use super::barrier::note_lookup;
use super::decode::{class_row, container_row, database_row, number, uuid, version_row};
use super::lookup::{VERSION, all};
use super::postgres_writer::wait_for_standby;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{
    ClassRow, ContainerRecord, Counts, DatabaseRecord, DatabaseRow, NameRow, VersionRow,
};
use crate::sql::{OptionalExtension, Row, RowResult, SqlConnection, SqlResult, ToSql, params};

/// Selects each database with its last name.
const DATABASES: &str = "SELECT d.id, d.uuid, \
    (SELECT n.name FROM database_names n WHERE n.database = d.id ORDER BY n.since DESC LIMIT 1), \
    d.path, CASE WHEN d.sealed IS NULL THEN d.state ELSE 'sealed' END, d.created, d.epoch, \
    d.sealed, d.dropped, d.keeps_file FROM databases d";
const CONTAINERS: &str = "SELECT c.database, c.id, \
    (SELECT n.name FROM container_names n WHERE n.database = c.database AND n.container = c.id \
     ORDER BY n.since DESC LIMIT 1), c.class, c.class_version, c.options, c.created, c.dropped \
    FROM containers c WHERE c.database = ?1 ORDER BY c.id";

/// Databases that one statement asks about.
const ASKED_AT_ONCE: usize = 64;

const IS_A_FILE: &str = "SELECT EXISTS (SELECT 1 FROM databases WHERE path = ?1)";

impl LocalCatalogue {
    /// All databases that vacuum has not purged, with their last names and newest states, ordered by id.
    pub fn every_database(&self) -> Result<Vec<DatabaseRecord>> {
        self.read(databases)
    }

    /// Ends the commits that processes sent to PostgreSQL before they died: from now on each is visible, or never will be. The
    /// caller has locked what they may have written.
    pub fn end_lost_commits(&self) -> Result<()> {
        if !self.is_in_postgres() {
            return Ok(());
        }
        self.connections.write_aside_as_anyone(note_lookup)
    }

    /// The commit of a transaction, if it made one, for a client that lost the answer. Searches only commits after
    /// `after`: pass the snapshot that the transaction started from.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not found in PostgreSQL where that takes no changes, as at a standby: it may be
    /// committed nevertheless, or later.
    pub fn find_commit(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let find = "SELECT csn FROM commits WHERE csn > ?1 AND transaction_uuid = ?2";
        let csn = |row: &Row<'_>| number(row, 0).map(Csn);
        let of = params![signed(after.0), transaction.as_bytes()];
        let is_in_postgres = self.is_in_postgres();
        if is_in_postgres && !self.connections.is_read_only() {
            // A process that has ended may have left a COMMIT in progress at the server, which holds the lock until the
            // commit is visible. So this takes the lock first.
            return self.connections.write_aside_as_anyone(|sql| {
                let found = sql.prepare_cached(find)?.query_row(of, csn).optional()?;
                // A commit that was sent, and has no lock yet, has no effect from now on.
                found.map_or_else(|| note_lookup(sql), |_| wait_for_standby(sql))?;
                Ok(found)
            });
        }
        let found = self
            .connections
            .current()?
            .read_durable(|sql| sql.prepare_cached(find)?.query_row(of, csn).optional())?;
        match found {
            None if is_in_postgres => Err(Error::Unavailable {
                what: format!(
                    "whether transaction {transaction} was committed is not known, because PostgreSQL takes no changes \
                     here and may lack commits; ask again where it takes changes"
                ),
            }),
            found => Ok(found),
        }
    }

    /// The first commit of each transaction after the commit given with it, for the transactions that made one. The
    /// commits are searched once, however many transactions are given.
    pub fn find_commits(&self, of: &HashMap<Uuid, Csn>) -> Result<HashMap<Uuid, Csn>> {
        let Some(first) = of.values().min() else { return Ok(HashMap::new()) };
        self.connections.current()?.read_durable(|sql| {
            let mut statement = sql.prepare_cached(
                "SELECT csn, transaction_uuid FROM commits WHERE csn > ?1 ORDER BY csn",
            )?;
            let mut rows = statement.query([signed(first.0)])?;
            let mut found = HashMap::new();
            while let Some(row) = rows.next()? {
                // The id of another client's transaction may have any bytes.
                let Ok(transaction) = uuid(&row, 1) else { continue };
                let csn = Csn(number(&row, 0)?);
                if of.get(&transaction).is_some_and(|after| csn > *after) {
                    found.entry(transaction).or_insert(csn);
                }
                if found.len() == of.len() {
                    break;
                }
            }
            Ok(found)
        })
    }

    /// Whether a path is the file of a database, dropped or not, that vacuum has not purged.
    pub fn is_file_of_a_database(&self, path: &str) -> Result<bool> {
        Ok(self.one(IS_A_FILE, [path], |row| row.get(0))?.unwrap_or(false))
    }

    /// The database, dropped or not, whose file has this path, if any.
    pub fn database_of_file(&self, path: &str) -> Result<Option<DatabaseId>> {
        let sql = "SELECT id FROM databases WHERE path = ?1";
        self.one(sql, [path], |row| Ok(DatabaseId(row.get(0)?)))
    }

    /// The newest state of a database, dropped or not, with its last name.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) if vacuum has purged it.
    pub fn any_database_by_id(&self, id: DatabaseId) -> Result<DatabaseRow> {
        let found = self.one(&format!("{DATABASES} WHERE d.id = ?1"), [id.0], database_row)?;
        found.ok_or_else(|| names::not_found("database", &id.to_string(), vec![]))
    }

    /// All containers of a database that vacuum has not purged, with their last names and the class versions that
    /// they were created with, ordered by id.
    pub fn every_container(&self, database: DatabaseId) -> Result<Vec<ContainerRecord>> {
        self.read(|sql| containers(sql, database))
    }

    /// All versions of all containers of a database, ordered by container and commit.
    pub fn all_versions(&self, database: DatabaseId) -> Result<Vec<VersionRow>> {
        let sql = format!("{VERSION} WHERE v.database = ?1 ORDER BY v.container, v.csn");
        self.all(&sql, [database.0], version_row)
    }

    /// The dropped ones among these databases. Rows of other databases are not read.
    pub fn dropped_among(&self, databases: &[DatabaseId]) -> Result<HashSet<DatabaseId>> {
        let mut dropped = HashSet::new();
        for asked in databases.chunks(ASKED_AT_ONCE) {
            // The statement always has the same number of parameters, so it is prepared once.
            let mut ids = [asked[0].0; ASKED_AT_ONCE];
            ids.iter_mut().zip(asked).for_each(|(id, asked)| *id = asked.0);
            let ids = ids.each_ref().map(|id| id as &dyn ToSql);
            let id = |row: &Row<'_>| Ok(DatabaseId(row.get(0)?));
            let found = self.all(&dropped_among(), &ids[..], id)?;
            dropped.extend(found);
        }
        Ok(dropped)
    }

    /// The numbers of rows in the catalogue.
    pub fn counts(&self) -> Result<Counts> {
        let sql = "SELECT (SELECT count(*) FROM databases WHERE dropped IS NULL), \
            (SELECT count(*) FROM databases WHERE dropped IS NOT NULL), \
            (SELECT count(*) FROM containers c JOIN databases d ON d.id = c.database \
             WHERE c.dropped IS NULL AND d.dropped IS NULL), \
            (SELECT count(*) FROM containers), (SELECT count(*) FROM versions), \
            (SELECT count(*) FROM commits), (SELECT count(*) FROM classes), \
            (SELECT count(*) FROM tags), \
            (SELECT CAST(coalesce(sum(size), 0) AS INTEGER) FROM free_extents)";
        let counts = self.one(sql, params![], |row| {
            let containers = number(row, 2)?;
            Ok(Counts {
                databases: number(row, 0)?,
                dropped_databases: number(row, 1)?,
                containers,
                dropped_containers: number(row, 3)?.saturating_sub(containers),
                versions: number(row, 4)?,
                commits: number(row, 5)?,
                classes: number(row, 6)?,
                tags: number(row, 7)?,
                free_bytes: number(row, 8)?,
            })
        })?;
        Ok(counts.unwrap_or_default())
    }
}

fn dropped_among() -> String {
    let marks: Vec<String> = (1..=ASKED_AT_ONCE).map(|number| format!("?{number}")).collect();
    format!("SELECT id FROM databases WHERE id IN ({}) AND dropped IS NOT NULL", marks.join(", "))
}

pub(super) fn databases(sql: &SqlConnection) -> SqlResult<Vec<DatabaseRecord>> {
    let mut records = all(sql, &format!("{DATABASES} ORDER BY d.id"), [], |row| {
        Ok(DatabaseRecord {
            row: database_row(row)?,
            sealed: csn(row, 7)?,
            dropped: csn(row, 8)?,
            keeps_file: row.get(9)?,
            names: vec![],
        })
    })?;
    let names = "SELECT database, name, since, until FROM database_names ORDER BY database, since";
    let names = all(sql, names, [], |row| Ok((DatabaseId(row.get(0)?), name_row(row)?)))?;
    let mut names = names.into_iter().peekable();
    for record in &mut records {
        record.names = of_one(&mut names, record.row.id);
    }
    Ok(records)
}

pub(super) fn containers(
    sql: &SqlConnection,
    database: DatabaseId,
) -> SqlResult<Vec<ContainerRecord>> {
    let mut records = all(sql, CONTAINERS, [database.0], |row| {
        let (row, dropped) = (container_row(row)?, csn(row, 7)?);
        Ok(ContainerRecord { row, dropped, names: vec![] })
    })?;
    let names = "SELECT container, name, since, until FROM container_names \
                 WHERE database = ?1 ORDER BY container, since";
    let names =
        all(sql, names, [database.0], |row| Ok((ContainerId(row.get(0)?), name_row(row)?)))?;
    let mut names = names.into_iter().peekable();
    for record in &mut records {
        record.names = of_one(&mut names, record.row.id);
    }
    Ok(records)
}

pub(super) fn classes(sql: &SqlConnection) -> SqlResult<Vec<(ClassRow, Csn)>> {
    let classes = "SELECT name, version, definition, created FROM classes ORDER BY name, version";
    all(sql, classes, [], |row| Ok((class_row(row)?, Csn(number(row, 3)?))))
}

pub(super) fn link_targets(
    sql: &SqlConnection,
    database: DatabaseId,
    container: ContainerId,
) -> SqlResult<Vec<(Uuid, Csn)>> {
    let targets = "SELECT target, csn FROM link_targets WHERE database = ?1 AND container = ?2 \
                   ORDER BY position";
    all(sql, targets, [database.0, container.0], |row| Ok((uuid(row, 0)?, Csn(number(row, 1)?))))
}

/// Takes the names of one database or container from the names of all, in ascending order. Names of smaller ids are
/// skipped: they belong to databases or containers that were added after the others were looked up.
fn of_one<I: Ord>(names: &mut Peekable<IntoIter<(I, NameRow)>>, id: I) -> Vec<NameRow> {
    while names.next_if(|(of, _)| *of < id).is_some() {}
    std::iter::from_fn(|| names.next_if(|(of, _)| *of == id)).map(|(_, name)| name).collect()
}

fn name_row(row: &Row<'_>) -> RowResult<NameRow> {
    Ok(NameRow { name: row.get(1)?, since: Csn(number(row, 2)?), until: csn(row, 3)? })
}

fn csn(row: &Row<'_>, column: usize) -> RowResult<Option<Csn>> {
    Ok(row.get::<Option<i64>>(column)?.map(|csn| Csn(unsigned(csn))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server runs this look-up for every file that a client creates.
    #[test]
    fn look_up_of_a_file_uses_the_index_of_paths() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = LocalCatalogue::create(&folder.path().join("test.fed"), "test").unwrap();
        let plan = format!("EXPLAIN QUERY PLAN {IS_A_FILE}");
        let steps = catalog.all(&plan, ["databases/run7.root"], |row| row.get::<String>(3));
        assert_searches(&steps.unwrap());
    }

    /// A server asks again whenever some hundred databases were made: it read the rows of all that were ever dropped.
    #[test]
    fn dropped_databases_are_searched_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = LocalCatalogue::create(&folder.path().join("test.fed"), "test").unwrap();
        let plan = format!("EXPLAIN QUERY PLAN {}", dropped_among());
        let ids = [&1 as &dyn ToSql; ASKED_AT_ONCE];
        let steps = catalog.all(&plan, &ids[..], |row| row.get::<String>(3));
        assert_searches(&steps.unwrap());
    }

    fn assert_searches(steps: &[String]) {
        assert!(steps.iter().any(|step| step.starts_with("SEARCH databases")), "{steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN databases")), "{steps:?}");
    }
}
