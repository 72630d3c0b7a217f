//! Vacuum's part in the catalogue: removing rows that no kept snapshot needs, and giving space back to writers.
//!
//! The steps, each durable before the next:
//!
//! 1. [`LocalCatalogue::raise_horizon`] decides which snapshots are kept;
//! 2. [`LocalCatalogue::vacuum`] deletes the rows of versions, containers and databases that no kept snapshot needs,
//!    and records the ranges of files that only they used;
//! 3. the caller punches holes there;
//! 4. [`LocalCatalogue::release_freed`] begins a new epoch of the database and releases the ranges to writers
//!    ([`LocalCatalogue::take_free_extent`]).
//!
//! Invariants:
//! 1. Rows that a kept snapshot needs are never deleted, whatever the caller asks for: each is checked again.
//! 2. After a crash between two steps vacuum can be run again. The table `free_extents` still has the freed ranges that
//!    were not released.
//! 3. A range is in the table at most once. The writer that took it owns it until a later vacuum frees it again.

use rusqlite::{Connection, OptionalExtension, params};

use super::LocalCatalogue;
use super::retention::{KeptSnapshots, setting};
use super::{following, logged_writes, replicas};
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{BlobRange, DatabaseRecord, VersionRow};
use crate::sql::SqlResult;

/// What a vacuum is going to change: the rows that it deletes, and the ranges that it frees.
#[derive(Clone, Debug)]
pub struct Vacuumed {
    /// The snapshots that it keeps, from [`LocalCatalogue::raise_horizon`].
    pub kept: KeptSnapshots,
    /// Versions to delete.
    pub versions: Vec<(DatabaseId, ContainerId, Csn)>,
    /// Ranges of database files that no kept version refers to. They must not overlap.
    pub freed: Vec<(DatabaseId, Vec<BlobRange>)>,
    /// Dropped databases to purge.
    pub purged_databases: Vec<DatabaseId>,
    /// Dropped containers to purge.
    pub purged_containers: Vec<(DatabaseId, ContainerId)>,
}

/// Dropped databases and containers that no kept snapshot has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purgeable {
    /// Databases with all their containers.
    pub databases: Vec<DatabaseRecord>,
    /// Containers of other databases.
    pub containers: Vec<(DatabaseId, ContainerId)>,
}

/// A free range of a database's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeExtent {
    /// The range.
    pub range: BlobRange,
    /// Whether writers may take it. If not, its hole may not have been punched yet.
    pub is_released: bool,
}

impl LocalCatalogue {
    /// The versions of a container that no kept snapshot needs, the oldest first.
    pub fn versions_to_drop(
        &self,
        database: DatabaseId,
        container: ContainerId,
        kept: &KeptSnapshots,
    ) -> Result<Vec<VersionRow>> {
        let versions = self.versions(database, container)?;
        let end = self.read(|sql| lifetime(sql, database, container))?.and_then(|life| life.end);
        let next = versions.iter().skip(1).map(|row| Some(row.csn)).chain([end]);
        let next = next.map(|next| earlier(next, end)).collect::<Vec<_>>();
        let unneeded = versions.into_iter().zip(next);
        let unneeded = unneeded.filter(|(row, next)| !kept.needs(row.csn, *next));
        Ok(unneeded.map(|(row, _)| row).collect())
    }

    /// The dropped databases and containers that no kept snapshot has.
    pub fn purgeable(&self, kept: &KeptSnapshots) -> Result<Purgeable> {
        let gone = |created, dropped: Option<Csn>| !kept.needs(created, dropped);
        let (databases, others): (Vec<_>, Vec<_>) = self
            .every_database()?
            .into_iter()
            .partition(|record| gone(record.row.created, record.dropped));
        let mut containers = Vec::new();
        for database in others {
            let all = self.every_container(database.row.id)?;
            let gone = all.into_iter().filter(|record| {
                gone(record.row.created, earlier(record.dropped, database.dropped))
            });
            containers.extend(gone.map(|record| (record.row.database, record.row.id)));
        }
        Ok(Purgeable { databases, containers })
    }

