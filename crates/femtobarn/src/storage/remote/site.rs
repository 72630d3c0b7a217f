//! The folder of a federation that has several servers, and its files.
//!
//! 1. Files are opened at the server of the catalogue's session, which redirects the client to the home of the
//!    database. If that session moves to another server, so do the next opens.
//! 2. A reader whose server fails opens the file again, until the time-out: the database may have another home by then.
//! 3. A server keeps serving a file that was open when its database moved to another home, but without the bytes of
//!    later commits. So a reader asks for the home once for each commit that is newer than those that it has read, and
//!    opens the file again if the home has changed.
//! 4. A writer does not reopen a file: its unsynced writes may be lost, so its transaction fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Csn, DatabaseId, DatabaseRow, ErrorKind, clock};
use parking_lot::Mutex;
use rntuple::ReadRequest;

use super::folder::{RemoteFile, RemoteFolder, ServerPatience, path_on_server};
use super::server_file::{ServerFile, into_io, may_answer_later};
use crate::error::{Error, Result};
use crate::options::OpenOptions;

/// The longest time to wait for a silent server before the file is opened again.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The longest time to wait for a server that cannot be connected to.
const ABSENCE_MAX: Duration = Duration::from_secs(1);
/// The pause before a file is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// The folder of a federation that has several servers.
pub(crate) struct SiteFolder {
    catalog: Arc<dyn Catalogue>,
    options: OpenOptions,
    patience: ServerPatience,
    /// The folder at the server of the catalogue's session, with its URL.
    entry: Mutex<(String, RemoteFolder)>,
}

impl SiteFolder {
    /// Connects to the server of the catalogue's session.
    ///
    /// # Errors
    /// The errors of [`RemoteFolder::connect`].
    pub(crate) fn connect(
        catalog: Arc<dyn Catalogue>,
        url: &str,
        options: &OpenOptions,
    ) -> Result<Self> {
        let timeout = options.timeout;
        let patience = ServerPatience {
            silent: timeout.min(SILENCE_MAX),
            gone: timeout.min(ABSENCE_MAX),
            ..ServerPatience::with_the_only_one(timeout)
        };
        let folder = connect(&*catalog, url, options, patience)?;
        let entry = Mutex::new((url.to_owned(), folder));
        Ok(SiteFolder { catalog, options: options.clone(), patience, entry })
    }

    /// The folder at the server that has the catalogue's session now.
    fn entry(&self) -> Result<RemoteFolder> {
        let mut entry = self.entry.lock();
        match self.catalog.entry_url() {
            Some(url) if url != entry.0 => {
                let folder = connect(&*self.catalog, &url, &self.options, self.patience)?;
                *entry = (url, folder.clone());
                Ok(folder)
            }
            _ => Ok(entry.1.clone()),
        }
    }

    /// The epoch of the home of a database; 0 if it has none.
    fn epoch_of_home(&self, database: DatabaseId) -> Result<u64> {
        Ok(self.catalog.home(database)?.map_or(0, |home| home.epoch))
    }

    /// Opens a file at the session's server, which may be another one by the time that one answers.
    ///
    /// # Errors
    /// The errors of `open`; after the time-out the last one.
    pub(crate) fn open_file<T>(&self, open: impl Fn(&RemoteFolder) -> Result<T>) -> Result<T> {
        let is_temporary = |error: &Error| match error {
            Error::Io { source, .. } => may_answer_later(source),
            other => other.kind() == ErrorKind::Unavailable,
        };
        self.until_answered(is_temporary, || open(&self.entry()?))
    }

