//! Third-party copies: a client opens a file for writing and names its source, which this server reads in its place.
//!
//! 1. The open names the source (`tpc.src`, `tpc.lfn`, `tpc.spr`). The first sync begins the copy, each further one is
//!    answered at its end. `docs/protocol.md` has the sequence.
//! 2. The copy is an upload: the file appears under its path when the copy is complete, before the last sync is
//!    answered, and a copy that fails leaves no file.
//! 3. The source is read with the rights of an anonymous client: neither the client's credentials nor those of this
//!    process are sent.
//! 4. A client reaches no server through this one except those that the operator allows (`copy.hosts`). That is checked
//!    for each address that is connected to, also after redirects.
//! 5. All waits for a source are limited in time, and a source that changes meanwhile fails the copy.
//!
//! Source: the behaviour of XRootD's client (`XrdClThirdPartyCopyJob` of 6.2.1).

use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use nix::errno::Errno;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use xrd::client::{AddressFilter, Client, Options, Url};
use xrd::flags::OpenOptions;
use xrd::request::{Request, Sync};
use xrd::response::{Response, StatLine};
use xrd::{ErrorCode, Location, StreamId};

use super::connection::RootConnection;
use super::handler::{RequestHandler, blocking};
use super::responses::{failed, response_of};
use crate::config::CopyHosts;
use crate::logical::exports::Exports;
use crate::logical::files::SharedFile;
use crate::logical::handles::OpenFile;
use crate::logical::incoming_copy::IncomingCopy;
use crate::logical::sessions::ClientSession;
use crate::logical::uploads::Upload;
use crate::physical::{
    Creation, FileKind, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath,
    StorageResult,
};

/// The argument of the query by which a client cancels a copy.
pub(super) const CANCEL_COPY: &[u8] = b"ofs.tpc cancel";

/// The time that the client is asked to wait for the end of a copy; it gets the outcome as soon as the copy ends.
const COPY_SECONDS: u32 = 1800;

/// How long the source may be silent, and then how long it may be unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The longest time of any answer of the source, with all its waits and redirects.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// The longest wait of a copy for its turn.
const QUEUE_MAX: Duration = Duration::from_secs(1200);

/// Bytes of a read, and reads that are under way.
const READ_BYTES: u64 = 1 << 20;
const READS: usize = 4;

impl RequestHandler {
    /// The source of a file that is opened for a copy; `None` if the client writes the file itself.
    pub(super) fn copy_source(
        &self,
        location: &Location,
        path: &StoragePath,
    ) -> Result<Option<Url>, Response> {
        let text = |key| location.value_of(key).map(String::from_utf8_lossy);
        let Some(server) = text("tpc.src") else { return Ok(None) };
        if self.service.copy_hosts.is_empty() {
            // Clients recognise this text, and copy in another way.
            let what =
                "tpc not supported: this server copies no files from other servers (copy.hosts)";
            return Err(failed(ErrorCode::FS_ERROR, what));
        }
        let scheme = match text("tpc.spr").as_deref() {
            None | Some("root" | "xroot") => "root",
            Some("roots" | "xroots") => "roots",
            Some(other) => {
                let what = format!("files are copied from root:// and roots://, not {other}://");
                return Err(failed(ErrorCode::UNSUPPORTED, what));
            }
        };
        let name = text("tpc.lfn").unwrap_or_else(|| path.to_string().into());
        let source = Url::parse(&format!("{scheme}://{server}/{name}"))
            .map_err(|error| failed(ErrorCode::ARG_INVALID, error.to_string()))?;
        let source = Url { user: None, ..source };
        let admitted = self.service.copy_hosts.admit_name(&source.server.host);
        admitted.map_err(|why| failed(ErrorCode::NOT_AUTHORIZED, why))?;
        Ok(Some(source))
    }

    /// Opens a new file, and returns the copy that fills it.
    pub(super) async fn begin_copy(
        &self,
        location: &Location,
        (path, how): (&StoragePath, OpenMode),
        source: Url,
    ) -> Result<(Arc<SharedFile>, Metadata, Option<Arc<IncomingCopy>>), Response> {
        let told = location.value_of("oss.asize").map(String::from_utf8_lossy);
        let size = told.and_then(|told| told.parse().ok());
        let (path, client) = (path.clone(), self.session.host.ip());
        let begun = self.call(false, move |service| {
            check_place(&service.logical.exports, &path, how)?;
            let upload = Upload::begin(&service.logical.exports, &path, how.mode, size)?;
            let file = Arc::clone(upload.file());
            let (file, metadata) = service.logical.files.unnamed(&path, file, client)?;
            Ok((upload, file, metadata))
        });
        let (upload, file, metadata) = begun.await?;
        let destination =
            CopyDestination { upload, replaces: how.creation == Creation::Empty, size };
        let copy = fetched(
            source,
            options(self.service.copy_hosts.clone()),
            Arc::clone(&self.service.copies),
            (Arc::downgrade(&self.session), Arc::new(destination)),
        );
        Ok((file, metadata, Some(Arc::new(IncomingCopy::new(copy)))))
    }
}

