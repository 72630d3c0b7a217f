//! A federation: its catalogue, and what a process keeps open of its files.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use femtobarn_catalog::{
    Catalogue, CommitRow, Csn, DatabaseId, DatabaseRow, LocalCatalogue, LockTable, Retention,
    TagRow,
};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use parking_lot::Mutex;
use rntuple::PageCache;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::storage::extent::ExtentWriter;
use crate::storage::open_files::OpenFiles;
use crate::storage::remote::disk_cache::DiskCache;
use crate::storage::remote::folder::RemoteFolder;

/// Databases whose unfinished extents a process keeps; each has a file open and a buffer.
const UNFINISHED_EXTENTS_MAX: usize = 64;

/// A federation that is open. Cloning it is cheap and gives the same federation.
#[derive(Clone)]
pub struct Federation {
    pub(crate) inner: Arc<Inner>,
}

/// What all users of a federation in this process share.
pub(crate) struct Inner {
    pub catalog: Arc<dyn Catalogue>,
    pub pages: Arc<PageCache>,
    /// Threads that read a large array.
    pub threads: usize,
    /// Owned by `read`.
    pub read_caches: CacheSlot,
    pub files: Arc<OpenFiles>,
    /// Extents that transactions left unfinished, for the next one to go on with; those that were
    /// used last come last.
    extents: Mutex<Vec<(DatabaseId, ExtentWriter)>>,
    /// Owned by `transaction`.
    pub writer_pool: CacheSlot,
}

/// A cache of a room above this one, which alone knows its type. So the federation outlives what is
/// retained, and imports nothing of the rooms that are built on it.
#[derive(Default)]
pub(crate) struct CacheSlot(OnceLock<Box<dyn Any + Send + Sync>>);

impl CacheSlot {
    /// The cache, created by its first user.
    pub(crate) fn get_or_create<T: Send + Sync + 'static>(&self, create: impl FnOnce() -> T) -> &T {
        let cache = self.0.get_or_init(|| Box::new(create()));
        cache.downcast_ref().expect("one room uses a slot, with one type")
    }
}

impl Federation {
    /// Creates a federation in a folder that must not exist or be empty.
    ///
    /// # Errors
    /// `Exists` if there is a federation already; `Invalid` if the folder holds something else.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        Ok(Self::here(LocalCatalogue::create(folder, name)?, &OpenOptions::default()))
    }

    /// Opens the federation in a folder.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Unsupported` if it is of a newer format; `Corrupt` if its
    /// catalogue is damaged.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_with(folder, OpenOptions::default())
    }

    /// Opens the federation in a folder with other than the default options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(folder: &Path, options: OpenOptions) -> Result<Self> {
        Ok(Self::here(LocalCatalogue::open(folder)?, &options))
    }

    /// Opens a federation that a server has: `root://host:port//name`, or `roots://` for TLS. A bearer
    /// token is found where XRootD's clients look for one.
    ///
    /// # Errors
    /// `Invalid` if that is no such URL; `NotFound` if the server has no such federation; `Unavailable` if
    /// the server cannot be reached, or its certificate is not trusted; `Denied` if it does not let the caller
    /// in.
    pub fn open_url(url: &str, options: OpenOptions) -> Result<Self> {
        let connect = ConnectOptions { patience: options.timeout, ..ConnectOptions::default() };
        let catalogue = RemoteCatalogue::connect(url, &connect)?;
        Self::over_server(Arc::new(catalogue), url, options)
    }

    /// The federation of a catalogue whose files a server has: `root://host:port//federation`, or
    /// `roots://` for TLS.
    ///
    /// # Errors
    /// `Invalid` if that is no such URL; `Unavailable` if the server cannot be reached; `Denied` if it refuses.
    pub fn over_server(
        catalog: Arc<dyn Catalogue>,
        url: &str,
        options: OpenOptions,
    ) -> Result<Self> {
        let folder =
            RemoteFolder::connect(url, catalog.session(), options.streams, options.timeout)?;
        let keep = |disk: &PathBuf| {
            DiskCache::open(disk, catalog.uuid(), options.disk_cache_bytes)
                .map_err(|error| Error::io("make the folder", disk, error))
        };
        let disk = options.disk_cache.as_ref().map(keep).transpose()?;
        let files = OpenFiles::on_server(catalog.clone(), folder, disk, options.read_ahead_bytes);
        Ok(Self::over(catalog, files, &options))
    }

    fn here(catalog: LocalCatalogue, options: &OpenOptions) -> Self {
        let catalog: Arc<dyn Catalogue> = Arc::new(catalog);
        Self::over(catalog.clone(), OpenFiles::here(catalog), options)
    }

    fn over(catalog: Arc<dyn Catalogue>, files: OpenFiles, options: &OpenOptions) -> Self {
        Federation {
            inner: Arc::new(Inner {
                files: Arc::new(files),
                catalog,
                pages: Arc::new(PageCache::new(options.cache_bytes)),
                threads: options.threads,
                read_caches: CacheSlot::default(),
                extents: Mutex::default(),
                writer_pool: CacheSlot::default(),
            }),
        }
    }

    /// Gives the memory of cached pages back; those that are read again come from the disk.
    pub fn release_pages(&self) {
        self.inner.pages.clear();
    }

    /// Gives back the space that transactions took of files and did not use; the next ones take new.
    pub fn release_extents(&self) {
        self.inner.finish_all_extents();
    }

    /// Makes what was read from a server and is kept on a disk known to other processes.
    pub fn publish_disk_cache(&self) {
        self.inner.files.publish_disk_cache();
    }

    /// The federation's folder; its URL, as if it were one, if that is elsewhere.
    pub fn folder(&self) -> &Path {
        self.inner.catalog.folder()
    }

    /// The name that the federation was created with.
    pub fn name(&self) -> &str {
        self.inner.catalog.name()
    }

    /// The federation's identity.
    pub fn uuid(&self) -> Uuid {
        self.inner.catalog.uuid()
    }

    /// The catalogue, for those who want its tables.
    pub fn catalog(&self) -> &dyn Catalogue {
        &*self.inner.catalog
    }

    /// The newest commit.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn head(&self) -> Result<Csn> {
        Ok(self.inner.catalog.head()?)
    }

    /// The newest commits, the newest first.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn history(&self, limit: u64) -> Result<Vec<CommitRow>> {
        Ok(self.inner.catalog.history(limit)?)
    }

    /// Takes a tag away; its snapshot may go with the next vacuum.
    ///
    /// # Errors
    /// `NotFound`, with names that are like it.
    pub fn untag(&self, name: &str) -> Result<()> {
        Ok(self.catalog().drop_tag(name)?)
    }

    /// All tags, in the order of their commits.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn tags(&self) -> Result<Vec<TagRow>> {
        Ok(self.catalog().tags()?)
    }

    /// What vacuum keeps besides tags and what is being read; everything unless it was set.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn retention(&self) -> Result<Retention> {
        Ok(self.catalog().retention()?)
    }

    /// Sets what vacuum keeps besides tags and what is being read.
    ///
    /// # Errors
    /// `Invalid` if not even the newest commit were kept.
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        Ok(self.catalog().set_retention(retention)?)
    }
}

