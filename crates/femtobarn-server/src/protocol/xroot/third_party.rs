//! Third-party copies: a client opens a file for writing and names its source, which this server reads in its stead.
//!
//! 1. The open names the source (`tpc.src`, `tpc.lfn`, `tpc.spr`). The first sync begins the copy, each further one is
//!    answered at its end. `docs/protocol.md` has the sequence.
//! 2. The source is read with the rights of an anonymous client: neither the client's credentials nor those of this
//!    process are sent.
//! 3. A client reaches no server through this one but those that the operator allows (`copy.hosts`), which is checked for
//!    each address that is connected to, after redirects, too.
//!
//! Source: what XRootD's client sends (`XrdClThirdPartyCopyJob` of 6.2.1).

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use nix::errno::Errno;
use tokio::sync::Semaphore;
use xrd::client::{AddressFilter, Client, ClientError, Options, Token, Url};
use xrd::flags::OpenOptions;
use xrd::request::{Request, Sync};
use xrd::response::Response;
use xrd::{ErrorCode, Location, StreamId};

use super::connection::RootConnection;
use super::handler::{RequestHandler, blocking};
use super::responses::{failed, response_of};
use crate::config::CopyHosts;
use crate::logical::files::SharedFile;
use crate::logical::handles::OpenFile;
use crate::logical::incoming_copy::IncomingCopy;
use crate::logical::sessions::ClientSession;
use crate::physical::{StorageError, StoragePath, StorageResult};

/// The argument of the query by which a client cancels a copy.
pub(super) const CANCEL_COPY: &[u8] = b"ofs.tpc cancel";

/// The time that the client is told to wait for the end of a copy; it is told as soon as it ends.
const COPY_SECONDS: u32 = 1800;

/// How long the source may be silent, and then how long it may be away.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Bytes of a read, and reads that are under way.
const READ_BYTES: u64 = 1 << 20;
const READS: usize = 4;

impl RequestHandler {
    /// The source of a file that is opened for a copy; none if the client writes the file itself.
    pub(super) fn copy_source(
        &self,
        location: &Location,
        path: &StoragePath,
    ) -> Result<Option<Url>, Response> {
        let text = |key| location.value_of(key).map(String::from_utf8_lossy);
        let Some(server) = text("tpc.src") else { return Ok(None) };
        if self.service.copy_hosts.is_empty() {
            // Clients know this text, and copy in another way.
            let what = "tpc not supported: this server copies no files from others (copy.hosts)";
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
        let host = &source.server.host;
        if self.service.copy_hosts.has_name(host) {
            return Ok(Some(source));
        }
        Err(failed(ErrorCode::NOT_AUTHORIZED, format!("copy.hosts does not allow {host}")))
    }

    /// The copy that fills a file.
    pub(super) fn incoming_copy(&self, source: Url, file: &Arc<SharedFile>) -> IncomingCopy {
        let turns = Arc::clone(&self.service.copies);
        let options = options(self.service.copy_hosts.clone());
        let session = Arc::downgrade(&self.session);
        IncomingCopy::new(fetched(source, options, turns, (session, Arc::clone(file))))
    }
}

impl RootConnection {
    /// A sync of a file that is copied begins the copy, or is answered at its end.
    pub(super) async fn sync_request(
        &mut self,
        stream: StreamId,
        handler: RequestHandler,
        sync: Sync,
    ) -> io::Result<()> {
        let file = handler.file(sync.handle).ok().filter(|file| file.copy.is_some());
        let Some(file) = file else {
            let response = handler.respond(Request::Sync(sync)).await;
            return self.answer(stream, &response).await;
        };
        if file.copy.as_ref().is_some_and(IncomingCopy::begin) {
            return self.answer(stream, &Response::Ok(Bytes::new())).await;
        }
        let seconds = handler.session.client.takes_late_answers.then_some(COPY_SECONDS);
        self.delay_response(stream, seconds, async move {
            let Some(copy) = &file.copy else { return Response::Ok(Bytes::new()) };
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

/// Whether a file was opened for a copy that is not complete.
pub(super) fn is_incomplete(file: &OpenFile) -> bool {
    file.copy.as_ref().is_some_and(|copy| !copy.is_complete())
}

fn options(hosts: CopyHosts) -> Options {
    let allows = move |host: &str, address| {
        if hosts.has(host, address) {
            return Ok(());
        }
        Err(format!("copy.hosts does not allow {host} at {address}"))
    };
    Options {
        request_timeout: SILENCE_MAX,
        reconnect_timeout: SILENCE_MAX,
        patience: 2 * SILENCE_MAX,
        user: Some("femtobarn".to_owned()),
        // Otherwise the client would look for a token of this process.
        token: Some(Token(String::new())),
        filter: Some(AddressFilter(Arc::new(allows))),
        application: "femtobarn".to_owned(),
        ..Options::default()
    }
}

/// Reads a file of another server into one of this server, and makes it durable.
async fn fetched(
    source: Url,
    options: Options,
    turns: Arc<Semaphore>,
    (session, file): (Weak<ClientSession>, Arc<SharedFile>),
) -> StorageResult<()> {
    let _turn = turns.acquire().await;
    let client = Client::connect(&source, options).await.map_err(not_fetched)?;
    let from = client.open(&source.location, OpenOptions::READ).await.map_err(not_fetched)?;
    let size = from.stat().await.map_err(not_fetched)?.size;
    let from = &from;
    let read = |offset: u64| async move {
        let mut bytes = vec![0; READ_BYTES.min(size - offset) as usize];
        let count = from.read_checked(offset, &mut bytes).await.map_err(not_fetched)?;
        if count < bytes.len() {
            let what = "the source became shorter while it was copied";
            return Err(StorageError::refused(Errno::EREMOTEIO, what));
        }
        Ok((offset, bytes))
    };
    let offsets = (0..size.div_ceil(READ_BYTES)).map(|number| number * READ_BYTES);
    let mut pieces = stream::iter(offsets).map(read).buffered(READS);
    while let Some(piece) = pieces.next().await {
        let ((offset, bytes), file) = (piece?, Arc::clone(&file));
        // The session is not idle, and a server that stops waits for it.
        if let Some(session) = session.upgrade() {
            session.count_received(bytes.len() as u64);
        }
        blocking(move || file.write_at(offset, &bytes)).await?;
    }
    blocking(move || file.sync().map(drop)).await
}

fn not_fetched(error: ClientError) -> StorageError {
    StorageError::refused(Errno::EREMOTEIO, format!("the source cannot be copied: {error}"))
}
