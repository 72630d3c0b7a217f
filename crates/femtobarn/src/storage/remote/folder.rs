//! The files of a federation that a server has, over `root://`.
//!
//! 1. A path is below the federation's folder on the server; `fb.raw=1` asks for the file as it is
//!    rather than as the complete ROOT file that other clients are shown.
//! 2. What is read ahead comes over connections of its own, in turn, so that who reads what is needed now
//!    does not have to take it off the wire first, and several bursts are on their way at once.
//! 3. Writes are sent and not waited for; if one fails, the next operation tells it, the sync at the
//!    latest. A file that was written to and not synced fails for good if its connection is lost: the
//!    transaction fails, and nothing that it wrote is committed.
//! 4. Who writes names its session and the database. Once the session does not hold the database any more,
//!    the server refuses, and that is a conflict.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use femtobarn_catalog::DatabaseId;
use rntuple::ReadRequest;
use uuid::Uuid;
use xrd::client::blocking::{Client, File};
use xrd::client::{ClientError, Options, ReadPiece, Url};
use xrd::flags::OpenOptions;
use xrd::{ErrorCode, Location};

use crate::error::{Error, Result};

/// The folder of a federation on a server.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFolder {
    client: Client,
    /// Who writes.
    session: Option<Uuid>,
    ahead: Arc<Ahead>,
}

/// The connections for reading ahead, which are made when they are needed first.
#[derive(Debug)]
struct Ahead {
    url: Url,
    options: Options,
    /// None for one that cannot be made: then the first connection does for it.
    clients: Vec<OnceLock<Option<Client>>>,
    turn: AtomicUsize,
}

impl Ahead {
    fn new(url: Url, options: Options, streams: usize) -> Self {
        let clients = std::iter::repeat_with(OnceLock::new).take(streams).collect();
        Ahead { url, options, clients, turn: AtomicUsize::new(0) }
    }

    /// Whose turn it is.
    fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.clients.len().max(1)
    }

    fn client(&self, index: usize) -> Option<&Client> {
        let connect = || Client::connect(&self.url, self.options.clone()).ok();
        self.clients[index].get_or_init(connect).as_ref()
    }
}

/// A server that asks for patience, as one with slow disks does, gets as much as ever; one that says nothing
/// is waited for until the time-out.
fn options(timeout: Duration) -> Options {
    let usual = Options::default();
    Options {
        application: "femtobarn".to_owned(),
        connect_timeout: usual.connect_timeout.min(timeout),
        request_timeout: timeout,
        reconnect_timeout: timeout,
        patience: usual.patience.max(timeout),
        ..usual
    }
}

impl RemoteFolder {
    /// Connects to the server of `root://host:port//federation`; a session of its catalogue is needed to
    /// write. PrefetchPool come over so many connections more. A server that does not answer is waited for until the
    /// time-out.
    pub fn connect(
        url: &str,
        session: Option<Uuid>,
        streams: usize,
        timeout: Duration,
    ) -> Result<Self> {
        let failed = |error: ClientError| Error::io("connect to", Path::new(url), error.into_io());
        let url = Url::parse(url).map_err(|error| Error::invalid(error.to_string()))?;
        let options = options(timeout);
        let client = Client::connect(&url, options.clone()).map_err(failed)?;
        Ok(RemoteFolder { client, session, ahead: Arc::new(Ahead::new(url, options, streams)) })
    }

    /// The URL of a file, as if it were a path.
    pub fn path_of(&self, relative: &str) -> PathBuf {
        PathBuf::from(format!("{}/{relative}", self.client.url()))
    }

    /// Opens a file for reading.
    pub fn open(&self, relative: &str) -> Result<RemoteFile> {
        self.open_as("open", relative, OpenOptions::READ, "")
    }

    /// Opens a database's file for reading and writing.
    pub fn open_to_write(&self, relative: &str, database: DatabaseId) -> Result<RemoteFile> {
        self.open_as("open", relative, OpenOptions::UPDATE, &self.writer_of(database))
    }

