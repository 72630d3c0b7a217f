//! The origin: files of another server, over `root://`.
//!
//! An origin that did not answer counts as offline for [`RECONNECT`]: calls during that time fail at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use xrd::client::{Client, ClientError, File, Options, Url};
use xrd::flags::{DirlistOptions, OpenOptions, StatFlags};
use xrd::response::{DirectoryList, StatLine};
use xrd::{ErrorCode, Location};

use super::header::Version;
use super::pages::SIZE_MAX;
use crate::physical::{FileKind, Metadata, Opaque, StorageError, StoragePath, StorageResult};

/// Connections to the origin, over which files are spread.
pub(super) const CONNECTIONS: usize = 4;
/// The longest wait of a call for the origin, with all reconnections and the origin's own waits.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a call tries to reach an origin that disconnected.
const RECONNECT: Duration = Duration::from_secs(10);
/// When a client may retry if the origin makes it wait for longer.
const COME_AGAIN: Duration = Duration::from_secs(10);

/// The origin, and the tasks that communicate with it.
#[derive(Debug)]
pub(super) struct Origin {
    url: Url,
    /// `None` while the origin is dropped.
    runtime: Option<Runtime>,
    pub tasks: Handle,
    connections: [tokio::sync::Mutex<Option<Client>>; CONNECTIONS],
    next: AtomicUsize,
    /// When the origin did not answer, and why.
    away: Mutex<Option<(Instant, String)>>,
}

/// Why a request to the origin failed.
#[derive(Debug)]
pub(super) enum OriginError {
    /// The origin did not answer.
    Away(StorageError),
    /// The origin refused the request.
    Refused(StorageError),
}

impl From<OriginError> for StorageError {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Away(error) | OriginError::Refused(error) => error,
        }
    }
}

