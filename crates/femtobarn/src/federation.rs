//! A federation that is open: its catalogue, database files and caches, shared by all users in a process.
//!
//! 1. An extent writer is used by one transaction at a time; between transactions it is retained here.
//! 2. An extent writer is reused only in the epoch of the database that it was created in.
//! 3. This module imports no module that is built on the federation; the caches of those modules are in a
//!    [`CacheSlot`].

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use femtobarn_catalog::{
    Catalogue, CommitRow, Csn, DatabaseId, DatabaseRow, LocalCatalogue, LockGuard, LockTable,
    Retention, Role, TagRow,
};
use femtobarn_rpc::client::RemoteCatalogue;
use parking_lot::Mutex;
use rntuple::PageCache;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::storage::extent::ExtentWriter;
use crate::storage::open_files::{OpenDatabaseFiles, ServerFolder};
use crate::storage::remote::caches::RemoteCaches;
use crate::storage::remote::connect::connect_options;
use crate::storage::remote::folder::{RemoteFolder, ServerPatience};
use crate::storage::remote::servers::{self, CopiedCatalogue};
use crate::storage::remote::site::SiteFolder;
use crate::storage::remote::tier::TierStatistics;

/// Extent writers retained between transactions, at most; each has an open file and a buffer.
const UNFINISHED_EXTENTS_MAX: usize = 64;

/// An open federation. Clones share it.
#[derive(Clone)]
pub struct Federation {
    pub(crate) inner: Arc<Inner>,
}

/// The state that all handles of a federation in this process share.
pub(crate) struct Inner {
    pub catalog: Arc<dyn Catalogue>,
    pub pages: Arc<PageCache>,
    /// Bytes of retained versions and timelines.
    pub metadata_bytes: u64,
    /// Threads that read one large array.
    pub threads: usize,
    /// Owned by `read`.
    pub read_caches: CacheSlot,
    pub files: Arc<OpenDatabaseFiles>,
    /// Extent writers of finished transactions, the least recently used first.
    extents: Mutex<Vec<(DatabaseId, ExtentWriter)>>,
    /// Owned by `transaction`.
    pub writer_pool: CacheSlot,
    /// Owned by the crate that is built on this one.
    pub extension: CacheSlot,
}

/// A cache of a module built on the federation, which alone knows its type.
#[derive(Default)]
pub(crate) struct CacheSlot(OnceLock<Box<dyn Any + Send + Sync>>);

impl CacheSlot {
    /// The cache; `create` makes it at the first call.
    pub(crate) fn get_or_create<T: Send + Sync + 'static>(&self, create: impl FnOnce() -> T) -> &T {
        let cache = self.0.get_or_init(|| Box::new(create()));
        cache.downcast_ref().expect("one room uses a slot, with one type")
    }
}

