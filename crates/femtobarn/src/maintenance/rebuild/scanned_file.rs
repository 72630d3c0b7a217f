//! A database file and its commit records.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::storage::file::DatabaseFile;
use crate::storage::scan::{self, FoundRecord};

/// A database file and its commit records.
pub(super) struct ScannedFile {
    /// Relative to the federation's folder.
    pub(super) path: String,
    pub(super) is_sealed: bool,
    pub(super) source: Arc<DatabaseFile>,
    pub(super) found: Vec<FoundRecord>,
}

impl ScannedFile {
    /// Reads the commit records of a file. `searched` is called with the number of bytes searched since the
    /// last call, and stops the search by returning false.
    pub(super) fn scan(
        path: PathBuf,
        relative: String,
        searched: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self> {
        let source = Arc::new(DatabaseFile::open(path)?);
        let uuid = Uuid::from_bytes(source.identity()?.uuid);
        let found = scan::records(&*source, uuid, searched)?;
        let is_sealed = source.is_complete()?;
        Ok(ScannedFile { path: relative, is_sealed, source, found })
    }
}
