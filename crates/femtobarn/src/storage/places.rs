//! Places: the folders that database files lie in.
//!
//! A place is the federation's folder of databases, or a folder directly below it, which may be on a disk of
//! its own. Files that lie deeper are not the federation's, nor those in folders whose name is not valid for a
//! place, such as `lost+found`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use femtobarn_archive::is_staging_path;
use femtobarn_catalog::{DATABASES_FOLDER, check_place, is_database_path};

use crate::error::{Error, Result};
use crate::storage::file;

/// A file in a place.
pub(crate) struct FileInPlace {
    /// Its path below the federation's folder, as in the catalogue.
    pub relative: String,
    pub path: PathBuf,
    pub size: u64,
}

/// All places, sorted by path; none if the folder of databases does not exist.
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

/// All files in places, sorted by place and name, without those that are being staged.
pub(crate) fn files(federation: &Path) -> Result<Vec<FileInPlace>> {
    let mut found = vec![];
    for folder in folders(federation)? {
        for (path, size) in file::list(&folder)? {
            let is_staging = is_staging_path(&path);
            if let Some(relative) = relative(federation, &path).filter(|_| !is_staging) {
                found.push(FileInPlace { relative, path, size });
            }
        }
    }
    Ok(found)
}

/// The path below the federation's folder of a file that lies in a place.
pub(crate) fn relative(federation: &Path, file: &Path) -> Option<String> {
    let below = file.strip_prefix(federation).ok()?.to_string_lossy().into_owned();
    is_database_path(&below).then_some(below)
}

/// Creates the folder of a file, if it does not exist.
pub(crate) fn make_folder_of(file: &Path) -> Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::io("create", folder, error))
        }
        _ => Ok(()),
    }
}
