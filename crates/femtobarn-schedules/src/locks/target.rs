//! Targets of locks, none of which the scenarios lock.

use femtobarn_catalog::DatabaseId;

pub(super) use NoTarget as LockTarget;

pub(super) struct NoTarget;

impl NoTarget {
    pub(super) fn database(&self) -> Option<DatabaseId> {
        None
    }

    pub(super) fn slot(&self) -> u64 {
        0
    }
}
