//! A copy of the catalogue, made while transactions commit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;

use super::LocalCatalogue;
use super::creation::sync_folder;
use crate::error::{Error, Result};
use crate::ids::Csn;
use crate::numbers::unsigned;
use crate::schema;
use crate::sql::{AtPath, SqlResult};

impl LocalCatalogue {
    /// Copies the catalogue to the new file `path`, and returns the newest commit in the copy. The copy is a whole
    /// catalogue as of that commit, and durable when this returns. Commits do not wait for it. The caller should
    /// share the maintenance lock, which makes vacuum wait.
    ///
    /// # Errors
    /// [`Error::Exists`] if the file exists; [`Error::Invalid`] if its path is not UTF-8; [`Error::Io`],
    /// [`Error::Denied`] or [`Error::Full`] if it cannot be written.
    pub fn backup_to(&self, path: &Path) -> Result<Csn> {
        if path.exists() {
            return Err(Error::Exists {
                what: "file",
                name: path.display().to_string(),
                advice: "remove it, or choose another path".into(),
            });
        }
        let target = path.to_str().ok_or_else(|| {
            Error::invalid(format!("invalid path {}: must be UTF-8", path.display()))
        })?;
        let copied = self.copy(path, target);
        if copied.is_err() {
            // A partial copy is worse than none.
            remove(path);
        }
        copied
    }

    fn copy(&self, path: &Path, target: &str) -> Result<Csn> {
        self.read(|sql| {
            let sql = sql.sqlite().ok_or_else(|| Error::Unsupported {
                what: "a catalogue in PostgreSQL is copied by PostgreSQL's own means, such as pg_dump or \
                       pg_basebackup; copy the folder of the databases after it"
                    .to_owned(),
            })?;
            // A query-only connection refuses every write, even to another file.
            sql.pragma_update(None, "query_only", false)?;
            let copied = sql.execute("VACUUM INTO ?1", [target]);
            sql.pragma_update(None, "query_only", true)?;
            copied?;
            Ok(())
        })
        .map_err(|error| self.about_copy(error, path))?;
        let csn = finish(path).at(path)?;
        File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::io("cannot sync", path, error))?;
        let absolute = std::path::absolute(path)
            .map_err(|error| Error::io("cannot find the folder of", path, error))?;
        absolute.parent().map_or(Ok(()), sync_folder)?;
        Ok(csn)
    }

    /// Adds the copy's path. SQLite does not report which of the two files failed; "disk full" can only be about the
    /// copy.
    fn about_copy(&self, error: Error, path: &Path) -> Error {
        match error {
            Error::Full { .. } => Error::Full { path: path.to_owned() },
            Error::Io { what, source } => {
                Error::Io { what: format!("cannot copy {what} to {}", path.display()), source }
            }
            other => other,
        }
    }
}

/// Gives the copy a write-ahead log, which `VACUUM INTO` leaves out, and returns its newest commit.
fn finish(path: &Path) -> SqlResult<Csn> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = rusqlite::Connection::open_with_flags(path, flags)?;
    schema::use_write_ahead_log(&sql)?;
    let csn: i64 =
        sql.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
    // Closing would do the same, but ignore a failure.
    sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    sql.close().map_err(|(_, error)| error)?;
    Ok(Csn(unsigned(csn)))
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        drop(fs::remove_file(PathBuf::from(path)));
    }
}
