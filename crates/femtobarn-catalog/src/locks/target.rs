//! What can be locked, and where.

use std::fmt;

use super::{ALLOCATION_SLOT, DATABASE_SLOT, FIRST_CONTAINER_SLOT, MAINTENANCE_FILE};
use crate::ids::{ContainerId, DatabaseId};

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockTarget {
    /// A container, by the transaction that writes it.
    Container(DatabaseId, ContainerId),
    /// A database: shared by transactions that write to it, exclusively by who moves its bytes.
    Database(DatabaseId),
    /// The end of a database's file, while it is extended.
    Allocation(DatabaseId),
    /// The federation: shared by backups, exclusively by vacuum.
    Maintenance,
}

impl LockTarget {
    /// The database that the lock is in.
    pub fn database(&self) -> Option<DatabaseId> {
        match self {
            LockTarget::Container(id, _)
            | LockTarget::Database(id)
            | LockTarget::Allocation(id) => Some(*id),
            LockTarget::Maintenance => None,
        }
    }

    /// The container that is locked.
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

    /// What is locked by a slot of the file of a database, or of that of maintenance.
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
