//! Bytes of database files that the catalogue makes durable with a commit. They are stored in one of a fixed number of
//! *slots*, whose rows are written again and again, or else in rows of their own.
//!
//! The row of a slot fills one page of SQLite's, or several, so that the next commit with about as many bytes writes
//! the same pages, and neither allocates nor frees any. Commit `n` uses slot `n % SLOTS`, if the slot's earlier commit
//! was written back.
//!
//! ```text
//! database  start     size      bytes   and so on; zeros follow the last write
//! 4 bytes   8 bytes   4 bytes   size    little-endian
//! ```
//!
//! 1. The row of slot [`WRITTEN_BACK`] stores the newest commit up to which all slots were written back. The bytes of a
//!    slot with a later commit may not be durable in their files.
//! 2. Bytes from a slot never cause a panic.

use super::FileWrite;
use crate::error::Error;
use crate::ids::{Csn, DatabaseId};
use crate::numbers::signed;
use crate::schema::{
    FORMAT_WITH_LOG_SLOTS, FORMAT_WITH_NEW_FILES, LOG_SLOTS_TABLES, has_log_slots, raise_format,
};
use crate::sql::{SqlConnection, SqlResult, params};

/// Slots of a catalogue.
pub(crate) const SLOTS: u64 = 512;
/// Bytes of a slot of one page: together with the heads of its row and page and the largest numbers, they fill the
/// page.
const SLOT_BYTES: usize = 4032;
/// Bytes that a commit can write to one file if its slot is to be one page.
pub(crate) const PAGE_ROOM: usize = SLOT_BYTES - HEAD_BYTES;
/// Bytes that each further page of a slot has.
const PAGE_BYTES: usize = 4092;
/// Further pages of a slot, at most.
const PAGES_MAX: usize = 8;
/// The row that has no bytes.
pub(crate) const WRITTEN_BACK: i64 = -1;
/// Selects the slots that were not written back; its parameter is [`WRITTEN_BACK`].
pub(crate) const WAITING_SLOTS: &str = "SELECT slot, csn, writes FROM log_slots \
     WHERE csn > (SELECT csn FROM log_slots WHERE slot = ?1)";
/// Bytes of the head of each write in a slot.
const HEAD_BYTES: usize = 16;

/// Adds the bytes of commit `csn`.
pub(super) fn insert_writes(
    connection: &SqlConnection,
    csn: Csn,
    writes: &[FileWrite],
) -> SqlResult<()> {
    if connection.postgres().is_some() {
        let what = "a catalogue in PostgreSQL takes no bytes of files; sync them before the commit";
        return Err(Error::invalid(what).into());
    }
    if writes.iter().any(|write| write.offset == 0) {
        raise_format(connection, FORMAT_WITH_NEW_FILES)?;
    }
    let insert = || match encode(writes) {
        Some(bytes) if fill_slot(connection, csn, &bytes)? => Ok(()),
        _ => writes.iter().try_for_each(|write| insert_row(connection, write)),
    };
    match insert() {
        // After some errors SQLite has rolled the transaction back; then nothing may be written.
        Err(_) if !connection.is_autocommit() && !has_log_slots(connection)? => {
            connection.execute_batch(LOG_SLOTS_TABLES)?;
            raise_format(connection, FORMAT_WITH_LOG_SLOTS)?;
            insert()
        }
        inserted => inserted,
    }
}

/// Stores the bytes in the slot of `csn`; returns whether it was free.
fn fill_slot(connection: &SqlConnection, csn: Csn, bytes: &[u8]) -> SqlResult<bool> {
    let (slot, csn) = (signed(csn.0 % SLOTS), signed(csn.0));
    let filled = connection
        .prepare_cached(
            "UPDATE log_slots SET csn = ?2, writes = ?3 \
             WHERE slot = ?1 AND csn <= (SELECT csn FROM log_slots WHERE slot = ?4)",
        )?
        .execute(params![slot, csn, bytes, WRITTEN_BACK])?;
    if filled == 1 {
        return Ok(true);
    }
    let made = connection
        .prepare_cached("INSERT OR IGNORE INTO log_slots (slot, csn, writes) VALUES (?1, ?2, ?3)")?
        .execute(params![slot, csn, bytes])?;
    Ok(made == 1)
}

/// Removes the bytes of a database from the slots; a slot with no other bytes becomes free.
pub(crate) fn forget_database(connection: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if !has_log_slots(connection)? {
        return Ok(());
    }
    let mut waiting = connection.prepare_cached(WAITING_SLOTS)?;
    let mut rows = waiting.query([WRITTEN_BACK])?;
    let mut changed = vec![];
    while let Some(row) = rows.next()? {
        let (slot, csn): (i64, i64) = (row.get(0)?, row.get(1)?);
        // A damaged slot is reported when it is written back.
        let Some(mut writes) = row.get_ref(2)?.as_blob().ok().and_then(decode) else { continue };
        let before = writes.len();
        writes.retain(|write| write.database != database);
        if writes.len() < before {
            changed.push((slot, if writes.is_empty() { 0 } else { csn }, encode(&writes)));
        }
    }
    let mut update =
        connection.prepare_cached("UPDATE log_slots SET csn = ?2, writes = ?3 WHERE slot = ?1")?;
    changed.iter().try_for_each(|(slot, csn, bytes)| {
        update.execute(params![slot, csn, bytes])?;
        Ok(())
    })
}