impl Federation {
    /// Creates a federation in `folder`, which must not exist or be empty.
    ///
    /// # Errors
    /// `Exists` if the folder is a federation already; `Invalid` if it holds other files; `Io` if it cannot
    /// be created.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        Ok(Self::here(LocalCatalogue::create(folder, name)?, &OpenOptions::default()))
    }

    /// Creates a federation in `folder` whose catalogue is in PostgreSQL, in its own schema of the database that the
    /// URL names: `postgresql://user@host/database`.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create); `Invalid` if the URL cannot be parsed; `Unavailable` if the server does
    /// not answer; `Denied` if it refuses the log-in or a schema.
    pub fn create_in_postgres(folder: &Path, name: &str, url: &str) -> Result<Self> {
        let catalogue = LocalCatalogue::create_in_postgres(folder, name, url)?;
        Ok(Self::here(catalogue, &OpenOptions::default()))
    }

    /// Opens the federation in `folder`.
    ///
    /// # Errors
    /// `NotFound` if the folder holds no federation; `Unsupported` if its format is newer than this software; `Corrupt`
    /// if its catalogue is damaged.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_with(folder, OpenOptions::default())
    }

    /// Opens the federation in `folder` with options.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(folder: &Path, options: OpenOptions) -> Result<Self> {
        Ok(Self::here(LocalCatalogue::open(folder)?, &options))
    }

    /// Opens a federation on a server: `root://host:port//name`, or `roots://` for TLS. The bearer token is
    /// taken from where XRootD's clients look for one.
    ///
    /// # Errors
    /// `Invalid` if `url` has another form; `NotFound` if the server exports no such federation;
    /// `Unavailable` if the server does not answer or its certificate is not trusted; `Denied` if it refuses
    /// the client.
    pub fn open_url(url: &str, options: OpenOptions) -> Result<Self> {
        let catalogue = RemoteCatalogue::connect(url, &connect_options(options.timeout))?;
        Self::over_server(Arc::new(catalogue), url, options)
    }

    /// Opens a federation for reading from several servers that have copies of it. Each request goes to a lightly
    /// loaded server, and to another one if that fails. A copy that is behind gets no request for commits that it does
    /// not have yet.
    ///
    /// # Errors
    /// `Invalid` if `urls` is empty, a URL is malformed, or two URLs have different federations; the errors of
    /// [`open_url`](Self::open_url) if no server answers.
    pub fn open_urls(urls: &[String], options: OpenOptions) -> Result<Self> {
        if let [url] = urls {
            return Self::open_url(url, options);
        }
        let group = servers::open(urls, &options)?;
        let catalog = Arc::new(CopiedCatalogue { group: group.clone() });
        Self::with_servers(catalog, ServerFolder::Several(group), &options)
    }

    /// A federation whose catalogue the caller has connected to, and whose files are on a server:
    /// `root://host:port//federation`, or `roots://` for TLS.
    ///
    /// # Errors
    /// `Invalid` if `url` or an address of memcached has another form; `Unavailable` if the server does not
    /// answer; `Denied` if it refuses the client; `Io` if the disk cache cannot be opened.
    pub fn over_server(
        catalog: Arc<dyn Catalogue>,
        url: &str,
        options: OpenOptions,
    ) -> Result<Self> {
        if catalog.entry_url().is_some() {
            let folder = Arc::new(SiteFolder::connect(catalog.clone(), url, &options)?);
            return Self::with_servers(catalog, ServerFolder::Site(folder), &options);
        }
        let patience = ServerPatience::with_the_only_one(options.timeout);
        let mut folder = RemoteFolder::connect(url, catalog.session(), options.streams, patience)?;
        if !options.has_caches() {
            folder = folder.with_passed_files();
        }
        Self::with_servers(catalog, ServerFolder::One(folder), &options)
    }

    fn with_servers(
        catalog: Arc<dyn Catalogue>,
        folder: ServerFolder,
        options: &OpenOptions,
    ) -> Result<Self> {
        let caches = RemoteCaches::open(catalog.clone(), options)?;
        let files = OpenDatabaseFiles::on_servers(catalog.clone(), folder, caches, options);
        Ok(Self::over(catalog, files, options))
    }

    fn here(catalog: LocalCatalogue, options: &OpenOptions) -> Self {
        let catalog: Arc<dyn Catalogue> = Arc::new(catalog);
        Self::over(
            catalog.clone(),
            OpenDatabaseFiles::local(catalog, options.read_ahead_bytes),
            options,
        )
    }

    fn over(catalog: Arc<dyn Catalogue>, files: OpenDatabaseFiles, options: &OpenOptions) -> Self {
        Federation {
            inner: Arc::new(Inner {
                files: Arc::new(files),
                catalog,
                pages: Arc::new(PageCache::new(options.cache_bytes)),
                metadata_bytes: options.metadata_bytes,
                threads: options.threads,
                read_caches: CacheSlot::default(),
                extents: Mutex::default(),
                writer_pool: CacheSlot::default(),
                extension: CacheSlot::default(),
            }),
        }
    }

    /// The state that the crate built on this one keeps for the federation in this process; `create` makes it at the
    /// first call. A single crate may use it, with a single type.
    pub fn extension_cache<T: Send + Sync + 'static>(&self, create: impl FnOnce() -> T) -> &T {
        self.inner.extension.get_or_create(create)
    }

    /// Bytes of the timelines that a crate which is built on this one may keep: its part of
    /// [`OpenOptions::metadata_bytes`].
    pub fn timeline_bytes(&self) -> u64 {
        self.inner.metadata_bytes / 3 * 2
    }

    /// Empties the page cache; later reads go to the disk.
    pub fn release_pages(&self) {
        self.inner.pages.clear();
        self.inner.files.forget_recent();
    }

    /// Releases the space that transactions allocated in files and did not use.
    pub fn release_extents(&self) {
        self.inner.finish_all_extents();
    }

    /// Writes back to the database files all bytes that are durable only in the catalogue, so that the folder may be
    /// moved or copied. Dropping the federation does the same, but snapshots may keep it alive. Does nothing for a
    /// federation on a server.
    pub fn end_writes(&self) {
        if let Ok(catalog) = self.inner.local() {
            catalog.end_writes();
        }
    }

    /// Publishes the disk cache's new entries to other processes.
    pub fn publish_disk_cache(&self) {
        self.inner.files.publish_disk_cache();
    }

    /// The reads from each cache and from the server, in the order in which these are asked. For a federation in a
    /// folder, the reads from stores.
    pub fn read_statistics(&self) -> Vec<TierStatistics> {
        self.inner.files.read_statistics()
    }

    /// The federation's folder, or its URL as a path if it is on a server.
    pub fn folder(&self) -> &Path {
        self.inner.catalog.folder()
    }

    /// The name given at creation.
    pub fn name(&self) -> &str {
        self.inner.catalog.name()
    }

    /// The UUID given at creation.
    pub fn uuid(&self) -> Uuid {
        self.inner.catalog.uuid()
    }

    /// The catalogue, for direct queries.
    pub fn catalog(&self) -> &dyn Catalogue {
        &*self.inner.catalog
    }

    /// The newest commit.
    ///
    /// # Errors
    /// `Unavailable` if the catalogue's server does not answer; `Io` if the catalogue cannot be read.
    pub fn head(&self) -> Result<Csn> {
        Ok(self.inner.catalog.head()?)
    }

    /// The newest `limit` commits, newest first.
    ///
    /// # Errors
    /// The errors of [`head`](Self::head).
    pub fn history(&self, limit: u64) -> Result<Vec<CommitRow>> {
        Ok(self.inner.catalog.history(limit)?)
    }

    /// Deletes a tag; the next vacuum may delete its snapshot.
    ///
    /// # Errors
    /// `NotFound`, with similar names.
    pub fn untag(&self, name: &str) -> Result<()> {
        Ok(self.catalog().drop_tag(name)?)
    }

    /// All tags, ordered by commit.
    ///
    /// # Errors
    /// The errors of [`head`](Self::head).
    pub fn tags(&self) -> Result<Vec<TagRow>> {
        Ok(self.catalog().tags()?)
    }

    /// The snapshots that vacuum keeps besides tagged and pinned ones; by default all snapshots.
    ///
    /// # Errors
    /// The errors of [`head`](Self::head).
    pub fn retention(&self) -> Result<Retention> {
        Ok(self.catalog().retention()?)
    }

    /// Sets which snapshots vacuum keeps besides tagged and pinned ones.
    ///
    /// # Errors
    /// `Invalid` if not even the newest commit would be kept; `Denied` if the federation is read-only.
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        Ok(self.catalog().set_retention(retention)?)
    }
}

