//! The database files that a process keeps open for reading: few, however many databases it reads.
//!
//! A version of a container does not hold its file: when so many others were read since that the file
//! was closed, it is opened again, where the catalogue then says that it is.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, Csn, DatabaseId, DatabaseRow};
use quick_cache::sync::Cache;
use rntuple::{ByteSource, ReadRequest};

use crate::error::{Error, Result};
use crate::file::DatabaseFile;

/// Files that are kept open.
const OPEN_FILES_MAX: usize = 256;

/// Open files by the number of their database, which is never given again, as a path may be.
pub(crate) struct OpenFiles {
    catalog: Arc<dyn Catalogue>,
    open: Cache<DatabaseId, Arc<DatabaseFile>>,
}

impl OpenFiles {
    pub fn new(catalog: Arc<dyn Catalogue>) -> Self {
        OpenFiles { catalog, open: Cache::new(OPEN_FILES_MAX) }
    }

    /// Where a database's file is.
    pub fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        // An absolute path replaces the folder.
        self.catalog.folder().join(Path::new(&database.path))
    }

    /// The file of a database as of some commit. It is opened at once, so that one that cannot be is
    /// told early.
    pub fn source(self: &Arc<Self>, database: &DatabaseRow, at: Csn) -> Result<FileSource> {
        self.open.get_or_insert_with(&database.id, || self.open(database))?;
        Ok(FileSource { files: self.clone(), database: database.id, at })
    }

    fn file(&self, database: DatabaseId, at: Csn) -> Result<Arc<DatabaseFile>> {
        self.open.get_or_insert_with(&database, || {
            let row = self.catalog.database_by_id(database, at)?;
            self.open(&row)
        })
    }

    fn open(&self, database: &DatabaseRow) -> Result<Arc<DatabaseFile>> {
        Ok(Arc::new(DatabaseFile::open(self.path_of(database))?))
    }
}

/// A database's file as a source of bytes.
pub(crate) struct FileSource {
    files: Arc<OpenFiles>,
    database: DatabaseId,
    /// A commit at which there is the database.
    at: Csn,
}

impl FileSource {
    fn file(&self) -> rntuple::Result<Arc<DatabaseFile>> {
        self.files.file(self.database, self.at).map_err(|error| rntuple::Error::Io {
            what: "cannot open the file again".to_owned(),
            source: match error {
                Error::Io { source, what } => {
                    std::io::Error::new(source.kind(), format!("{what}: {source}"))
                }
                // With its kind: `Error::kind` looks for it there.
                other => std::io::Error::other(other),
            },
        })
    }
}

impl ByteSource for FileSource {
    fn size(&self) -> rntuple::Result<u64> {
        self.file()?.file.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        self.file()?.file.read_at(offset, buffer)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.file()?.file.read_many(requests)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        // Who reads is told that the file is not there.
        if let Ok(open) = self.file() {
            open.file.will_need(ranges);
        }
    }
}
