//! The front of a database's file: whether it is intact, and to which database it belongs.

use std::sync::Arc;

use femtobarn_catalog::{DatabaseRow, DatabaseState};
use rntuple::tfile::FRONT_SIZE_MIN;
use uuid::Uuid;

use super::{Check, ProblemKind, ProblemLocation};
use crate::error::Result;
use crate::federation::Inner;
use crate::inventory::Inventory;
use crate::storage::file::DatabaseFile;
use crate::storage::scan;

/// The bytes at the front of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// The front of this database.
    Whole,
    /// Other bytes, in a file that has the database's commits.
    WrittenOver,
    /// The front of another database, or no ROOT file.
    Another,
}

impl Check<'_, '_> {
    /// Compares the UUID in the file with that of the database.
    pub(super) fn front(
        &mut self,
        row: &DatabaseRow,
        place: &ProblemLocation,
        file: &Arc<DatabaseFile>,
    ) -> Front {
        let fault = match file.identity().map(|identity| Uuid::from_bytes(identity.uuid)) {
            // Files of some programs have no UUID.
            Ok(uuid) if uuid == row.uuid => return Front::Whole,
            Ok(uuid) if uuid.is_nil() && row.state == DatabaseState::Attached => {
                return Front::Whole;
            }
            Ok(uuid) => {
                format!("{} is database {uuid}, not {}", file.path.display(), row.uuid)
            }
            Err(error) => error.to_string(),
        };
        if is_written_over(self.inner, row, file).unwrap_or(false) {
            let what = format!(
                "the front of its file is overwritten by other bytes, as servers of earlier versions could do; its \
                 objects are intact ({fault})"
            );
            self.damage(place.clone(), ProblemKind::Front, what);
            return Front::WrittenOver;
        }
        self.damage(place.clone(), ProblemKind::WrongFile, fault);
        Front::Another
    }
}

/// Whether a file without the database's front holds the database all the same: it has its commit records,
/// and either no readable front or bytes of a version in place of one.
///
/// # Errors
/// `Io` if the file cannot be read; `Corrupt` if a version's metadata cannot be read.
fn is_written_over(inner: &Inner, row: &DatabaseRow, file: &Arc<DatabaseFile>) -> Result<bool> {
    if row.state != DatabaseState::Open {
        return Ok(false);
    }
    let source = file.clone();
    let records = scan::records(&source, row.uuid, &mut |_| true)?;
    if records.is_empty() || file.identity().is_err() {
        return Ok(!records.is_empty());
    }
    let live = Inventory::of(&source, &inner.local()?.all_versions(row.id)?)?;
    let starts = live.iter().map(|range| range.start);
    Ok(starts.chain(records.iter().map(|it| it.range.offset)).any(|start| start < FRONT_SIZE_MIN))
}
