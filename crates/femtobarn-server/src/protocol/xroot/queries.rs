//! Queries: checksums, configuration, space, statistics.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_query.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde_json::json;
use tokio::sync::Semaphore;
use xrd::limits::{
    ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, BOUND_STREAMS_MAX, SEGMENT_DATA_BYTES,
    SEGMENTS_MAX,
};
use xrd::request::Query;
use xrd::response::Response;
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::{ErrorCode, Location, QueryCode, StreamId, opaque_pairs};

use super::Shared;
use super::connection::Connection;
use super::failures::{failed, response_of};
use super::greeting::ok;
use super::handler::{RequestHandler, blocking, done};
use super::names::seconds;
use crate::auth::Action;
use crate::logical::checksums::{ChecksumKind, Waiter, Wish};
use crate::logical::files::SharedFile;
use crate::physical::{FileKind, Metadata, Opaque, OpenMode, StoragePath, StorageResult};

/// Bytes of a file whose checksum the client is told to wait for.
const SLOW_CHECKSUM_BYTES: u64 = 32 * 1024 * 1024;

/// Seconds that are told then; the answer comes when it is there.
const SLOW_CHECKSUM_SECONDS: u32 = 600;

impl Connection {
    pub(super) async fn query_request(
        &mut self,
        stream: StreamId,
        asker: RequestHandler,
        query: Query,
    ) -> io::Result<()> {
        if query.kind == QueryCode::CHECKSUM {
            return self.checksum_request(stream, asker, query).await;
        }
        let response = asker.query(query).await.unwrap_or_else(|response| response);
        self.answer(stream, &response).await
    }

    async fn checksum_request(
        &mut self,
        stream: StreamId,
        asker: RequestHandler,
        query: Query,
    ) -> io::Result<()> {
        let wanted = match asker.wanted_checksum(&query).await {
            Ok(wanted) => wanted,
            Err(response) => return self.answer(stream, &response).await,
        };
        let known =
            asker.shared.logical.checksums.known(&wanted.path, &wanted.metadata, wanted.kind);
        if let Some(digest) = known {
            return self.answer(stream, &checksum_response(wanted.kind, digest)).await;
        }
        let is_slow =
            wanted.metadata.size > SLOW_CHECKSUM_BYTES && asker.session.client.takes_late_answers;
        let seconds = is_slow.then_some(SLOW_CHECKSUM_SECONDS);
        let shared = Arc::clone(&asker.shared);
        let turns = Arc::clone(&asker.shared.checksums);
        self.respond_later(stream, seconds, async move {
            let Wanted { path, location, kind, open, .. } = wanted;
            let opaque = location.opaque().unwrap_or_default().to_vec();
            let digest = move |wish: &Wish| match open {
                Some(open) => digest_of(&shared, &path, (&open, &open.metadata()?), kind, wish),
                None => digest(&shared, &path, &opaque, kind, wish),
            };
            match in_turn(&turns, digest).await {
                Ok(digest) => checksum_response(kind, digest),
                Err(trouble) => response_of(trouble),
            }
        })
        .await
    }
}

/// A checksum that a client asks for.
struct Wanted {
    path: StoragePath,
    location: Location,
    metadata: Metadata,
    kind: ChecksumKind,
    /// The file, if it is one that the client has open.
    open: Option<Arc<SharedFile>>,
}

fn checksum_response(kind: ChecksumKind, digest: String) -> Response {
    ok(&ChecksumAnswer { kind: kind.name().to_owned(), digest })
}

/// Computes a checksum when it is its turn: long ones must not take all threads that may block. If this is
/// dropped the checksum ends soon, and its turn with it.
pub(super) async fn in_turn(
    turns: &Arc<Semaphore>,
    digest: impl FnOnce(&Wish) -> StorageResult<String> + Send + 'static,
) -> StorageResult<String> {
    let turn = Arc::clone(turns).acquire_owned().await.expect("nobody closes this semaphore");
    let waiter = Waiter::default();
    let wish = waiter.wish();
    blocking(move || {
        let _turn = turn;
        digest(&wish)
    })
    .await
}

/// The kind of checksum that a location asks for.
pub(super) fn checksum_kind(location: &Location) -> Result<ChecksumKind, Response> {
    let Some(name) = location.value_of("cks.type") else { return Ok(ChecksumKind::ALL[0]) };
    ChecksumKind::of_name(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        failed(ErrorCode::UNSUPPORTED, format!("{name} checksums are not supported"))
    })
}

/// A file's checksum, kept or computed. May block for long.
pub(super) fn digest(
    shared: &Shared,
    path: &StoragePath,
    opaque: &[u8],
    kind: ChecksumKind,
    wish: &Wish,
) -> StorageResult<String> {
    let (file, before) = shared.logical.files.open(path, OpenMode::default(), Opaque(opaque))?;
    digest_of(shared, path, (&file, &before), kind, wish)
}

fn digest_of(
    shared: &Shared,
    path: &StoragePath,
    (file, before): (&SharedFile, &Metadata),
    kind: ChecksumKind,
    wish: &Wish,
) -> StorageResult<String> {
    let checksums = &shared.logical.checksums;
    if let Some(digest) = checksums.known(path, before, kind) {
        return Ok(digest);
    }
    let interface = file.interface()?;
    let digest = kind.compute(&*interface, wish)?;
    checksums.keep(path, (before, &interface.metadata()?), kind, &digest);
    Ok(digest)
}