    /// Repeats a request that no server answers until the time-out.
    fn until_answered<T, E>(
        &self,
        is_temporary: impl Fn(&E) -> bool,
        mut ask: impl FnMut() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let deadline = clock::now() + self.options.timeout;
        loop {
            match ask() {
                Err(error) if is_temporary(&error) && clock::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// The URL of a file, in the form of a path.
    pub(crate) fn path_of(&self, relative: &str) -> PathBuf {
        self.entry.lock().1.path_of(relative)
    }
}

fn connect(
    catalog: &dyn Catalogue,
    url: &str,
    options: &OpenOptions,
    patience: ServerPatience,
) -> Result<RemoteFolder> {
    let folder = RemoteFolder::connect(url, catalog.session(), options.streams, patience)?;
    Ok(if options.has_caches() { folder } else { folder.with_passed_files() })
}

/// A file that is read at the home of its database.
pub(crate) struct SiteFile {
    folder: Arc<SiteFolder>,
    database: DatabaseId,
    path: PathBuf,
    relative: String,
    open: Mutex<FileAtHome>,
}

/// The file at the home of its database.
struct FileAtHome {
    file: Arc<RemoteFile>,
    /// The epoch of the home before the file was opened, so this is the file of that home or of a later one.
    epoch: u64,
    /// The file has all bytes that commits up to this one refer to.
    complete_to: Csn,
}

impl SiteFile {
    /// Opens the file of a database.
    pub(crate) fn open(folder: &Arc<SiteFolder>, database: &DatabaseRow) -> Result<Self> {
        let relative = path_on_server(database);
        let open = folder.open_file(|entry| {
            let epoch = folder.epoch_of_home(database.id)?;
            let file = Arc::new(entry.open(&relative)?);
            Ok(FileAtHome { file, epoch, complete_to: Csn::ZERO })
        })?;
        Ok(SiteFile {
            folder: Arc::clone(folder),
            database: database.id,
            path: folder.path_of(&relative),
            relative,
            open: Mutex::new(open),
        })
    }

    /// Reads; if the server does not answer, opens the file again at the home that the catalogue then names.
    fn read<T>(
        &self,
        at: Csn,
        mut read: impl FnMut(&RemoteFile) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let mut failed = None;
        self.folder.until_answered(may_answer_later, || {
            let file = match failed.take() {
                None => self.complete_to(at).map_err(into_io)?,
                Some(old) => self.open_again(&old, at).map_err(into_io)?,
            };
            let answer = read(&file);
            failed = answer.is_err().then_some(file);
            answer
        })
    }

    /// The file with all bytes that a commit refers to; with `Csn::MAX`, as writers read, the file as it was opened.
    fn complete_to(&self, at: Csn) -> Result<Arc<RemoteFile>> {
        let (file, epoch) = {
            let open = self.open.lock();
            if at == Csn::MAX || at <= open.complete_to {
                return Ok(Arc::clone(&open.file));
            }
            (Arc::clone(&open.file), open.epoch)
        };
        if self.folder.epoch_of_home(self.database)? != epoch {
            return self.open_again(&file, at);
        }
        let mut open = self.open.lock();
        if Arc::ptr_eq(&open.file, &file) {
            open.complete_to = open.complete_to.max(at);
        }
        Ok(Arc::clone(&open.file))
    }

    /// Opens the file in the place of `old`, unless another thread has done so.
    fn open_again(&self, old: &Arc<RemoteFile>, at: Csn) -> Result<Arc<RemoteFile>> {
        let mut open = self.open.lock();
        if Arc::ptr_eq(&open.file, old) {
            let row = self.folder.catalog.database_by_id(self.database, at)?;
            let epoch = self.folder.epoch_of_home(self.database)?;
            let file = Arc::new(self.folder.entry()?.open(&path_on_server(&row))?);
            *open = FileAtHome { file, epoch, complete_to: Csn::ZERO };
        }
        Ok(Arc::clone(&open.file))
    }
}

impl ServerFile for SiteFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn relative(&self) -> &str {
        &self.relative
    }

    fn size(&self, at: Csn) -> std::io::Result<u64> {
        self.read(at, |file| file.size(at))
    }

    fn read_many(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        self.read(at, |file| file.read_many(at, requests))
    }

    fn read_ahead(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        self.read(at, |file| file.read_ahead(at, requests))
    }

    fn read_ahead_at(&self, at: Csn, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.read(at, |file| file.read_ahead_at(at, offset, buffer))
    }
}

impl std::fmt::Debug for SiteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteFile").field("path", &self.path).finish_non_exhaustive()
    }
}
