//! What locks are on, as people know it: by names instead of numbers.
//!
//! Names are looked up only where a lock is shown. A database or container that is uncommitted or dropped is shown
//! by its number.

use std::fmt;
use std::sync::Arc;

use rusqlite::OptionalExtension;

use super::LocalCatalogue;
use super::session::Sessions;
use crate::locks::LockTarget;

/// The newest names of a database and of a container in it, if it has them.
const NAMES: &str = "SELECT d.name, (SELECT c.name FROM container_names c \
    WHERE c.database = ?1 AND c.container = ?2 AND c.until IS NULL) \
    FROM database_names d WHERE d.database = ?1 AND d.until IS NULL";

/// Knows the names of what is locked.
#[derive(Clone)]
pub(crate) struct Labels {
    sessions: Arc<Sessions>,
}

impl Labels {
    pub(super) fn new(sessions: Arc<Sessions>) -> Self {
        Labels { sessions }
    }

    /// What people call a target.
    pub(crate) fn label(&self, target: &LockTarget) -> String {
        self.find(target).unwrap_or_else(|| target.to_string())
    }

    /// None without a name, and where the catalogue does not tell.
    fn find(&self, target: &LockTarget) -> Option<String> {
        let database = target.database()?;
        let container = target.container().map(|id| id.0);
        let session = self.sessions.current().ok()?;
        let found = session.read(|sql| {
            let names = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let mut statement = sql.prepare_cached(NAMES)?;
            Ok(statement.query_row(rusqlite::params![database.0, container], names).optional()?)
        });
        let (name, inner): (String, Option<String>) = found.ok().flatten()?;
        Some(match target {
            LockTarget::Container(..) => format!("container {name}/{}", inner?),
            LockTarget::Allocation(_) => format!("the end of the file of database {name}"),
            LockTarget::Database(_) | LockTarget::Maintenance => format!("database {name}"),
        })
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labels").finish_non_exhaustive()
    }
}

impl LocalCatalogue {
    /// What people call the target of a lock: `container run7/events`, or by its number if it has no name that
    /// is committed.
    pub fn label(&self, target: &LockTarget) -> String {
        Labels::new(Arc::clone(&self.sessions)).label(target)
    }
}