impl Origin {
    /// An origin that is connected to at its first use.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub(super) fn new(url: Url) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("femtobarn-origin")
            .enable_all()
            .build()?;
        let (tasks, runtime) = (runtime.handle().clone(), Some(runtime));
        let (connections, next) = (Default::default(), AtomicUsize::new(0));
        Ok(Origin { url, runtime, tasks, connections, next, away: Mutex::default() })
    }

    /// The origin's name of a file.
    ///
    /// # Errors
    /// If the protocol cannot express the name.
    pub(super) fn location(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<Location> {
        self.location_with(path, &opaque.selection())
    }

    /// The origin's name for opening a file, which the origin may first have to bring back from a store.
    ///
    /// # Errors
    /// If the protocol cannot express the name.
    pub(super) fn location_to_open(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<Location> {
        self.location_with(path, &opaque.selection_and_urgency())
    }

    fn location_with(&self, path: &StoragePath, opaque: &[u8]) -> StorageResult<Location> {
        if path.as_bytes().contains(&b'?') {
            // The origin would take the rest of the name for opaque information.
            let what = format!("cannot ask the origin for {path}: the name has a '?'");
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        let top = self.url.location.path();
        let top = top.strip_suffix(b"/").unwrap_or(top);
        Location::new([top, path.as_bytes(), opaque].concat())
            .map_err(|error| StorageError::refused(Errno::ENAMETOOLONG, error.to_string()))
    }

    /// The name under which pages of a file are kept: the folder may have been that of another origin before.
    pub(super) fn kept_name(&self, location: &Location) -> Vec<u8> {
        [self.url.server.to_string().as_bytes(), location.as_bytes()].concat()
    }

    /// Opens a file over the connection of a number.
    pub(super) async fn open(
        &self,
        location: &Location,
        connection: usize,
    ) -> Result<File, OriginError> {
        let client = self.client_of(connection % CONNECTIONS).await?;
        self.noticed(client.open(location, OpenOptions::READ).await)
    }

    /// The metadata of an open file.
    pub(super) async fn stat_open(&self, file: &File) -> Result<StatLine, OriginError> {
        self.noticed(file.stat().await)
    }

    pub(super) async fn read(
        &self,
        file: &File,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, OriginError> {
        self.noticed(file.read_checked(offset, buffer).await)
    }

    /// The metadata of a path. Waits, so it must not be called from a task.
    pub(super) fn stat(&self, location: &Location) -> Result<StatLine, OriginError> {
        self.tasks.block_on(async {
            let client = self.client().await?;
            self.noticed(client.stat(location).await)
        })
    }

    /// The entries of a folder. Waits, so it must not be called from a task.
    pub(super) fn list(
        &self,
        location: &Location,
        with_metadata: bool,
    ) -> Result<DirectoryList, OriginError> {
        let options = if with_metadata { DirlistOptions::STAT } else { DirlistOptions::default() };
        self.tasks.block_on(async {
            let client = self.client().await?;
            self.noticed(client.dirlist(location, options).await)
        })
    }

    /// The number of the connection whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS
    }

    async fn client(&self) -> Result<Client, OriginError> {
        self.client_of(self.turn()).await
    }

    async fn client_of(&self, turn: usize) -> Result<Client, OriginError> {
        self.refuse_if_away()?;
        let mut connection = self.connections[turn].lock().await;
        if let Some(client) = &*connection {
            return Ok(client.clone());
        }
        // The holder of the turn before may have found the origin offline.
        self.refuse_if_away()?;
        let options = Options {
            connect_timeout: RECONNECT,
            request_timeout: PATIENCE,
            patience: PATIENCE,
            reconnect_timeout: RECONNECT,
            application: "femtobarn-cache".to_owned(),
            ..Options::default()
        };
        let client = self.noticed(Client::connect(&self.url, options).await)?;
        Ok(connection.insert(client).clone())
    }

    fn refuse_if_away(&self) -> Result<(), OriginError> {
        match &*self.away.lock() {
            Some((since, why)) if since.elapsed() < RECONNECT => Err(OriginError::Away(
                StorageError::refused(Errno::EIO, format!("the origin does not answer: {why}")),
            )),
            _ => Ok(()),
        }
    }

    /// Records whether the origin itself, rather than a server that it redirects to, has answered.
    fn noticed<T>(&self, answered: Result<T, ClientError>) -> Result<T, OriginError> {
        let why = match &answered {
            Err(
                ClientError::Unreachable { server, reason, .. }
                | ClientError::Lost { server, reason, .. },
            ) if *server == self.url.server => Some(format!("{server}: {reason}")),
            Err(ClientError::TimedOut { server, after, .. }) if *server == self.url.server => {
                Some(format!("{server}: no answer within {} s", after.as_secs()))
            }
            _ => None,
        };
        let is_away = why.is_some();
        if is_away || answered.is_ok() {
            *self.away.lock() = why.map(|why| (clock::now(), why));
        }
        answered.map_err(|error| {
            let error = storage_error(&error);
            if is_away { OriginError::Away(error) } else { OriginError::Refused(error) }
        })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The last user may be a task of the runtime itself, which cannot wait for its end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An error of the origin, as clients of the cache see it. It names the origin and its path.
fn storage_error(error: &ClientError) -> StorageError {
    let errno = match error {
        ClientError::TimedOut { .. } | ClientError::MustWait { .. } => {
            return StorageError::NotBefore(COME_AGAIN, error.to_string());
        }
        ClientError::Refused { code, .. } => match *code {
            ErrorCode::NOT_FOUND => Errno::ENOENT,
            ErrorCode::NOT_AUTHORIZED | ErrorCode::AUTH_FAILED | ErrorCode::TLS_REQUIRED => {
                Errno::EACCES
            }
            ErrorCode::IS_DIRECTORY | ErrorCode::NOT_FILE => Errno::EISDIR,
            ErrorCode::ARG_INVALID => Errno::EINVAL,
            ErrorCode::OVERLOADED => Errno::EMFILE,
            _ => Errno::EIO,
        },
        ClientError::Login { .. } => Errno::EACCES,
        _ => Errno::EIO,
    };
    StorageError::refused(errno, error.to_string())
}

/// The version in a stat line.
///
/// # Errors
/// `EFBIG` if no file can be that large.
pub(super) fn version_of(stat: &StatLine, path: &StoragePath) -> StorageResult<Version> {
    if stat.size > SIZE_MAX {
        return Err(StorageError::cannot("open", path, Errno::EFBIG));
    }
    Ok(Version { id: stat.id, size: stat.size, modified: stat.modified })
}

/// The metadata of a version of a file, as far as known without the origin.
pub(super) fn metadata_of(version: Version) -> Metadata {
    let Version { id, size, modified } = version;
    metadata(&StatLine { id, size, modified, flags: StatFlags::READABLE, extension: None })
}

/// The metadata of a file or folder. Nothing can be changed through a cache.
pub(crate) fn metadata(stat: &StatLine) -> Metadata {
    let time = |seconds: i64| {
        let since = Duration::from_secs(seconds.try_into().unwrap_or_default());
        std::time::UNIX_EPOCH.checked_add(since).unwrap_or(std::time::UNIX_EPOCH)
    };
    let more = stat.extension.as_ref();
    let kind = if stat.flags.contains(StatFlags::DIRECTORY) {
        FileKind::Folder
    } else if stat.flags.contains(StatFlags::OTHER) {
        FileKind::Other
    } else {
        FileKind::File
    };
    // The logical layer compares ids to detect whether a path still leads to the same bytes.
    let mut id = DefaultHasher::new();
    (stat.id, stat.size, stat.modified).hash(&mut id);
    Metadata {
        kind,
        id: id.finish(),
        size: stat.size,
        modified: time(stat.modified),
        changed: time(more.map_or(stat.modified, |more| more.changed)),
        accessed: time(more.map_or(stat.modified, |more| more.accessed)),
        mode: more.map_or(0o444, |more| u32::from(more.mode.0)) & !0o222,
        owner: more.map_or("origin", |more| &more.owner).into(),
        group: more.map_or("origin", |more| &more.group).into(),
        is_readable: true,
        is_writable: false,
        is_online: !stat.flags.contains(StatFlags::OFFLINE),
        is_backed_up: stat.flags.contains(StatFlags::BACKED_UP),
    }
}
