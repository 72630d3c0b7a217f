//! A store in a folder of a server that speaks XRootD's protocol: XRootD's own, EOS, dCache, Femtobarn's.
//!
//! An object is written under another name, synced, and renamed. The folder of a store has a mark; without the mark,
//! objects that the server does not find are not taken for lost. Pages are verified in both directions, if the server
//! supports it. `server` has the connection and the open files, `moving` sends and fetches objects, `folders` marks and
//! lists.

mod folders;
mod moving;
mod server;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use xrd::client::{Client, ClientError, Options, ReadPiece, Url};
use xrd::flags::StatFlags;
use xrd::response::StatLine;
use xrd::{ErrorCode, Location};

use super::store::{
    ByteWatch, MARK, ObjectRange, Store, StoredState, check_key, no_object, not_mounted, too_short,
};
use super::tasks::{StoreTasks, watched};
use crate::error::{Error, Result};
use server::StoreServer;

/// The interval of checking a file that the server brings online.
const COME_AGAIN: Duration = Duration::from_secs(30);
/// A hint for the error if the folder is no store.
const HINT: &str = "is the folder in its URL right, and does the server have its disk?";
/// The rate in bytes per second at which a server is assumed to read, at least, to compute a checksum.
const CHECKSUM_RATE: u64 = 20_000_000;

/// A folder on a server.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct XrootdSettings {
    /// The folder, which must exist: `root://eos.example//eos/lhc/raw`, or `roots://` for TLS.
    pub url: String,
    /// How long the server may be silent, or ask the client to wait.
    #[serde(default = "answer_seconds")]
    pub answer_seconds: u64,
    /// Readers read in place, and the file is not staged for them.
    #[serde(default)]
    pub in_place: bool,
}

fn answer_seconds() -> u64 {
    60
}

/// Objects as files in a folder on a server.
#[derive(Debug)]
pub struct XrootdStore {
    server: StoreServer,
    answer_time: Duration,
    tasks: StoreTasks,
}

impl XrootdStore {
    /// A store on a server. No request is sent before the store is used.
    ///
    /// # Errors
    /// `Invalid` if the address cannot be parsed.
    pub fn new(settings: XrootdSettings) -> Result<Self> {
        let invalid = |what| Error::Invalid { what };
        let url = Url::parse(&settings.url).map_err(|error| invalid(error.to_string()))?;
        if url.location.opaque().is_some() {
            return Err(invalid(format!("{url}: must not have a query (a '?' and text after it)")));
        }
        if settings.answer_seconds == 0 {
            return Err(invalid("answer_seconds must be 1 or more".to_owned()));
        }
        let answer_time = Duration::from_secs(settings.answer_seconds);
        let usual = Options::default();
        let options = Options {
            connect_timeout: usual.connect_timeout.min(answer_time),
            request_timeout: answer_time,
            reconnect_timeout: usual.reconnect_timeout.min(answer_time),
            patience: answer_time,
            application: "femtobarn-store".to_owned(),
            ..usual
        };
        let server = StoreServer::new(url, options);
        Ok(XrootdStore { server, answer_time, tasks: StoreTasks::new("femtobarn-xrootd") })
    }

    /// Runs requests to their end.
    fn run<T>(&self, requests: impl Future<Output = Result<T>>) -> Result<T> {
        self.tasks.runtime()?.block_on(requests)
    }

    async fn client(&self) -> Result<Client> {
        self.server.client().await.map_err(|error| self.error("reach", "the server", error))
    }

    /// The place of an object.
    fn object(&self, key: &str) -> Result<Location> {
        check_key(key)?;
        self.location(key, "")
    }

    /// The place of a file below the folder, with opaque information for the server.
    fn location(&self, key: &str, opaque: &str) -> Result<Location> {
        let location = self.server.location(key, opaque);
        location.map_err(|error| Error::Invalid { what: error.to_string() })
    }

    /// The error for a failure with an object, or with a file of the store, that exists.
    fn error(&self, what: &str, key: &str, error: ClientError) -> Error {
        let text = format!("cannot {what} {key} in {}: {error}", self.place());
        match &error {
            ClientError::MustWait { wait, .. } => Error::NotBefore { wait: *wait, what: text },
            ClientError::Login { .. } => Error::Denied { what: text },
            ClientError::Refused { code, .. } => match *code {
                ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA => Error::Full { what: text },
                ErrorCode::NOT_AUTHORIZED
                | ErrorCode::AUTH_FAILED
                | ErrorCode::TLS_REQUIRED
                | ErrorCode::FS_READ_ONLY => Error::Denied { what: text },
                _ => Error::Unavailable { what: text },
            },
            _ => Error::Unavailable { what: text },
        }
    }

    /// The error for a failure with an object. If the server does not find the object, it is also asked for the mark.
    async fn failed(&self, what: &str, key: &str, error: ClientError) -> Error {
        if error.code() != Some(ErrorCode::NOT_FOUND) {
            return self.error(what, key, error);
        }
        match self.check_mounted().await {
            Ok(()) => no_object(self, key),
            Err(error) => error,
        }
    }