fn insert_row(connection: &SqlConnection, write: &FileWrite) -> SqlResult<()> {
    connection
        .prepare_cached("INSERT INTO logged_writes (database, start, bytes) VALUES (?1, ?2, ?3)")?
        .execute(params![write.database.0, signed(write.offset), write.bytes])?;
    Ok(())
}

/// Encodes writes, none of which is empty, as the bytes of a slot; `None` if they do not fit.
fn encode(writes: &[FileWrite]) -> Option<Vec<u8>> {
    let size: usize = writes.iter().map(|write| HEAD_BYTES + write.bytes.len()).sum();
    let pages = size.saturating_sub(SLOT_BYTES).div_ceil(PAGE_BYTES);
    if pages > PAGES_MAX || writes.iter().any(|write| write.bytes.is_empty()) {
        return None;
    }
    let mut slot = Vec::with_capacity(SLOT_BYTES + pages * PAGE_BYTES);
    for FileWrite { database, offset, bytes } in writes {
        slot.extend_from_slice(&database.0.to_le_bytes());
        slot.extend_from_slice(&offset.to_le_bytes());
        slot.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        slot.extend_from_slice(bytes);
    }
    slot.resize(SLOT_BYTES + pages * PAGE_BYTES, 0);
    Some(slot)
}

/// Decodes the writes in a slot; `None` if the bytes are malformed.
pub(crate) fn decode(mut slot: &[u8]) -> Option<Vec<FileWrite>> {
    let mut writes = vec![];
    while let Some((head, rest)) = slot.split_first_chunk::<HEAD_BYTES>() {
        let (database, head) = head.split_first_chunk()?;
        let (offset, size) = head.split_first_chunk()?;
        let size = u32::from_le_bytes(size.try_into().ok()?) as usize;
        if size == 0 {
            break;
        }
        let (bytes, rest) = rest.split_at_checked(size)?;
        writes.push(FileWrite {
            database: DatabaseId(u32::from_le_bytes(*database)),
            offset: u64::from_le_bytes(*offset),
            bytes: bytes.to_vec(),
        });
        slot = rest;
    }
    Some(writes)
}

/// The writes in the order of their offsets, with adjacent ones joined: most commits write right behind the commit
/// before.
pub(crate) fn joined<'a>(writes: impl IntoIterator<Item = &'a FileWrite>) -> Vec<(u64, Vec<u8>)> {
    let mut sorted: Vec<&FileWrite> = writes.into_iter().collect();
    sorted.sort_unstable_by_key(|write| write.offset);
    let mut joined: Vec<(u64, Vec<u8>)> = vec![];
    for write in sorted {
        match joined.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == write.offset => {
                bytes.extend_from_slice(&write.bytes);
            }
            _ => joined.push((write.offset, write.bytes.clone())),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(database: u32, offset: u64, size: usize) -> FileWrite {
        FileWrite { database: DatabaseId(database), offset, bytes: vec![7; size] }
    }

    #[test]
    fn writes_are_read_back_from_slots_of_one_page_and_of_several() {
        let most = SLOT_BYTES - 2 * HEAD_BYTES;
        for (size, pages) in [(1, 0), (most - 1, 0), (most - 20, 0), (most, 1), (32 << 10, 8)] {
            let writes = [write(u32::MAX, u64::MAX, size), write(1, 0, 1)];
            let slot = encode(&writes).unwrap();
            assert_eq!(slot.len(), SLOT_BYTES + pages * PAGE_BYTES);
            assert_eq!(decode(&slot).unwrap(), writes);
        }
        assert_eq!(encode(&[write(1, 0, 1 << 16)]), None);
        assert_eq!(
            encode(&[write(1, 0, 0), write(2, 0, 1)]),
            None,
            "an empty write ends the others"
        );
    }

    #[test]
    fn writes_that_follow_each_other_are_joined() {
        let writes = [write(1, 30, 5), write(1, 10, 4), write(1, 14, 6), write(1, 21, 1)];
        let joined = joined(&writes);
        let places: Vec<_> = joined.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
        assert_eq!(places, [(10, 10), (21, 1), (30, 5)]);
    }

    #[test]
    fn a_damaged_slot_is_refused() {
        let mut slot = encode(&[write(1, 0, 100)]).unwrap();
        slot[15] = 1;
        assert_eq!(decode(&slot), None, "its write is longer than the slot");
        assert_eq!(decode(&[]), Some(vec![]));
    }
}
