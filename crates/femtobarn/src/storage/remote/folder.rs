//! The folder of a federation on a server, and its files, over `root://`.
//!
//! 1. A path is relative to the federation's folder on the server. `fb.raw=1` asks for the file as it is
//!    stored, rather than the complete ROOT file that other clients are shown.
//! 2. Prefetches use connections of their own, in turn. So a read that is needed now does not wait for them, and
//!    several are in flight at once.
//! 3. Writes are sent without waiting for their acknowledgement. If one fails, a later operation returns the error, the
//!    sync at the latest. A file with unsynced writes fails permanently if its connection is lost: then the transaction
//!    fails, and none of its writes is committed.
//! 4. A writer names its session and the database. Once the session no longer holds the database, the server refuses
//!    writes, which is a conflict.
//! 5. A server on this machine is asked to pass the files that are opened for reading, unless the federation has caches
//!    that should be read.
//! 6. If the federation has several servers, a server redirects the client to the home of the database. The file of a
//!    new database has no home yet, so its creator names the server that has its lock: `fb.home`.
//! 7. The hints of the federation's URL are given to the server whenever a file is opened.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, DatabaseRow};
use rntuple::ReadRequest;
use uuid::Uuid;
use xrd::client::blocking::{Client, File};
use xrd::client::{ClientError, Options, ReadPiece, Url};
use xrd::flags::OpenOptions;
use xrd::{ErrorCode, Location};

use super::passed_file::PassedFiles;
use super::server_file::ServerFile;
use crate::error::{Error, Result};

/// The hints that a federation's URL may have for the opens of its files.
const HINTS: [&[u8]; 3] = [b"fb.access", b"fb.priority", b"fb.deadline"];

/// The folder of a federation on a server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFolder {
    client: Client,
    /// The session of the catalogue that writes belong to.
    session: Option<Uuid>,
    prefetch: Arc<PrefetchConnections>,
    /// `None` if files are read by requests alone.
    passed: Option<Arc<PassedFiles>>,
}

/// The connections for prefetching, each made at its first use.
#[derive(Debug)]
struct PrefetchConnections {
    url: Url,
    options: Options,
    /// `None` for one that could not be made; the first connection is used instead.
    clients: Vec<OnceLock<Option<Client>>>,
    turn: AtomicUsize,
}

impl PrefetchConnections {
    fn new(url: Url, options: Options, streams: usize) -> Self {
        let clients = std::iter::repeat_with(OnceLock::new).take(streams).collect();
        PrefetchConnections { url, options, clients, turn: AtomicUsize::new(0) }
    }

    /// The index of the connection whose turn it is.
    fn next_index(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.clients.len().max(1)
    }

    fn client(&self, index: usize) -> Option<&Client> {
        let connect = || Client::connect(&self.url, self.options.clone()).ok();
        self.clients[index].get_or_init(connect).as_ref()
    }
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPatience {
    /// While it does not answer any request.
    pub silent: Duration,
    /// While it cannot be connected to again.
    pub gone: Duration,
    /// While it asks the client to wait, as a server with slow disks does.
    pub slow: Duration,
    /// While its answer arrives slowly; `None` to wait as long as bytes arrive.
    pub dripping: Option<Duration>,
}

impl ServerPatience {
    /// For the only server of a federation.
    pub(crate) fn with_the_only_one(timeout: Duration) -> Self {
        let slow = Options::default().patience.max(timeout);
        ServerPatience { silent: timeout, gone: timeout, slow, dripping: None }
    }

    fn options(self) -> Options {
        let usual = Options::default();
        Options {
            application: "femtobarn".to_owned(),
            connect_timeout: usual.connect_timeout.min(self.silent),
            request_timeout: self.silent,
            reconnect_timeout: self.gone,
            patience: self.slow,
            answer_timeout: self.dripping,
            ..usual
        }
    }
}

/// The path of a database's file below the federation's folder on a server. A file that was attached from
/// outside the folder has the database's name there.
pub(crate) fn path_on_server(database: &DatabaseRow) -> String {
    if Path::new(&database.path).is_absolute() {
        format!("{}.root", database.name)
    } else {
        database.path.clone()
    }
}

impl RemoteFolder {
    /// Connects to the server of `root://host:port//federation`. Writing needs a session of its catalogue.
    /// `streams` is the number of connections for prefetching.
    pub(crate) fn connect(
        url: &str,
        session: Option<Uuid>,
        streams: usize,
        patience: ServerPatience,
    ) -> Result<Self> {
        let failed = |error: ClientError| Error::io("connect to", Path::new(url), error.into_io());
        let url = Url::parse(url).map_err(|error| Error::invalid(error.to_string()))?;
        let options = patience.options();
        let client = Client::connect(&url, options.clone()).map_err(failed)?;
        let prefetch = Arc::new(PrefetchConnections::new(url, options, streams));
        Ok(RemoteFolder { client, session, prefetch, passed: None })
    }

    /// Reads files without the server if that is on this machine and passes them.
    pub(crate) fn with_passed_files(self) -> Self {
        RemoteFolder { passed: Some(Arc::default()), ..self }
    }

    /// The URL of a file, in the form of a path.
    pub(crate) fn path_of(&self, relative: &str) -> PathBuf {
        PathBuf::from(format!("{}/{relative}", self.client.url()))
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, relative: &str) -> Result<RemoteFile> {
        let mut file = self.open_as("open", relative, OpenOptions::READ, "")?;
        file.passed = self.passed.as_ref().and_then(|passed| passed.request(&file.file));
        Ok(file)
    }

