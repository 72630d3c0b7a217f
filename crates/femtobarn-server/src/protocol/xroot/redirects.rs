//! Requests about paths, if this server has no data: it redirects clients to servers that have it.
//!
//! 1. A client needs some right to a path here. What it may do there, the server says that has the path.
//! 2. While servers are asked, other requests of the client are answered.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 2 (kXR_redirect, opaque information), section 3 (kXR_locate).

use std::net::IpAddr;

use xrd::client::Endpoint;
use xrd::flags::{LocateOptions, OpenOptions, PrepareOptions};
use xrd::request::{AttributeAction, FileRef, Open, Query, Request};
use xrd::response::{Access, LocatedKind, LocatedServer, Redirect, Response, encode_locate_answer};
use xrd::{ErrorCode, Location, QueryCode};

use super::handler::{RequestHandler, opaque};
use super::namespace::address;
use super::open::open_mode;
use super::query::location_of;
use super::responses::{failed, response_of};
use crate::logical::redirector::{Asked, Presence, Redirector, Wish};
use crate::physical::{Creation, StoragePath};

/// A request about a path that another server can answer.
pub(super) struct RedirectableRequest {
    location: Location,
    /// A second path that the request changes.
    other: Option<Location>,
    /// Whether servers are to be asked, whatever they have said before.
    anew: bool,
    /// What the client wants to do; none if it only asks where the path is.
    wish: Option<Wish>,
}

impl RedirectableRequest {
    /// None if this server answers itself.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let (location, wish) = match request {
            Request::Locate(locate) => {
                let anew = locate.options.contains(LocateOptions::REFRESH);
                let location = locate.location.clone();
                return Some(RedirectableRequest { location, other: None, anew, wish: None });
            }
            Request::Open(open) => {
                let anew = open.options.contains(OpenOptions::REFRESH);
                let location = open.location.clone();
                let wish = Some(wish_of(open));
                return Some(RedirectableRequest { location, other: None, anew, wish });
            }
            Request::Mv(mv) => {
                let (location, other) = (mv.from.clone(), Some(mv.to.clone()));
                let wish = Some(Wish::Change);
                return Some(RedirectableRequest { location, other, anew: false, wish });
            }
            Request::Stat(stat) => (path_of(&stat.target)?, Wish::Read),
            Request::Statx(statx) => (statx.locations.first()?.clone(), Wish::Read),
            Request::Dirlist(list) => (list.location.clone(), Wish::Read),
            Request::Query(query) => (queried_path(query)?, Wish::Read),
            Request::Prepare(prepare) if !prepare.options.contains(PrepareOptions::CANCEL) => {
                (prepare.locations.first()?.clone(), Wish::Read)
            }
            Request::Fattr(fattr) => {
                let reads = matches!(fattr.action, AttributeAction::Get(_) | AttributeAction::List);
                (path_of(&fattr.target)?, if reads { Wish::Read } else { Wish::Change })
            }
            Request::Mkdir(mkdir) => (mkdir.location.clone(), Wish::Create),
            Request::Rm(rm) => (rm.location.clone(), Wish::Change),
            Request::Rmdir(rmdir) => (rmdir.location.clone(), Wish::Change),
            Request::Chmod(chmod) => (chmod.location.clone(), Wish::Change),
            Request::Truncate(truncate) => (path_of(&truncate.target)?, Wish::Change),
            _ => return None,
        };
        Some(RedirectableRequest { location, other: None, anew: false, wish: Some(wish) })
    }
}

impl RequestHandler {
    /// The response to a request about a path.
    pub(super) async fn redirected(
        &self,
        redirector: &Redirector,
        request: RedirectableRequest,
    ) -> Response {
        let responding = async {
            match request.wish {
                Some(wish) => self.redirect_to_server(redirector, &request, wish).await,
                None => self.located(redirector, &request).await,
            }
        };
        responding.await.unwrap_or_else(|response| response)
    }

    async fn redirect_to_server(
        &self,
        redirector: &Redirector,
        request: &RedirectableRequest,
        wish: Wish,
    ) -> Result<Response, Response> {
        let path = self.visible(&request.location).await?;
        let asked = Asked { path: &path, opaque: opaque(&request.location), anew: request.anew };
        let Endpoint { host, port } = redirector.find(asked, wish).await.map_err(response_of)?;
        if let Some(other) = &request.other {
            redirector.forget(&StoragePath::new(other.path()).map_err(response_of)?);
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Ok(Response::Redirect(Redirect::Host { port, host }))
    }

    /// The answer to kXR_locate. `*` asks for all servers, `*/path` for all that have the path.
    async fn located(
        &self,
        redirector: &Redirector,
        request: &RedirectableRequest,
    ) -> Result<Response, Response> {
        let named = request.location.as_bytes();
        let location = match named.strip_prefix(b"*") {
            Some(named) if named.starts_with(b"/") => Location::new(named.to_vec()),
            Some(_) => Location::new(redirector.name()),
            None => Ok(request.location.clone()),
        };
        let location =
            location.map_err(|error| failed(ErrorCode::ARG_INVALID, error.to_string()))?;
        let path = self.visible(&location).await?;
        let asked = Asked { path: &path, opaque: opaque(&location), anew: request.anew };
        let found = redirector.locate(asked).await.map_err(response_of)?;
        let servers: Vec<_> = found.iter().filter_map(located_server).collect();
        let body = encode_locate_answer(&servers);
        let body = body.map_err(|error| failed(ErrorCode::SERVER_ERROR, error.to_string()))?;
        Ok(Response::Ok(body.into()))
    }
}

fn wish_of(open: &Open) -> Wish {
    let how = open_mode(open);
    match how.creation {
        Creation::Existing if how.write => Wish::Change,
        Creation::Existing => Wish::Read,
        _ => Wish::Create,
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

/// A server as in the answer to kXR_locate: an address as such, a name as it is.
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
