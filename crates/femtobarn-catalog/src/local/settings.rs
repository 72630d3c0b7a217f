//! The settings of a federation: rows of the table `federation`.

use crate::sql::{OptionalExtension, SqlConnection, SqlResult, params};

/// A number among the federation's settings.
pub(super) fn setting(sql: &SqlConnection, key: &str) -> SqlResult<Option<u64>> {
    let text: Option<String> = sql
        .prepare_cached("SELECT value FROM federation WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Sets a number among the federation's settings, or removes it.
pub(super) fn set(sql: &SqlConnection, key: &str, value: Option<u64>) -> SqlResult<()> {
    sql.prepare_cached("DELETE FROM federation WHERE key = ?1")?.execute([key])?;
    if let Some(value) = value {
        sql.prepare_cached("INSERT INTO federation (key, value) VALUES (?1, ?2)")?
            .execute(params![key, value.to_string()])?;
    }
    Ok(())
}

/// A text among the federation's settings.
pub(super) fn text(sql: &SqlConnection, key: &str) -> SqlResult<Option<String>> {
    let mut found = sql.prepare_cached("SELECT value FROM federation WHERE key = ?1")?;
    found.query_row([key], |row| row.get(0)).optional()
}

/// Sets a text among the federation's settings, or removes it.
pub(super) fn set_text(sql: &SqlConnection, key: &str, value: Option<&str>) -> SqlResult<()> {
    sql.prepare_cached("DELETE FROM federation WHERE key = ?1")?.execute([key])?;
    if let Some(value) = value {
        sql.prepare_cached("INSERT INTO federation (key, value) VALUES (?1, ?2)")?
            .execute([key, value])?;
    }
    Ok(())
}
