//! The target of a lock, and the slot of a lock file that represents it.

use std::fmt;

use crate::error::Result;
use crate::ids::{ContainerId, DatabaseId};

/// The slot of the allocation lock. This and the next one have the lowest numbers, so that lock files stay short.
const ALLOCATION_SLOT: u64 = 0;
/// The slot of the lock on a whole database.
const DATABASE_SLOT: u64 = 1;
/// The slot of container 1, the smallest id.
pub(super) const FIRST_CONTAINER_SLOT: u64 = 2;
/// The first slot after that of the largest possible container id.
pub(super) const SLOTS_END: u64 = FIRST_CONTAINER_SLOT + u32::MAX as u64;
/// The lock file of maintenance, beside those of databases.
const MAINTENANCE_FILE: &str = "maintenance";

/// The target of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockTarget {
    /// A container, locked by the transaction that writes it.
    Container(DatabaseId, ContainerId),
    /// A database: shared by the transactions that write to it, exclusive for an operation that moves its bytes.
    Database(DatabaseId),
    /// The end of a database's file, while the file is extended.
    Allocation(DatabaseId),
    /// The federation: shared by backups, exclusive for vacuum.
    Maintenance,
}

/// The functions of the catalogue that locks in the kernel call.
pub(crate) trait LockCatalogue: fmt::Debug + Send + Sync {
    /// The names of the target, such as `container run7/events`; its numbers if it has no committed name.
    fn describe(&self, target: &LockTarget) -> String;

    /// Makes the catalogue refuse commits to a database that rely on locks of a server which has ended. The caller has
    /// just locked the database.
    ///
    /// # Errors
    /// The errors of the catalogue.
    fn fence_off_ended(&self, database: DatabaseId) -> Result<()>;
}

impl LockTarget {
    /// The database that the target belongs to; `None` for maintenance.
    pub fn database(&self) -> Option<DatabaseId> {
        match self {
            LockTarget::Container(id, _)
            | LockTarget::Database(id)
            | LockTarget::Allocation(id) => Some(*id),
            LockTarget::Maintenance => None,
        }
    }

    /// The container, if the target is one.
    pub fn container(&self) -> Option<ContainerId> {
        match self {
            LockTarget::Container(_, id) => Some(*id),
            _ => None,
        }
    }

    pub(super) fn file_name(&self) -> String {
        self.database().map_or_else(|| MAINTENANCE_FILE.to_owned(), |id| id.to_string())
    }

    pub(super) fn slot(&self) -> u64 {
        match self {
            LockTarget::Container(_, id) => FIRST_CONTAINER_SLOT - 1 + u64::from(id.0),
            LockTarget::Database(_) => DATABASE_SLOT,
            LockTarget::Allocation(_) => ALLOCATION_SLOT,
            LockTarget::Maintenance => 0,
        }
    }

    /// The target of a slot in the lock file of a database, or of maintenance if `database` is `None`.
    pub(super) fn of_slot(database: Option<DatabaseId>, slot: u64) -> Option<Self> {
        match (database, slot) {
            (Some(id), DATABASE_SLOT) => Some(LockTarget::Database(id)),
            (Some(id), ALLOCATION_SLOT) => Some(LockTarget::Allocation(id)),
            (Some(id), _) => {
                let container = u32::try_from(slot + 1 - FIRST_CONTAINER_SLOT).ok()?;
                Some(LockTarget::Container(id, ContainerId(container)))
            }
            (None, 0) => Some(LockTarget::Maintenance),
            (None, _) => None,
        }
    }
}

/// The database of a lock file: `Some(None)` for the file of maintenance, `None` for a file without slots.
pub(super) fn database_of_file(name: &str) -> Option<Option<DatabaseId>> {
    match name {
        MAINTENANCE_FILE => Some(None),
        _ => Some(Some(DatabaseId(name.parse().ok()?))),
    }
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockTarget::Container(database, id) => {
                write!(f, "container {id} of database {database}")
            }
            LockTarget::Database(id) => write!(f, "database {id}"),
            LockTarget::Allocation(id) => write!(f, "the allocation of database {id}"),
            LockTarget::Maintenance => f.write_str("the maintenance of the federation"),
        }
    }
}
