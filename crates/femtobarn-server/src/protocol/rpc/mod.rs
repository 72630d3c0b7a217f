//! gRPC: the catalogues and the locks of federations for remote clients. `docs/protocol.md` specifies the protocol.
//!
//! | module | contents |
//! |---|---|
//! | `direct` | connections that carry only the turns of a session |
//! | `session_stream`, `inquiries`, `turn_calls` | the streams of sessions; questions that come with their operations; calls in their turns |
//! | `queries` | rows |
//! | `audited` | mutations, with their lines in the audit log |
//! | `mutations` | numbers, free space, tags, retention and transactions |
//!
//! Each call authenticates its caller by its bearer token; the caller's rights to the federation's path decide.

use std::collections::HashMap;
use std::sync::Arc;

use axum::middleware::{Next, from_fn};
use femtobarn_catalog::{Csn, Result};
use femtobarn_rpc::MESSAGE_BYTES_MAX;
use femtobarn_rpc::convert::{status_of, uuid};
use femtobarn_rpc::turns::TURNS_PATH;
use femtobarn_rpc::v1::catalogue_server::{Catalogue, CatalogueServer};
use femtobarn_rpc::v1::question::Of;
use femtobarn_rpc::v1::{
    Answer, ChangeReply, ChangeRequest, ClientTurn, ListLocksReply, ListLocksRequest, PublishReply,
    PublishRequest, Question,
};
use http::header::AUTHORIZATION;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

use crate::auth::{Action, Authenticator, Identity};
use crate::logical::catalogue::FederationService;
use crate::logical::exports::Exports;
use crate::logical::request_counts::{ClientProtocol, RequestCounts};
use crate::protocol::answer_counting::kind_of_code;
use crate::protocol::listener::Peer;
use blocking::BlockingPlaces;
use mutations::ACTIONS_OF_COMMITTERS;

mod audited;
mod blocking;
mod direct;
mod inquiries;
mod mutations;
mod queries;
mod session_stream;
mod turn_calls;

/// The answers to a question.
type AnswerStream = tokio_stream::Iter<std::vec::IntoIter<std::result::Result<Answer, Status>>>;

/// The credentials of a client, and its end of the connection.
type Caller = (MetadataMap, Option<Peer>);

/// The endpoints of all federations of a server.
#[derive(Clone)]
pub struct Service {
    state: Arc<ServiceState>,
}

struct ServiceState {
    federations: HashMap<String, Arc<FederationService>>,
    /// The exports, which measure the server's load.
    exports: Arc<Exports>,
    authenticator: Authenticator,
    request_counts: Arc<RequestCounts>,
    blocking: BlockingPlaces,
}

/// The routes of the service, beside those of HTTP.
pub fn routes(
    federations: Vec<Arc<FederationService>>,
    exports: Arc<Exports>,
    authenticator: Authenticator,
    request_counts: Arc<RequestCounts>,
) -> axum::Router {
    let by_name = federations.into_iter().map(|service| (service.name().to_owned(), service));
    let endpoint = Service {
        state: Arc::new(ServiceState {
            federations: by_name.collect(),
            exports,
            authenticator,
            request_counts,
            blocking: BlockingPlaces::new(),
        }),
    };
    // A route without a fallback: HTTP answers all other paths.
    let path = format!("/{}/{{*method}}", CatalogueServer::<Service>::NAME);
    let direct = axum::routing::get(direct::begin).with_state(endpoint.clone());
    let server = CatalogueServer::new(endpoint)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    axum::Router::new()
        .route_service(&path, server)
        .route(TURNS_PATH, direct)
        .layer(from_fn(refuse_open_tokens))
}

/// Refuses a token that was sent unencrypted, even if it is valid, so that no client relies on that.
async fn refuse_open_tokens(
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let is_open = request.extensions().get::<Peer>().is_some_and(|peer| !peer.is_encrypted);
    if is_open && request.headers().contains_key(AUTHORIZATION) {
        return Status::unauthenticated("a token must only be sent over TLS").into_http();
    }
    next.run(request).await
}

/// Divides a request into its caller and its message.
fn parted<T>(request: Request<T>) -> (Caller, T) {
    let (metadata, extensions, message) = request.into_parts();
    ((metadata, extensions.get::<Peer>().cloned()), message)
}

impl Service {
    /// The federation and the caller's identity, if the caller has the right to `action`.
    fn admit(
        &self,
        caller: &Caller,
        federation: &str,
        action: Action,
    ) -> std::result::Result<(Arc<FederationService>, Identity), Status> {
        let identity = self.identity(caller)?;
        Ok((self.admit_known(&identity, federation, action)?, identity))
    }

    /// The federation, if a client has the right to `action`.
    fn admit_known(
        &self,
        identity: &Identity,
        federation: &str,
        action: Action,
    ) -> std::result::Result<Arc<FederationService>, Status> {
        self.admit_by_any(identity, federation, &[action])
    }

