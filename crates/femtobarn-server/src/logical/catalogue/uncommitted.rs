//! Files of databases that are not committed yet.
//!
//! The client that makes one removes it when it rolls back. If the client dies first the server does, as soon
//! as nobody holds the database any more, and its name is free for others.
//!
//! 1. A file whose database was ever sent to be published is not removed: the commit may succeed though its
//!    answer is lost.
//! 2. Only a session that holds the database may write to its file, lengthen it, remove it or publish the
//!    database. Once it is not held, it is held again by its old session only if the file is still there
//!    (`locking`): by then the name may be that of somebody else's file.
//! 3. After a restart nothing is known of such files. Their transactions fail, and their clients remove them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use femtobarn_catalog::{Commit, Csn, DatabaseId, Error, LockTarget, Result};
use tokio::task::spawn_blocking;

use super::FederationService;
use super::session::lock;

/// The databases, by the files that were made for them; paths are below the federation's folder.
#[derive(Debug, Default)]
pub(super) struct UncommittedFiles(Mutex<HashMap<String, DatabaseId>>);

impl UncommittedFiles {
    pub fn insert(&self, path: &str, database: DatabaseId) {
        self.files().insert(path.to_owned(), database);
    }

    /// The database of a file.
    pub fn database(&self, path: &str) -> Option<DatabaseId> {
        self.files().get(path).copied()
    }

    pub fn remove(&self, path: &str) {
        self.files().remove(path);
    }

    /// Notes that these may be committed from now on.
    pub fn begin_publishing(&self, commit: &Commit) {
        let mut files = self.files();
        let is_new = |database| commit.new_databases.iter().any(|new| new.id == database);
        files.retain(|_, database| !is_new(*database));
    }

    fn has(&self, database: DatabaseId) -> bool {
        self.files().values().any(|of| *of == database)
    }

    fn take(&self, database: DatabaseId) -> Vec<String> {
        let mut files = self.files();
        files.extract_if(|_, of| *of == database).map(|(path, _)| path).collect()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, DatabaseId>> {
        lock(&self.0)
    }
}

impl FederationService {
    /// Removes the files of a database that somebody does not hold any more, if nobody does.
    pub(super) fn sweep(self: &Arc<Self>, target: LockTarget) {
        let LockTarget::Database(database) = target else { return };
        if self.unborn.has(database) {
            let served = Arc::clone(self);
            spawn_blocking(move || served.remove_unborn(database));
        }
    }

    fn remove_unborn(&self, database: DatabaseId) {
        // While it is held alone, nobody writes to it, and nobody begins to publish it.
        let owner = self.catalog.locks().owner();
        let Ok(_alone) = owner.lock_database_exclusive(database, Duration::ZERO) else { return };
        for path in self.unborn.take(database) {
            if let Err(error) = self.remove_if_unknown(&path) {
                tracing::warn!(path, %error, "a file that no database has is left");
            }
        }
    }

    fn remove_if_unknown(&self, path: &str) -> Result<()> {
        if self.catalog.is_file_of_a_database(path)? {
            return Ok(());
        }
        tracing::info!(path, "removing a file whose database was not committed");
        match std::fs::remove_file(self.catalog.folder().join(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Io { what: format!("remove {path}"), source: Arc::new(error) })
            }
            _ => Ok(()),
        }
    }

    /// Whether a database that was not held for a while can still be committed.
    pub(super) fn is_there(&self, target: &LockTarget) -> bool {
        let LockTarget::Database(database) = target else { return true };
        self.unborn.has(*database) || self.catalog.database_by_id(*database, Csn::MAX).is_ok()
    }
}