impl Inner {
    /// Where a database's file is.
    pub(crate) fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        self.files.path_of(database)
    }

    /// The writer of a database: the one that an earlier transaction left, or a new one. The caller
    /// shares the database, and has looked at its row since.
    pub(crate) fn take_extents(&self, database: &DatabaseRow) -> Result<ExtentWriter> {
        // What was left over in an earlier epoch may be somebody else's by now.
        let left = self.remove_extents(database.id);
        if let Some(writer) =
            left.filter(|writer| writer.epoch() == database.epoch && writer.check_usable().is_ok())
        {
            return Ok(writer);
        }
        let file = Arc::new(self.files.open_to_write(database)?);
        ExtentWriter::new(file, database.id, database.epoch, self.catalog.clone())
    }

    /// Takes a writer back. Of two writers of one database, the second is done; and so is the one
    /// that was used least lately, if there are too many.
    pub(crate) fn return_extents(&self, database: DatabaseId, mut writer: ExtentWriter) {
        if writer.check_usable().is_err() {
            return;
        }
        let mut extents = self.extents.lock();
        if extents.iter().any(|(id, _)| *id == database) {
            drop(extents);
            // The space at the end of its extent stays unused if it cannot be given back now.
            drop(writer.trim());
            return;
        }
        extents.push((database, writer));
        let surplus = (extents.len() > UNFINISHED_EXTENTS_MAX).then(|| extents.remove(0));
        drop(extents);
        if let Some((database, writer)) = surplus {
            self.finish_extents(database, writer);
        }
    }

    /// Forgets the writer of a database that will take no more, and gives its space back. The
    /// caller has locked the database.
    pub(crate) fn retire_extents(&self, database: DatabaseId) -> Result<()> {
        match self.remove_extents(database) {
            Some(writer) => self.trim_extents(database, writer),
            None => Ok(()),
        }
    }

    fn finish_all_extents(&self) {
        let left = std::mem::take(&mut *self.extents.lock());
        left.into_iter().for_each(|(database, writer)| self.finish_extents(database, writer));
    }

    /// Gives the space of a writer back that nobody goes on with. What cannot be given back now stays
    /// unused; nothing is lost.
    fn finish_extents(&self, database: DatabaseId, writer: ExtentWriter) {
        // A server that is gone is not waited for only to tidy up.
        if !self.catalog.is_reachable() {
            return;
        }
        if let Ok(_lock) = self.locks().owner().share_database(database, Duration::ZERO) {
            drop(self.trim_extents(database, writer));
        }
    }

    /// The caller has locked the database.
    fn trim_extents(&self, database: DatabaseId, mut writer: ExtentWriter) -> Result<()> {
        // What was left over in an earlier epoch may be somebody else's by now.
        if self.catalog.database_by_id(database, Csn::MAX)?.epoch == writer.epoch() {
            writer.trim()
        } else {
            Ok(())
        }
    }

    pub(crate) fn locks(&self) -> LockTable {
        self.catalog.locks()
    }

    /// The catalogue, for what is done only where the federation's folder is.
    pub(crate) fn local(&self) -> Result<&LocalCatalogue> {
        Ok(self.catalog.local()?)
    }

    fn remove_extents(&self, database: DatabaseId) -> Option<ExtentWriter> {
        let mut extents = self.extents.lock();
        let place = extents.iter().position(|(id, _)| *id == database)?;
        Some(extents.remove(place).1)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.finish_all_extents();
    }
}
