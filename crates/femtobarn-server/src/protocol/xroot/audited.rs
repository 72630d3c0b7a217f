//! Requests that change something, each of which leaves a line in the audit log.
//!
//! A file that is open for writing is recorded when it is opened, and not again for each write.

use xrd::Location;
use xrd::flags::{PrepareMore, PrepareOptions};
use xrd::request::{AttributeAction, FileRef, Open, Prepare, Request};
use xrd::response::Response;

use super::handler::{RequestHandler, bearer};
use super::open::open_mode;
use super::responses::{failed, kind_of};
use crate::auth::{Asker, AuditedChange, Identity, Refusal};
use crate::physical::Creation;

/// The change of a request.
struct RequestedChange<'a> {
    what: &'static str,
    locations: Vec<&'a Location>,
    /// The new path of a file, or the server that it is copied from.
    to: Option<String>,
}

impl RequestHandler {
    /// Performs a request, and records it if it changes something.
    pub(super) async fn respond(&self, request: Request) -> Response {
        let change = match requested_change(&request) {
            None => return self.perform(request).await,
            Some(requested) => match self.audited(requested).await {
                Ok(change) => change,
                Err(refusal) => return unrecorded(refusal),
            },
        };
        let response = self.perform(request).await;
        let recorded = match &response {
            Response::Error(failure) => change.end(Some(kind_of(failure.code))),
            // The client will ask again, here or at another server.
            Response::Wait(_) | Response::Redirect(_) => {
                change.forget();
                Ok(())
            }
            _ => change.end(None),
        };
        recorded.map_or_else(unrecorded, |()| response)
    }

    async fn audited(&self, change: RequestedChange<'_>) -> Result<AuditedChange, Refusal> {
        let authenticator = &self.service.authenticator;
        if authenticator.audit.is_none() {
            return Ok(AuditedChange::unrecorded());
        }
        let named = match change.locations.first() {
            Some(location) => self.named_by_token(location).await,
            None => None,
        };
        let own = self.session.identity();
        let asker = Asker {
            identity: named.as_ref().or(own.as_deref()),
            address: Some(self.session.host.ip()),
            protocol: "root",
        };
        let paths = change.locations.iter().map(|location| text(location));
        let begun = authenticator.audited(asker, change.what, paths)?;
        Ok(begun.to(change.to))
    }

    /// The identity of the token that comes with a request, if it has a valid one.
    async fn named_by_token(&self, location: &Location) -> Option<Identity> {
        let token = bearer(location.value_of("authz")?)?;
        self.named_by(&token).await.ok().filter(|named| named.ignored_token.is_none())
    }
}

/// The answer to a change that cannot be recorded.
fn unrecorded(refusal: Refusal) -> Response {
    failed(xrd::ErrorCode::FS_ERROR, refusal.0)
}

fn text(location: &Location) -> String {
    String::from_utf8_lossy(location.path()).into_owned()
}

/// The change of a request, if it makes one.
fn requested_change(request: &Request) -> Option<RequestedChange<'_>> {
    let of = |what, location| Some(RequestedChange { what, locations: vec![location], to: None });
    match request {
        Request::Open(open) => opened_to_write(open),
        Request::Mkdir(mkdir) => of("make-folder", &mkdir.location),
        Request::Rm(rm) => of("remove", &rm.location),
        Request::Rmdir(rmdir) => of("remove-folder", &rmdir.location),
        Request::Chmod(chmod) => of("set-mode", &chmod.location),
        Request::Mv(mv) => {
            Some(RequestedChange { to: Some(text(&mv.to)), ..of("rename", &mv.from)? })
        }
        Request::Truncate(truncate) => match &truncate.target {
            FileRef::Location(location) => of("truncate", location),
            FileRef::Handle(_) => None,
        },
        Request::Fattr(fattr) => match (&fattr.target, &fattr.action) {
            (FileRef::Location(location), AttributeAction::Set(_) | AttributeAction::Delete(_)) => {
                of("set-attributes", location)
            }
            _ => None,
        },
        Request::Prepare(prepare) => prepared(prepare),
        _ => None,
    }
}

fn opened_to_write(open: &Open) -> Option<RequestedChange<'_>> {
    let how = open_mode(open);
    if !how.write {
        return None;
    }
    let source = open.location.value_of("tpc.src");
    let to = source.map(|source| String::from_utf8_lossy(source).into_owned());
    let what = match (&to, how.creation) {
        (Some(_), _) => "copy",
        (None, Creation::Existing) => "write",
        (None, _) => "upload",
    };
    Some(RequestedChange { what, locations: vec![&open.location], to })
}

fn prepared(prepare: &Prepare) -> Option<RequestedChange<'_>> {
    let what = if prepare.options.contains(PrepareOptions::CANCEL) {
        "cancel-stage"
    } else if prepare.more.contains(PrepareMore::EVICT) {
        "evict"
    } else if prepare.options.contains(PrepareOptions::STAGE) {
        "stage"
    } else {
        return None;
    };
    Some(RequestedChange { what, locations: prepare.locations.iter().collect(), to: None })
}
