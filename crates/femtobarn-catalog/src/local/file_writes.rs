//! Bytes of database files that are durable elsewhere, or are to be durable before a commit.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
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

/// Whether a file has the bytes.
pub(super) fn is_in_file(file: &File, write: &FileWrite) -> bool {
    let mut found = vec![0; write.bytes.len()];
    file.read_exact_at(&mut found, write.offset).is_ok() && found == write.bytes
}

/// Makes the names of files durable, whose paths are relative to `root`.
///
/// # Errors
/// [`Error::Io`] if a folder cannot be synced.
pub(super) fn sync_names<'a>(root: &Path, paths: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let above = paths.into_iter().flat_map(|path| Path::new(path).ancestors().skip(1));
    let folders: BTreeSet<&Path> = above.filter(|path| *path != Path::new("")).collect();
    folders.into_iter().map(|folder| root.join(folder)).try_for_each(|folder| {
        let synced = File::open(&folder).and_then(|it| it.sync_all());
        synced.map_err(|error| Error::io("cannot sync", &folder, error))
    })
}

/// The commits of a group without bytes of files, which are durable in these now, each file by one sync. `folder` is the
/// federation's; `path_of` finds the path of a database that the group does not make.
pub(super) fn made_durable<'a>(
    folder: &Path,
    group: &'a [Commit],
    path_of: impl Fn(DatabaseId) -> Result<Option<String>>,
) -> Result<Cow<'a, [Commit]>> {
    if group.iter().all(|commit| commit.writes.is_empty()) {
        return Ok(Cow::Borrowed(group));
    }
    let mut group = group.to_vec();
    let mut others = vec![];
    for commit in &mut group {
        let own =
            |write: &FileWrite| commit.new_databases.iter().find(|new| new.id == write.database);
        let (new, old): (Vec<_>, Vec<_>) =
            std::mem::take(&mut commit.writes).into_iter().partition(|write| own(write).is_some());
        for write in &new {
            if let Some(made) = own(write) {
                store(&folder.join(&made.path), std::slice::from_ref(write))?;
                sync_names(folder, [made.path.as_str()])?;
            }
        }
        others.extend(old);
    }
    others.sort_by_key(|write| write.database);
    for of_one in others.chunk_by(|one, other| one.database == other.database) {
        if let Some(path) = path_of(of_one[0].database)? {
            store(&folder.join(path), of_one)?;
        }
    }
    Ok(Cow::Owned(group))
}

/// The path of a database's file, relative to the federation's folder; none if there is no such database.
pub(super) fn path_of(sql: &SqlConnection, database: DatabaseId) -> SqlResult<Option<String>> {
    let mut path = sql.prepare_cached("SELECT path FROM databases WHERE id = ?1")?;
    path.query_row([database.0], |row| row.get(0)).optional()
}
