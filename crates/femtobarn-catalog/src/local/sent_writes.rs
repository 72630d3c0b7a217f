//! Bytes of files that arrive with a commit, from a writer that cannot reach the files.
//!
//! 1. They are in the files before the commit is published, and durable with it.
//! 2. Bytes that a file already has are overwritten only if the writer holds its database and they lie in an extent of
//!    the writer. A new file is written from its start.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use super::LocalCatalogue;
use super::file_writes::{self, is_in_file};
use super::logged_writes::LOGGED_COMMIT_BYTES_MAX;
use crate::commit::{Commit, FileWrite};
use crate::error::{Error, Result};
use crate::ids::{Csn, DatabaseId};
use crate::rows::DatabaseState;

/// The names of the databases that a group's commits write to, and the paths of their files; each is looked up once.
#[derive(Debug, Default)]
pub struct FilesToWrite(HashMap<DatabaseId, (String, String)>);

impl LocalCatalogue {
    /// Writes the bytes of a commit to files before it is published, for a writer that cannot reach the files. The
    /// caller ensures that their place is not taken by another writer. The commit keeps the bytes, which become durable
    /// with it; but if earlier bytes could not be written back, the files are synced now, and the bytes are removed
    /// from the commit.
    ///
    /// # Errors
    /// [`Error::Closed`] if a database is not open; [`Error::Invalid`] if bytes lie outside of its file, or do not
    /// begin an empty file at its start; [`Error::Exists`] if the file of a new database belongs to another one;
    /// [`Error::NotFound`], [`Error::Full`] or [`Error::Io`] if a file cannot be written.
    pub fn write_now(&self, commit: &mut Commit, files: &mut FilesToWrite) -> Result<()> {
        let is_stuck = self.file_log.is_stuck();
        let mut begun = None;
        for write in &commit.writes {
            let new = commit.new_databases.iter().find(|new| new.id == write.database);
            let (name, path) = match new {
                Some(new) => (new.name.clone(), new.path.clone()),
                None => match files.0.get(&write.database) {
                    Some(known) => known.clone(),
                    None => {
                        let found = self.path_to_write(write.database)?;
                        files.0.entry(write.database).or_insert(found).clone()
                    }
                },
            };
            let full_path = self.folder().join(&path);
            let failed = |error| Error::io("cannot write to", &full_path, error);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).open(&full_path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            let is_begun = begun == Some(write.database);
            let fits = match new {
                Some(_) => {
                    if !is_begun {
                        self.check_own_file(&path)?;
                    }
                    (is_begun || write.offset == 0) && begins_file(&file, size, write)
                }
                None => end_of(write).is_some_and(|end| end <= size),
            };
            if !fits {
                return Err(outside(&name, write, new.is_some()));
            }
            begun = new.map(|new| new.id);
            file.write_all_at(&write.bytes, write.offset).map_err(failed)?;
            if is_stuck {
                file.sync_data().map_err(failed)?;
                file_writes::sync_names(self.folder(), new.map(|new| new.path.as_str()))?;
            }
        }
        if is_stuck {
            commit.writes.clear();
        }
        Ok(())
    }

    /// The name of a database, and the path of its file, which may be written to.
    fn path_to_write(&self, database: DatabaseId) -> Result<(String, String)> {
        let row = self.database_by_id(database, Csn::MAX)?;
        if row.state != DatabaseState::Open {
            return Err(Error::closed(format!("database {:?} is {}", row.name, row.state)));
        }
        Ok((row.name, row.path))
    }

    /// Checks that no database has the file that a new one is to have.
    fn check_own_file(&self, path: &str) -> Result<()> {
        if !self.is_file_of_a_database(path)? {
            return Ok(());
        }
        Err(Error::Exists {
            what: "file",
            name: path.to_owned(),
            advice: "it is another database's; run the transaction again".to_owned(),
        })
    }
}

/// The offset in the file at which the bytes end.
fn end_of(write: &FileWrite) -> Option<u64> {
    write.offset.checked_add(write.bytes.len() as u64)
}

/// Whether bytes may be among the first ones of a new file of `size` bytes: their place is free, or already has the
/// same bytes, because the client sent them before.
fn begins_file(file: &File, size: u64, write: &FileWrite) -> bool {
    end_of(write).is_some_and(|end| end <= LOGGED_COMMIT_BYTES_MAX as u64)
        && (write.offset >= size || is_in_file(file, write))
}

/// The error of bytes that may not be written to the file of a database.
fn outside(database: &str, write: &FileWrite, is_new: bool) -> Error {
    let what = if is_new {
        let most = LOGGED_COMMIT_BYTES_MAX;
        format!(
            "an empty file is written from its start, up to byte {most}; run the transaction again"
        )
    } else {
        format!("byte {} and those behind it are not in its file", write.offset)
    };
    Error::invalid(format!("database {database:?}: {what}"))
}