    /// Fails if the folder has no mark of a store.
    async fn check_mounted(&self) -> Result<()> {
        match self.client().await?.stat(&self.location(MARK, "")?).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(ErrorCode::NOT_FOUND) => {
                Err(not_mounted(self, HINT))
            }
            Err(error) => Err(self.error("look at", MARK, error)),
        }
    }

    async fn stat_object(&self, key: &str) -> Result<StatLine> {
        let object = self.object(key)?;
        match self.client().await?.stat(&object).await {
            Ok(line) if line.flags.intersects(StatFlags::DIRECTORY | StatFlags::OTHER) => {
                Err(no_object(self, key))
            }
            Ok(line) => Ok(line),
            Err(error) => Err(self.failed("look at", key, error).await),
        }
    }

    /// The checksum that the server reports for an object; `None` if it reports none.
    async fn checksum(&self, key: &str, size: u64) -> Result<Option<String>> {
        let location = self.location(key, "?cks.type=adler32")?;
        let patience = self.answer_time + Duration::from_secs(size / CHECKSUM_RATE);
        let reported = match self.server.patient_client(patience).await {
            Ok(client) => client.checksum(&location).await,
            Err(error) => Err(error),
        };
        match reported {
            Ok(reported) => Ok(Some(format!("{}:{}", reported.kind, reported.digest))),
            Err(error) if has_no_checksums(&error) => Ok(None),
            Err(error) => Err(self.failed("take the checksum of", key, error).await),
        }
    }

    /// An object that is open for reading, and its size.
    async fn open(&self, key: &str) -> Result<(Arc<xrd::client::File>, u64)> {
        let line = self.stat_object(key).await?;
        if line.flags.contains(StatFlags::OFFLINE) {
            return Err(match self.server.bring_online(key).await {
                Ok(()) => {
                    let what = format!("{} brings {key} online", self.place());
                    Error::NotBefore { wait: COME_AGAIN, what }
                }
                Err(error) => self.failed("bring online", key, error).await,
            });
        }
        match self.server.open(key).await {
            Ok(file) => Ok((file, line.size)),
            Err(error) => Err(self.failed("open", key, error).await),
        }
    }
}

impl Store for XrootdStore {
    fn place(&self) -> String {
        format!("folder {}", self.server.url())
    }

    /// Makes an empty folder a store.
    fn begin(&self, watch: &mut ByteWatch<'_>) -> Result<()> {
        self.run(async { watched(self.mark(), ("writing", MARK), 0, watch).await? })
    }

    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>> {
        self.run(self.send(key, from, watch)).map(Some)
    }

    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()> {
        self.run(self.fetch(key, to, watch))
    }

    fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()> {
        let end = |range: &ObjectRange<'_>| range.offset.saturating_add(range.buffer.len() as u64);
        let end = ranges.iter().map(end).max().unwrap_or(0);
        let pieces = ranges.iter_mut();
        let mut pieces: Vec<_> = pieces
            .map(|range| ReadPiece { offset: range.offset, buffer: &mut *range.buffer })
            .collect();
        self.run(async {
            let file = match self.server.known_open(key) {
                Some(file) => file,
                None => self.open(key).await?.0,
            };
            let Err(error) = file.read_many(&mut pieces).await else { return Ok(()) };
            self.server.forget_open(key);
            let size = self.stat_object(key).await?.size;
            Err(if size < end { too_short(self, key, end) } else { self.error("read", key, error) })
        })
    }

    fn stat(&self, key: &str) -> Result<StoredState> {
        let line = self.run(self.stat_object(key))?;
        let is_offline = line.flags.contains(StatFlags::OFFLINE);
        Ok(StoredState { size: line.size, is_offline, ..StoredState::default() })
    }

    fn examine(&self, key: &str, size: u64, watch: &mut ByteWatch<'_>) -> Result<StoredState> {
        let examining = async {
            let line = self.stat_object(key).await?;
            // The server might bring an object online in order to read it.
            let is_offline = line.flags.contains(StatFlags::OFFLINE);
            let is_read = line.size == size && !is_offline;
            let checksum = if is_read { self.checksum(key, size).await? } else { None };
            Ok(StoredState { size: line.size, checksum, tape: None, is_offline })
        };
        self.run(async { watched(examining, ("examining", key), 0, watch).await? })
    }

    fn remove(&self, key: &str, watch: &mut ByteWatch<'_>) -> Result<()> {
        let object = self.object(key)?;
        let removing = async {
            self.server.forget_open(key);
            match self.client().await?.rm(&object).await {
                Ok(()) => Ok(()),
                Err(error) => match self.failed("remove", key, error).await {
                    Error::NoObject { .. } => Ok(()),
                    error => Err(error),
                },
            }
        };
        self.run(async { watched(removing, ("removing", key), 0, watch).await? })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.run(self.found_below(prefix))
    }
}

/// Whether the server supports no checksums, rather than having failed to compute one.
fn has_no_checksums(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { code, message, .. } => {
            let is_unknown = [ErrorCode::UNSUPPORTED, ErrorCode::INVALID_REQUEST].contains(code);
            // For a kind of checksum that it does not support, XRootD reports a server error.
            is_unknown || message.contains("not supported")
        }
        _ => false,
    }
}
