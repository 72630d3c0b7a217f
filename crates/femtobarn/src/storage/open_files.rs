//! The database files that a process keeps open for reading: few, however many databases it reads.
//!
//! A version of a container does not hold its file: when so many others were read since that the file
//! was closed, it is opened again, where the catalogue then says that it is.
//!
//! Files are here or, all of them, on a server.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use femtobarn_catalog::{Catalogue, Csn, DatabaseId, DatabaseRow};
use quick_cache::sync::Cache;
use rntuple::{ByteSource, ReadRequest};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::storage::file::{self, DatabaseFile};
use crate::storage::places;
use crate::storage::remote::cached_file::{CachedRemoteFile, DiskCopy};
use crate::storage::remote::disk_cache::{CommitMark, DiskCache};
use crate::storage::remote::folder::RemoteFolder;
use crate::storage::remote::prefetch::ReadAhead;
use crate::storage::remote::prefetch_buffer::PrefetchPool;

/// Files that are kept open.
const OPEN_FILES_MAX: usize = 256;

/// Open files by the number of their database, which is never given again, as a path may be.
pub(crate) struct OpenFiles {
    catalog: Arc<dyn Catalogue>,
    open: Cache<DatabaseId, Arc<DatabaseFile>>,
    /// Where the files are, if that is not here.
    server: Option<RemoteFolder>,
    /// Where what is read from there is kept.
    disk: Option<Arc<DiskCache>>,
    bursts: Arc<PrefetchPool>,
    /// Who reads ahead in a file, for versions up to a commit.
    ahead: Cache<DatabaseId, (Csn, Weak<ReadAhead>)>,
}

impl OpenFiles {
    /// Files in the federation's folder, or where databases were attached from.
    pub fn here(catalog: Arc<dyn Catalogue>) -> Self {
        let (open, ahead) = (Cache::new(OPEN_FILES_MAX), Cache::new(OPEN_FILES_MAX));
        OpenFiles {
            catalog,
            open,
            server: None,
            disk: None,
            bursts: Arc::new(PrefetchPool::new(0)),
            ahead,
        }
    }

    /// Files of a server, read ahead by bursts of up to `read_ahead_bytes`.
    pub fn on_server(
        catalog: Arc<dyn Catalogue>,
        server: RemoteFolder,
        disk: Option<Arc<DiskCache>>,
        read_ahead_bytes: u64,
    ) -> Self {
        let bursts = Arc::new(PrefetchPool::new(read_ahead_bytes));
        OpenFiles { server: Some(server), disk, bursts, ..Self::here(catalog) }
    }

    /// Where a database's file is; a URL, as if it were a path, if that is not here.
    pub fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        match &self.server {
            Some(server) => server.path_of(&on_server(database)),
            // An absolute path replaces the folder.
            None => self.catalog.folder().join(Path::new(&database.path)),
        }
    }

    /// The file of a database as of some commit. It is opened at once, so that one that cannot be is
    /// told early.
    pub fn source(self: &Arc<Self>, database: &DatabaseRow, at: Csn) -> Result<FileSource> {
        self.open.get_or_insert_with(&database.id, || self.open(database))?;
        let ahead = self.server.is_some().then(|| self.ahead(database.id, at));
        let (files, kept) = (self.clone(), self.kept(database, at));
        let (size, end) = (OnceLock::new(), AtomicU64::new(0));
        Ok(FileSource { files, database: database.id, at, ahead, kept, size, end })
    }

    /// Who reads ahead for a version: as for other versions in its file, unless it may refer to bytes that
    /// were written after these were opened.
    fn ahead(&self, database: DatabaseId, at: Csn) -> Arc<ReadAhead> {
        if let Some((newest, known)) = self.ahead.get(&database)
            && at <= newest
            && let Some(ahead) = known.upgrade()
        {
            return ahead;
        }
        let ahead = Arc::new(ReadAhead::new(self.bursts.clone()));
        self.ahead.insert(database, (at, Arc::downgrade(&ahead)));
        ahead
    }

    /// Makes known to other processes what a disk here has.
    pub fn publish_kept(&self) {
        if let Some(disk) = &self.disk {
            disk.publish();
        }
    }

    /// What a disk here has of a server's file.
    fn kept(&self, database: &DatabaseRow, at: Csn) -> Option<DiskCopy> {
        let disk = self.disk.as_ref()?;
        let time_of = |csn| self.catalog.commit_by_csn(csn).ok().map(|commit| commit.time_us);
        let mark = CommitMark { csn: at, time_us: time_of(at)? };
        let is_known = |mark: CommitMark| time_of(mark.csn) == Some(mark.time_us);
        Some(DiskCopy { mirror: disk.mirror(database, is_known)?, mark })
    }

    /// A database's file, for writing.
    pub fn open_to_write(&self, database: &DatabaseRow) -> Result<DatabaseFile> {
        match &self.server {
            Some(server) => Ok(server.open_to_write(&on_server(database), database.id)?.into()),
            None => DatabaseFile::open_to_write(self.path_of(database)),
        }
    }

    /// The file of a new database, and the place that it is to lie in; refuses to overwrite.
    pub fn create(&self, path: &str, database: DatabaseId, uuid: Uuid) -> Result<DatabaseFile> {
        match &self.server {
            Some(server) => DatabaseFile::from(server.create(path, database)?).with_front(uuid),
            None => {
                let path = self.catalog.folder().join(path);
                places::make_folder_of(&path)?;
                DatabaseFile::create(path, uuid)
            }
        }
    }

    /// Makes durable that there are these new files. A server sees to it when a new file is synced.
    pub fn sync_folders<'a>(&self, new: impl Iterator<Item = &'a str>) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let above = new.flat_map(|path| Path::new(path).ancestors().skip(1));
        let folders: BTreeSet<&Path> = above.filter(|path| *path != Path::new("")).collect();
        let here = self.catalog.folder();
        folders.into_iter().try_for_each(|folder| file::sync_folder(&here.join(folder)))
    }

    fn file(&self, database: DatabaseId, at: Csn) -> Result<Arc<DatabaseFile>> {
        self.open.get_or_insert_with(&database, || {
            let row = self.catalog.database_by_id(database, at)?;
            self.open(&row)
        })
    }

    fn open(&self, database: &DatabaseRow) -> Result<Arc<DatabaseFile>> {
        Ok(Arc::new(match &self.server {
            Some(server) => server.open(&on_server(database))?.into(),
            None => DatabaseFile::open(self.path_of(database))?,
        }))
    }
}

