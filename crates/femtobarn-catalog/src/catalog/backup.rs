//! Copying the catalogue while others commit to it.

use std::fs::File;
use std::path::Path;

use rusqlite::Connection;

use super::Catalog;
use super::connection::Handle;
use super::numbers::unsigned;
use crate::error::{Attempt, Error, Result};
use crate::ids::Csn;

impl Catalog {
    /// Copies the catalogue as of one commit into a new file, and returns that commit. The copy is
    /// durable, and a catalogue like this one.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is such a file; as the disk.
    pub fn backup_to(&self, path: &Path) -> Result<Csn> {
        if path.exists() {
            return Err(Error::Exists {
                what: "file",
                name: path.display().to_string(),
                advice: "choose another".into(),
            });
        }
        let source = self.folder().join(super::CATALOGUE_FILE);
        let target = path.to_str().ok_or_else(|| {
            Error::invalid(format!("{} is not text, which SQLite wants", path.display()))
        })?;
        let copied = Handle::open_writer(&source)?.sql.execute("VACUUM INTO ?1", [target]);
        copied.map_err(|error| Error::sql(&source, error))?;
        let csn = complete(path).map_err(|failure| failure.at(path))?;
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|error| Error::io("cannot sync", path, error))?;
        Ok(csn)
    }
}

/// A copy is not yet in write-ahead-log mode, as a catalogue is.
fn complete(path: &Path) -> Attempt<Csn> {
    let copy = Connection::open(path)?;
    copy.pragma_update(None, "journal_mode", "wal")?;
    let csn: i64 =
        copy.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
    copy.close().map_err(|(_, error)| error)?;
    Ok(Csn(unsigned(csn)))
}
