//! Requests about paths, if this server has no data: it redirects clients to servers that have it.
//!
//! 1. A client needs some right to each path here. The server with the path decides which actions it may perform.
//! 2. While servers are asked, other requests of the client are answered.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 2 (kXR_redirect, opaque information), section 3 (kXR_locate).

use std::net::IpAddr;

use xrd::client::Endpoint;
use xrd::flags::{LocateOptions, OpenOptions, PrepareOptions};
use xrd::request::{AttributeAction, FileRef, Open, Query, Request};
use xrd::response::{Access, LocatedKind, LocatedServer, Response, encode_locate_answer};
use xrd::{ErrorCode, Location, QueryCode};

use super::handler::{RequestHandler, opaque};
use super::namespace::address;
use super::open::open_mode;
use super::query::location_of;
use super::responses::{failed, response_of};
use crate::logical::redirector::{
    AccessKind, ClientQuestion, Presence, RedirectedClient, Redirector,
};
use crate::physical::{Creation, StorageError, StoragePath};

/// The programs of clients that are servers themselves: our cache, and XRootD's server.
const SERVERS: [&str; 2] = ["femtobarn-cache", "xrootd"];

/// A request about paths that another server can answer.
pub(super) struct RedirectableRequest {
    locations: Vec<Location>,
    /// Whether to ask the servers again, whatever they have answered before.
    anew: bool,
    purpose: RedirectPurpose,
}

/// The purpose of a request.
#[derive(Clone, Copy)]
enum RedirectPurpose {
    /// To do this to all paths.
    Do(AccessKind),
    /// To move the first path to the second.
    Move,
    /// To look up the location of the path.
    Locate,
    /// To query or cancel a prepare request, which only the server that got it knows.
    Preparation,
}

impl RedirectableRequest {
    /// `None` if this server answers itself.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let with = |purpose, locations: Vec<Location>| {
            Some(RedirectableRequest { locations, anew: false, purpose })
        };
        let to = |wish, location: Location| with(RedirectPurpose::Do(wish), vec![location]);
        match request {
            Request::Locate(locate) => {
                let anew = locate.options.contains(LocateOptions::REFRESH);
                let locations = vec![locate.location.clone()];
                Some(RedirectableRequest { locations, anew, purpose: RedirectPurpose::Locate })
            }
            Request::Open(open) => {
                let anew = open.options.contains(OpenOptions::REFRESH);
                let (locations, purpose) =
                    (vec![open.location.clone()], RedirectPurpose::Do(wish_of(open)));
                Some(RedirectableRequest { locations, anew, purpose })
            }
            Request::Mv(mv) => with(RedirectPurpose::Move, vec![mv.from.clone(), mv.to.clone()]),
            Request::Stat(stat) => to(AccessKind::Look, path_of(&stat.target)?),
            Request::Statx(statx) => several(&statx.locations),
            Request::Dirlist(list) => to(AccessKind::Look, list.location.clone()),
            Request::Query(query) if query.kind == QueryCode::PREPARE => {
                with(RedirectPurpose::Preparation, vec![])
            }
            Request::Query(query) => to(AccessKind::Use, queried_path(query)?),
            Request::Prepare(prepare) if prepare.options.contains(PrepareOptions::CANCEL) => {
                with(RedirectPurpose::Preparation, vec![])
            }
            Request::Prepare(prepare) => several(&prepare.locations),
            Request::Fattr(fattr) => {
                let reads = matches!(fattr.action, AttributeAction::Get(_) | AttributeAction::List);
                to(
                    if reads { AccessKind::Use } else { AccessKind::Change },
                    path_of(&fattr.target)?,
                )
            }
            Request::Mkdir(mkdir) => to(AccessKind::Create, mkdir.location.clone()),
            Request::Rm(rm) => to(AccessKind::Change, rm.location.clone()),
            Request::Rmdir(rmdir) => to(AccessKind::Change, rmdir.location.clone()),
            Request::Chmod(chmod) => to(AccessKind::Change, chmod.location.clone()),
            Request::Truncate(truncate) => to(AccessKind::Change, path_of(&truncate.target)?),
            _ => None,
        }
    }
}

impl RequestHandler {
    /// The response to a request about paths.
    pub(super) async fn redirected(
        &self,
        redirector: &Redirector,
        request: RedirectableRequest,
    ) -> Response {
        let responding = async {
            match request.purpose {
                RedirectPurpose::Locate => self.located(redirector, &request).await,
                RedirectPurpose::Preparation => Err(failed(
                    ErrorCode::UNSUPPORTED,
                    "only the server to which this one redirected the prepare request knows it: ask that one",
                )),
                RedirectPurpose::Do(_) | RedirectPurpose::Move => {
                    self.redirect_to_server(redirector, &request).await
                }
            }
        };
        responding.await.unwrap_or_else(|response| response)
    }

