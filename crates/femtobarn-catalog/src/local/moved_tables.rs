//! The tables of a catalogue that moves: those that followers copy, too, and those that each catalogue has for itself.

use super::replicas;
use super::row_copy::{RowsDigest, check_equal, each_page, insert, read_cells};
use crate::copied_tables::{CopiedTable, IN_STORES, SEQUENCES, TABLES, UNDATED};
use crate::error::Error;
use crate::schema::{FORMAT_WITH_ROLES, identity, raise_format};
use crate::sql::{SqlConnection, SqlResult};

/// Tables that a catalogue has for itself.
const OWN: &[CopiedTable] = &[CopiedTable {
    name: "free_extents",
    columns: &["database", "start", "size", "epoch"],
    key: &["database", "start"],
    new: "free_extents t",
    new_by_commit: None,
}];
/// Tables for copies in stores that a catalogue has for itself.
const OWN_IN_STORES: &[CopiedTable] = &[
    CopiedTable {
        name: "disk_states",
        columns: &["database", "state", "changed_us"],
        key: &["database"],
        new: "disk_states t",
        new_by_commit: None,
    },
    CopiedTable {
        name: "file_pins",
        columns: &["database", "holder", "until_us"],
        key: &["database", "holder"],
        new: "file_pins t",
        new_by_commit: None,
    },
];
/// Settings that are not copied: they describe a catalogue's own tables and its own move.
const KEPT_SETTINGS: &str = "('format', 'postgresql_tables', 'move', 'successor')";

/// Tables whose rows in the new catalogue are deleted before they are copied.
fn replaced() -> impl Iterator<Item = &'static CopiedTable> {
    let of_settings = |table: &&CopiedTable| table.name != "federation";
    UNDATED.iter().filter(of_settings).chain(OWN)
}

/// Tables of copies in stores.
fn in_stores() -> impl Iterator<Item = &'static CopiedTable> {
    let is_whole = |table: &&CopiedTable| table.name != "disk_states";
    IN_STORES.iter().filter(is_whole).chain(OWN_IN_STORES)
}

/// Deletes all rows but settings.
pub(super) fn clear(sql: &SqlConnection) -> SqlResult<()> {
    let in_stores = in_stores().filter(|_| replicas::has_tables(sql).unwrap_or(true));
    for table in in_stores.chain(replaced()).chain(TABLES.iter().rev()) {
        sql.execute(&format!("DELETE FROM {}", table.name), [])?;
    }
    Ok(())
}

/// Copies all undated rows and compares them; returns their number.
pub(super) fn copy_undated(from: &SqlConnection, to: &SqlConnection) -> SqlResult<u64> {
    let databases = CopiedTable::of("databases")?;
    let mut rows = copy_table(from, to, databases)? + copy_table(from, to, &SEQUENCES)?;
    for table in replaced() {
        delete_rows(to, table)?;
        rows += copy_table(from, to, table)?;
    }
    if replicas::has_tables(from)? {
        let mut has_rows = false;
        for table in in_stores() {
            has_rows |= RowsDigest::of(from, table)?.rows > 0;
        }
        if has_rows {
            replicas::make_tables(to)?;
        }
    }
    if replicas::has_tables(to)? {
        for table in in_stores() {
            delete_rows(to, table)?;
            if replicas::has_tables(from)? {
                rows += copy_table(from, to, table)?;
            }
        }
    }
    Ok(rows + copy_settings(from, to)?)
}

fn delete_rows(sql: &SqlConnection, table: &CopiedTable) -> SqlResult<()> {
    sql.execute(&format!("DELETE FROM {}", table.name), []).map(drop)
}

/// Copies a whole table, and compares it.
fn copy_table(from: &SqlConnection, to: &SqlConnection, table: &CopiedTable) -> SqlResult<u64> {
    let mut sent = RowsDigest::default();
    each_page(from, table, |cells| {
        sent.add(table, &cells);
        insert(to, table, &cells)
    })?;
    check_equal(table, sent, RowsDigest::of(to, table)?)?;
    Ok(sent.rows)
}

/// Copies the settings of the federation. The new catalogue keeps its [`KEPT_SETTINGS`].
fn copy_settings(from: &SqlConnection, to: &SqlConnection) -> SqlResult<u64> {
    let settings = CopiedTable::of("federation")?;
    let old =
        format!("DELETE FROM federation WHERE key NOT IN {KEPT_SETTINGS} AND key <> 'archive'");
    to.execute(&old, [])?;
    let wanted = format!("SELECT key, value FROM federation WHERE key NOT IN {KEPT_SETTINGS}");
    let cells = read_cells(&mut from.prepare_cached(&wanted)?, 2, [])?;
    insert(to, settings, &cells)?;
    if identity(from)?.is_some_and(|identity| identity.format >= FORMAT_WITH_ROLES) {
        raise_format(to, FORMAT_WITH_ROLES)?;
    }
    Ok(cells.len() as u64 / 2)
}

/// Checks that a catalogue in PostgreSQL has no rows in tables that are not moved.
pub(super) fn check_all_known(sql: &SqlConnection) -> SqlResult<()> {
    let Some(schema) = sql.postgres().map(|postgres| postgres.address().schema()) else {
        return Ok(());
    };
    let known = TABLES.iter().chain(UNDATED).chain(OWN).chain([&SEQUENCES]).chain(in_stores());
    let known: Vec<&str> = known.map(|table| table.name).collect();
    let names = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = ?1";
    let mut names = sql.prepare_cached(names)?;
    let names: Vec<String> =
        names.query_map([schema], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
        let find = format!("SELECT 1 FROM \"{schema}\".\"{name}\" LIMIT 1");
        if sql.prepare_cached(&find)?.exists([])? {
            let what = format!(
                "the catalogue has rows in table {name}, which exists only in PostgreSQL, where a federation with \
                 several servers must stay; delete the rows if nobody needs them"
            );
            return Err(Error::Unsupported { what }.into());
        }
    }
    Ok(())
}
