//! The paths of a federation's parts in its folder.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::names::NAME_BYTES_MAX;

/// The file of the catalogue, in the federation's folder.
pub const CATALOGUE_FILE: &str = "catalogue.sqlite";
/// The file in the federation's folder that names the catalogue's server, if the catalogue is in PostgreSQL.
pub const CATALOGUE_ADDRESS_FILE: &str = "catalogue.toml";
/// The file in the federation's folder with the facts that a rebuild of the catalogue cannot find in database files.
pub const RETAINED_FILE: &str = "retained.json";
/// The folder of the lock files, in the federation's folder.
pub(crate) const LOCKS_FOLDER: &str = "locks";
/// The file in the folder of the lock files with the name of the folder's storage; it exists once a server has joined
/// with it.
pub(crate) const STORAGE_FILE: &str = "storage";
/// The folder of the database files, in the federation's folder.
pub const DATABASES_FOLDER: &str = "databases";

/// Whether a folder is a federation: it has a catalogue, or a file that names the catalogue's server.
pub fn is_federation(folder: &Path) -> bool {
    [CATALOGUE_FILE, CATALOGUE_ADDRESS_FILE].iter().any(|file| folder.join(file).exists())
}

/// Checks the name of a place: a subfolder of the folder of databases that may hold database files.
///
/// # Errors
/// [`Error::Invalid`] unless the name has 1 to 200 letters, digits, `.`, `_` and `-`, and no `.` in front.
pub fn check_place(place: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_good = (1..=NAME_BYTES_MAX).contains(&place.len()) && !place.starts_with('.');
    if is_good && place.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "invalid place name {place:?}: must be 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' and '-', \
         without '.' in front"
    )))
}

/// Whether a path relative to the federation's folder may be that of a database file: directly in the folder
/// of databases, or in a place there.
pub fn is_database_path(path: &str) -> bool {
    let Some(below) = path.strip_prefix(DATABASES_FOLDER) else { return false };
    let Some(below) = below.strip_prefix('/') else { return false };
    let name = match below.split_once('/') {
        Some((place, name)) if check_place(place).is_ok() => name,
        Some(_) => return false,
        None => below,
    };
    !name.contains('/') && !matches!(name, "" | "." | "..")
}

/// SQLite's write-ahead log of a catalogue.
pub(crate) fn log_path(catalogue: &Path) -> PathBuf {
    let mut log = catalogue.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_paths_are_in_the_folder_of_databases_or_in_a_place_there() {
        for path in ["databases/run7.root", "databases/disk-0/a run.root", "databases/a/.b"] {
            assert!(is_database_path(path), "{path:?}");
        }
        for path in [
            "",
            "run7.root",
            "/etc/passwd",
            "databases",
            "databases/",
            "databases/..",
            "databases/../catalogue.sqlite",
            "databases/./catalogue.sqlite",
            "databases//a",
            "databases/a/",
            "databases/a/..",
            "databases/.a/b",
            "databases/lost+found/b",
            "databases/a/b/c",
            "databasesx",
        ] {
            assert!(!is_database_path(path), "{path:?}");
        }
    }
}