    /// Opens the file of the database that has a name as of a commit.
    pub(crate) fn open_as_of(&self, relative: &str, at: Csn) -> Result<RemoteFile> {
        self.open_as("open", relative, OpenOptions::READ, &format!("&fb.csn={at}"))
    }

    /// Opens a database's file for reading and writing.
    pub(crate) fn open_to_write(&self, relative: &str, database: DatabaseId) -> Result<RemoteFile> {
        self.open_as("open", relative, OpenOptions::UPDATE, &self.writer_of(database))
    }

    /// Creates the file of a new database, at the server `home` if the federation has several; refuses to overwrite.
    pub(crate) fn create(
        &self,
        relative: &str,
        database: DatabaseId,
        home: Option<&str>,
    ) -> Result<RemoteFile> {
        let options = OpenOptions::NEW | OpenOptions::UPDATE | OpenOptions::MAKE_PATH;
        let mut writer = self.writer_of(database);
        writer.extend(home.map(|home| format!("&fb.home={home}")));
        self.open_as("create", relative, options, &writer)
    }

    fn writer_of(&self, database: DatabaseId) -> String {
        match self.session {
            Some(session) => format!("&fb.database={database}&fb.session={session}"),
            None => format!("&fb.database={database}"),
        }
    }

    fn open_as(
        &self,
        what: &str,
        relative: &str,
        options: OpenOptions,
        writer: &str,
    ) -> Result<RemoteFile> {
        let (path, relative) = (self.path_of(relative), relative.to_owned());
        let location = self.location(&relative, writer)?;
        let opened = self.client.open(&location, options);
        let file = opened.map_err(|error| match error.code() {
            Some(ErrorCode::IT_EXISTS) => Error::Exists {
                what: format!("file {} exists already; move it elsewhere", path.display()),
            },
            _ => Error::io(what, &path, io_error(error)),
        })?;
        Ok(RemoteFile {
            client: self.client.clone(),
            prefetch_files: self.prefetch.clients.iter().map(|_| OnceLock::new()).collect(),
            prefetch: self.prefetch.clone(),
            file,
            passed: None,
            path,
            relative,
        })
    }

    fn location(&self, relative: &str, writer: &str) -> Result<Location> {
        let url = &self.client.url().location;
        let folder = String::from_utf8_lossy(url.path());
        let folder = folder.trim_end_matches('/');
        let mut text = format!("{folder}/{relative}?fb.raw=1{writer}").into_bytes();
        for (key, value) in url.pairs().filter(|(key, _)| HINTS.contains(key)) {
            let pair: [&[u8]; 4] = [b"&", key, b"=", value];
            text.extend(pair.concat());
        }
        let location = Location::new(text);
        location.map_err(|error| Error::invalid(error.to_string()))
    }
}

/// A file on a server that is open.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Client,
    prefetch: Arc<PrefetchConnections>,
    /// The same file over each connection for prefetching.
    prefetch_files: Box<[OnceLock<Option<File>>]>,
    file: File,
    /// The file itself, if the server has passed it.
    passed: Option<std::fs::File>,
    path: PathBuf,
    relative: String,
}

impl RemoteFile {
    fn prefetch_file(&self) -> &File {
        let index = self.prefetch.next_index();
        let Some(file) = self.prefetch_files.get(index) else { return &self.file };
        let open =
            || self.prefetch.client(index)?.open(self.file.location(), OpenOptions::READ).ok();
        file.get_or_init(open).as_ref().unwrap_or(&self.file)
    }
}

impl ServerFile for RemoteFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn relative(&self) -> &str {
        &self.relative
    }

    fn passed(&self) -> Option<&std::fs::File> {
        self.passed.as_ref()
    }

    fn size(&self, _at: Csn) -> std::io::Result<u64> {
        Ok(self.file.stat().map_err(io_error)?.size)
    }

    fn read_many(&self, _at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        read_many(&self.file, requests)
    }

    fn read_ahead(&self, _at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        read_many(self.prefetch_file(), requests)
    }

    fn read_ahead_at(&self, _at: Csn, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.prefetch_file().read_at(offset, buffer).map_err(io_error)
    }

    fn is_broken(&self) -> bool {
        self.file.is_broken()
    }

    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_later(offset, bytes).map_err(io_error)
    }

    fn resize(&self, size: u64) -> std::io::Result<()> {
        self.file.truncate(size).map_err(io_error)
    }

    fn settle(&self) -> std::io::Result<()> {
        self.file.settle().map_err(io_error)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.file.sync().map_err(io_error)
    }

    fn remove(&self) -> std::io::Result<()> {
        self.client.rm(self.file.location()).map_err(io_error)
    }
}

fn read_many(file: &File, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
    let pieces = requests.iter_mut();
    let mut pieces: Vec<ReadPiece<'_>> = pieces
        .map(|request| ReadPiece { offset: request.offset, buffer: &mut *request.buffer })
        .collect();
    file.read_many(&mut pieces).map_err(io_error)
}

/// Converts a client's error. A lost lock becomes [`Error::Conflict`]; the error for lost writes asks to run the
/// transaction again.
fn io_error(error: ClientError) -> std::io::Error {
    match error {
        // Only writes are lost in this way, and readers see only committed bytes.
        ClientError::Lost { server, path, reason } => std::io::Error::new(
            std::io::ErrorKind::ConnectionReset,
            format!(
                "connection to {server} lost, {reason}: uncommitted writes to {path} are lost; \
                 run the transaction again"
            ),
        ),
        ClientError::Refused { code: ErrorCode::FILE_LOCKED, message, .. } => {
            std::io::Error::other(Error::Conflict { what: message })
        }
        other => other.into_io(),
    }
}
