//! Creating the folder of a federation, and telling what a folder lacks to be one.
//!
//! The catalogue is built under a name of its own and linked into place when it is complete: of
//! two processes that create the same federation one wins, and a crash leaves no half catalogue.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{CATALOGUE_FILE, DATABASES_FOLDER, LOCKS_FOLDER};
use crate::error::{Attempt, Error, Result};
use crate::{names, schema};

/// Makes a federation. Unless it is a `rescue`, its folder must be empty; if it is one, there must
/// only be no catalogue.
pub(super) fn create(folder: &Path, name: &str, uuid: Uuid, rescue: bool) -> Result<()> {
    names::check("federation", name)?;
    let folder = &std::path::absolute(folder)
        .map_err(|error| Error::io("cannot find the folder", folder, error))?;
    fs::create_dir_all(folder).map_err(|e| Error::io("cannot create the folder", folder, e))?;
    check_free(folder, rescue)?;
    for sub in [LOCKS_FOLDER, DATABASES_FOLDER] {
        let path = folder.join(sub);
        fs::create_dir_all(&path).map_err(|e| Error::io("cannot create the folder", &path, e))?;
    }
    let draft = folder.join(draft_prefix() + &Uuid::new_v4().to_string());
    let published = write_draft(&draft, name, uuid).and_then(|()| publish(&draft, folder));
    remove_draft(&draft);
    published
}

/// Tells what is missing in a folder that holds no catalogue.
pub(super) fn check_present(folder: &Path) -> Result<()> {
    let path = folder.join(CATALOGUE_FILE);
    let reason = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => return Ok(()),
        Ok(_) => format!("{CATALOGUE_FILE} is not a file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
            format!("the folder holds no {CATALOGUE_FILE}; check the path, or create a federation")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "there is no such folder; check the path, or create a federation".to_owned()
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            "this is a file, and a federation is a folder; check the path".to_owned()
        }
        Err(error) => return Err(Error::io("cannot look at", &path, error)),
    };
    Err(Error::NoFederation { folder: folder.to_owned(), reason })
}

/// Only an empty folder, or what an interrupted creation left, becomes a federation. A folder
/// with databases and no catalogue is one to repair, not to overwrite.
fn check_free(folder: &Path, rescue: bool) -> Result<()> {
    let cannot = |error| Error::io("cannot list the folder", folder, error);
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let file_name = entry.map_err(cannot)?.file_name();
        let file_name = file_name.to_string_lossy();
        if file_name == CATALOGUE_FILE {
            return Err(federation_exists(folder));
        }
        // A log without its catalogue would be read as that of the new one.
        let is_log = file_name == format!("{CATALOGUE_FILE}-wal");
        if rescue && !is_log || file_name.starts_with(&draft_prefix()) {
            continue;
        }
        // It is left as it is: somebody else may just be making it for the same federation.
        let ours = [LOCKS_FOLDER, DATABASES_FOLDER].contains(&&*file_name)
            && is_empty(&folder.join(&*file_name));
        if !ours {
            return Err(Error::Exists {
                what: "folder",
                name: folder.display().to_string(),
                advice: format!(
                    "it holds {file_name:?} but no catalogue; move that away, or choose a new \
                     or an empty folder"
                ),
            });
        }
    }
    Ok(())
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn draft_prefix() -> String {
    format!("{CATALOGUE_FILE}.draft-")
}

fn federation_exists(folder: &Path) -> Error {
    Error::Exists {
        what: "federation",
        name: folder.display().to_string(),
        advice: "open it, or choose another folder".into(),
    }
}

fn write_draft(draft: &Path, name: &str, uuid: Uuid) -> Result<()> {
    let written = || -> Attempt<()> {
        let connection = rusqlite::Connection::open(draft)?;
        schema::create(&connection, name, uuid)?;
        // Closing would do the same, and say nothing if it failed.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(())
    };
    written().map_err(|failure| failure.at(draft))
}

fn publish(draft: &Path, folder: &Path) -> Result<()> {
    let path = folder.join(CATALOGUE_FILE);
    match fs::hard_link(draft, &path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(federation_exists(folder));
        }
        // Some file systems have no links; without them the race is not decided, only narrow.
        Err(_) if !path.exists() => fs::rename(draft, &path)
            .map_err(|error| Error::io("cannot create the catalogue", &path, error))?,
        Err(error) => return Err(Error::io("cannot create the catalogue", &path, error)),
    }
    sync_folder(folder)
}

pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    for path in [Some(folder), folder.parent()].into_iter().flatten() {
        File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::io("cannot sync the folder", path, error))?;
    }
    Ok(())
}

/// The draft is only a second name by now, and may be left behind without harm.
fn remove_draft(draft: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut path = draft.as_os_str().to_owned();
        path.push(suffix);
        let _ = fs::remove_file(PathBuf::from(path));
    }
}
