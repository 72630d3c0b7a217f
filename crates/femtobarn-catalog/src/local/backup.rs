//! A copy of the catalogue, made while others commit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::LocalCatalogue;
use super::creation::sync_folder;
use super::numbers::unsigned;
use crate::error::{Attempt, Error, Result};
use crate::ids::Csn;
use crate::schema;

impl LocalCatalogue {
    /// Copies the catalogue to the file `path`, which must not exist, and returns the newest
    /// commit that the copy has. It is a whole catalogue as of that commit, and durable when this
    /// returns. Nobody waits for it but who wants to vacuum, if the caller shares the maintenance
    /// lock, as it should.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is such a file; [`Error::Io`] and [`Error::Full`] if it cannot
    /// be written.
    pub fn backup_to(&self, path: &Path) -> Result<Csn> {
        if path.exists() {
            return Err(Error::Exists {
                what: "file",
                name: path.display().to_string(),
                advice: "remove it, or choose another path".into(),
            });
        }
        let target = path.to_str().ok_or_else(|| {
            Error::invalid(format!("{} is not text, which SQLite wants", path.display()))
        })?;
        let copied = self.copy(path, target);
        if copied.is_err() {
            // A part of a copy is worse than none.
            remove(path);
        }
        copied
    }

    fn copy(&self, path: &Path, target: &str) -> Result<Csn> {
        self.read(|sql| {
            // Readers refuse what writes, even elsewhere.
            sql.pragma_update(None, "query_only", false)?;
            let copied = sql.execute("VACUUM INTO ?1", [target]);
            sql.pragma_update(None, "query_only", true)?;
            copied?;
            Ok(())
        })
        .map_err(|error| self.about_copy(error, path))?;
        let csn = finish(path).map_err(|failure| failure.at(path))?;
        File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::io("cannot sync", path, error))?;
        let absolute = std::path::absolute(path)
            .map_err(|error| Error::io("cannot find the folder of", path, error))?;
        absolute.parent().map_or(Ok(()), sync_folder)?;
        Ok(csn)
    }

    /// SQLite does not say which of the two files it means; a full disk is that of the copy.
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

/// The copy is made without a write-ahead log; a catalogue has one.
fn finish(path: &Path) -> Attempt<Csn> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = Connection::open_with_flags(path, flags)?;
    schema::keep_log(&sql)?;
    let csn: i64 =
        sql.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
    // Closing would do the same, and say nothing if it failed.
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
