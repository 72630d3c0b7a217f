//! Requests that query: checksums, configuration, space, statistics.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_query.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use femtobarn_catalog::clock;
use serde_json::json;
use xrd::limits::{
    ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, BOUND_STREAMS_MAX, SEGMENT_DATA_BYTES,
    SEGMENTS_MAX,
};
use xrd::request::Query;
use xrd::response::Response;
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::{ErrorCode, Location, QueryCode, StreamId, opaque_pairs};

use super::connection::RootConnection;
use super::handler::{RequestHandler, blocking};
use super::passed_files::asks_for_file;
use super::responses::{done, failed, ok, response_of};
use super::service::RootService;
use super::stat_line::seconds;
use super::third_party::{CANCEL_COPY, cancel};
use crate::auth::Action;
use crate::logical::checksums::{CancelGuard, CancelSignal, ChecksumKind, Checksums};
use crate::logical::files::SharedFile;
use crate::logical::handles::OpenFile;
use crate::physical::{FileKind, Metadata, Opaque, OpenMode, StoragePath, StorageResult};

/// Bytes of a file above which the checksum is sent as an unsolicited response.
const SLOW_CHECKSUM_BYTES: u64 = 32 * 1024 * 1024;

/// The time that the client is asked to wait for the checksum; it is sent as soon as it is computed.
const SLOW_CHECKSUM_SECONDS: u32 = 600;

impl RootConnection {
    pub(super) async fn query_request(
        &mut self,
        stream: StreamId,
        handler: RequestHandler,
        query: Query,
    ) -> io::Result<()> {
        if query.kind == QueryCode::CHECKSUM {
            return self.checksum_request(stream, handler, query).await;
        }
        let response = handler.query(query).await.unwrap_or_else(|response| response);
        self.answer(stream, &response).await
    }

    async fn checksum_request(
        &mut self,
        stream: StreamId,
        handler: RequestHandler,
        query: Query,
    ) -> io::Result<()> {
        let wanted = match handler.wanted_checksum(&query).await {
            Ok(wanted) => wanted,
            Err(response) => return self.answer(stream, &response).await,
        };
        let known =
            handler.service.logical.checksums.known(&wanted.path, &wanted.metadata, wanted.kind);
        if let Some(digest) = known {
            return self.answer(stream, &checksum_response(wanted.kind, digest)).await;
        }
        let is_slow =
            wanted.metadata.size > SLOW_CHECKSUM_BYTES && handler.session.client.takes_late_answers;
        let seconds = is_slow.then_some(SLOW_CHECKSUM_SECONDS);
        let client = handler.session.host.ip();
        let service = Arc::clone(&handler.service);
        let logical = Arc::clone(&handler.service.logical);
        self.delay_response(stream, seconds, async move {
            let ChecksumRequest { path, location, kind, open, .. } = wanted;
            let opaque = location.opaque().unwrap_or_default().to_vec();
            let digest = move |cancelled: &CancelSignal| match open {
                Some(open) => {
                    let opened = (&*open, &open.metadata()?);
                    service.logical.checksums.of_file(&path, opened, kind, cancelled)
                }
                None => digest(&service, (&path, &opaque), client, kind, cancelled),
            };
            match in_turn(&logical.checksums, digest).await {
                Ok(digest) => checksum_response(kind, digest),
                Err(error) => response_of(error),
            }
        })
        .await
    }
}

/// A checksum that a client requests.
struct ChecksumRequest {
    path: StoragePath,
    location: Location,
    metadata: Metadata,
    kind: ChecksumKind,
    /// The client's open file, if the path may lead to another file by now.
    open: Option<Arc<SharedFile>>,
}

fn checksum_response(kind: ChecksumKind, digest: String) -> Response {
    ok(&ChecksumAnswer { kind: kind.name().to_owned(), digest })
}

/// Computes a checksum when it is its turn. Dropping the future cancels the computation and ends its turn.
pub(super) async fn in_turn(
    checksums: &Checksums,
    digest: impl FnOnce(&CancelSignal) -> StorageResult<String> + Send + 'static,
) -> StorageResult<String> {
    let turn = checksums.turn().await;
    let guard = CancelGuard::default();
    let cancelled = guard.signal();
    blocking(move || {
        let _turn = turn;
        digest(&cancelled)
    })
    .await
}

/// The kind of checksum in the opaque information of a location.
pub(super) fn checksum_kind(location: &Location) -> Result<ChecksumKind, Response> {
    let Some(name) = location.value_of("cks.type") else { return Ok(ChecksumKind::ALL[0]) };
    ChecksumKind::of_name(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        failed(ErrorCode::UNSUPPORTED, format!("{name} checksums are not supported"))
    })
}

