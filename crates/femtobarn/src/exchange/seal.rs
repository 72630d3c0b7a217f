//! Sealing: a database becomes a complete ROOT file that never changes again.
//!
//! In this order: the new keys are appended and synced; the front of the file is overwritten in place; the
//! catalogue marks the database as sealed. If the process is killed before that, the database is still open:
//! no committed byte depends on the front, and sealing can be repeated.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Commit, Csn, DatabaseRow, DatabaseState};
use femtobarn_format::completion;
use rntuple::tfile::{self, Sealing};
use rntuple::{Anchor, ByteSource};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::inventory::{Inventory, Ranges};
use crate::storage::file::{self, DatabaseFile};
use crate::storage::key_chain;

impl Federation {
    /// Seals a database: waits for its writers, and makes it a complete ROOT file that takes no changes.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Closed` if it is sealed or attached already; `Busy` if a transaction
    /// writes to it for longer than `lock_wait`; `Conflict` if a transaction committed to it in spite of the
    /// lock; `Io` or `Full` if the file cannot be written. Then the database is open as before.
    pub fn seal(&self, name: &str, lock_wait: Duration) -> Result<Csn> {
        let inner = &*self.inner;
        let row = inner.local()?.database(name, Csn::MAX)?;
        if row.state != DatabaseState::Open {
            return Err(Error::Closed {
                what: format!("database {name:?} is already {}", row.state),
            });
        }
        let _lock = inner.lock_alone(row.id, lock_wait)?;
        // Safety does not rest on the lock: the commit below fails if another one followed this head.
        let seen = inner.catalog.head()?;
        let anchors = write_anchored(inner, &row, seen)?;
        inner.retire_extents(row.id)?;
        complete(inner, &row, &anchors)?;
        let message = format!("seal {name}");
        let transaction = Uuid::new_v4();
        let commit =
            Commit { transaction, message, sealed: vec![(row.id, seen)], ..Commit::default() };
        Ok(inner.catalog.commit(commit)?)
    }
}

/// Writes each container in the form that plain ROOT reads, and the database's description; returns an anchor
/// for each RNTuple.
fn write_anchored(inner: &Inner, row: &DatabaseRow, seen: Csn) -> Result<Vec<(String, Anchor)>> {
    let mut extents = inner.take_extents(row)?;
    let versions = completion::versions(&*inner.catalog, row, seen)?;
    let source: Arc<dyn ByteSource> = extents.file().clone();
    let anchors = completion::complete(&*inner.catalog, row, &versions, &source, &mut extents)?;
    extents.flush()?;
    inner.return_extents(row.id, extents);
    Ok(anchors)
}

/// Appends anchors, the list of keys and the streamer information, then writes the front that refers to them.
fn complete(inner: &Inner, row: &DatabaseRow, anchors: &[(String, Anchor)]) -> Result<()> {
    let file = DatabaseFile::open_to_write(inner.path_of(row))?;
    // No writer may extend the file between reading its size and writing there.
    let _lock = inner.locks().lock_allocation(row.id)?;
    let identity = file.identity()?;
    keep_live(inner, row, &file)?;
    let gaps = key_chain::mend(&file)?;
    let end = file.size()?;
    let sealing = Sealing { identity: &identity, end, anchors, gaps: &gaps, modified: file::now() };
    let sealed = tfile::seal(&sealing).map_err(Error::storage(format!("database {}", row.name)))?;
    file.write(&sealed.tail, end)?;
    file.sync()?;
    file.write(&sealed.front, 0)?;
    file.sync()
}

/// Ensures that no byte of a version lies in a gap between keys: sealing marks gaps as free or truncates
/// them. Killed writers leave no such bytes, but a damaged key does.
fn keep_live(inner: &Inner, row: &DatabaseRow, file: &DatabaseFile) -> Result<()> {
    let survey = key_chain::survey(file)?;
    if survey.faults.is_empty() {
        return Ok(());
    }
    let source = DatabaseFile::open(inner.path_of(row))?;
    let live = Inventory::of(&source, &inner.local()?.all_versions(row.id)?)?;
    let between: Ranges = survey.faults.into_iter().collect();
    let mut free = between.clone();
    free.remove_all(&live);
    if free != between {
        key_chain::cover(file, &live)?;
    }
    Ok(())
}
