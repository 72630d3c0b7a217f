//! Where the files of databases lie: in the federation's folder of databases, or in a folder of that, which
//! is a place and may be a disk of its own.
//!
//! What lies deeper is no file of the federation's, nor what is in folders with names that no place has, such
//! as `lost+found`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use femtobarn_catalog::{DATABASES_FOLDER, check_place, is_database_path};

use crate::error::{Error, Result};
use crate::storage::file;

/// A file where databases lie.
pub(crate) struct Found {
    /// As the catalogue would have it: below the federation's folder.
    pub relative: String,
    pub path: PathBuf,
    pub size: u64,
}

/// The folder of databases and the places in it, in the order of their names; none if it is not there.
pub(crate) fn folders(federation: &Path) -> Result<Vec<PathBuf>> {
    let top = federation.join(DATABASES_FOLDER);
    let cannot = |error| Error::io("list", &top, error);
    let entries = match fs::read_dir(&top) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(cannot(error)),
    };
    let mut folders = vec![top.clone()];
    for entry in entries {
        let entry = entry.map_err(cannot)?;
        let is_place = entry.file_name().to_str().is_some_and(|name| check_place(name).is_ok());
        if is_place && entry.path().is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort_unstable();
    Ok(folders)
}

/// All files where databases lie, in the order of their paths.
pub(crate) fn files(federation: &Path) -> Result<Vec<Found>> {
    let mut found = vec![];
    for folder in folders(federation)? {
        for (path, size) in file::list(&folder)? {
            if let Some(relative) = relative(federation, &path) {
                found.push(Found { relative, path, size });
            }
        }
    }
    Ok(found)
}

/// A file's path as the catalogue has it, if it lies where databases do.
pub(crate) fn relative(federation: &Path, file: &Path) -> Option<String> {
    let below = file.strip_prefix(federation).ok()?.to_string_lossy().into_owned();
    is_database_path(&below).then_some(below)
}

/// Makes the place that a file of this path is to lie in, if it is not there.
pub(crate) fn make_folder_of(file: &Path) -> Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::io("create", folder, error))
        }
        _ => Ok(()),
    }
}
