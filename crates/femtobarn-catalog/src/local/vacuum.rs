//! What vacuum takes away, and the space that it gives back to writers.
//!
//! In this order, each step durable before the next:
//!
//! 1. [`LocalCatalogue::raise_horizon`] says what must be kept;
//! 2. [`LocalCatalogue::vacuum`] takes the rows of versions, containers and databases that nothing kept
//!    needs, and notes which ranges of the files only they had;
//! 3. holes are punched there, which is the caller's part;
//! 4. [`LocalCatalogue::release_freed`] begins a new epoch of the database and lets writers have the
//!    ranges, each of which exactly one gets ([`LocalCatalogue::take_free_extent`]).
//!
//! Invariants:
//! 1. What a kept snapshot needs is not taken, whatever the caller says: it is checked again.
//! 2. After a crash between two steps, vacuum can be run again. Ranges that were freed and not
//!    released are still listed.
//! 3. A range is in the table once: who took it owns it, until a later vacuum frees it again.

use rusqlite::{Connection, OptionalExtension, params};

use super::LocalCatalogue;
use super::numbers::{signed, unsigned};
use super::retention::{Kept, setting};
use crate::error::{Attempt, Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::rows::{BlobRange, DatabaseRecord, VersionRow};

/// What a vacuum takes away.
#[derive(Clone, Debug)]
pub struct Vacuumed {
    /// What it keeps, from [`LocalCatalogue::raise_horizon`].
    pub kept: Kept,
    /// Versions that go.
    pub versions: Vec<(DatabaseId, ContainerId, Csn)>,
    /// Ranges of database files that nothing kept has bytes in. They must not overlap.
    pub freed: Vec<(DatabaseId, Vec<BlobRange>)>,
    /// Dropped databases that go altogether.
    pub purged_databases: Vec<DatabaseId>,
    /// Dropped containers that go altogether.
    pub purged_containers: Vec<(DatabaseId, ContainerId)>,
}

/// Dropped databases and containers that no kept snapshot has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purgeable {
    /// Databases, with all that is in them.
    pub databases: Vec<DatabaseRecord>,
    /// Containers of other databases.
    pub containers: Vec<(DatabaseId, ContainerId)>,
}

/// A range of a database's file that writers may have, or will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeExtent {
    /// Where it is.
    pub range: BlobRange,
    /// Whether writers may have it. If not, its holes may not have been punched.
    pub is_released: bool,
}

impl LocalCatalogue {
    /// The versions of a container that nothing kept needs, the oldest first.
    pub fn versions_to_drop(
        &self,
        database: DatabaseId,
        container: ContainerId,
        kept: &Kept,
    ) -> Result<Vec<VersionRow>> {
        let versions = self.versions(database, container)?;
        let end = self.read(|sql| end_of(sql, database, container))?.and_then(|life| life.end);
        let next = versions.iter().skip(1).map(|row| Some(row.csn)).chain([end]);
        let next = next.map(|next| earlier(next, end)).collect::<Vec<_>>();
        let unneeded = versions.into_iter().zip(next);
        let unneeded = unneeded.filter(|(row, next)| !kept.needs(row.csn, *next));
        Ok(unneeded.map(|(row, _)| row).collect())
    }

