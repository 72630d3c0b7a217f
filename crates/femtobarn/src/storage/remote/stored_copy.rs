//! A copy of a sealed database, read in its store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_archive::{ObjectRange, Store};
use femtobarn_catalog::{Csn, DatabaseRow, ReplicaRow};
use rntuple::ReadRequest;

use super::server_file::ServerFile;
use crate::error::Error;

/// A copy of a database. Its bytes are those of the sealed file, as of any commit.
#[derive(Debug)]
pub(crate) struct StoredCopy {
    store: Arc<dyn Store>,
    replica: ReplicaRow,
    /// The store and the object, for people.
    place: PathBuf,
    relative: String,
}

impl StoredCopy {
    pub(crate) fn new(store: Arc<dyn Store>, replica: ReplicaRow, database: &DatabaseRow) -> Self {
        let place = PathBuf::from(format!("{} of {}", replica.key, store.place()));
        StoredCopy { store, replica, place, relative: database.path.clone() }
    }
}

impl ServerFile for StoredCopy {
    fn path(&self) -> &Path {
        &self.place
    }

    fn relative(&self) -> &str {
        &self.relative
    }

    fn size(&self, _at: Csn) -> std::io::Result<u64> {
        Ok(self.replica.size)
    }

    fn read_many(&self, _at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        let ranges = requests.iter_mut().filter(|request| !request.buffer.is_empty());
        let mut ranges: Vec<ObjectRange<'_>> = ranges
            .map(|request| ObjectRange { offset: request.offset, buffer: &mut *request.buffer })
            .collect();
        let read = self.store.read(&self.replica.key, &mut ranges);
        read.map_err(|error| std::io::Error::other(Error::from(error)))
    }

    fn read_ahead(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        self.read_many(at, requests)
    }

    fn read_ahead_at(&self, at: Csn, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.replica.size.saturating_sub(offset);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..count];
        self.read_many(at, &mut [ReadRequest { offset, buffer }])?;
        Ok(count)
    }
}
