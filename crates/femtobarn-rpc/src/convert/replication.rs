//! The rows that followers receive, as messages, and back.

use femtobarn_catalog::{Csn, LeaderRows, Result, SqlValue, TableRows};

use super::needed;
use crate::v1;
use crate::v1::cell::Of;

/// Bytes of cells in one answer, about; one cell has less than a megabyte.
const ANSWER_CELL_BYTES: usize = 1 << 20;
/// Bytes of a cell in addition to its text or bytes.
const CELL_BYTES: usize = 16;

/// The rows as answers, each short enough for a message.
pub fn answers_of(rows: LeaderRows) -> Vec<v1::Answer> {
    let first = v1::Answer {
        csn: Some(rows.at.0),
        head: Some(rows.head.0),
        mark: Some(rows.mark),
        has_undated: rows.has_undated,
        ..v1::Answer::default()
    };
    let mut answers = vec![first];
    for TableRows { table, cells } in rows.tables {
        let mut cells = cells.into_iter().map(v1::Cell::from).peekable();
        while cells.peek().is_some() {
            let mut bytes = 0;
            let part = std::iter::from_fn(|| {
                let cell = cells.next_if(|_| bytes < ANSWER_CELL_BYTES)?;
                bytes += CELL_BYTES + size_of_cell(&cell);
                Some(cell)
            });
            let rows = v1::TableRows { table: table.clone(), cells: part.collect() };
            answers.push(v1::Answer { tables: vec![rows], ..v1::Answer::default() });
        }
    }
    answers
}

/// The rows in answers.
///
/// # Errors
/// [`Error::Invalid`](femtobarn_catalog::Error::Invalid) if the first one is incomplete.
pub fn rows_of(answers: &[v1::Answer]) -> Result<LeaderRows> {
    let first = needed(answers.first(), "answer")?;
    let mut rows = LeaderRows {
        at: Csn(needed(first.csn, "commit")?),
        head: Csn(needed(first.head, "newest commit")?),
        mark: needed(first.mark, "mark")?,
        has_undated: first.has_undated,
        tables: vec![],
    };
    for part in answers.iter().flat_map(|answer| &answer.tables) {
        let cells = part.cells.iter().cloned().map(SqlValue::from);
        match rows.tables.last_mut().filter(|last| last.table == part.table) {
            Some(last) => last.cells.extend(cells),
            None => {
                rows.tables.push(TableRows { table: part.table.clone(), cells: cells.collect() })
            }
        }
    }
    Ok(rows)
}

fn size_of_cell(cell: &v1::Cell) -> usize {
    match &cell.of {
        Some(Of::Text(text)) => text.len(),
        Some(Of::Blob(bytes)) => bytes.len(),
        Some(Of::Integer(_)) | None => 0,
    }
}

impl From<SqlValue> for v1::Cell {
    fn from(cell: SqlValue) -> Self {
        let of = match cell {
            SqlValue::Null => None,
            SqlValue::Integer(value) => Some(Of::Integer(value)),
            SqlValue::Text(text) => Some(Of::Text(text)),
            SqlValue::Blob(bytes) => Some(Of::Blob(bytes)),
        };
        v1::Cell { of }
    }
}

impl From<v1::Cell> for SqlValue {
    fn from(cell: v1::Cell) -> Self {
        match cell.of {
            None => SqlValue::Null,
            Some(Of::Integer(value)) => SqlValue::Integer(value),
            Some(Of::Text(text)) => SqlValue::Text(text),
            Some(Of::Blob(bytes)) => SqlValue::Blob(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_being_split_into_answers() {
        let texts = ["a".repeat(700 << 10), String::new(), "b".repeat(900 << 10), "c".to_owned()];
        let cells = texts.into_iter().flat_map(|text| {
            [
                SqlValue::Text(text),
                SqlValue::Null,
                SqlValue::Integer(i64::MIN),
                SqlValue::Blob(vec![0, 255]),
            ]
        });
        let rows = LeaderRows {
            at: Csn(7),
            head: Csn(9),
            mark: u64::MAX,
            has_undated: true,
            tables: vec![
                TableRows { table: "commits".to_owned(), cells: cells.collect() },
                TableRows { table: "tags".to_owned(), cells: vec![SqlValue::Integer(1)] },
            ],
        };
        let answers = answers_of(rows.clone());
        assert!(answers.len() > 3);
        assert_eq!(rows_of(&answers).unwrap(), rows);
        assert!(rows_of(&[]).is_err());
    }
}
