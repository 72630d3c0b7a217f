//! The database files that a process keeps open for reading, all on this machine or all on servers.
//!
//! A bounded number of files is open, however many databases are read. A version of a container does not hold its file
//! open: if the file was closed meanwhile, the next read opens it again, at the place that the catalogue then names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use femtobarn_archive::Archive;
use femtobarn_catalog::{Catalogue, Csn, DatabaseId, DatabaseRow, ErrorKind};
use quick_cache::sync::Cache;

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::file_source::{FileSource, RemoteSource};
use crate::storage::nearline::{self, ReaderStaging, STAGED_BY_ANOTHER};
use crate::storage::places;
use crate::storage::remote::caches::RemoteCaches;
use crate::storage::remote::folder::{RemoteFile, RemoteFolder, path_on_server};
use crate::storage::remote::prefetch::{PrefetchPool, Prefetcher};
use crate::storage::remote::recent_ranges::{KnownFile, RecentFiles, RecentRanges};
use crate::storage::remote::servers::{FileCopies, ServerGroup};
use crate::storage::remote::site::{SiteFile, SiteFolder};
use crate::storage::remote::stored_copy::StoredCopy;
use crate::storage::remote::tier::{FileTiers, TierCounts, TierStatistics};

/// Files that are open at once.
const OPEN_FILES_MAX: usize = 256;

/// The place of files that are not on this machine.
pub(crate) enum ServerFolder {
    One(RemoteFolder),
    /// Each file at the home of its database.
    Site(Arc<SiteFolder>),
    /// Copies at several servers, for reading only.
    Several(Arc<ServerGroup>),
}

impl ServerFolder {
    /// The URL of a file, in the form of a path.
    fn path_of(&self, relative: &str) -> PathBuf {
        match self {
            ServerFolder::One(folder) => folder.path_of(relative),
            ServerFolder::Site(folder) => folder.path_of(relative),
            ServerFolder::Several(group) => group.path_of(relative),
        }
    }

    fn open(&self, database: &DatabaseRow) -> Result<DatabaseFile> {
        let mut file: DatabaseFile = match self {
            ServerFolder::One(folder) => folder.open(&path_on_server(database))?.into(),
            ServerFolder::Site(folder) => SiteFile::open(folder, database)?.into(),
            ServerFolder::Several(group) => FileCopies::new(group.clone(), database).into(),
        };
        file.epoch = database.epoch;
        Ok(file)
    }

    /// Opens a file, or creates it, where files can be written.
    fn open_to_write(
        &self,
        open: impl Fn(&RemoteFolder) -> Result<RemoteFile>,
    ) -> Result<DatabaseFile> {
        match self {
            ServerFolder::One(folder) => Ok(open(folder)?.into()),
            ServerFolder::Site(folder) => Ok(folder.open_file(open)?.into()),
            ServerFolder::Several(group) => Err(group.read_only().into()),
        }
    }
}

/// Open files by the number of their database. A number is never used again, but a path may be.
pub(crate) struct OpenDatabaseFiles {
    catalog: Arc<dyn Catalogue>,
    open: Cache<DatabaseId, Arc<DatabaseFile>>,
    /// The folder on servers, and the caches before it; `None` if the files are on this machine.
    server: Option<(ServerFolder, RemoteCaches)>,
    /// Ranges that this process wrote and read on the server recently.
    recent: Option<RecentFiles>,
    prefetch_pool: Arc<PrefetchPool>,
    /// The stores of the federation, opened when the first file is not on the disk.
    archive: OnceLock<Archive>,
    /// The reads from stores.
    from_stores: Arc<TierCounts>,
    /// Stages files that are in stores alone, for readers; without it such a file is an error.
    staging: OnceLock<Box<ReaderStaging>>,
    /// The prefetcher of each file, with the newest commit that it serves.
    prefetchers: Cache<DatabaseId, (Csn, Weak<Prefetcher>)>,
}

impl OpenDatabaseFiles {
    /// Files on this machine: in the federation's folder, or where databases were attached from. Files that are read in
    /// stores are prefetched in buffers of up to `read_ahead_bytes`.
    pub(crate) fn local(catalog: Arc<dyn Catalogue>, read_ahead_bytes: u64) -> Self {
        OpenDatabaseFiles {
            catalog,
            open: Cache::new(OPEN_FILES_MAX),
            server: None,
            recent: None,
            prefetch_pool: Arc::new(PrefetchPool::new(read_ahead_bytes)),
            archive: OnceLock::new(),
            from_stores: Arc::default(),
            staging: OnceLock::new(),
            prefetchers: Cache::new(OPEN_FILES_MAX),
        }
    }

