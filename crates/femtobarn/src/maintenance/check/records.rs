//! Commit records, as a check reads them. A commit to many containers of a database leaves one record of all of them,
//! which is read and decoded once.

use std::collections::HashMap;
use std::rc::Rc;

use femtobarn_catalog::{BlobRange, ContainerId, VersionRow};
use rntuple::ByteSource;
use uuid::Uuid;

use crate::error::Result;
use crate::storage::commit_record::{CommitRecord, RecordedVersion};

/// Records that are retained, at most; with one more, all are dropped.
const RECORDS_MAX: usize = 16;

/// The records of one file that were read last.
#[derive(Default)]
pub(super) struct Records {
    known: HashMap<BlobRange, Rc<Record>>,
}

/// A record, by its containers.
pub(super) struct Record {
    database: Uuid,
    versions: HashMap<ContainerId, RecordedVersion>,
}

impl Records {
    /// The record in a range of the file.
    ///
    /// # Errors
    /// The errors of [`CommitRecord::at`].
    pub(super) fn at(&mut self, source: &dyn ByteSource, range: BlobRange) -> Result<Rc<Record>> {
        if let Some(record) = self.known.get(&range) {
            return Ok(Rc::clone(record));
        }
        let CommitRecord { database, containers, .. } = CommitRecord::at(source, range)?;
        let versions = containers.into_iter().map(|version| (version.id, version)).collect();
        let record = Rc::new(Record { database, versions });
        if self.known.len() == RECORDS_MAX {
            self.known.clear();
        }
        self.known.insert(range, Rc::clone(&record));
        Ok(record)
    }
}

impl Record {
    /// Whether the record and the catalogue agree about a version of database `database`.
    pub(super) fn agrees_with(&self, row: &VersionRow, database: Uuid) -> bool {
        let of_this = self.versions.get(&row.container);
        self.database == database
            && of_this.is_some_and(|it| {
                (it.header, it.footer, it.annex) == (row.header, row.footer, row.annex)
                    && (it.entries, it.deleted) == (row.entries, row.deleted)
            })
    }
}