impl Inner {
    /// The path of a database's file.
    pub(crate) fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        self.files.path_of(database)
    }

    /// The extent writer of a database: the one that an earlier transaction returned, or a new one. The
    /// caller holds a shared lock on the database and has read `database` since.
    pub(crate) fn take_extents(&self, database: &DatabaseRow) -> Result<ExtentWriter> {
        // The rest of an extent of an earlier epoch may belong to another writer.
        let left = self.remove_extents(database.id);
        if let Some(writer) =
            left.filter(|writer| writer.epoch() == database.epoch && writer.check_usable().is_ok())
        {
            return Ok(writer);
        }
        let file = Arc::new(self.files.open_to_write(database)?);
        ExtentWriter::new(file, database.id, database.epoch, self.catalog.clone())
    }

    /// Retains an extent writer for the next transaction. A second writer of one database is finished, and so
    /// is the least recently used one beyond [`UNFINISHED_EXTENTS_MAX`].
    pub(crate) fn return_extents(&self, database: DatabaseId, mut writer: ExtentWriter) {
        if writer.check_usable().is_err() {
            return;
        }
        let mut extents = self.extents.lock();
        if extents.iter().any(|(id, _)| *id == database) {
            drop(extents);
            // If the rest of its extent cannot be released now, it stays unused until a vacuum.
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

    /// Takes the exclusive lock of a database whose file is going to be changed, which excludes all transactions. No commit of a
    /// process that has died follows: the database has the versions that are read from now on, and no others.
    pub(crate) fn lock_alone(&self, database: DatabaseId, wait: Duration) -> Result<LockGuard> {
        self.check_writable()?;
        let lock = self.locks().owner().lock_database_exclusive(database, wait)?;
        self.local()?.end_lost_commits()?;
        Ok(lock)
    }

    /// Drops the extent writer of a database that takes no more writes, releases its space, and makes its file
    /// complete. The caller holds the database's exclusive lock.
    pub(crate) fn retire_extents(&self, database: DatabaseId) -> Result<()> {
        self.local()?.write_back()?;
        match self.remove_extents(database) {
            Some(writer) => self.trim_extents(database, writer),
            None => Ok(()),
        }
    }

    fn finish_all_extents(&self) {
        let left = std::mem::take(&mut *self.extents.lock());
        left.into_iter().for_each(|(database, writer)| self.finish_extents(database, writer));
    }

    /// Releases the space of an extent writer that no transaction continues. On failure the space stays
    /// unused until a vacuum.
    fn finish_extents(&self, database: DatabaseId, writer: ExtentWriter) {
        // Closing must not wait for an unreachable server.
        if !self.catalog.is_reachable() {
            return;
        }
        if let Ok(_lock) = self.locks().owner().share_database(database, Duration::ZERO) {
            drop(self.trim_extents(database, writer));
        }
    }

    /// The caller holds a lock on the database.
    fn trim_extents(&self, database: DatabaseId, mut writer: ExtentWriter) -> Result<()> {
        // The rest of an extent of an earlier epoch may belong to another writer.
        if self.catalog.database_by_id(database, Csn::MAX)?.epoch == writer.epoch() {
            writer.trim()
        } else {
            Ok(())
        }
    }

    /// Checks, before files are changed, that they may be: a follower's files hold its leader's bytes.
    ///
    /// # Errors
    /// `Denied`, with a remedy.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.catalog.is_read_only() {
            return Ok(());
        }
        let role = self.catalog.local().and_then(LocalCatalogue::role).unwrap_or(Role::Leader);
        let why = match role {
            Role::Leader => String::new(),
            Role::Follower { of } => format!(
                " here: it follows {of}; make changes there, or promote the copy (femtobarn promote)"
            ),
            Role::Succeeded { by } => format!(" here: {by} leads it now; make changes there"),
        };
        let what = format!("federation {} is read-only{why}", self.catalog.folder().display());
        Err(Error::Denied { what })
    }

    pub(crate) fn locks(&self) -> LockTable {
        self.catalog.locks()
    }

    /// The local catalogue.
    ///
    /// # Errors
    /// `Unsupported` if the federation is on a server.
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
        self.catalog.begin_close();
        self.finish_all_extents();
    }
}