/// A file's checksum, from the cache or computed. May block for long.
pub(super) fn digest(
    service: &RootService,
    (path, opaque): (&StoragePath, &[u8]),
    client: IpAddr,
    kind: ChecksumKind,
    cancelled: &CancelSignal,
) -> StorageResult<String> {
    let opened = service.logical.files.open(path, OpenMode::default(), Opaque(opaque), client);
    let (file, before) = opened?;
    service.logical.checksums.of_file(path, (&file, &before), kind, cancelled)
}

impl RequestHandler {
    async fn query(&self, query: Query) -> Result<Response, Response> {
        match query.kind {
            QueryCode::CONFIG => self.query_config(&query),
            QueryCode::SPACE => self.query_space(&query).await,
            QueryCode::STATS => Ok(text(self.statistics())),
            QueryCode::XATTR => self.query_xattr(&query).await,
            QueryCode::PREPARE => self.query_preparation(&query).await,
            // Checksums are computed per request, so there is nothing to cancel for other clients.
            QueryCode::CHECKSUM_CANCEL => done(),
            QueryCode::OPAQUE_OPEN if query.argument.starts_with(CANCEL_COPY) => {
                cancel(&*self.file(query.handle)?);
                done()
            }
            QueryCode::OPAQUE_OPEN if asks_for_file(&query) => self.pass_file(&query).await,
            other => Err(failed(ErrorCode::UNSUPPORTED, format!("query {other} is not supported"))),
        }
    }

    fn query_config(&self, query: &Query) -> Result<Response, Response> {
        let values: Vec<_> = query.words().map(|word| self.configured(word)).collect();
        if values.is_empty() {
            Err(failed(ErrorCode::ARG_MISSING, "no configuration word given"))
        } else {
            Ok(ok(&ConfigAnswer { values }))
        }
    }

    async fn wanted_checksum(&self, query: &Query) -> Result<ChecksumRequest, Response> {
        let location = location_of(query)?;
        let kind = checksum_kind(&location)?;
        if let Some((path, open)) = self.open_file_of(&location)? {
            let file = Arc::clone(&open);
            let metadata = self.call(false, move |_| file.metadata()).await?;
            return Ok(ChecksumRequest { path, location, metadata, kind, open: Some(open) });
        }
        // A checksum reveals the content of the file.
        self.path(&location, Action::Read).await?;
        let (path, metadata) = self.metadata(&location).await?;
        match metadata.kind {
            FileKind::File => Ok(ChecksumRequest { path, location, metadata, kind, open: None }),
            FileKind::Folder => Err(failed(ErrorCode::IS_DIRECTORY, format!("{path} is a folder"))),
            FileKind::Other => Err(failed(ErrorCode::NOT_FILE, format!("{path} is not a file"))),
        }
    }

    /// The file that the client has open by this path, if the path may lead to another one by now, or the client has
    /// made the file and knows its content, whatever its rights. Clients that copy a file request its checksum by the
    /// path alone before they close it.
    fn open_file_of(
        &self,
        location: &Location,
    ) -> Result<Option<(StoragePath, Arc<SharedFile>)>, Response> {
        let mut opaque = opaque_pairs(location.opaque().unwrap_or_default());
        if opaque.any(|(key, _)| !key.starts_with(b"cks.") && !key.starts_with(b"xrd")) {
            return Ok(None);
        }
        let path = StoragePath::new(location.path()).map_err(response_of)?;
        let open = self.session.handles.all().into_iter();
        let is_meant = |open: &Arc<OpenFile>| {
            let is_same = open.is_writable || !open.file.can_be_reopened();
            open.path == path && open.is_readable && is_same
        };
        let open = open.filter(is_meant);
        let last = open.max_by_key(|open| open.since);
        Ok(last.map(|open| (path, Arc::clone(&open.file))))
    }

    /// The value of a configuration word; an unknown word is its own value.
    fn configured(&self, word: &[u8]) -> String {
        match word {
            b"bind_max" => BOUND_STREAMS_MAX.to_string(),
            b"chksum" => {
                let kinds = ChecksumKind::ALL.iter().enumerate();
                let kinds: Vec<_> =
                    kinds.map(|(index, kind)| format!("{index}:{}", kind.name())).collect();
                kinds.join(",")
            }
            b"cms" => "none|".to_owned(),
            b"fattr" => format!("{ATTRIBUTE_NAME_BYTES_MAX} {ATTRIBUTE_VALUE_BYTES_MAX}"),
            b"pio_max" => "5".to_owned(),
            b"readv_ior_max" => SEGMENT_DATA_BYTES.to_string(),
            b"readv_iov_max" => SEGMENTS_MAX.to_string(),
            b"role" if self.service.logical.redirector.is_some() => "manager".to_owned(),
            b"role" => "server".to_owned(),
            b"fb.running" => self.service.logical.exports.requests_running().to_string(),
            b"sitename" => self.service.site.clone(),
            b"start" => seconds(self.service.since).to_string(),
            // This server can be a source; opens to copy are refused if it may not be a destination.
            b"tpc" => "1".to_owned(),
            b"wan_port" | b"wan_window" | b"window" => "0".to_owned(),
            b"version" => format!("Femtobarn {}", env!("CARGO_PKG_VERSION")),
            unknown => String::from_utf8_lossy(unknown).into_owned(),
        }
    }