/// Fails unless a file may be made at the path by an open of this kind.
fn check_place(exports: &Exports, path: &StoragePath, how: OpenMode) -> StorageResult<()> {
    let refused = |errno| Err(StorageError::cannot("open", path, errno));
    if how.creation == Creation::Existing {
        let what = "a copy needs a new file, or one to be replaced: open it with new or delete";
        return Err(StorageError::refused(Errno::EINVAL, what));
    }
    match exports.metadata(path, Opaque::default()) {
        Ok(found) if found.kind == FileKind::Folder => refused(Errno::EISDIR),
        Ok(_) if how.creation == Creation::New => refused(Errno::EEXIST),
        Err(StorageError::Refused(Errno::ENOENT, _)) => match path.parent() {
            Some((above, _)) if !how.make_folders => {
                exports.metadata(&above, Opaque::default()).map(drop)
            }
            _ => Ok(()),
        },
        found => found.map(drop),
    }
}

/// The destination of a copy.
struct CopyDestination {
    upload: Upload,
    /// Whether another file at the path is replaced.
    replaces: bool,
    /// The size that the client announced.
    size: Option<u64>,
}

impl RootConnection {
    /// A sync of a file that is being copied: begins the copy, or is answered at its end.
    pub(super) async fn sync_request(
        &mut self,
        stream: StreamId,
        handler: RequestHandler,
        sync: Sync,
    ) -> io::Result<()> {
        let copy = handler.file(sync.handle).ok().and_then(|file| file.copy.clone());
        let Some(copy) = copy else {
            let response = handler.respond(Request::Sync(sync)).await;
            return self.answer(stream, &response).await;
        };
        if copy.begin() {
            return self.answer(stream, &Response::Ok(Bytes::new())).await;
        }
        let seconds = handler.session.client.takes_late_answers.then_some(COPY_SECONDS);
        self.delay_response(stream, seconds, async move {
            match copy.outcome().await {
                Ok(()) => Response::Ok(Bytes::new()),
                Err(error) => response_of(error),
            }
        })
        .await
    }
}

/// Ends the copy into a file, if there is one.
pub(super) fn cancel(file: &OpenFile) {
    if let Some(copy) = &file.copy {
        copy.cancel();
    }
}

fn options(hosts: CopyHosts) -> Options {
    let allows = move |host: &str, address| hosts.admit(host, address);
    Options {
        request_timeout: SILENCE_MAX,
        reconnect_timeout: SILENCE_MAX,
        patience: ANSWER_MAX,
        answer_timeout: Some(ANSWER_MAX),
        user: Some("femtobarn".to_owned()),
        without_credentials: true,
        filter: Some(AddressFilter(Arc::new(allows))),
        application: "femtobarn".to_owned(),
        ..Options::default()
    }
}

/// Reads a file of another server into one of this server, makes it durable, and gives it its path.
async fn fetched(
    source: Url,
    options: Options,
    turns: Arc<Semaphore>,
    (session, destination): (Weak<ClientSession>, Arc<CopyDestination>),
) -> StorageResult<()> {
    let Ok(_turn) = timeout(QUEUE_MAX, turns.acquire()).await else {
        let what = "too many copies are running already; try again later";
        return Err(StorageError::refused(Errno::EBUSY, what));
    };
    let client = answered(Client::connect(&source, options)).await?;
    let from = answered(client.open(&source.location, OpenOptions::READ)).await?;
    let before = answered(from.stat()).await?;
    let size = before.size;
    if let Some(told) = destination.size.filter(|told| *told != size) {
        return Err(not_fetched(format!("it has {size} bytes, but the client expects {told}")));
    }
    let from = &from;
    let read = |offset: u64| async move {
        let mut bytes = vec![0; READ_BYTES.min(size - offset) as usize];
        let count = answered(from.read_checked(offset, &mut bytes)).await?;
        if count < bytes.len() {
            return Err(changed());
        }
        Ok((offset, bytes))
    };
    let offsets = (0..size.div_ceil(READ_BYTES)).map(|number| number * READ_BYTES);
    let mut pieces = stream::iter(offsets).map(read).buffered(READS);
    while let Some(piece) = pieces.next().await {
        let ((offset, bytes), to) = (piece?, Arc::clone(&destination));
        // The copy counts as traffic: the session is not idle, and a server that stops waits for the copy.
        if let Some(session) = session.upgrade() {
            session.count_received(bytes.len() as u64);
        }
        blocking(move || to.upload.write_at(offset, &bytes)).await?;
    }
    let after = answered(from.stat()).await?;
    let version = |line: &StatLine| (line.id, line.size, line.modified);
    if version(&after) != version(&before) {
        return Err(changed());
    }
    blocking(move || {
        destination.upload.sync()?;
        destination.upload.finish(destination.replaces).map(drop)
    })
    .await
}

/// An answer of the source, if it arrives in time.
async fn answered<T>(answer: impl Future<Output = xrd::client::Result<T>>) -> StorageResult<T> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(not_fetched(error.to_string())),
        Err(_) => Err(not_fetched(format!("no answer in {} s", ANSWER_MAX.as_secs()))),
    }
}

fn changed() -> StorageError {
    not_fetched("it was changed while it was copied".to_owned())
}

fn not_fetched(why: String) -> StorageError {
    StorageError::refused(Errno::EREMOTEIO, format!("the source cannot be copied: {why}"))
}
