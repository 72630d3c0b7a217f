//! Changes and commits, with their lines in the audit log.
//!
//! Changes that prepare a commit, such as reserving numbers, are recorded only if they are denied.

use femtobarn_catalog::{Error, ErrorKind};
use femtobarn_rpc::convert::status_of;
use femtobarn_rpc::v1::change_request::Of;
use femtobarn_rpc::v1::{ChangeReply, ChangeRequest, PublishReply, PublishRequest};
use tonic::{Code, Status};

use super::{Caller, Service, mutations};
use crate::auth::{Asker, AuditedChange, Identity, Refusal};
use crate::protocol::answer_counting::kind_of_code;

/// The name of a change that prepares a commit.
const PREPARATION: &str = "prepare-commit";
/// Names in the line of a commit at most.
const NAMES_MAX: usize = 1000;

type StatusResult<T> = Result<T, Status>;

/// Makes a change and records it.
///
/// # Errors
/// A [`Status`] if the client lacks the right, or the change fails.
pub(super) async fn change(
    service: &Service,
    caller: &Caller,
    request: ChangeRequest,
) -> StatusResult<ChangeReply> {
    let identity = service.identity(caller);
    let (what, to) = named(&request);
    let federation = request.federation.clone();
    let audited = begin(service, identity.as_ref().ok(), caller, (what, &federation))?.to(to);
    let actions = mutations::actions_of(&request);
    let changing = async {
        let identity = identity?;
        let federation = service.admit_by_any(&identity, &federation, actions)?;
        let changed = mutations::change(service, federation, &identity, request).await;
        changed.map_err(|error| status_of(&error))
    };
    let changed = changing.await;
    let is_denied = changed.as_ref().is_err_and(|status| is_denied(status.code()));
    let goes_on = changed.as_ref().is_ok_and(|reply| reply.moving.is_some());
    if goes_on || what == PREPARATION && !is_denied {
        audited.forget();
        return changed;
    }
    let csn = changed.as_ref().ok().and_then(|reply| reply.csn);
    end(audited, csn, changed)
}

/// Publishes a transaction and records it.
///
/// # Errors
/// A [`Status`] if the client may not commit, or the commit fails.
pub(super) async fn publish(
    service: &Service,
    caller: &Caller,
    request: PublishRequest,
) -> StatusResult<PublishReply> {
    let identity = service.identity(caller);
    let audited = begin(service, identity.as_ref().ok(), caller, ("commit", &request.federation))?;
    let (creates, drops) = contents(&request);
    let audited = audited.changing(creates, drops);
    let publishing = async {
        let (identity, mut admitted) = (identity?, None);
        for action in mutations::actions_of_commit(&request) {
            admitted = Some(service.admit_known(&identity, &request.federation, action)?);
        }
        let federation = admitted.ok_or_else(|| Status::invalid_argument("an empty request"))?;
        mutations::publish(federation, request).await
    };
    let published = publishing.await;
    let csn = published.as_ref().ok().map(|reply| reply.csn);
    end(audited, csn, published)
}

fn begin(
    service: &Service,
    identity: Option<&Identity>,
    (_, peer): &Caller,
    (what, federation): (&'static str, &str),
) -> StatusResult<AuditedChange> {
    let asker =
        Asker { identity, address: peer.as_ref().map(|peer| peer.address.ip()), protocol: "rpc" };
    let path = format!("/{}", federation.trim_matches('/'));
    service.state.authenticator.audited(asker, what, [path]).map_err(unrecorded)
}

fn end<T>(
    mut audited: AuditedChange,
    csn: Option<u64>,
    outcome: StatusResult<T>,
) -> StatusResult<T> {
    if let Some(csn) = csn {
        audited.set_csn(csn);
    }
    let error = outcome.as_ref().err().map(|status| {
        let kind = kind_of_code(status.code());
        kind.unwrap_or(ErrorKind::Internal)
    });
    audited.end(error).map_err(unrecorded)?;
    outcome
}

fn unrecorded(refusal: Refusal) -> Status {
    status_of(&Error::Unavailable { what: refusal.0 })
}

fn is_denied(code: Code) -> bool {
    kind_of_code(code) == Some(ErrorKind::Denied)
}

/// The word for a change, and the name of the changed object.
fn named(request: &ChangeRequest) -> (&'static str, Option<String>) {
    match &request.of {
        Some(Of::CreateTag(tag)) => ("tag", Some(tag.name.clone())),
        Some(Of::DropTag(tag)) => ("drop-tag", Some(tag.name.clone())),
        Some(Of::SetRetention(_)) => ("set-retention", None),
        Some(Of::MoveDatabase(it)) => ("move", Some(format!("{} to {}", it.database, it.server))),
        Some(Of::HandOver(it)) => ("hand-over", Some(format!("{} to {}", it.database, it.server))),
        Some(Of::Drain(it)) if it.undo => ("undo-drain", Some(it.server.clone())),
        Some(Of::Drain(it)) => ("drain", Some(it.server.clone())),
        Some(Of::YieldTo(successor)) => ("promote", Some(successor.url.clone())),
        _ => (PREPARATION, None),
    }
}

/// The databases that a commit creates, and the numbers of the databases and containers that it drops.
fn contents(request: &PublishRequest) -> (Vec<String>, Vec<String>) {
    let commit = request.commit_with_writes.as_ref().or(request.commit.as_ref());
    let Some(commit) = commit else { return Default::default() };
    let created = commit.new_databases.iter().map(|new| new.name.clone());
    let databases = commit.dropped_databases.iter().map(|it| it.database.to_string());
    let containers =
        commit.dropped_containers.iter().map(|it| format!("{}.{}", it.database, it.container));
    (created.take(NAMES_MAX).collect(), databases.chain(containers).take(NAMES_MAX).collect())
}
