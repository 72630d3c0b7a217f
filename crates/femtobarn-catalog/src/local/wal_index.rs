//! The state of the catalogue's log, as SQLite shows it to all processes in shared memory.
//!
//! Beside the log, SQLite has an index of it (`catalogue.sqlite-shm`), which begins with a header of 48 bytes, twice
//! (<https://sqlite.org/walformat.html>, section 2.2). Every change of the catalogue, by any program, writes a new
//! header, so nothing has changed between two equal ones. A look at it is a few loads and no system call.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rusqlite::{MAIN_DB, ffi};

use crate::locks::{LOG_STATE_WORDS, LogState};
use crate::sql::SqlConnection;

/// Bytes of the first part of the index, which SQLite maps as a whole.
const PART_BYTES: i32 = 32 << 10;

/// The state of the log now, from a connection that reads it; `None` while it is being written, before the index is in
/// use, and where there is no index, as on a read-only medium and in PostgreSQL.
pub(super) fn log_state(connection: &SqlConnection) -> Option<LogState> {
    let [first, second] = headers(connection.sqlite()?)?;
    let read = |header: &[AtomicU64; LOG_STATE_WORDS]| {
        header.each_ref().map(|word| word.load(Ordering::Relaxed))
    };
    // SQLite writes the second copy first.
    let state = read(first);
    fence(Ordering::Acquire);
    let is_in_use = state[1].to_ne_bytes()[4] != 0;
    (is_in_use && state == read(second)).then_some(state)
}

/// The offset in its file at which the log ends, in this state.
pub(super) fn log_end(state: &LogState) -> u64 {
    const LOG_HEAD_BYTES: u64 = 32;
    const FRAME_HEAD_BYTES: u64 = 24;
    let [.., a, b] = state[1].to_ne_bytes();
    let [c, d, e, f, ..] = state[2].to_ne_bytes();
    let frame = FRAME_HEAD_BYTES + u64::from(u16::from_ne_bytes([a, b]));
    LOG_HEAD_BYTES + frame * u64::from(u32::from_ne_bytes([c, d, e, f]))
}

/// The number of changes between two states, the later one last. To begin the log anew is none.
pub(super) fn changes_between(before: &LogState, after: &LogState) -> u32 {
    let changes = |state: &LogState| {
        let [a, b, c, d, ..] = state[1].to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    };
    changes(after).wrapping_sub(changes(before))
}

/// Both copies of the header, in the memory of a connection that reads the log. A connection that does not would open
/// the index, and never close it.
fn headers(connection: &rusqlite::Connection) -> Option<&[[AtomicU64; LOG_STATE_WORDS]; 2]> {
    let mut file: *mut ffi::sqlite3_file = null_mut();
    let mut part: *mut c_void = null_mut();
    // SAFETY: the connection is open while it is borrowed. SQLite writes a pointer to its own file object, whose
    // methods take that object. The part of the index that it maps is `PART_BYTES` long, aligned to a page, and stays
    // mapped while the connection has the log, which it cannot lose while it is borrowed here. Other threads and
    // processes write it, hence the atomic words.
    unsafe {
        let asked = ffi::sqlite3_file_control(
            connection.handle(),
            MAIN_DB.as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast(),
        );
        if asked != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
            return None;
        }
        let map = (*(*file).pMethods).xShmMap?;
        if map(file, 0, PART_BYTES, 0, &raw mut part) != ffi::SQLITE_OK || part.is_null() {
            return None;
        }
        Some(&*part.cast())
    }
}
