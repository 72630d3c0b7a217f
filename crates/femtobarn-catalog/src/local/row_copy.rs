//! Copies rows of tables from one catalogue to another, in either dialect, and compares two catalogues by digests.

use std::hash::{DefaultHasher, Hash, Hasher};

use rusqlite::types::ToSqlOutput;

use crate::copied_tables::CopiedTable;
use crate::error::Error;
use crate::replication::SqlValue;
use crate::sql::{
    Parameters, Params, RowResult, SqlConnection, SqlResult, Statement, ToSql, ValueRef,
};

/// Rows that are read or written at a time.
const ROWS: usize = 1000;

/// A cell as a parameter of a statement.
pub(super) struct ValueParameter<'a>(pub(super) &'a SqlValue);

/// The number of rows, and the sum of their hashes, which does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowsDigest {
    pub(super) rows: u64,
    sum: u64,
}

impl RowsDigest {
    /// Adds rows of a table.
    pub(super) fn add(&mut self, table: &CopiedTable, cells: &[SqlValue]) {
        for row in cells.chunks_exact(table.columns.len()) {
            let mut hasher = DefaultHasher::new();
            row.hash(&mut hasher);
            self.rows += 1;
            self.sum = self.sum.wrapping_add(hasher.finish());
        }
    }

    /// The digest of all rows of a table.
    pub(super) fn of(sql: &SqlConnection, table: &CopiedTable) -> SqlResult<Self> {
        let mut digest = RowsDigest::default();
        each_page(sql, table, |cells| {
            digest.add(table, &cells);
            Ok(())
        })?;
        Ok(digest)
    }
}

/// Passes all rows of a table on, some at a time, in the order of their keys.
pub(super) fn each_page(
    sql: &SqlConnection,
    table: &CopiedTable,
    mut take: impl FnMut(Vec<SqlValue>) -> SqlResult<()>,
) -> SqlResult<()> {
    let names: Vec<&str> = table.names().collect();
    let key = table.key.join(", ");
    let marks: Vec<String> = (1..=table.key.len()).map(|number| format!("?{number}")).collect();
    let first =
        format!("SELECT {} FROM {} ORDER BY {key} LIMIT {ROWS}", names.join(", "), table.name);
    let next = format!(
        "SELECT {} FROM {} WHERE ({key}) > ({}) ORDER BY {key} LIMIT {ROWS}",
        names.join(", "),
        table.name,
        marks.join(", ")
    );
    let mut cells = read_cells(&mut sql.prepare_cached(&first)?, names.len(), [])?;
    while let Some(last) = cells.rchunks_exact(names.len()).next() {
        let is_last_page = cells.len() < ROWS * names.len();
        let values = names.iter().zip(last).filter(|(name, _)| table.key.contains(name));
        // `names` has the key's columns in the order of the key.
        let values: Vec<SqlValue> = values.map(|(_, value)| value.clone()).collect();
        take(std::mem::take(&mut cells))?;
        if is_last_page {
            break;
        }
        let values: Vec<_> = values.iter().map(ValueParameter).collect();
        let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        cells = read_cells(&mut sql.prepare_cached(&next)?, names.len(), &*values)?;
    }
    Ok(())
}

/// All cells of a statement's result, row by row.
pub(super) fn read_cells(
    statement: &mut Statement<'_>,
    columns: usize,
    parameters: impl Params,
) -> SqlResult<Vec<SqlValue>> {
    let mut cells = vec![];
    let mut rows = statement.query(parameters)?;
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            cells.push(match row.get_ref(column)? {
                ValueRef::Integer(value) => SqlValue::Integer(value),
                ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
                // No table has numbers of other kinds.
                ValueRef::Null | ValueRef::Real(_) => SqlValue::Null,
            });
        }
    }
    Ok(cells)
}

/// Inserts rows; each replaces the row with its key.
pub(super) fn insert(
    sql: &SqlConnection,
    table: &CopiedTable,
    cells: &[SqlValue],
) -> SqlResult<()> {
    let names: Vec<&str> = table.names().collect();
    let others = names.iter().filter(|name| !table.key.contains(name));
    let set: Vec<String> = others.map(|name| format!("{name} = excluded.{name}")).collect();
    let then = if set.is_empty() {
        "NOTHING".to_owned()
    } else {
        format!("UPDATE SET {}", set.join(", "))
    };
    let then = format!("ON CONFLICT ({}) DO {then}", table.key.join(", "));
    let into = format!("INSERT INTO {} ({})", table.name, names.join(", "));
    if sql.postgres().is_some() {
        for some in cells.chunks(ROWS * names.len()) {
            insert_arrays(sql, &into, &then, &names, some)?;
        }
        return Ok(());
    }
    let marks: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
    let mut insert = sql.prepare_cached(&format!("{into} VALUES ({}) {then}", marks.join(", ")))?;
    for row in cells.chunks_exact(names.len()) {
        let values: Vec<_> = row.iter().map(ValueParameter).collect();
        let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        insert.execute(&*values)?;
    }
    Ok(())
}

/// Inserts rows into a table of PostgreSQL by one statement, with an array for each column.
fn insert_arrays(
    sql: &SqlConnection,
    into: &str,
    then: &str,
    names: &[&str],
    cells: &[SqlValue],
) -> SqlResult<()> {
    let mut parameters = Parameters::none();
    let (mut selected, mut given, mut marks) = (vec![], vec![], vec![]);
    for (number, name) in names.iter().enumerate() {
        let column = cells.iter().skip(number).step_by(names.len()).map(value_ref);
        if parameters.add_values(column) {
            marks.push(format!("?{}", marks.len() + 1));
            given.push(*name);
            selected.push(format!("k.{name}"));
        } else {
            selected.push("NULL".to_owned());
        }
    }
    let (selected, marks, given) = (selected.join(", "), marks.join(", "), given.join(", "));
    let insert = format!("{into} SELECT {selected} FROM unnest({marks}) AS k ({given}) {then}");
    sql.prepare_cached(&insert)?.queue_with(parameters)
}

/// Checks that rows have arrived.
pub(super) fn check_equal(
    table: &CopiedTable,
    sent: RowsDigest,
    arrived: RowsDigest,
) -> SqlResult<()> {
    if sent == arrived {
        return Ok(());
    }
    let what = format!(
        "table {} differs after the move: {} rows were sent to the new place of the catalogue, {} arrived",
        table.name, sent.rows, arrived.rows
    );
    Err(Error::internal(what).into())
}

fn value_ref(value: &SqlValue) -> ValueRef<'_> {
    match value {
        SqlValue::Null => ValueRef::Null,
        SqlValue::Integer(value) => ValueRef::Integer(*value),
        SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
        SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
    }
}

impl ToSql for ValueParameter<'_> {
    fn to_sql(&self) -> RowResult<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(value_ref(self.0)))
    }
}
