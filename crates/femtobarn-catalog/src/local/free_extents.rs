//! Free ranges of database files: recorded by vacuum, released to writers, which take them and give unused parts back.
//!
//! 1. A range is in the table at most once, and ranges of a file do not overlap. The writer that took a range owns it
//!    until a later vacuum frees it again.
//! 2. An added range is joined with the ranges that it touches: otherwise the space of many small commits, freed by one
//!    vacuum after the other, would stay in pieces too small for any writer. A range that vacuum adds to released
//!    ranges makes these unreleased again, so that one hole is punched for all.
//! 3. The cost of taking or adding a range does not depend on their number.

use super::LocalCatalogue;
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::BlobRange;
use crate::sql::{OptionalExtension, SqlConnection, SqlResult, params};

/// Whether bytes `?2..?3` overlap a free range. Of ranges that do not overlap, the last to begin is the last to end, so
/// one row is read, whatever their number.
const OVERLAPS: &str = "SELECT start + size > ?2 FROM free_extents WHERE database = ?1 AND start < ?3 \
    ORDER BY start DESC LIMIT 1";

/// Removes the ranges that end at byte `?2` or begin at byte `?3`; only released ones unless `?4` is null.
const TAKE_NEIGHBOURS: &str = "DELETE FROM free_extents WHERE database = ?1 AND start IN \
    (?3, (SELECT max(start) FROM free_extents WHERE database = ?1 AND start < ?2)) \
    AND (start = ?3 OR start + size = ?2) AND (CAST(?4 AS INTEGER) IS NULL OR epoch IS NOT NULL) RETURNING start, start + size";

/// A free range of a database's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeExtent {
    /// The range.
    pub range: BlobRange,
    /// Whether writers may take the range. If not, its hole may not have been punched yet.
    pub is_released: bool,
}

impl LocalCatalogue {
    /// Notes ranges of a database that no version refers to, as [`LocalCatalogue::vacuum`] does. The caller has locked
    /// the database exclusively.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a range is empty, or overlaps a free one.
    pub fn note_garbage(&self, database: DatabaseId, ranges: &[BlobRange]) -> Result<()> {
        self.connections.write(|sql| {
            ranges.iter().try_for_each(|range| insert_free(sql, database, *range, None))
        })
    }

    /// Begins a new epoch of the database and releases its freed ranges to writers. The caller has punched the holes.
    /// Returns the epoch.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such database.
    pub fn release_freed(&self, database: DatabaseId) -> Result<u64> {
        self.connections.write(|sql| {
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

    /// Begins a new epoch of the database, in which writers use none of the space that they have reserved. The caller
    /// has locked the database exclusively. Returns the epoch.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such database.
    pub fn begin_epoch(&self, database: DatabaseId) -> Result<u64> {
        let raise = "UPDATE databases SET epoch = epoch + 1 WHERE id = ?1 RETURNING epoch";
        let epoch: Option<i64> = self.connections.write(|sql| {
            let raised = sql.prepare_cached(raise)?.query_row([database.0], |row| row.get(0));
            raised.optional()
        })?;
        let missing = || names::not_found("database", &database.to_string(), vec![]);
        epoch.map(unsigned).ok_or_else(missing)
    }

    /// Takes the smallest released range of at least `size_min` bytes, which the caller owns from then on; `None` if
    /// there is none.
    pub fn take_free_extent(
        &self,
        database: DatabaseId,
        size_min: u64,
    ) -> Result<Option<BlobRange>> {
        let wanted = params![database.0, signed(size_min)];
        let offset = "SELECT start FROM free_extents \
            WHERE database = ?1 AND epoch IS NOT NULL AND size >= ?2 ORDER BY size LIMIT 1";
        // Usually there is none; then this need not wait for the turn to commit.
        if self.one(offset, wanted, |_| Ok(()))?.is_none() {
            return Ok(None);
        }
        let take = format!(
            "DELETE FROM free_extents WHERE database = ?1 AND start = ({offset}) \
             RETURNING start, size"
        );
        self.connections.write_aside(|sql| {
            let taken = sql.prepare_cached(&take)?.query_row(wanted, |row| {
                Ok(BlobRange { offset: unsigned(row.get(0)?), size: unsigned(row.get(1)?) })
            });
            taken.optional()
        })
    }

    /// Gives back the unused part of a range that was taken.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it overlaps a free range; [`Error::NotFound`] if there is no such database.
    pub fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()> {
        self.connections.write_aside(|sql| {
            let epoch: Option<i64> = sql
                .prepare_cached("SELECT epoch FROM databases WHERE id = ?1")?
                .query_row([database.0], |row| row.get(0))
                .optional()?;
            let missing = || names::not_found("database", &database.to_string(), vec![]);
            insert_free(sql, database, range, Some(epoch.ok_or_else(missing)?))
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

/// Adds a range; a range without an epoch is not released yet.
pub(super) fn insert_free(
    sql: &SqlConnection,
    database: DatabaseId,
    range: BlobRange,
    epoch: Option<i64>,
) -> SqlResult<()> {
    let BlobRange { offset, size } = range;
    let (mut start, mut end) = (signed(offset), signed(offset.saturating_add(size)));
    let overlaps = sql
        .prepare_cached(OVERLAPS)?
        .query_row(params![database.0, start, end], |row| row.get(0))
        .optional()?;
    if overlaps == Some(true) || size == 0 {
        let what = format!("{size} bytes at {offset} of database {database} cannot be freed");
        return Err(
            Error::invalid(format!("{what}: the range is empty, or overlaps a free one")).into()
        );
    }
    let mut take = sql.prepare_cached(TAKE_NEIGHBOURS)?;
    let mut neighbours = take.query(params![database.0, start, end, epoch])?;
    while let Some(row) = neighbours.next()? {
        (start, end) = (start.min(row.get(0)?), end.max(row.get(1)?));
    }
    sql.prepare_cached(
        "INSERT INTO free_extents (database, start, size, epoch) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![database.0, start, end - start, epoch])?;
    Ok(())
}
