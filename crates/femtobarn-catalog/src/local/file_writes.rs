//! Bytes of database files that are durable elsewhere, or are to be durable before a commit.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::commit::{Commit, FileWrite, log_slots};
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::sql::{OptionalExtension, SqlConnection, SqlResult};

/// Writes bytes to the file at `path` and makes them durable. A file that does not exist was lost, or removed with its
/// database, and needs none.
///
/// # Errors
/// [`Error::Full`] or [`Error::Io`] if the file cannot be written.
pub(super) fn store(path: &Path, writes: &[FileWrite]) -> Result<()> {
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("cannot open", path, error)),
    };
    let mut pieces = log_slots::joined(writes).into_iter();
    let written = pieces.try_for_each(|(offset, bytes)| file.write_all_at(&bytes, offset));
    let synced = written.and_then(|()| file.sync_data());
    synced.map_err(|error| Error::io("cannot write what was committed to", path, error))
}

/// The commits of a group without bytes of files, which are durable in these now. Transactions have such bytes that began
/// when the catalogue was in a file. `catalogue` is the path of a file in the federation's folder; `path_of` finds that of
/// a database.
pub(super) fn made_durable<'a>(
    catalogue: &Path,
    group: &'a [Commit],
    path_of: impl Fn(DatabaseId) -> Result<Option<String>>,
) -> Result<Cow<'a, [Commit]>> {
    if group.iter().all(|commit| commit.writes.is_empty()) {
        return Ok(Cow::Borrowed(group));
    }
    let mut group = group.to_vec();
    for commit in &mut group {
        let mut writes = std::mem::take(&mut commit.writes);
        writes.sort_by_key(|write| write.database);
        for of_one in writes.chunk_by(|one, other| one.database == other.database) {
            let id = of_one[0].database;
            let new = commit.new_databases.iter().find(|new| new.id == id);
            let path = new.map_or_else(|| path_of(id), |new| Ok(Some(new.path.clone())))?;
            path.map_or(Ok(()), |path| store(&catalogue.with_file_name(path), of_one))?;
        }
    }
    Ok(Cow::Owned(group))
}

/// The path of a database's file, relative to the federation's folder; none if there is no such database.
pub(super) fn path_of(sql: &SqlConnection, database: DatabaseId) -> SqlResult<Option<String>> {
    let mut path = sql.prepare_cached("SELECT path FROM databases WHERE id = ?1")?;
    path.query_row([database.0], |row| row.get(0)).optional()
}
