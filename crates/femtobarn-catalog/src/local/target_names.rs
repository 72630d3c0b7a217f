//! The names of lock targets, looked up in the catalogue only when a lock is shown.

use std::fmt;
use std::sync::Arc;

use super::process_connections::ProcessConnections;
use crate::locks::{LockTarget, TargetNames};
use crate::sql::{OptionalExtension, Row, params};

/// The newest names of a database and of a container in it, if they have any.
const NAMES: &str = "SELECT d.name, (SELECT c.name FROM container_names c \
    WHERE c.database = ?1 AND c.container = ?2 AND c.until IS NULL) \
    FROM database_names d WHERE d.database = ?1 AND d.until IS NULL";

/// The names of lock targets in one catalogue.
pub(super) struct CatalogueNames {
    connections: Arc<ProcessConnections>,
}

impl CatalogueNames {
    pub(super) fn new(connections: Arc<ProcessConnections>) -> Self {
        CatalogueNames { connections }
    }

    /// None if the target is uncommitted or dropped, or the catalogue cannot be read.
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

impl TargetNames for CatalogueNames {
    fn describe(&self, target: &LockTarget) -> String {
        self.find(target).unwrap_or_else(|| target.to_string())
    }
}

impl fmt::Debug for CatalogueNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogueNames").finish_non_exhaustive()
    }
}