    /// Deletes the rows that a vacuum found unneeded, all or none.
    ///
    /// # Errors
    /// [`Error::Changed`] if another vacuum ran meanwhile, or a snapshot was tagged that this one would not keep;
    /// [`Error::Invalid`] if a kept snapshot needs one of the rows, or a range is free already.
    pub fn vacuum(&self, vacuumed: &Vacuumed) -> Result<()> {
        self.connections.current()?.write(|sql| apply(sql, vacuumed))
    }

    /// Begins a new epoch of the database and releases its freed ranges to writers. The caller has punched the holes.
    /// Returns the epoch.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such database.
    pub fn release_freed(&self, database: DatabaseId) -> Result<u64> {
        self.connections.current()?.write(|sql| {
            let epoch: Option<i64> = sql
                .prepare_cached(
                    "UPDATE databases SET epoch = epoch + 1 WHERE id = ?1 RETURNING epoch",
                )?
                .query_row([database.0], |row| row.get(0))
                .optional()?;
            let missing = || names::not_found("database", &database.to_string(), vec![]);
            let epoch = epoch.ok_or_else(missing)?;
            sql.prepare_cached(
                "UPDATE free_extents SET epoch = ?2 WHERE database = ?1 AND epoch IS NULL",
            )?
            .execute(params![database.0, epoch])?;
            Ok(unsigned(epoch))
        })
    }

    /// Begins a new epoch of a database, which the caller has locked exclusively. A commit into an extent that a writer
    /// took in an earlier epoch is refused from then on.
    pub fn raise_epoch(&self, database: DatabaseId) -> Result<()> {
        let raise = "UPDATE databases SET epoch = epoch + 1 WHERE id = ?1";
        self.connections.current()?.write(|sql| {
            sql.prepare_cached(raise)?.execute([database.0])?;
            Ok(())
        })
    }

    /// Begins a new epoch of every database in a catalogue that was rebuilt or restored. The lost catalogue may have
    /// begun more epochs than this one knows; the seconds since 1970 are greater than all of them. An epoch must not
    /// be used twice, because clients key their caches by it. Objects of stores that the lost catalogue refers to, too, are
    /// not removed by this one.
    pub fn begin_new_epochs(&self) -> Result<()> {
        let raise = "UPDATE databases SET epoch = max(epoch + 1, unixepoch())";
        self.connections.current()?.write_as_anyone(|sql| {
            following::begin_anew(sql)?;
            sql.execute(raise, [])?;
            replicas::begin_archive_anew(sql)
        })
    }

    /// Takes the smallest released range of at least `size_min` bytes for the caller alone; `None` if there is none.
    pub fn take_free_extent(
        &self,
        database: DatabaseId,
        size_min: u64,
    ) -> Result<Option<BlobRange>> {
        let wanted = params![database.0, signed(size_min)];
        let offset = "SELECT start FROM free_extents \
            WHERE database = ?1 AND epoch IS NOT NULL AND size >= ?2 ORDER BY size LIMIT 1";
        // Mostly there is none, and then this need not wait for the turn to commit.
        if self.one(offset, wanted, |_| Ok(()))?.is_none() {
            return Ok(None);
        }
        let take = format!(
            "DELETE FROM free_extents WHERE database = ?1 AND start = ({offset}) \
             RETURNING start, size"
        );
        self.connections.current()?.write(|sql| {
            let taken = sql.prepare_cached(&take)?.query_row(wanted, |row| {
                Ok(BlobRange { offset: unsigned(row.get(0)?), size: unsigned(row.get(1)?) })
            });
            Ok(taken.optional()?)
        })
    }

    /// Gives back the unused part of a range that was taken.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it overlaps a free range.
    pub fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()> {
        self.connections.current()?.write(|sql| {
            insert_free(sql, database, range)?;
            sql.prepare_cached(
                "UPDATE free_extents SET epoch = (SELECT epoch FROM databases WHERE id = ?1) \
                 WHERE database = ?1 AND start = ?2",
            )?
            .execute(params![database.0, signed(range.offset)])?;
            Ok(())
        })
    }

