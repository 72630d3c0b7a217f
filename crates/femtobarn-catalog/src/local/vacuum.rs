//! Vacuum's part in the catalogue: removing rows that no kept snapshot needs, and giving space back to writers.
//!
//! The steps, each durable before the next:
//!
//! 1. [`LocalCatalogue::raise_horizon`] decides which snapshots are kept;
//! 2. [`LocalCatalogue::vacuum`] deletes the rows of versions, containers and databases that no kept snapshot needs,
//!    in several transactions, the last of which purges databases and records the ranges of files that only the deleted
//!    versions used;
//! 3. the caller punches holes there;
//! 4. [`LocalCatalogue::release_freed`] begins a new epoch of the database and releases the ranges to writers.
//!
//! Invariants:
//! 1. Rows that a kept snapshot needs are never deleted, whatever the caller asks for: each row is checked again.
//! 2. After a crash vacuum can be run again. The table `free_extents` still has the freed ranges that were not
//!    released; ranges that were freed but not recorded are ranges that no version refers to, which the next vacuum
//!    finds.

use std::collections::{HashMap, HashSet};

use super::LocalCatalogue;
use super::free_extents::insert_free;
use super::retention::KeptSnapshots;
use super::settings::setting;
use super::{following, logged_writes, replicas};
use crate::clock;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{BlobRange, DatabaseRecord, VersionRow};
use crate::sql::{OptionalExtension, SqlConnection, SqlResult, params};

/// Selects containers that were dropped, alone or with their database, with the commit of the drop.
const DROPPED_CONTAINERS: &str = "SELECT c.database, c.id, c.created, c.dropped, d.dropped FROM containers c \
    JOIN databases d ON d.id = c.database WHERE c.dropped IS NOT NULL OR d.dropped IS NOT NULL \
    ORDER BY c.database, c.id";
/// The lifetimes of the containers of a database.
const LIFETIMES: &str = "SELECT c.id, c.created, c.dropped, d.dropped FROM containers c \
    JOIN databases d ON d.id = c.database WHERE c.database = ?1";
/// Rows that one transaction of a vacuum deletes; commits wait about 10 ms for it.
const ROWS_AT_ONCE: usize = 2000;

