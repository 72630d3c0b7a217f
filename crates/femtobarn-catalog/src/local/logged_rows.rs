//! Reads logged bytes from the catalogue's tables.

use super::decode::uuid;
use super::logged_files::{LoggedFiles, LoggedWrites};
use crate::commit::FileWrite;
use crate::commit::log_slots::{self, SLOTS, WAITING_SLOTS, WRITTEN_BACK};
use crate::ids::{Csn, DatabaseId};
use crate::numbers::{signed, unsigned};
use crate::schema::{has_log_slots, has_logged_writes};
use crate::sql::{OptionalExtension, SqlConnection, SqlResult, params};
use rusqlite::ffi;

/// Rows that are read at a time.
const ROWS: u32 = 1024;

/// Bytes in rows.
pub(super) fn bytes_in_rows(sql: &SqlConnection) -> SqlResult<u64> {
    if !has_logged_writes(sql)? {
        return Ok(0);
    }
    let sum = "SELECT coalesce(sum(length(bytes)), 0) FROM logged_writes";
    Ok(unsigned(sql.prepare_cached(sum)?.query_row([], |row| row.get(0))?))
}

/// The newest commit up to which all slots were written back.
pub(super) fn written_back(sql: &SqlConnection) -> SqlResult<Csn> {
    if !has_log_slots(sql)? {
        return Ok(Csn::ZERO);
    }
    let find = "SELECT csn FROM log_slots WHERE slot = ?1";
    let csn = sql.prepare_cached(find)?.query_row([WRITTEN_BACK], |row| row.get(0))?;
    Ok(Csn(unsigned(csn)))
}

/// The bytes in slots that were not written back, and their newest commit; `None` if there are none.
pub(super) fn waiting_slots(sql: &SqlConnection) -> SqlResult<Option<(Csn, LoggedFiles)>> {
    if !has_log_slots(sql)? {
        return Ok(None);
    }
    let mut statement = sql.prepare_cached(WAITING_SLOTS)?;
    let mut find = sql.prepare_cached("SELECT path, uuid FROM databases WHERE id = ?1")?;
    let mut rows = statement.query([WRITTEN_BACK])?;
    let (mut last, mut files) = (None, LoggedFiles::new());
    while let Some(row) = rows.next()? {
        last = last.max(Some(Csn(unsigned(row.get(1)?))));
        let writes = row.get_ref(2)?.as_blob().ok().and_then(log_slots::decode);
        let writes = writes.ok_or_else(damaged_slot)?;
        for write in writes {
            if let Some(file) = files.get_mut(&write.database) {
                file.writes.push(write);
                continue;
            }
            let found = find.query_row([write.database.0], |row| Ok((row.get(0)?, uuid(row, 1)?)));
            if let Some((path, uuid)) = found.optional()? {
                files.insert(write.database, LoggedWrites { path, uuid, writes: vec![write] });
            }
        }
    }
    Ok(last.map(|last| (last, files)))
}

/// Frees the slots of the commits up to `last`.
pub(super) fn note_written_back(sql: &SqlConnection, last: Csn) -> SqlResult<()> {
    let note = "UPDATE log_slots SET csn = ?2 WHERE slot = ?1";
    sql.prepare_cached(note)?.execute(params![WRITTEN_BACK, signed(last.0)]).map(drop)
}

/// Deletes the rows of `logged_writes` up to `last`.
pub(super) fn forget_rows(sql: &SqlConnection, last: i64) -> SqlResult<()> {
    sql.prepare_cached("DELETE FROM logged_writes WHERE id <= ?1")?.execute([last]).map(drop)
}

fn damaged_slot() -> rusqlite::Error {
    let what = "a slot of logged bytes is damaged".to_owned();
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what))
}

/// The id of the last row; `None` without rows.
pub(super) fn last_row(sql: &SqlConnection) -> SqlResult<Option<i64>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let last = "SELECT max(id) FROM logged_writes";
    sql.prepare_cached(last)?.query_row([], |row| row.get(0))
}

/// The logged first bytes of files, in rows.
pub(super) fn first_rows(sql: &SqlConnection) -> SqlResult<Vec<LoggedWrites>> {
    if !has_logged_writes(sql)? {
        return Ok(vec![]);
    }
    let mut statement = sql.prepare_cached(
        "SELECT database, path, uuid, bytes FROM logged_writes JOIN databases ON databases.id = database \
         WHERE start = 0",
    )?;
    let rows = statement.query_map([], |row| {
        let write = FileWrite { database: DatabaseId(row.get(0)?), offset: 0, bytes: row.get(3)? };
        Ok(LoggedWrites { path: row.get(1)?, uuid: uuid(row, 2)?, writes: vec![write] })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The path of a database's file if its first bytes are logged and were not written back.
pub(super) fn path_if_logged(
    sql: &SqlConnection,
    database: DatabaseId,
) -> SqlResult<Option<String>> {
    if !has_log_slots(sql)? {
        return Ok(None);
    }
    let find = "SELECT path, EXISTS (SELECT 1 FROM logged_writes WHERE database = databases.id AND start = 0), \
                (SELECT writes FROM log_slots WHERE slot = created % ?2 AND csn = created \
                 AND csn > (SELECT csn FROM log_slots WHERE slot = ?3)) FROM databases WHERE id = ?1";
    let mut statement = sql.prepare_cached(find)?;
    let mut rows = statement.query(params![database.0, signed(SLOTS), WRITTEN_BACK])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let in_slot = row.get_ref(2)?.as_blob().ok().and_then(log_slots::decode).unwrap_or_default();
    let is_first = |write: &FileWrite| write.database == database && write.offset == 0;
    let is_logged = row.get(1)? || in_slot.iter().any(is_first);
    Ok(if is_logged { Some(row.get(0)?) } else { None })
}

/// The bytes in the first rows after row `after`, and the id of the last of these rows; `None` if there is no such row.
pub(super) fn rows_after(sql: &SqlConnection, after: i64) -> SqlResult<Option<(i64, LoggedFiles)>> {
    if !has_logged_writes(sql)? {
        return Ok(None);
    }
    let mut statement = sql.prepare_cached(
        "SELECT logged_writes.id, database, path, uuid, start, bytes \
         FROM logged_writes JOIN databases ON databases.id = database \
         WHERE logged_writes.id > ?1 ORDER BY logged_writes.id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, ROWS])?;
    let (mut last, mut files) = (None, LoggedFiles::new());
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        let (database, path, uuid) = (DatabaseId(row.get(1)?), row.get(2)?, uuid(&row, 3)?);
        let write = FileWrite { database, offset: unsigned(row.get(4)?), bytes: row.get(5)? };
        let file = LoggedWrites { path, uuid, writes: vec![] };
        files.entry(database).or_insert(file).writes.push(write);
    }
    Ok(last.map(|last| (last, files)))
}
