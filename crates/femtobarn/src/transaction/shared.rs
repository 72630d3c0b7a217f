//! Opening the databases that a transaction writes to, which it shares with others.

use femtobarn_catalog::{Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard};

use super::{OpenDatabase, Transaction};
use crate::error::{Error, Result};

impl Transaction {
    pub(super) fn open_database(&mut self, id: DatabaseId) -> Result<&mut OpenDatabase> {
        if let Some(shared) = self.share_database(id)? {
            let row = self.federation.catalog().database_by_id(id, Csn::MAX)?;
            self.insert_database(row, shared)?;
        }
        Ok(self.databases.get_mut(&id).expect("it was there or was just inserted"))
    }

    /// Locks a database together with other transactions, unless it is open. That comes before its row
    /// is looked up: what was left of an extent may be used in the epoch of the row only.
    pub(super) fn share_database(&self, id: DatabaseId) -> Result<Option<LockGuard>> {
        if self.names.dropped_databases.contains_key(&id) {
            return Err(Error::NotFound {
                what: format!("database {id} was dropped by this transaction"),
            });
        }
        if self.databases.contains_key(&id) {
            Ok(None)
        } else {
            Ok(Some(self.owner.share_database(id, self.options.lock_wait)?))
        }
    }

    pub(super) fn insert_database(
        &mut self,
        mut row: DatabaseRow,
        shared: LockGuard,
    ) -> Result<()> {
        if let Some((_, name)) = self.names.renamed_databases.get(&row.id) {
            row.name.clone_from(name);
        }
        if row.state != DatabaseState::Open {
            return Err(Error::Closed {
                what: format!("database {:?} is {} and takes no changes", row.name, row.state),
            });
        }
        let extents = self.federation.inner.take_extents(&row)?;
        let open = OpenDatabase { row, is_new: false, extents, _lock: shared };
        self.databases.insert(open.row.id, open);
        Ok(())
    }
}