impl RequestHandler {
    async fn query(&self, query: Query) -> Result<Response, Response> {
        match query.kind {
            QueryCode::CONFIG => self.query_config(&query),
            QueryCode::SPACE => self.query_space(&query).await,
            QueryCode::STATS => Ok(text(self.statistics())),
            QueryCode::XATTR => self.query_xattr(&query).await,
            QueryCode::PREPARE => self.query_preparation(&query).await,
            // Nothing is known that could be cancelled: who no longer waits loses nothing.
            QueryCode::CHECKSUM_CANCEL => done(),
            other => Err(failed(ErrorCode::UNSUPPORTED, format!("query {other} is not supported"))),
        }
    }

    fn query_config(&self, query: &Query) -> Result<Response, Response> {
        let values: Vec<_> = query.words().map(|word| self.configured(word)).collect();
        match values.is_empty() {
            true => {
                Err(failed(ErrorCode::ARG_MISSING, "nothing of the configuration was asked for"))
            }
            false => Ok(ok(&ConfigAnswer { values })),
        }
    }

    async fn wanted_checksum(&self, query: &Query) -> Result<Wanted, Response> {
        let location = location_of(query)?;
        let kind = checksum_kind(&location)?;
        if let Some((path, open)) = self.meant(&location).await? {
            let file = Arc::clone(&open);
            let metadata = self.call(false, move |_| file.metadata()).await?;
            return Ok(Wanted { path, location, metadata, kind, open: Some(open) });
        }
        let (path, metadata) = self.metadata(&location).await?;
        match metadata.kind {
            FileKind::File => Ok(Wanted { path, location, metadata, kind, open: None }),
            FileKind::Folder => Err(failed(ErrorCode::IS_DIRECTORY, format!("{path} is a folder"))),
            FileKind::Other => Err(failed(ErrorCode::NOT_FILE, format!("{path} is not a file"))),
        }
    }

    /// The file that the client has open by this name, if the name may mean another one by now: copying
    /// clients ask for the checksum of what they copy by its name alone, before they close it.
    async fn meant(
        &self,
        location: &Location,
    ) -> Result<Option<(StoragePath, Arc<SharedFile>)>, Response> {
        let mut opaque = opaque_pairs(location.opaque().unwrap_or_default());
        if opaque.any(|(key, _)| !key.starts_with(b"cks.") && !key.starts_with(b"xrd")) {
            return Ok(None);
        }
        let path = self.path(location, Action::Read).await?;
        let open = self.session.handles.all().into_iter();
        let open = open.filter(|open| open.path == path && !open.file.is_what_its_name_says());
        let last = open.max_by_key(|open| open.since);
        Ok(last.map(|open| (path, Arc::clone(&open.file))))
    }

    /// The value of one word; a word that is not known is answered by itself.
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
            b"role" => "server".to_owned(),
            b"sitename" => self.shared.site.clone(),
            b"start" => seconds(self.shared.since).to_string(),
            b"tpc" | b"tpcdlg" | b"wan_port" | b"wan_window" | b"window" => "0".to_owned(),
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
        // Whose it is stat tells; other servers never say so here.
        Ok(text(format!(
            "oss.cgroup=public&oss.type={kind}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}&oss.u=*\
             &oss.g=*&oss.fs={access}",
            metadata.size,
            seconds(metadata.modified),
            seconds(metadata.changed),
            seconds(metadata.accessed),
        )))
    }

    /// The request's name, and the paths that are asked about if not all.
    async fn query_preparation(&self, query: &Query) -> Result<Response, Response> {
        let mut lines =
            query.argument.split(|byte| matches!(byte, b'\n' | 0)).filter(|line| !line.is_empty());
        let name = lines.next().unwrap_or_default();
        let Some(requested) = self.shared.preparations.paths(name) else {
            return Err(failed(ErrorCode::NOT_FOUND, "there is no such prepare request"));
        };
        let asked: Vec<_> = lines.map(<[u8]>::to_vec).collect();
        let mut responses = Vec::new();
        for path in if asked.is_empty() { &requested } else { &asked } {
            let metadata = match Location::new(path.clone()) {
                Ok(location) => self.metadata(&location).await.ok(),
                Err(_) => None,
            };
            responses.push(json!({
                "path": String::from_utf8_lossy(path),
                "path_exists": metadata.is_some(),
                "online": metadata.is_some_and(|(_, metadata)| metadata.is_online),
                "on_tape": false,
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
        let logical = &self.shared.logical;
        let totals = logical.sessions.totals();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "<statistics tod=\"{now}\" ver=\"{version}\" src=\"{local}\" tos=\"{since}\" \
             pgm=\"femtobarn\" ins=\"anon\" pid=\"{process}\" site=\"{site}\">\
             <stats id=\"link\"><num>{sessions}</num><tot>{begun}</tot><in>{bytes_in}</in>\
             <out>{bytes_out}</out></stats>\
             <stats id=\"xrootd\"><num>{begun}</num><ops><all>{requests}</all></ops>\
             <err>{errors}</err><files>{files}</files></stats></statistics>",
            now = seconds(SystemTime::now()),
            version = env!("CARGO_PKG_VERSION"),
            local = self.local,
            since = seconds(self.shared.since),
            process = std::process::id(),
            site = self.shared.site.replace(['<', '>', '&', '"'], "_"),
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

/// The location that a query is about. Clients end it with a zero byte.
fn location_of(query: &Query) -> Result<Location, Response> {
    query.location().map_err(|error| Response::Error((&error).into()))
}

fn text(text: String) -> Response {
    let mut bytes = text.into_bytes();
    bytes.push(0);
    Response::Ok(bytes.into())
}