    /// The federation, if a client has one of these rights.
    fn admit_by_any(
        &self,
        identity: &Identity,
        federation: &str,
        actions: &[Action],
    ) -> std::result::Result<Arc<FederationService>, Status> {
        let name = federation.trim_matches('/');
        let path = format!("/{name}");
        if !actions.iter().any(|action| identity.may(*action, path.as_bytes())) {
            let action = actions.first().copied().unwrap_or(Action::Modify);
            let mut text = format!("{} may not {action} {path} here", identity.name);
            if let Some(scope) = action.own_scope() {
                text += &format!(": this takes a token with {scope}, or auth.anonymous = \"all\"");
            }
            return Err(Status::permission_denied(identity.explained(text)));
        }
        let service = self.state.federations.get(name);
        let service = service
            .ok_or_else(|| Status::not_found(format!("this server has no federation {name:?}")))?;
        service.count_message();
        Ok(Arc::clone(service))
    }

    fn identity(&self, (metadata, peer): &Caller) -> std::result::Result<Identity, Status> {
        let values = metadata.get_all("authorization").iter();
        let name = peer.as_ref().and_then(|peer| peer.certificate.as_deref());
        let values = values.map(|it| it.as_encoded_bytes());
        let identity = self.state.authenticator.authorization(values, name);
        identity.map_err(|refusal| Status::unauthenticated(refusal.0))
    }

    /// The answers to a question of a caller.
    async fn answers(
        &self,
        caller: &Caller,
        question: Question,
    ) -> std::result::Result<Vec<Answer>, Status> {
        let actions: &[Action] = match question.of {
            // In PostgreSQL it is a durable change, since it ends commits that are under way.
            Some(Of::FindCommit(_)) => &ACTIONS_OF_COMMITTERS,
            _ => &[Action::Read],
        };
        let identity = self.identity(caller)?;
        let service = self.admit_by_any(&identity, &question.federation, actions)?;
        let session = Some(&question.session).filter(|it| !it.is_empty()).map(|it| uuid(it));
        let session = session.transpose().map_err(|error| status_of(&error))?;
        let check_session = || match session {
            Some(session) if service.session(session).is_none() => Err(mutations::no_session()),
            _ => Ok(()),
        };
        check_session()?;
        let answers = queries::answers(self, service.clone(), question).await;
        let answers = answers.map_err(|error| status_of(&error))?;
        // If it has been open since before, its snapshots were pinned while the rows were read.
        check_session()?;
        Ok(answers)
    }

    /// Counts a call on a direct connection that ended with this status.
    fn count_failure(&self, status: &Status) {
        if let Some(kind) = kind_of_code(status.code()) {
            self.state.request_counts.count_error(ClientProtocol::Grpc, kind);
        }
    }

    /// Runs work that may wait for a disk on one of [`BLOCKING_MAX`] threads. If none is free, a separate task waits
    /// for one: the calls of a client that does not read its replies are not polled, and must not keep a thread from
    /// other calls.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.state.blocking.run(work).await
    }
}

#[tonic::async_trait]
impl Catalogue for Service {
    type AttendStream = session_stream::ServerTurns;
    type LookUpStream = AnswerStream;

    async fn attend(
        &self,
        request: Request<Streaming<ClientTurn>>,
    ) -> std::result::Result<Response<Self::AttendStream>, Status> {
        session_stream::open(self, request).await.map(Response::new)
    }

    async fn look_up(
        &self,
        request: Request<Question>,
    ) -> std::result::Result<Response<Self::LookUpStream>, Status> {
        let (caller, question) = parted(request);
        let answers = self.answers(&caller, question).await?;
        let answers: Vec<_> = answers.into_iter().map(Ok).collect();
        Ok(Response::new(tokio_stream::iter(answers)))
    }

    async fn change(
        &self,
        request: Request<ChangeRequest>,
    ) -> std::result::Result<Response<ChangeReply>, Status> {
        let (caller, change) = parted(request);
        audited::change(self, &caller, change).await.map(Response::new)
    }

    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> std::result::Result<Response<PublishReply>, Status> {
        let (caller, publish) = parted(request);
        audited::publish(self, &caller, publish).await.map(Response::new)
    }

    async fn list_locks(
        &self,
        request: Request<ListLocksRequest>,
    ) -> std::result::Result<Response<ListLocksReply>, Status> {
        let (caller, list) = parted(request);
        let (service, _) = self.admit(&caller, &list.federation, Action::Read)?;
        let listed = self.blocking(move || {
            if let Some(survey) = list.survey {
                return Ok(service.survey(survey.pins_before.map(Csn))?.into());
            }
            Ok(ListLocksReply {
                waits: vec![],
                pins: vec![],
                held: service.held()?.into_iter().map(Into::into).collect(),
                waiting: service.waiting()?.into_iter().map(Into::into).collect(),
            })
        });
        listed.await.map(Response::new).map_err(|error| status_of(&error))
    }
}
