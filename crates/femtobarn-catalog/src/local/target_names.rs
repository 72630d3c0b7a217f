//! The catalogue as the locks use it: the names of targets, looked up only when a lock is shown; and fencing off the
//! clients of a server that has ended.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::process_connections::ProcessConnections;
use crate::error::Result;
use crate::ids::DatabaseId;
use crate::locks::{LockCatalogue, LockTarget, ended_servers};
use crate::sql::{OptionalExtension, Row, params};

/// The newest names of a database and of a container in it, if they have any.
const NAMES: &str = "SELECT d.name, (SELECT c.name FROM container_names c \
    WHERE c.database = ?1 AND c.container = ?2 AND c.until IS NULL) \
    FROM database_names d WHERE d.database = ?1 AND d.until IS NULL";

/// Raises the epoch of a home. Not if its server has left: then all its fences are refused already.
const FENCE_OFF: &str = "UPDATE homes SET epoch = epoch + 1 WHERE database = ?1 AND server = ?2 \
    AND EXISTS (SELECT 1 FROM servers s WHERE s.name = ?2 AND s.state <> 'left')";

/// The names of lock targets in one catalogue.
pub(super) struct CatalogueNames {
    /// The folder of the lock files.
    locks: PathBuf,
    connections: Arc<ProcessConnections>,
}

impl CatalogueNames {
    pub(super) fn new(locks: PathBuf, connections: Arc<ProcessConnections>) -> Self {
        CatalogueNames { locks, connections }
    }

    /// `None` if the target is uncommitted or dropped, or the catalogue cannot be read.
    fn find(&self, target: &LockTarget) -> Option<String> {
        let database = target.database()?;
        let container = target.container().map(|id| id.0);
        let connections = self.connections.current().ok()?;
        let found = connections.read(|sql| {
            let names = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let mut statement = sql.prepare_cached(NAMES)?;
            statement.query_row(params![database.0, container], names).optional()
        });
        let (name, inner): (String, Option<String>) = found.ok().flatten()?;
        Some(match target {
            LockTarget::Container(..) => format!("container {name}/{}", inner?),
            LockTarget::Allocation(_) => format!("the end of the file of database {name}"),
            LockTarget::Database(_) | LockTarget::Maintenance => format!("database {name}"),
        })
    }
}

impl LockCatalogue for CatalogueNames {
    fn describe(&self, target: &LockTarget) -> String {
        self.find(target).unwrap_or_else(|| target.to_string())
    }

    fn fence_off_ended(&self, database: DatabaseId) -> Result<()> {
        for server in ended_servers(&self.locks)? {
            // The catalogue may have moved to SQLite meanwhile, which has no servers.
            if !self.connections.is_postgres() {
                return Ok(());
            }
            let row = params![database.0, server];
            self.connections.write(|sql| sql.execute(FENCE_OFF, row))?;
        }
        Ok(())
    }
}

impl fmt::Debug for CatalogueNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogueNames").finish_non_exhaustive()
    }
}