    /// Creates the file of a new database; refuses to overwrite.
    pub fn create(&self, relative: &str, database: DatabaseId) -> Result<RemoteFile> {
        let options = OpenOptions::NEW | OpenOptions::UPDATE | OpenOptions::MAKE_PATH;
        self.open_as("create", relative, options, &self.writer_of(database))
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
                what: format!("file {} exists already; move it away", path.display()),
            },
            _ => Error::io(what, &path, told(error)),
        })?;
        Ok(RemoteFile {
            client: self.client.clone(),
            files_ahead: self.ahead.clients.iter().map(|_| OnceLock::new()).collect(),
            ahead: self.ahead.clone(),
            file,
            path,
            relative,
        })
    }

    fn location(&self, relative: &str, writer: &str) -> Result<Location> {
        let folder = String::from_utf8_lossy(self.client.url().location.path()).into_owned();
        let folder = folder.trim_end_matches('/');
        let location = Location::new(format!("{folder}/{relative}?fb.raw=1{writer}"));
        location.map_err(|error| Error::invalid(error.to_string()))
    }
}

/// A file of a server that is open.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Client,
    ahead: Arc<Ahead>,
    /// The same file over each connection for reading ahead.
    files_ahead: Box<[OnceLock<Option<File>>]>,
    file: File,
    path: PathBuf,
    relative: String,
}

impl RemoteFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path below the federation's folder.
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// Whether all that is done with it will fail.
    pub fn is_broken(&self) -> bool {
        self.file.is_broken()
    }

    pub fn size(&self) -> std::io::Result<u64> {
        Ok(self.file.stat().map_err(told)?.size)
    }

    /// Fills all requests.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        read_many(&self.file, requests)
    }

    /// Fills all requests ahead of their use.
    pub fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        read_many(self.file_ahead(), requests)
    }

    /// Reads ahead from `offset` on; fewer bytes than fit only at the end.
    pub fn read_ahead_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.file_ahead().read_at(offset, buffer).map_err(told)
    }

    fn file_ahead(&self) -> &File {
        let index = self.ahead.next();
        let Some(place) = self.files_ahead.get(index) else { return &self.file };
        let open = || self.ahead.client(index)?.open(self.file.location(), OpenOptions::READ).ok();
        place.get_or_init(open).as_ref().unwrap_or(&self.file)
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_later(offset, bytes).map_err(told)
    }

    pub fn resize(&self, size: u64) -> std::io::Result<()> {
        self.file.truncate(size).map_err(told)
    }

    /// Waits for the answers to what was written.
    pub fn settle(&self) -> std::io::Result<()> {
        self.file.settle().map_err(told)
    }

    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync().map_err(told)
    }

    /// Removes the file.
    pub fn remove(&self) -> std::io::Result<()> {
        self.client.rm(self.file.location()).map_err(told)
    }
}

fn read_many(file: &File, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
    let pieces = requests.iter_mut();
    let mut pieces: Vec<ReadPiece<'_>> = pieces
        .map(|request| ReadPiece { offset: request.offset, buffer: &mut *request.buffer })
        .collect();
    file.read_many(&mut pieces).map_err(told)
}

/// Converts a client's error: a lost lock becomes `Conflict`, a lost server says what has to be run again.
fn told(error: ClientError) -> std::io::Error {
    match error {
        // Only what changes files is lost so, and files count only as of a commit.
        ClientError::Lost { server, path, reason } => std::io::Error::new(
            std::io::ErrorKind::ConnectionReset,
            format!(
                "{server} was lost, {reason}; what was written to {path} and not committed is lost, too: \
                 run the transaction again"
            ),
        ),
        ClientError::Refused { code: ErrorCode::FILE_LOCKED, message, .. } => {
            std::io::Error::other(Error::Conflict { what: message })
        }
        other => other.into_io(),
    }
}