    async fn query_space(&self, query: &Query) -> Result<Response, Response> {
        let (space, _) = self.space(&location_of(query)?).await?;
        let used = space.total.saturating_sub(space.free);
        Ok(text(format!(
            "oss.cgroup=public&oss.space={}&oss.free={}&oss.maxf={}&oss.used={used}&oss.quota=-1",
            space.total, space.free, space.largest
        )))
    }

    async fn query_xattr(&self, query: &Query) -> Result<Response, Response> {
        let (_, metadata) = self.metadata(&location_of(query)?).await?;
        let kind = if metadata.kind == FileKind::Folder { 'd' } else { 'f' };
        let access = if metadata.is_writable { 'w' } else { 'r' };
        // The owner is part of stat only, as in other servers.
        Ok(text(format!(
            "oss.cgroup=public&oss.type={kind}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}&oss.u=*\
             &oss.g=*&oss.fs={access}",
            metadata.size,
            seconds(metadata.modified),
            seconds(metadata.changed),
            seconds(metadata.accessed),
        )))
    }

    /// The argument is the id of the prepare request, followed by paths unless the client asks for all.
    async fn query_preparation(&self, query: &Query) -> Result<Response, Response> {
        let mut lines =
            query.argument.split(|byte| matches!(byte, b'\n' | 0)).filter(|line| !line.is_empty());
        let name = lines.next().unwrap_or_default();
        let Some(requested) = self.service.preparations.paths(name) else {
            return Err(failed(ErrorCode::NOT_FOUND, "unknown prepare request"));
        };
        let asked: Vec<_> = lines.map(<[u8]>::to_vec).collect();
        let mut responses = Vec::new();
        for path in if asked.is_empty() { &requested } else { &asked } {
            let metadata = match Location::new(path.clone()) {
                Ok(location) => self.metadata(&location).await.ok(),
                Err(_) => None,
            };
            let has =
                |what: fn(&Metadata) -> bool| metadata.as_ref().is_some_and(|(_, it)| what(it));
            responses.push(json!({
                "path": String::from_utf8_lossy(path),
                "path_exists": metadata.is_some(),
                "online": has(|metadata| metadata.is_online),
                "on_tape": has(|metadata| metadata.is_backed_up),
                "requested": requested.contains(path),
                "has_reqid": requested.contains(path),
                "req_time": "",
                "error_text": "",
            }));
        }
        let name = String::from_utf8_lossy(name);
        Ok(text(json!({ "request_id": name, "responses": responses }).to_string()))
    }

    fn statistics(&self) -> String {
        let logical = &self.service.logical;
        let totals = logical.sessions.totals();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "<statistics tod=\"{now}\" ver=\"{version}\" src=\"{local}\" tos=\"{since}\" \
             pgm=\"femtobarn\" ins=\"anon\" pid=\"{process}\" site=\"{site}\">\
             <stats id=\"link\"><num>{sessions}</num><tot>{begun}</tot><in>{bytes_in}</in>\
             <out>{bytes_out}</out></stats>\
             <stats id=\"xrootd\"><num>{begun}</num><ops><all>{requests}</all></ops>\
             <err>{errors}</err><files>{files}</files></stats></statistics>",
            now = seconds(clock::utc()),
            version = env!("CARGO_PKG_VERSION"),
            local = self.local,
            since = seconds(self.service.since),
            process = std::process::id(),
            site = self.service.site.replace(['<', '>', '&', '"'], "_"),
            sessions = logical.sessions.count(),
            begun = logical.sessions.begun(),
            bytes_in = count(&totals.bytes_in),
            bytes_out = count(&totals.bytes_out),
            requests = count(&totals.requests),
            errors = count(&totals.errors),
            files = logical.files.count(),
        )
    }
}

/// The location in a query's argument, which clients end with a zero byte.
pub(super) fn location_of(query: &Query) -> Result<Location, Response> {
    query.location().map_err(|error| Response::Error((&error).into()))
}

fn text(text: String) -> Response {
    let mut bytes = text.into_bytes();
    bytes.push(0);
    Response::Ok(bytes.into())
}