/// What a server calls a database's file. One that was attached from elsewhere goes by the database's
/// name.
fn on_server(database: &DatabaseRow) -> String {
    match Path::new(&database.path).is_absolute() {
        true => format!("{}.root", database.name),
        false => database.path.clone(),
    }
}

/// A database's file as a source of bytes.
pub(crate) struct FileSource {
    files: Arc<OpenFiles>,
    database: DatabaseId,
    /// A commit at which there is the database.
    at: Csn,
    /// None where the operating system reads ahead.
    ahead: Option<Arc<ReadAhead>>,
    kept: Option<DiskCopy>,
    /// The size of a server's file, asked for once: what the commit refers to was there before.
    size: OnceLock<u64>,
    /// Where the version ends that is read, as far as is known; 0 if nothing is.
    end: AtomicU64,
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

impl FileSource {
    /// Lets nothing be read ahead behind a byte, the last that is known to be of the version.
    pub fn ends_at(&self, end: u64) {
        self.end.fetch_max(end, Ordering::Relaxed);
    }

    fn end(&self) -> u64 {
        match self.end.load(Ordering::Relaxed) {
            0 => u64::MAX,
            end => end,
        }
    }

    fn far(&self) -> rntuple::Result<CachedRemoteFile> {
        Ok(CachedRemoteFile { file: self.file()?, kept: self.kept.clone() })
    }
}

impl ByteSource for FileSource {
    fn size(&self) -> rntuple::Result<u64> {
        if let Some(size) = self.size.get() {
            return Ok(*size);
        }
        let size = ByteSource::size(&*self.file()?)?;
        match self.is_remote() {
            true => Ok(*self.size.get_or_init(|| size)),
            false => Ok(size),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        match &self.ahead {
            None => self.file()?.read_at(offset, buffer),
            Some(ahead) => {
                ahead.read_many(&self.far()?, &mut [ReadRequest { offset, buffer }], self.end())
            }
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        match &self.ahead {
            None => self.file()?.read_many(requests),
            Some(ahead) => ahead.read_many(&self.far()?, requests, self.end()),
        }
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        // Who reads is told that the file is not there.
        let Ok(open) = self.far() else { return };
        match &self.ahead {
            None => open.file.will_need(ranges),
            Some(ahead) => ahead.will_need(&open, ranges),
        }
    }

    fn may_need(&self, ranges: &[Range<u64>]) {
        if let (Some(ahead), Ok(open)) = (&self.ahead, self.far()) {
            ahead.may_need(&open, ranges);
        }
    }

    fn is_remote(&self) -> bool {
        self.ahead.is_some()
    }
}