    async fn redirect_to_server(
        &self,
        redirector: &Redirector,
        request: &RedirectableRequest,
    ) -> Result<Response, Response> {
        let mut paths = Vec::with_capacity(request.locations.len());
        for location in &request.locations {
            paths.push(self.visible(location).await?);
        }
        let named = paths.iter().zip(&request.locations);
        let asked: Vec<_> =
            named.map(|(path, location)| self.asked(path, location, request)).collect();
        let found = match (request.purpose, &*asked) {
            (RedirectPurpose::Move, [from, to]) => {
                redirector.find_to_move(*from, ClientQuestion { anew: true, ..*to }).await
            }
            (RedirectPurpose::Do(wish), asked) => redirector.find(asked, wish).await,
            _ => return Err(failed(ErrorCode::ARG_MISSING, "the request names no path")),
        };
        let Endpoint { host, port } = found.map_err(response_of)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let (opaque, is_encrypted) = (String::new(), false);
        Err(response_of(StorageError::Elsewhere { host, port, opaque, is_encrypted }))
    }

    fn asked<'a>(
        &self,
        path: &'a StoragePath,
        location: &'a Location,
        request: &RedirectableRequest,
    ) -> ClientQuestion<'a> {
        let program = &*self.session.client.program;
        let is_server = SERVERS.contains(&program);
        let client =
            RedirectedClient { address: self.session.host.ip(), is_server, comes_again: false };
        ClientQuestion { path, opaque: opaque(location), anew: request.anew, client }
    }

    /// The answer to kXR_locate: all servers that have the path. `*/path` is the same, and `*` the folder for which this
    /// server redirects.
    async fn located(
        &self,
        redirector: &Redirector,
        request: &RedirectableRequest,
    ) -> Result<Response, Response> {
        let missing = || failed(ErrorCode::ARG_MISSING, "the request names no path");
        let named = request.locations.first().ok_or_else(missing)?;
        let location = match named.as_bytes().strip_prefix(b"*") {
            Some(named) if named.starts_with(b"/") => Location::new(named.to_vec()),
            Some(_) => Location::new(redirector.name()),
            None => Ok(named.clone()),
        };
        let location =
            location.map_err(|error| failed(ErrorCode::ARG_INVALID, error.to_string()))?;
        let path = self.visible(&location).await?;
        let asked = self.asked(&path, &location, request);
        let found = redirector.locate(asked).await.map_err(response_of)?;
        let servers: Vec<_> = found.iter().filter_map(located_server).collect();
        let body = encode_locate_answer(&servers);
        let body = body.map_err(|error| failed(ErrorCode::SERVER_ERROR, error.to_string()))?;
        Ok(Response::Ok(body.into()))
    }
}

/// A request about these paths; `None` without paths.
fn several(locations: &[Location]) -> Option<RedirectableRequest> {
    let (locations, purpose) = (locations.to_vec(), RedirectPurpose::Do(AccessKind::Use));
    (!locations.is_empty()).then_some(RedirectableRequest { locations, anew: false, purpose })
}

fn wish_of(open: &Open) -> AccessKind {
    let how = open_mode(open);
    match how.creation {
        Creation::Existing if how.write => AccessKind::Change,
        Creation::Existing => AccessKind::Read,
        _ => AccessKind::Create,
    }
}

fn path_of(target: &FileRef) -> Option<Location> {
    match target {
        FileRef::Location(location) => Some(location.clone()),
        FileRef::Handle(_) => None,
    }
}

fn queried_path(query: &Query) -> Option<Location> {
    let kinds = [QueryCode::CHECKSUM, QueryCode::XATTR, QueryCode::SPACE];
    if kinds.contains(&query.kind) { location_of(query).ok() } else { None }
}

/// A server in the answer to kXR_locate: by its address, or by its name.
fn located_server((server, presence): &(Endpoint, Presence)) -> Option<LocatedServer> {
    let Presence::Here { is_online, is_writable } = *presence else { return None };
    Some(LocatedServer {
        kind: LocatedKind::Server,
        online: is_online,
        access: if is_writable { Access::Write } else { Access::Read },
        address: match server.host.parse::<IpAddr>() {
            Ok(ip) => address((ip, server.port).into()),
            Err(_) => server.to_string(),
        },
    })
}
