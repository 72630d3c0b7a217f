//! Mounts: pages beside the server's own, which the program that embeds the server makes for each federation.
//!
//! The server knows the path of a mount and its rights, not its answers. `GET` and `HEAD` need the right to read the
//! federation, every other method the right to modify it.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{Method, StatusCode};

use super::clients::{identity, refused_to, said};
use crate::auth::{Action, Asker, AuditedChange, Authenticator, Refusal};
use crate::protocol::answer_counting::kind_of_status;
use crate::protocol::listener::Peer;

/// A served federation, for which mounts are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedFederation {
    /// The name of the export, such as `/lhc`.
    pub name: String,
    /// The folder on this machine.
    pub folder: PathBuf,
    /// Whether clients cannot change the federation, whatever their rights.
    pub is_read_only: bool,
}

/// Pages of a federation.
pub struct Mount {
    /// The first part of the paths, such as `/conditions`; the federation's name is the next.
    pub prefix: &'static str,
    /// The pages, with paths below that.
    pub routes: Router,
}

/// The pages of a mount below its prefix and the federation's name, for clients with the rights to them.
pub fn mounted(mount: Mount, of: ServedFederation, authenticator: Authenticator) -> Router {
    let path = format!("{}{}", mount.prefix, of.name);
    let gate = Arc::new(Gate { path: path.clone(), of, authenticator });
    Router::new().nest(&path, mount.routes.layer(from_fn_with_state(gate, Gate::pass)))
}

/// Lets only clients with the necessary right through.
struct Gate {
    /// The path of the mount, which requests do not have any more.
    path: String,
    of: ServedFederation,
    authenticator: Authenticator,
}

impl Gate {
    async fn pass(State(gate): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let change = match gate.audited(&request) {
            Ok(change) => change,
            Err(Refusal(what)) => return said(StatusCode::INTERNAL_SERVER_ERROR, &what),
        };
        let answer = match gate.refusal(&request) {
            None => next.run(request).await,
            Some(answer) => answer,
        };
        let is_error = answer.status().is_client_error() || answer.status().is_server_error();
        let recorded = change.end(is_error.then(|| kind_of_status(answer.status())));
        let unrecorded = |Refusal(what)| said(StatusCode::INTERNAL_SERVER_ERROR, &what);
        recorded.map_or_else(unrecorded, |()| answer)
    }

    /// Begins the change that a request is, to be recorded.
    fn audited(&self, request: &Request) -> Result<AuditedChange, Refusal> {
        if is_reading(request.method()) || self.authenticator.audit.is_none() {
            return Ok(AuditedChange::unrecorded());
        }
        let peer = request.extensions().get::<Peer>();
        let asking =
            peer.and_then(|peer| identity(&self.authenticator, request.headers(), peer).ok());
        let asker = Asker {
            identity: asking.as_ref(),
            address: peer.map(|peer| peer.address.ip()),
            protocol: "http",
        };
        let path = format!("{}{}", self.path, request.uri().path());
        self.authenticator.audited(asker, "change", [path])
    }

    /// The answer to a request that is not allowed; `None` if it is.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let name = &self.of.name;
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Some(said(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the client's address is unknown",
            ));
        };
        let is_reading = is_reading(request.method());
        let action = if is_reading { Action::Read } else { Action::Modify };
        let refused = refused_to(action, &self.authenticator, request.headers(), peer, name);
        let is_closed = !is_reading && self.of.is_read_only;
        refused.or_else(|| {
            let what = format!("{name} is served read-only");
            is_closed.then(|| said(StatusCode::FORBIDDEN, &what))
        })
    }
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