    /// The free ranges of a database's file, in ascending order.
    pub fn free_extents(&self, database: DatabaseId) -> Result<Vec<FreeExtent>> {
        let sql = "SELECT start, size, epoch IS NOT NULL FROM free_extents \
                   WHERE database = ?1 ORDER BY start";
        self.all(sql, [database.0], |row| {
            let range = BlobRange { offset: unsigned(row.get(0)?), size: unsigned(row.get(1)?) };
            Ok(FreeExtent { range, is_released: row.get(2)? })
        })
    }
}

fn apply(sql: &Connection, vacuumed: &Vacuumed) -> SqlResult<()> {
    let kept = &vacuumed.kept;
    check_kept(sql, kept)?;
    for (database, container, csn) in &vacuumed.versions {
        drop_version(sql, kept, *database, *container, *csn)?;
    }
    for (database, container) in &vacuumed.purged_containers {
        purge_container(sql, kept, *database, *container)?;
    }
    vacuumed
        .purged_databases
        .iter()
        .try_for_each(|database| purge_database(sql, kept, *database))?;
    for (database, ranges) in &vacuumed.freed {
        ranges.iter().try_for_each(|range| insert_free(sql, *database, *range))?;
    }
    let mut insert = sql.prepare_cached("INSERT INTO kept_snapshots (csn) VALUES (?1)")?;
    kept.csns.iter().try_for_each(|csn| insert.execute([signed(csn.0)]).map(drop))?;
    Ok(())
}

/// Checks that no vacuum has run and no older snapshot was tagged since the horizon was raised. Raising it deletes the
/// rows of `kept_snapshots`, and a vacuum that has run leaves rows there.
fn check_kept(sql: &Connection, kept: &KeptSnapshots) -> SqlResult<()> {
    let horizon = setting(sql, "horizon")?.unwrap_or(0);
    let is_recorded = sql.prepare_cached("SELECT 1 FROM kept_snapshots")?.exists([])?;
    if horizon != kept.horizon.0 || is_recorded {
        return Err(Error::changed("another vacuum has run since this one began").into());
    }
    let mut tags = sql.prepare_cached("SELECT name, csn FROM tags WHERE csn < ?1")?;
    let mut rows = tags.query([signed(horizon)])?;
    while let Some(row) = rows.next()? {
        if kept.csns.binary_search(&Csn(unsigned(row.get(1)?))).is_err() {
            let name: String = row.get(0)?;
            return Err(Error::changed(format!("tag {name:?} is newer than this vacuum")).into());
        }
    }
    Ok(())
}

fn drop_version(
    sql: &Connection,
    kept: &KeptSnapshots,
    database: DatabaseId,
    container: ContainerId,
    csn: Csn,
) -> SqlResult<()> {
    let what = || format!("version {csn} of container {container} of database {database}");
    let next: Option<i64> = sql
        .prepare_cached(
            "SELECT csn FROM versions WHERE database = ?1 AND container = ?2 AND csn > ?3 \
             ORDER BY csn LIMIT 1",
        )?
        .query_row(params![database.0, container.0, signed(csn.0)], |row| row.get(0))
        .optional()?;
    let life = lifetime(sql, database, container)?;
    let life = life.ok_or_else(|| names::not_found("container", &container.to_string(), vec![]))?;
    if kept.needs(csn, earlier(next.map(|csn| Csn(unsigned(csn))), life.end)) {
        return Err(Error::invalid(format!("{} is needed by a snapshot", what())).into());
    }
    let dropped = sql
        .prepare_cached("DELETE FROM versions WHERE database = ?1 AND container = ?2 AND csn = ?3")?
        .execute(params![database.0, container.0, signed(csn.0)])?;
    match dropped {
        1 => Ok(()),
        _ => Err(names::not_found("version", &what(), vec![]).into()),
    }
}

fn purge_container(
    sql: &Connection,
    kept: &KeptSnapshots,
    database: DatabaseId,
    container: ContainerId,
) -> SqlResult<()> {
    let name = || format!("{container} of database {database}");
    let life = lifetime(sql, database, container)?;
    let life = life.ok_or_else(|| names::not_found("container", &name(), vec![]))?;
    if kept.needs(life.created, life.end) {
        return Err(Error::invalid(format!("container {} is needed by a snapshot", name())).into());
    }
    delete_container(sql, database, container)
}

