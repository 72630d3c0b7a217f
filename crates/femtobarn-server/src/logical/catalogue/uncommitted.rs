//! The files of databases that are not committed yet.
//!
//! The client that created a file removes it when it rolls back. If the client dies first, the server removes the
//! file as soon as no session holds the database, and its name is free again.
//!
//! 1. A file whose database was ever sent to be published is not removed: the commit may succeed though its answer is
//!    lost.
//! 2. Only a session that holds the database may write to its file, extend it, remove it or publish the database. A
//!    session that lost the lock gets it back only if the file still exists (`operations`): its name may be that of
//!    another client's file by then.
//! 3. After a restart nothing is known of these files. Their transactions fail, and their clients remove them.

use std::collections::HashMap;

use femtobarn_catalog::{Commit, DatabaseId};
use parking_lot::Mutex;

/// The uncommitted databases by the paths of their files, relative to the federation's folder.
#[derive(Debug, Default)]
pub(super) struct UncommittedFiles(Mutex<HashMap<String, DatabaseId>>);

impl UncommittedFiles {
    pub(super) fn insert(&self, path: &str, database: DatabaseId) {
        self.0.lock().insert(path.to_owned(), database);
    }

    /// The database of a file.
    pub(super) fn database(&self, path: &str) -> Option<DatabaseId> {
        self.0.lock().get(path).copied()
    }

    pub(super) fn remove(&self, path: &str) {
        self.0.lock().remove(path);
    }

    /// Forgets the files of a commit that is about to be published.
    pub(super) fn begin_publishing(&self, commit: &Commit) {
        let mut files = self.0.lock();
        let is_new = |database| commit.new_databases.iter().any(|new| new.id == database);
        files.retain(|_, database| !is_new(*database));
    }

    /// Whether a database has uncommitted files.
    pub(super) fn has(&self, database: DatabaseId) -> bool {
        self.0.lock().values().any(|of| *of == database)
    }

    /// Removes and returns the files of a database.
    pub(super) fn take(&self, database: DatabaseId) -> Vec<String> {
        let mut files = self.0.lock();
        files.extract_if(|_, of| *of == database).map(|(path, _)| path).collect()
    }
}