    /// Files on servers. Recent ranges are remembered unless the options forbid keeping bytes in memory.
    pub(crate) fn on_servers(
        catalog: Arc<dyn Catalogue>,
        server: ServerFolder,
        caches: RemoteCaches,
        options: &OpenOptions,
    ) -> Self {
        let is_written = !matches!(server, ServerFolder::Several(_));
        let recent = (is_written && options.cache_bytes > 0).then(RecentFiles::default);
        let server = Some((server, caches));
        OpenDatabaseFiles { server, recent, ..Self::local(catalog, options.read_ahead_bytes) }
    }

    /// Whether the files are on this machine, or in stores.
    pub(super) fn are_local(&self) -> bool {
        self.server.is_none()
    }

    /// Whether the session with the server is open, which keeps the snapshots that this process reads.
    pub(super) fn has_session(&self) -> bool {
        self.catalog.is_reachable()
    }

    fn folder(&self) -> Option<&ServerFolder> {
        self.server.as_ref().map(|(folder, _)| folder)
    }

    /// The path of a database's file; a URL in the form of a path if it is on a server.
    pub(crate) fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        match self.folder() {
            Some(server) => server.path_of(&path_on_server(database)),
            // Joining an absolute path replaces the folder.
            None => self.catalog.folder().join(Path::new(&database.path)),
        }
    }

    /// The file of a database as of a commit. It is opened at once, so that an error is returned here.
    pub(crate) fn source(self: &Arc<Self>, database: &DatabaseRow, at: Csn) -> Result<FileSource> {
        let mut file = self.open.get_or_insert_with(&database.id, || self.open(database))?;
        if file.passed().is_some() && file.epoch < database.epoch {
            // A server that was restored has another file by this path than the one that it passed.
            self.close(database.id);
            file = self.open.get_or_insert_with(&database.id, || self.open(database))?;
        }
        let before = match &self.server {
            Some((_, caches)) => Some((caches.tiers(database, at), caches.server.clone())),
            None if file.is_local() => None,
            None => Some((FileTiers::none(at), self.from_stores.clone())),
        };
        Ok(FileSource {
            files: self.clone(),
            database: database.id,
            at,
            is_passed: file.passed().is_some(),
            remote: before.map(|(tiers, server)| RemoteSource {
                prefetcher: self.prefetcher(database.id, at),
                recent: self
                    .recent_ranges(database.id, database.epoch)
                    .map_or_else(Weak::new, |recent| Arc::downgrade(&recent)),
                tiers,
                server,
            }),
            size: OnceLock::new(),
            version_end: AtomicU64::new(0),
        })
    }

    /// The prefetcher for versions of a commit. A file's versions share one, but a version of a newer commit
    /// than those gets a new one: it may refer to bytes that were written after the older prefetcher fetched
    /// its buffers.
    fn prefetcher(&self, database: DatabaseId, at: Csn) -> Arc<Prefetcher> {
        if let Some((newest, known)) = self.prefetchers.get(&database)
            && at <= newest
            && let Some(prefetcher) = known.upgrade()
        {
            return prefetcher;
        }
        let prefetcher = Arc::new(Prefetcher::new(self.prefetch_pool.clone()));
        self.prefetchers.insert(database, (at, Arc::downgrade(&prefetcher)));
        prefetcher
    }

    /// Makes readers stage files that are in stores alone. Only the first call has an effect.
    pub(crate) fn stage_for_readers(&self, staging: Box<ReaderStaging>) {
        // A second one would change the behaviour of readers that already wait.
        let _ = self.staging.set(staging);
    }

    /// Closes the file of a database; a read under way keeps it open.
    pub(crate) fn close(&self, database: DatabaseId) {
        self.open.remove(&database);
    }

    /// Closes all files.
    pub(crate) fn close_all(&self) {
        self.open.clear();
    }

    /// Forgets ranges that were written and read recently.
    pub(crate) fn forget_recent(&self) {
        self.recent.iter().for_each(RecentFiles::clear);
    }

    /// The recently written and read ranges of a file, if they are remembered.
    fn recent_ranges(&self, database: DatabaseId, epoch: u64) -> Option<Arc<RecentRanges>> {
        Some(self.recent.as_ref()?.ranges(database, epoch))
    }

    /// Records the content of the disk cache, for other processes.
    pub(crate) fn publish_disk_cache(&self) {
        if let Some((_, caches)) = &self.server {
            caches.publish();
        }
    }

    /// The reads from each cache and from the server, or from stores; files on this machine are not counted.
    pub(crate) fn read_statistics(&self) -> Vec<TierStatistics> {
        let Some((folder, caches)) = &self.server else {
            let in_stores = self.from_stores.statistics("stores");
            return if in_stores.bytes > 0 { vec![in_stores] } else { vec![] };
        };
        let mut rows = caches.statistics();
        match folder {
            ServerFolder::One(_) | ServerFolder::Site(_) => {
                rows.push(caches.server.statistics("server"))
            }
            ServerFolder::Several(group) => rows.extend(group.statistics()),
        }
        rows
    }

    /// Opens a database's file for reading and writing.
    pub(crate) fn open_to_write(&self, database: &DatabaseRow) -> Result<DatabaseFile> {
        match self.folder() {
            Some(server) => {
                let path = path_on_server(database);
                let file =
                    server.open_to_write(|folder| folder.open_to_write(&path, database.id))?;
                let known = self.recent_ranges(database.id, database.epoch).map(KnownFile::new);
                Ok(file.with_known(known))
            }
            None => DatabaseFile::open_to_write(self.path_of(database)),
        }
    }

    /// Creates the empty file of a new database, and its place if that does not exist; refuses to overwrite.
    pub(crate) fn create(&self, path: &str, database: DatabaseId) -> Result<DatabaseFile> {
        match self.folder() {
            Some(server) => {
                let home = self.catalog.server_of(database);
                let create = |folder: &RemoteFolder| folder.create(path, database, home.as_deref());
                let known = self.recent_ranges(database, 0).map(KnownFile::new);
                Ok(server.open_to_write(create)?.with_known(known))
            }
            None => {
                let path = self.catalog.folder().join(path);
                places::make_folder_of(&path)?;
                DatabaseFile::create(path)
            }
        }
    }

    /// Makes the creation of files durable. A server does that itself when a new file is synced.
    pub(crate) fn sync_folders<'a>(&self, new: impl Iterator<Item = &'a str>) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let above = new.flat_map(|path| Path::new(path).ancestors().skip(1));
        let folders: BTreeSet<&Path> = above.filter(|path| *path != Path::new("")).collect();
        let here = self.catalog.folder();
        folders.into_iter().try_for_each(|folder| file::sync_folder(&here.join(folder)))
    }

    /// The file of a database, opened again if it was closed.
    pub(super) fn file(&self, database: DatabaseId, at: Csn) -> Result<Arc<DatabaseFile>> {
        self.open.get_or_insert_with(&database, || {
            let row = self.catalog.database_by_id(database, at)?;
            self.open(&row)
        })
    }

    fn open(&self, database: &DatabaseRow) -> Result<Arc<DatabaseFile>> {
        Ok(Arc::new(match self.folder() {
            Some(server) => server.open(database)?,
            None => self.open_here(database)?,
        }))
    }

    fn archive(&self) -> Result<&Archive> {
        if let Some(archive) = self.archive.get() {
            return Ok(archive);
        }
        let archive = Archive::open(self.catalog.clone())?;
        Ok(self.archive.get_or_init(|| archive))
    }

    fn open_here(&self, database: &DatabaseRow) -> Result<DatabaseFile> {
        let open = || DatabaseFile::open(self.path_of(database));
        let failed = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            opened => return opened,
        };
        let reason = nearline::reason(&*self.catalog, database, failed);
        if let Error::Nearline { .. } = reason {
            let archive = self.archive()?;
            for replica in archive.in_place(database.id)? {
                if let Ok(store) = archive.at_hand(&replica) {
                    return Ok(StoredCopy::new(store, replica, database).into());
                }
            }
        }
        match (reason, self.staging.get()) {
            (Error::Nearline { .. }, Some(staging)) => {
                staging(&mut |watch| {
                    nearline::stage(&self.catalog, database, STAGED_BY_ANOTHER, watch)
                })?;
                open()
            }
            (reason, _) => Err(reason),
        }
    }
}
