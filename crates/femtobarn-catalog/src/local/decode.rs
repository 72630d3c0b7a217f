//! Decodes the rows of SQL queries.

use uuid::Uuid;

use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::numbers::unsigned;
use crate::rows::{
    BlobRange, ClassRow, CommitRow, ContainerRow, DatabaseRow, DatabaseState, EnvelopeRange,
    VersionRow,
};
use crate::sql::{FromSql, Row, RowResult};

pub(super) fn database_row(row: &Row<'_>) -> RowResult<DatabaseRow> {
    Ok(DatabaseRow {
        id: DatabaseId(row.get(0)?),
        uuid: uuid(row, 1)?,
        name: row.get(2)?,
        path: row.get(3)?,
        state: database_state(row, 4)?,
        created: Csn(number(row, 5)?),
        epoch: number(row, 6)?,
    })
}

pub(super) fn database_state(row: &Row<'_>, column: usize) -> RowResult<DatabaseState> {
    Ok(match row.get::<String>(column)?.as_str() {
        "sealed" => DatabaseState::Sealed,
        "attached" => DatabaseState::Attached,
        _ => DatabaseState::Open,
    })
}

pub(super) fn container_row(row: &Row<'_>) -> RowResult<ContainerRow> {
    container_at(row, 0)
}

/// Decodes a container from the columns that begin at `first`.
pub(super) fn container_at(row: &Row<'_>, first: usize) -> RowResult<ContainerRow> {
    Ok(ContainerRow {
        database: DatabaseId(row.get(first)?),
        id: ContainerId(row.get(first + 1)?),
        name: row.get(first + 2)?,
        class: row.get(first + 3)?,
        class_version: row.get(first + 4)?,
        options: row.get(first + 5)?,
        created: Csn(number(row, first + 6)?),
    })
}

pub(super) fn version_row(row: &Row<'_>) -> RowResult<VersionRow> {
    version_at(row, 0)
}

/// Decodes a version from the columns that begin at `first`.
pub(super) fn version_at(row: &Row<'_>, first: usize) -> RowResult<VersionRow> {
    Ok(VersionRow {
        database: DatabaseId(row.get(first)?),
        container: ContainerId(row.get(first + 1)?),
        csn: Csn(number(row, first + 2)?),
        header: envelope_range(row, first + 3)?,
        footer: envelope_range(row, first + 6)?,
        annex: blob_range(row, first + 9)?,
        record: blob_range(row, first + 11)?,
        class_version: row.get(first + 13)?,
        entries: number(row, first + 14)?,
        deleted: number(row, first + 15)?,
        bytes: number(row, first + 16)?,
    })
}

fn envelope_range(row: &Row<'_>, first: usize) -> RowResult<EnvelopeRange> {
    Ok(EnvelopeRange {
        offset: number(row, first)?,
        size: number(row, first + 1)?,
        length: number(row, first + 2)?,
    })
}

fn blob_range(row: &Row<'_>, first: usize) -> RowResult<BlobRange> {
    Ok(BlobRange { offset: number(row, first)?, size: number(row, first + 1)? })
}

pub(super) fn class_row(row: &Row<'_>) -> RowResult<ClassRow> {
    Ok(ClassRow { name: row.get(0)?, version: row.get(1)?, definition: row.get(2)? })
}

pub(super) fn commit_row(row: &Row<'_>) -> RowResult<CommitRow> {
    Ok(CommitRow {
        csn: Csn(number(row, 0)?),
        transaction: uuid(row, 1)?,
        time_us: row.get(2)?,
        message: row.get(3)?,
        user: row.get(4)?,
        host: row.get(5)?,
        pid: row.get(6)?,
    })
}

pub(super) fn number(row: &Row<'_>, column: usize) -> RowResult<u64> {
    row.get(column).map(unsigned)
}

pub(super) fn uuid(row: &Row<'_>, column: usize) -> RowResult<Uuid> {
    <[u8; 16]>::column_result(row.get_ref(column)?).map(Uuid::from_bytes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Blob,
            Box::new(error),
        )
    })
}