    /// The dropped databases and containers that no kept snapshot has.
    pub fn purgeable(&self, kept: &Kept) -> Result<Purgeable> {
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

    /// Takes away what a vacuum found unneeded, as a whole.
    ///
    /// # Errors
    /// [`Error::Changed`] if another vacuum ran meanwhile, or something was tagged that this one
    /// would not keep; [`Error::Invalid`] if something is needed, or a range is free already.
    pub fn vacuum(&self, vacuumed: &Vacuumed) -> Result<()> {
        self.sessions.current()?.write(|sql| apply(sql, vacuumed))
    }

    /// Lets writers have the ranges that were freed, after their holes were punched, and returns
    /// the new epoch of the database.
    pub fn release_freed(&self, database: DatabaseId) -> Result<u64> {
        self.sessions.current()?.write(|sql| {
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

    /// Begins a new epoch of a database: what was taken of its space and is not committed yet is lost.
    /// The caller has the database alone.
    pub fn raise_epoch(&self, database: DatabaseId) -> Result<()> {
        let raise = "UPDATE databases SET epoch = epoch + 1 WHERE id = ?1";
        self.sessions.current()?.write(|sql| {
            sql.prepare_cached(raise)?.execute([database.0])?;
            Ok(())
        })
    }

    /// Begins an epoch of all databases that there never was, also not in what this catalogue was made from
    /// or went on to before a backup was restored: caches of clients know bytes by their epoch.
    pub fn begin_new_epochs(&self) -> Result<()> {
        let raise = "UPDATE databases SET epoch = max(epoch + 1, unixepoch())";
        self.sessions.current()?.write(|sql| {
            sql.execute(raise, [])?;
            Ok(())
        })
    }

    /// Takes the smallest free range of at least `size_min` bytes, which nobody else then gets.
    pub fn take_free_extent(
        &self,
        database: DatabaseId,
        size_min: u64,
    ) -> Result<Option<BlobRange>> {
        let wanted = params![database.0, signed(size_min)];
        let offset = "SELECT start FROM free_extents \
            WHERE database = ?1 AND epoch IS NOT NULL AND size >= ?2 ORDER BY size LIMIT 1";
        // Mostly there is none, and then nobody need wait for the turn to write.
        if self.one(offset, wanted, |_| Ok(()))?.is_none() {
            return Ok(None);
        }
        let take = format!(
            "DELETE FROM free_extents WHERE database = ?1 AND start = ({offset}) \
             RETURNING start, size"
        );
        self.sessions.current()?.write(|sql| {
            let taken = sql.prepare_cached(&take)?.query_row(wanted, |row| {
                Ok(BlobRange { offset: unsigned(row.get(0)?), size: unsigned(row.get(1)?) })
            });
            Ok(taken.optional()?)
        })
    }

    /// Gives back what its taker did not use of a free range.
    ///
    /// # Errors
    /// [`Error::Invalid`] if some of it is free already.
    pub fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()> {
        self.sessions.current()?.write(|sql| {
            insert_free(sql, database, range)?;
            sql.prepare_cached(
                "UPDATE free_extents SET epoch = (SELECT epoch FROM databases WHERE id = ?1) \
                 WHERE database = ?1 AND start = ?2",
            )?
            .execute(params![database.0, signed(range.offset)])?;
            Ok(())
        })
    }

    /// The free ranges of a database's file, in order.
    pub fn free_extents(&self, database: DatabaseId) -> Result<Vec<FreeExtent>> {
        let sql = "SELECT start, size, epoch IS NOT NULL FROM free_extents \
                   WHERE database = ?1 ORDER BY start";
        self.all(sql, [database.0], |row| {
            let range = BlobRange { offset: unsigned(row.get(0)?), size: unsigned(row.get(1)?) };
            Ok(FreeExtent { range, is_released: row.get(2)? })
        })
    }
}

fn apply(sql: &Connection, vacuumed: &Vacuumed) -> Attempt<()> {
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

/// Between raising the horizon and this, another vacuum may have run, and tags may have come.
fn check_kept(sql: &Connection, kept: &Kept) -> Attempt<()> {
    let horizon = setting(sql, "horizon")?.unwrap_or(0);
    let others = sql.prepare_cached("SELECT 1 FROM kept_snapshots")?.exists([])?;
    if horizon != kept.horizon.0 || others {
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
    kept: &Kept,
    database: DatabaseId,
    container: ContainerId,
    csn: Csn,
) -> Attempt<()> {
    let what = || format!("version {csn} of container {container} of database {database}");
    let next: Option<i64> = sql
        .prepare_cached(
            "SELECT csn FROM versions WHERE database = ?1 AND container = ?2 AND csn > ?3 \
             ORDER BY csn LIMIT 1",
        )?
        .query_row(params![database.0, container.0, signed(csn.0)], |row| row.get(0))
        .optional()?;
    let life = end_of(sql, database, container)?;
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
    kept: &Kept,
    database: DatabaseId,
    container: ContainerId,
) -> Attempt<()> {
    let name = || format!("{container} of database {database}");
    let life = end_of(sql, database, container)?;
    let life = life.ok_or_else(|| names::not_found("container", &name(), vec![]))?;
    if kept.needs(life.created, life.end) {
        return Err(Error::invalid(format!("container {} is needed by a snapshot", name())).into());
    }
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

fn purge_database(sql: &Connection, kept: &Kept, database: DatabaseId) -> Attempt<()> {
    let life = sql
        .prepare_cached("SELECT created, dropped FROM databases WHERE id = ?1")?
        .query_row([database.0], |row| Ok(Life::new(row.get(0)?, row.get(1)?, None)))
        .optional()?;
    let life = life.ok_or_else(|| names::not_found("database", &database.to_string(), vec![]))?;
    if kept.needs(life.created, life.end) {
        return Err(Error::invalid(format!("database {database} is needed by a snapshot")).into());
    }
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
    sql.prepare_cached("DELETE FROM databases WHERE id = ?1")?.execute([database.0])?;
    Ok(())
}

fn insert_free(sql: &Connection, database: DatabaseId, range: BlobRange) -> Attempt<()> {
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
        return Err(Error::invalid(format!("{what}: they are free already, or none")).into());
    }
    sql.prepare_cached("INSERT INTO free_extents (database, start, size) VALUES (?1, ?2, ?3)")?
        .execute(params![database.0, first, size])?;
    Ok(())
}

/// From which commit on something is there, and from which on no more.
struct Life {
    created: Csn,
    end: Option<Csn>,
}

impl Life {
    fn new(created: i64, dropped: Option<i64>, database_dropped: Option<i64>) -> Self {
        let csn = |csn| Csn(unsigned(csn));
        Life { created: csn(created), end: earlier(dropped.map(csn), database_dropped.map(csn)) }
    }
}

fn end_of(sql: &Connection, database: DatabaseId, container: ContainerId) -> Attempt<Option<Life>> {
    let life = sql
        .prepare_cached(
            "SELECT c.created, c.dropped, d.dropped FROM containers c \
             JOIN databases d ON d.id = c.database WHERE c.database = ?1 AND c.id = ?2",
        )?
        .query_row([database.0, container.0], |row| {
            Ok(Life::new(row.get(0)?, row.get(1)?, row.get(2)?))
        });
    Ok(life.optional()?)
}

/// The earlier of two ends, of which none is never.
fn earlier(one: Option<Csn>, other: Option<Csn>) -> Option<Csn> {
    one.into_iter().chain(other).min()
}
