//! Bytes of database files that are durable elsewhere, or are to be durable before a commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::commit::{Commit, FileWrite, log_slots};
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::sql::{OptionalExtension, SqlConnection, SqlResult};

/// Writes bytes to the file at `path` and makes them durable. A file that does not exist was lost, or removed with its
/// database, and is skipped.
///
/// # Errors
/// [`Error::Full`] or [`Error::Io`] if the file cannot be written.
pub(super) fn store(path: &Path, writes: &[FileWrite]) -> Result<()> {
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        file => store_in(file, path, writes),
    }
}

/// Writes bytes to the file that was opened at `path`, and makes them durable.
fn store_in<'a>(
    file: io::Result<File>,
    path: &Path,
    writes: impl IntoIterator<Item = &'a FileWrite>,
) -> Result<()> {
    let file = file.map_err(|error| Error::io("cannot open", path, error))?;
    let mut pieces = log_slots::joined(writes).into_iter();
    let written = pieces.try_for_each(|(offset, bytes)| file.write_all_at(&bytes, offset));
    let synced = written.and_then(|()| file.sync_data());
    synced.map_err(|error| Error::io("cannot write committed bytes to", path, error))
}

/// Whether a file has the bytes.
pub(super) fn is_in_file(file: &File, write: &FileWrite) -> bool {
    let mut found = vec![0; write.bytes.len()];
    file.read_exact_at(&mut found, write.offset).is_ok() && found == write.bytes
}

/// Makes the directory entries of files durable. `paths` are relative to `root`.
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

/// A database, and its path if the commit creates the database.
type WrittenFile<'a> = (DatabaseId, Option<&'a str>);

/// Makes the bytes in the commits of a group durable in their files, with one sync for each file. If a file is missing
/// or cannot be written, only the commits that write to it fail: their bytes are stored nowhere else. `folder` is that
/// of the federation; `path_of` finds the path of a database.
///
/// # Errors
/// The errors of `path_of`, which fail the whole group.
pub(super) fn make_durable(
    folder: &Path,
    group: &[Commit],
    path_of: impl Fn(DatabaseId) -> Result<Option<String>>,
) -> Result<Vec<Result<()>>> {
    let mut files: BTreeMap<WrittenFile<'_>, Vec<(usize, &FileWrite)>> = BTreeMap::new();
    for (number, commit) in group.iter().enumerate() {
        for write in &commit.writes {
            let new = commit.new_databases.iter().find(|new| new.id == write.database);
            let file = (write.database, new.map(|new| &*new.path));
            files.entry(file).or_default().push((number, write));
        }
    }
    let store_at = |path: &str, writes: &[(usize, &FileWrite)]| {
        let path = folder.join(path);
        let file = OpenOptions::new().write(true).open(&path);
        store_in(file, &path, writes.iter().map(|(_, write)| *write))
    };
    let mut outcomes: Vec<Result<()>> = group.iter().map(|_| Ok(())).collect();
    for ((database, new), writes) in files {
        let gone = || Error::changed(format!("database {database} does not exist any more"));
        let stored = match new {
            Some(path) => store_at(path, &writes).and_then(|()| sync_names(folder, [path])),
            None => path_of(database)?.ok_or_else(gone).and_then(|path| store_at(&path, &writes)),
        };
        if let Err(error) = stored {
            writes.iter().for_each(|(number, _)| outcomes[*number] = Err(error.clone()));
        }
    }
    Ok(outcomes)
}

/// The path of a database's file, relative to the federation's folder; `None` if there is no such database.
pub(super) fn path_of(sql: &SqlConnection, database: DatabaseId) -> SqlResult<Option<String>> {
    let mut path = sql.prepare_cached("SELECT path FROM databases WHERE id = ?1")?;
    path.query_row([database.0], |row| row.get(0)).optional()
}