/// Deletes the rows of a container.
pub(super) fn delete_container(
    sql: &Connection,
    database: DatabaseId,
    container: ContainerId,
) -> SqlResult<()> {
    for (table, column) in [
        ("versions", "container"),
        ("link_targets", "container"),
        ("container_names", "container"),
        ("containers", "id"),
    ] {
        sql.prepare_cached(&format!("DELETE FROM {table} WHERE database = ?1 AND {column} = ?2"))?
            .execute([database.0, container.0])?;
    }
    Ok(())
}

fn purge_database(sql: &Connection, kept: &KeptSnapshots, database: DatabaseId) -> SqlResult<()> {
    let life = sql
        .prepare_cached("SELECT created, dropped FROM databases WHERE id = ?1")?
        .query_row([database.0], |row| Ok(Lifetime::new(row.get(0)?, row.get(1)?, None)))
        .optional()?;
    let life = life.ok_or_else(|| names::not_found("database", &database.to_string(), vec![]))?;
    if kept.needs(life.created, life.end) {
        return Err(Error::invalid(format!("database {database} is needed by a snapshot")).into());
    }
    delete_database(sql, database)
}

/// Deletes the rows of a database.
pub(super) fn delete_database(sql: &Connection, database: DatabaseId) -> SqlResult<()> {
    for table in [
        "versions",
        "link_targets",
        "container_names",
        "containers",
        "free_extents",
        "database_names",
    ] {
        sql.prepare_cached(&format!("DELETE FROM {table} WHERE database = ?1"))?
            .execute([database.0])?;
    }
    replicas::purge(sql, database)?;
    logged_writes::forget_database(sql, database)?;
    sql.prepare_cached("DELETE FROM databases WHERE id = ?1")?.execute([database.0])?;
    Ok(())
}

fn insert_free(sql: &Connection, database: DatabaseId, range: BlobRange) -> SqlResult<()> {
    let (first, size) = (signed(range.offset), signed(range.size));
    let overlaps = sql
        .prepare_cached(
            "SELECT 1 FROM free_extents WHERE database = ?1 AND start < ?3 \
             AND start + size > ?2",
        )?
        .exists(params![database.0, first, first.saturating_add(size)])?;
    if overlaps || size == 0 {
        let BlobRange { offset, size } = range;
        let what = format!("{size} bytes at {offset} of database {database} cannot be freed");
        return Err(
            Error::invalid(format!("{what}: the range is empty, or overlaps a free one")).into()
        );
    }
    sql.prepare_cached("INSERT INTO free_extents (database, start, size) VALUES (?1, ?2, ?3)")?
        .execute(params![database.0, first, size])?;
    Ok(())
}

/// The commits between which a database or container exists.
struct Lifetime {
    created: Csn,
    end: Option<Csn>,
}

impl Lifetime {
    fn new(created: i64, dropped: Option<i64>, database_dropped: Option<i64>) -> Self {
        let csn = |csn| Csn(unsigned(csn));
        Lifetime {
            created: csn(created),
            end: earlier(dropped.map(csn), database_dropped.map(csn)),
        }
    }
}

fn lifetime(
    sql: &Connection,
    database: DatabaseId,
    container: ContainerId,
) -> SqlResult<Option<Lifetime>> {
    let life = sql
        .prepare_cached(
            "SELECT c.created, c.dropped, d.dropped FROM containers c \
             JOIN databases d ON d.id = c.database WHERE c.database = ?1 AND c.id = ?2",
        )?
        .query_row([database.0, container.0], |row| {
            Ok(Lifetime::new(row.get(0)?, row.get(1)?, row.get(2)?))
        });
    Ok(life.optional()?)
}

/// The earlier of two commits; `None` is later than all.
fn earlier(one: Option<Csn>, other: Option<Csn>) -> Option<Csn> {
    one.into_iter().chain(other).min()
}
