//! The files of databases that are not committed yet.
//!
//! The client that created a file removes it when it rolls back. If the client dies first, the server removes the file
//! as soon as no session holds the database; then the name is free again.
//!
//! 1. A file whose database was ever sent to be published is not removed: the commit may succeed though its answer is
//!    lost.
//! 2. Only a session that holds the database may write to its file, extend it, remove it or publish the database. A
//!    session that lost the lock gets it back only if the file still exists (`operations`): the name may belong to
//!    another client's file by then.
//! 3. A server that starts again knows these files from a list in the folder of the locks, and removes those that no
//!    session has claimed by the end of a lease. The list identifies a file also by its inode and its birth time, since
//!    another file may have its name by then.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use femtobarn_catalog::{Commit, DatabaseId};
use parking_lot::Mutex;

/// The list, in the federation's folder.
const LIST: &str = "locks/uncommitted";

/// The uncommitted databases by the paths of their files, relative to the federation's folder.
#[derive(Debug)]
pub(super) struct UncommittedFiles {
    folder: PathBuf,
    files: Mutex<HashMap<String, DatabaseId>>,
}

impl UncommittedFiles {
    /// Reads the list of an earlier server of the folder.
    pub(super) fn open(folder: &Path) -> Self {
        let text = fs::read_to_string(folder.join(LIST)).unwrap_or_default();
        let files = text.lines().filter_map(|line| {
            let (database, rest) = line.split_once(' ')?;
            let (identity, path) = rest.split_once(' ')?;
            let is_same = identity_of(&folder.join(path)).as_deref() == Some(identity);
            is_same.then_some((path.to_owned(), DatabaseId(database.parse().ok()?)))
        });
        UncommittedFiles { folder: folder.to_owned(), files: Mutex::new(files.collect()) }
    }

    pub(super) fn insert(&self, path: &str, database: DatabaseId) {
        self.change(|files| files.insert(path.to_owned(), database));
    }

    /// The database of a file.
    pub(super) fn database(&self, path: &str) -> Option<DatabaseId> {
        self.files.lock().get(path).copied()
    }

    pub(super) fn remove(&self, path: &str) {
        self.change(|files| files.remove(path));
    }

    /// Forgets the files of a commit that is about to be published.
    pub(super) fn begin_publishing(&self, commit: &Commit) {
        let is_new = |database| commit.new_databases.iter().any(|new| new.id == database);
        self.change(|files| files.retain(|_, database| !is_new(*database)));
    }

    /// Whether a database has uncommitted files.
    pub(super) fn has(&self, database: DatabaseId) -> bool {
        self.files.lock().values().any(|of| *of == database)
    }

    /// The databases that have uncommitted files.
    pub(super) fn databases(&self) -> Vec<DatabaseId> {
        self.files.lock().values().copied().collect()
    }

    /// Removes and returns the files of a database.
    pub(super) fn take(&self, database: DatabaseId) -> Vec<String> {
        self.change(|files| {
            files.extract_if(|_, of| *of == database).map(|(path, _)| path).collect()
        })
    }

    /// Changes the files, and writes the list if they differ then. If a crash of the machine destroys the list, or it
    /// cannot be written, `femtobarn repair` removes the files.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<String, DatabaseId>) -> T) -> T {
        let mut files = self.files.lock();
        let count = files.len();
        let changed = change(&mut files);
        if files.len() != count {
            let (list, draft) = (self.folder.join(LIST), self.folder.join(format!("{LIST}.draft")));
            let line = |(path, database): (&String, &DatabaseId)| {
                let identity = identity_of(&self.folder.join(path))?;
                Some(format!("{database} {identity} {path}\n"))
            };
            let text: String = files.iter().filter_map(line).collect();
            if let Err(error) = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &list)) {
                tracing::warn!(%error, "the list of uncommitted files cannot be written");
            }
        }
        changed
    }
}

/// The identity of a file, by which it differs from a later file of the same name; `None` if there is no such file.
fn identity_of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let made = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(format!("{}-{}", metadata.ino(), made.unwrap_or_default().as_nanos()))
}
