//! Removal of files whose databases were not committed.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, Error, LockTarget, Result};
use tokio::task::spawn_blocking;

use super::service::FederationService;

impl FederationService {
    /// Removes the uncommitted files of a database that a session has released, unless another session holds it.
    pub(super) fn sweep(self: &Arc<Self>, target: LockTarget) {
        let LockTarget::Database(database) = target else { return };
        if self.uncommitted.has(database) {
            let service = Arc::clone(self);
            spawn_blocking(move || service.remove_uncommitted(database));
        }
    }

    /// Removes the uncommitted files that an earlier server of the folder left, once their clients have had a lease's
    /// time to claim them.
    pub async fn sweep_earlier(self: Arc<Self>) {
        let earlier = self.uncommitted.databases();
        if earlier.is_empty() || self.is_read_only() {
            return;
        }
        tokio::time::sleep(self.lease).await;
        // It fails only while the server is shutting down.
        let _ = spawn_blocking(move || {
            earlier.into_iter().for_each(|database| self.remove_uncommitted(database));
        })
        .await;
    }

    fn remove_uncommitted(&self, database: DatabaseId) {
        // Under the exclusive lock no session writes to the files or begins to publish the database.
        let owner = self.catalog.locks().owner();
        let Ok(_exclusive) = owner.lock_database_exclusive(database, Duration::ZERO) else {
            return;
        };
        for path in self.uncommitted.take(database) {
            if let Err(error) = self.remove_unless_committed(&path) {
                tracing::warn!(path, %error, "a file without a database could not be removed");
            }
        }
    }

    fn remove_unless_committed(&self, path: &str) -> Result<()> {
        if self.catalog.is_file_of_a_database(path)? {
            return Ok(());
        }
        tracing::info!(path, "removing a file whose database was not committed");
        match std::fs::remove_file(self.catalog.folder().join(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Io { what: format!("cannot remove {path}"), source: Arc::new(error) })
            }
            _ => Ok(()),
        }
    }

    /// Whether a database that was not locked for a while can still be committed.
    pub(super) fn database_exists(&self, target: &LockTarget) -> bool {
        let LockTarget::Database(database) = target else { return true };
        self.uncommitted.has(*database) || self.catalog.database_by_id(*database, Csn::MAX).is_ok()
    }
}
