//! Creation of a federation's folder.
//!
//! The catalogue is built as a draft under a temporary name and hard-linked into place when it is complete. In
//! PostgreSQL, the tables are made in one transaction; then the file that names them is linked into place.
//!
//! 1. Of two processes that create the same federation one succeeds. On a file system without hard links the draft is
//!    renamed, and for a moment both may succeed.
//! 2. A crash leaves no incomplete catalogue. It may leave drafts and empty folders, which a later creation accepts,
//!    and in PostgreSQL a schema that no file names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::catalogue_place::{address_file, schema_of};
use super::connection::CatalogueConnection;
use super::postgres_writer::PostgresWriter;
use crate::error::{Error, Result};
use crate::paths::{
    CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE, DATABASES_FOLDER, LOCKS_FOLDER, log_path,
};
use crate::sql::{AtPath, PostgresAddress, SqlResult};
use crate::{names, schema};

/// The content that a folder may have before a federation is created in it, besides the remains of an interrupted
/// creation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedContent {
    /// No files.
    Nothing,
    /// Any files except a catalogue and its log: the files of a federation whose catalogue was lost.
    LostCatalogue,
}

/// Creates a federation in a folder that holds no more than is `allowed`.
///
/// # Errors
/// [`Error::Exists`] if the folder holds more; [`Error::Invalid`] for a bad name.
pub(super) fn create(folder: &Path, name: &str, uuid: Uuid, allowed: AllowedContent) -> Result<()> {
    create_beside(&prepare(folder, name, allowed)?, name, uuid)
}

/// Creates a federation in an empty folder, with its catalogue in PostgreSQL.
///
/// # Errors
/// The errors of [`create`], and those of the server.
pub(super) fn create_in_postgres(folder: &Path, name: &str, uuid: Uuid, url: &str) -> Result<()> {
    let schema = schema_of(uuid);
    let address = Arc::new(PostgresAddress::parse(url, &schema)?);
    let folder = &prepare(folder, name, AllowedContent::Nothing)?;
    let named = folder.join(CATALOGUE_ADDRESS_FILE);
    let writer = PostgresWriter::new(CatalogueConnection::new_to_postgres(&address));
    let made = writer.run(&mut |sql| schema::create_in_postgres(sql, &schema, name, uuid));
    made.map_err(|failed| failed.failure.at(&named))?;
    let draft = draft_in(folder);
    let written = write_address(&draft, url, &address);
    let published = written.and_then(|()| publish(&draft, folder, CATALOGUE_ADDRESS_FILE));
    remove_draft(&draft);
    published.inspect_err(|error| {
        // If only the sync of the folder failed, the file may exist, and other processes may have committed by now.
        if named.exists() && !matches!(error, Error::Exists { .. }) {
            return;
        }
        // No file names the schema, so it does no harm if it cannot be dropped.
        let drop_schema = format!("DROP SCHEMA \"{schema}\" CASCADE");
        drop(writer.run(&mut |sql| sql.execute_batch(&drop_schema)));
    })
}

/// Writes the draft of a file that names a server, durably.
pub(super) fn write_address(draft: &Path, url: &str, address: &PostgresAddress) -> Result<()> {
    // Only the owner may read a password.
    let mode = if address.has_password() { 0o600 } else { 0o644 };
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(draft)?;
        file.write_all(address_file(url, address.schema()).as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| Error::io("cannot write", draft, error))
}

/// Makes an empty catalogue in a file. It is not used while the folder also has a file that names a server.
pub(super) fn create_beside(folder: &Path, name: &str, uuid: Uuid) -> Result<()> {
    let draft = draft_in(folder);
    let written = write_draft(&draft, name, uuid);
    let published = written.and_then(|()| publish(&draft, folder, CATALOGUE_FILE));
    remove_draft(&draft);
    published
}

/// Makes the folders of a federation; returns the absolute path.
fn prepare(folder: &Path, name: &str, allowed: AllowedContent) -> Result<PathBuf> {
    names::check("federation", name)?;
    let folder = std::path::absolute(folder)
        .map_err(|error| Error::io("cannot find the folder", folder, error))?;
    fs::create_dir_all(&folder).map_err(|e| Error::io("cannot create the folder", &folder, e))?;
    check_content(&folder, allowed)?;
    for sub in [LOCKS_FOLDER, DATABASES_FOLDER] {
        let path = folder.join(sub);
        fs::create_dir_all(&path).map_err(|e| Error::io("cannot create the folder", &path, e))?;
    }
    Ok(folder)
}

pub(super) fn draft_in(folder: &Path) -> PathBuf {
    folder.join(draft_prefix() + &Uuid::new_v4().to_string())
}

/// Refuses a folder that holds more than is `allowed`: a folder with databases and no catalogue must be rebuilt, not
/// overwritten.
fn check_content(folder: &Path, allowed: AllowedContent) -> Result<()> {
    let cannot = |error| Error::io("cannot list the folder", folder, error);
    if [CATALOGUE_FILE, CATALOGUE_ADDRESS_FILE].iter().any(|name| folder.join(name).exists()) {
        return Err(federation_exists(folder));
    }
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let file_name = entry.map_err(cannot)?.file_name();
        let file_name = file_name.to_string_lossy();
        // SQLite would take a log without a catalogue for that of the new catalogue.
        let is_log = log_path(Path::new(CATALOGUE_FILE)) == Path::new(&*file_name);
        let is_draft = file_name.starts_with(&draft_prefix());
        if is_draft || allowed == AllowedContent::LostCatalogue && !is_log {
            continue;
        }
        // Another process may be creating the same federation.
        let is_started = [LOCKS_FOLDER, DATABASES_FOLDER].contains(&&*file_name)
            && is_empty(&folder.join(&*file_name));
        if !is_started {
            return Err(Error::Exists {
                what: "folder",
                name: folder.display().to_string(),
                advice: format!(
                    "it holds {file_name:?} but no catalogue; move that elsewhere, or choose an empty folder"
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
    let written = || -> SqlResult<()> {
        let connection = rusqlite::Connection::open(draft)?;
        schema::create(&connection, name, uuid)?;
        // Closing would do the same, but ignore a failure.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)?;
        Ok(())
    };
    written().at(draft)
}

fn publish(draft: &Path, folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(name);
    match fs::hard_link(draft, &path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(federation_exists(folder));
        }
        // Some file systems have no links. A rename leaves a narrow race.
        Err(_) if !path.exists() => fs::rename(draft, &path)
            .map_err(|error| Error::io("cannot create the catalogue", &path, error))?,
        Err(error) => return Err(Error::io("cannot create the catalogue", &path, error)),
    }
    sync_folder(folder)
}

/// Makes the entries of a folder durable, and its own entry in its parent.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    for path in [Some(folder), folder.parent()].into_iter().flatten() {
        File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::io("cannot sync the folder", path, error))?;
    }
    Ok(())
}

/// Removes the draft, which by now is a second name of the catalogue, or the remains of a failed attempt. A failure is
/// ignored: a draft that stays does no harm.
pub(super) fn remove_draft(draft: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut path = draft.as_os_str().to_owned();
        path.push(suffix);
        let _ = fs::remove_file(PathBuf::from(path));
    }
}