/// The changes that a vacuum will make: the rows to delete, and the ranges to free.
#[derive(Clone, Debug)]
pub struct Vacuumed {
    /// The kept snapshots, from [`LocalCatalogue::raise_horizon`].
    pub kept: KeptSnapshots,
    /// Versions to delete, ordered by container and commit.
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

impl LocalCatalogue {
    /// The versions of a database that a kept snapshot needs, and those that none needs; both ordered by container and
    /// commit.
    pub fn versions_by_need(
        &self,
        database: DatabaseId,
        kept: &KeptSnapshots,
    ) -> Result<(Vec<VersionRow>, Vec<VersionRow>)> {
        let ends = self.all(LIFETIMES, [database.0], |row| {
            let life = Lifetime::new(row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((ContainerId(row.get(0)?), life.end))
        })?;
        let ends: HashMap<_, _> = ends.into_iter().collect();
        let versions = self.all_versions(database)?;
        let is_needed = |at: usize| {
            let VersionRow { container, csn, .. } = versions[at];
            let next = versions.get(at + 1).filter(|next| next.container == container);
            let end = ends.get(&container).copied().flatten();
            kept.needs(csn, earlier(next.map(|next| next.csn), end))
        };
        let needed: Vec<bool> = (0..versions.len()).map(is_needed).collect();
        let (mut all, mut needed) = (versions, needed.into_iter());
        let others = all.extract_if(.., |_| needed.next() == Some(false)).collect();
        Ok((all, others))
    }

    /// The dropped databases and containers that no kept snapshot has.
    pub fn purgeable(&self, kept: &KeptSnapshots) -> Result<Purgeable> {
        let gone = |created, dropped: Option<Csn>| !kept.needs(created, dropped);
        let mut databases = self.every_database()?;
        databases.retain(|record| gone(record.row.created, record.dropped));
        let with_database: HashSet<_> = databases.iter().map(|record| record.row.id).collect();
        let mut containers = self.all(DROPPED_CONTAINERS, [], |row| {
            let life = Lifetime::new(row.get(2)?, row.get(3)?, row.get(4)?);
            Ok((DatabaseId(row.get(0)?), ContainerId(row.get(1)?), life))
        })?;
        containers.retain(|(database, _, life)| {
            gone(life.created, life.end) && !with_database.contains(database)
        });
        let containers = containers.into_iter().map(|(database, id, _)| (database, id)).collect();
        Ok(Purgeable { databases, containers })
    }

    /// Deletes the rows that a vacuum found unneeded, some at a time, so that commits need not wait long; then purges
    /// databases and records the freed ranges.
    ///
    /// # Errors
    /// [`Error::Changed`] if another vacuum ran meanwhile, or a snapshot was tagged that this one would not keep;
    /// [`Error::Invalid`] if a kept snapshot needs one of the rows, or a range is free already. Some rows may have been
    /// deleted before the failure; no database is purged, and no range recorded.
    pub fn vacuum(&self, vacuumed: &Vacuumed) -> Result<()> {
        let Vacuumed { kept, versions, freed, purged_databases, purged_containers } = vacuumed;
        self.delete_some(kept, versions, |sql, some| drop_versions(sql, kept, some))?;
        self.delete_some(kept, purged_containers, |sql, some| {
            some.iter().try_for_each(|(database, id)| purge_container(sql, kept, *database, *id))
        })?;
        self.connections.write(|sql| {
            check_kept(sql, kept)?;
            // All or none: the caller removes their files, which nothing refers to without these rows.
            purged_databases
                .iter()
                .try_for_each(|database| purge_database(sql, kept, *database))?;
            for (database, ranges) in freed {
                ranges.iter().try_for_each(|range| insert_free(sql, *database, *range, None))?;
            }
            let mut insert = sql.prepare_cached("INSERT INTO kept_snapshots (csn) VALUES (?1)")?;
            kept.csns.iter().try_for_each(|csn| insert.execute([signed(csn.0)]).map(drop))?;
            Ok(())
        })
    }

    fn delete_some<T>(
        &self,
        kept: &KeptSnapshots,
        rows: &[T],
        delete: impl Fn(&SqlConnection, &[T]) -> SqlResult<()>,
    ) -> Result<()> {
        rows.chunks(ROWS_AT_ONCE).try_for_each(|some| {
            self.connections.write(|sql| {
                check_kept(sql, kept)?;
                delete(sql, some)
            })
        })
    }

    /// Begins a new epoch of a database, which the caller has locked exclusively. A commit into an extent that a writer
    /// took in an earlier epoch is refused from then on.
    pub fn raise_epoch(&self, database: DatabaseId) -> Result<()> {
        let raise = "UPDATE databases SET epoch = epoch + 1 WHERE id = ?1";
        self.connections.write(|sql| {
            sql.prepare_cached(raise)?.execute([database.0])?;
            Ok(())
        })
    }

    /// Begins a new epoch of every database in a catalogue that was rebuilt or restored. The lost catalogue may have
    /// begun more epochs than this one knows; the seconds since 1970 are greater than all of them. An epoch must not be
    /// used twice, because clients key their caches by it. Nor does this catalogue remove objects in stores that the
    /// lost one refers to.
    pub fn begin_new_epochs(&self) -> Result<()> {
        let raise = "UPDATE databases SET epoch = CASE WHEN epoch < ?1 THEN ?1 ELSE epoch + 1 END";
        self.connections.write_as_anyone(|sql| {
            following::begin_anew(sql)?;
            sql.execute(raise, [clock::utc_us() / 1_000_000])?;
            replicas::begin_archive_anew(sql)
        })
    }
}

/// Checks that no vacuum has run and no older snapshot was tagged since the horizon was raised. Raising it deletes the
/// rows of `kept_snapshots`, and a vacuum that has run leaves rows there.
fn check_kept(sql: &SqlConnection, kept: &KeptSnapshots) -> SqlResult<()> {
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

/// Deletes versions, which are ordered by container.
fn drop_versions(
    sql: &SqlConnection,
    kept: &KeptSnapshots,
    versions: &[(DatabaseId, ContainerId, Csn)],
) -> SqlResult<()> {
    for of_one in versions.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (database, container, _) = of_one[0];
        let missing = || names::not_found("container", &container.to_string(), vec![]);
        let life = lifetime(sql, database, container)?.ok_or_else(missing)?;
        for (_, _, csn) in of_one {
            drop_version(sql, kept, (database, container, *csn), life.end)?;
        }
    }
    Ok(())
}

/// Deletes a version of a container that exists until commit `end`.
fn drop_version(
    sql: &SqlConnection,
    kept: &KeptSnapshots,
    (database, container, csn): (DatabaseId, ContainerId, Csn),
    end: Option<Csn>,
) -> SqlResult<()> {
    let what = || format!("version {csn} of container {container} of database {database}");
    let next: Option<i64> = sql
        .prepare_cached(
            "SELECT csn FROM versions WHERE database = ?1 AND container = ?2 AND csn > ?3 \
             ORDER BY csn LIMIT 1",
        )?
        .query_row(params![database.0, container.0, signed(csn.0)], |row| row.get(0))
        .optional()?;
    if kept.needs(csn, earlier(next.map(|csn| Csn(unsigned(csn))), end)) {
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
    sql: &SqlConnection,
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
    sql: &SqlConnection,
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

fn purge_database(
    sql: &SqlConnection,
    kept: &KeptSnapshots,
    database: DatabaseId,
) -> SqlResult<()> {
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
pub(super) fn delete_database(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
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
    sql: &SqlConnection,
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
    life.optional()
}

/// The earlier of two commits; `None` is later than all.
fn earlier(one: Option<Csn>, other: Option<Csn>) -> Option<Csn> {
    one.into_iter().chain(other).min()
}
