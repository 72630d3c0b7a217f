//! Files that no database has: left by transactions that were killed, or somebody's after all.

use std::path::Path;

use uuid::Uuid;

use super::Repair;
use crate::check::{Place, orphans};
use crate::error::Result;
use crate::file::{self, DatabaseFile};
use crate::record::{CommitRecord, End};
use crate::scan;
use crate::view::Source;

impl Repair<'_> {
    pub(super) fn orphans(&mut self) -> Result<()> {
        let catalog = self.federation.catalog();
        let every = catalog.every_database()?;
        let known: Vec<_> = every.into_iter().map(|record| record.row).collect();
        if self.somebody_creates_a_database(&known.iter().map(|row| row.id).collect::<Vec<_>>())? {
            return Ok(());
        }
        for (path, _) in orphans(&self.federation.inner, &known)? {
            let is_old = file::age(&path).is_some_and(|age| age >= self.options.orphan_age);
            if is_old && self.is_nobodys(&path)? {
                file::remove(&path)?;
                self.done(Place::default(), format!("removed {}", path.display()));
            }
        }
        Ok(())
    }

    /// Whether a transaction is under way in a database that the catalogue does not have yet.
    fn somebody_creates_a_database(&self, known: &[femtobarn_catalog::DatabaseId]) -> Result<bool> {
        let held = self.federation.inner.locks().held()?;
        let databases = held.iter().filter_map(|lock| lock.target.database());
        Ok(databases.into_iter().any(|database| !known.contains(&database)))
    }

    /// Whether nothing that was committed is in a file.
    fn is_nobodys(&self, path: &Path) -> Result<bool> {
        let file = DatabaseFile::open(path.to_owned())?;
        let Ok(identity) = file.identity() else {
            // Not even the front was written, or it is no file of ours.
            return Ok(file.size()? == 0);
        };
        let source = Source(file.into());
        let mut committed = vec![];
        for found in scan::records(&source, Uuid::from_bytes(identity.uuid), &mut |_| true)? {
            if self.is_committed(&found.record)? {
                committed.push(found.record);
            }
        }
        // Of a database that was dropped and vacuumed the file may still be there.
        let last = committed.iter().max_by_key(|record| (record.after, record.time_us));
        Ok(last.is_none_or(|record| record.end == Some(End::Dropped)))
    }

    fn is_committed(&self, record: &CommitRecord) -> Result<bool> {
        let catalog = self.federation.catalog();
        let is_ours = record.federation == catalog.uuid();
        Ok(!is_ours || catalog.find_commit(record.transaction, record.after)?.is_some())
    }
}
