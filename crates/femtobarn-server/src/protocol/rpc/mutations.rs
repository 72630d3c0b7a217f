//! Numbers, free space, tags, retention and transactions.
//!
//! Paths in a client's commit are checked: database files lie in the folder of databases or in a place there, under
//! plain names, so that no commit reaches files beyond the federation.

use std::sync::Arc;

use femtobarn_catalog::{
    Author, BlobRange, Commit, Csn, DatabaseId, Error, FileWrite, LOGGED_COMMIT_BYTES_MAX,
    LockTarget, Result, Successor, is_database_path,
};
use femtobarn_rpc::convert::{needed, published, status_of, uuid};
use femtobarn_rpc::v1::change_request::Of;
use femtobarn_rpc::v1::failure::Of as Reason;
use femtobarn_rpc::v1::{ChangeReply, ChangeRequest, Empty, Failure, PublishReply, PublishRequest};
use prost::Message;
use tonic::{Code, Status};

use super::Service;
use crate::auth::{Action, Identity};
use crate::logical::catalogue::{CatalogueSession, FederationService, MoveProgress};

/// The most numbers that one call reserves.
const NUMBERS_MAX: u32 = 100_000;

/// The rights of which a client that commits has one, and locks, or asks for its commits.
pub(super) const ACTIONS_OF_COMMITTERS: [Action; 3] = [Action::Write, Action::Create, Action::Drop];

/// The rights of which a change needs one.
pub(super) fn actions_of(request: &ChangeRequest) -> &'static [Action] {
    match request.of {
        Some(Of::YieldTo(_)) => &[Action::Promote],
        Some(Of::MoveDatabase(_) | Of::Drain(_)) => &[Action::Manage],
        Some(Of::CreateTag(_) | Of::DropTag(_) | Of::SetRetention(_)) => &[Action::Tag],
        // New databases need these changes, too.
        Some(Of::ReserveDatabases(_) | Of::ReserveContainers(_) | Of::ExtendFile(_)) => {
            &[Action::Write, Action::Create]
        }
        _ => &[Action::Write],
    }
}

/// The rights that a transaction needs, all of them: to create databases, to drop, and, for any other change, to write
/// to existing databases.
pub(super) fn actions_of_commit(request: &PublishRequest) -> Vec<Action> {
    let commit = request.commit_with_writes.as_ref().or(request.commit.as_ref());
    let Some(commit) = commit else { return vec![Action::Write] };
    let is_new = |database: u32| commit.new_databases.iter().any(|new| new.id == database);
    let rows = commit.versions.iter().filter_map(|version| version.row.as_ref());
    let mut databases = rows
        .map(|row| row.database)
        .chain(commit.new_containers.iter().map(|row| row.database))
        .chain(commit.link_targets.iter().map(|it| it.database))
        .chain(request.writes.iter().map(|write| write.database));
    let creates = !commit.new_databases.is_empty();
    let drops = !(commit.dropped_databases.is_empty() && commit.dropped_containers.is_empty());
    let renames = !(commit.renamed_databases.is_empty() && commit.renamed_containers.is_empty());
    let writes = renames || databases.any(|it| !is_new(it)) || !(creates || drops);
    let needed = [(writes, Action::Write), (creates, Action::Create), (drops, Action::Drop)];
    needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, action)| action).collect()
}

/// Makes one change.
///
/// # Errors
/// The error of the catalogue; [`Error::Denied`] if the federation is read-only; [`Error::Invalid`] if the request is
/// empty.
pub(super) async fn change(
    service: &Service,
    federation: Arc<FederationService>,
    identity: &Identity,
    request: ChangeRequest,
) -> Result<ChangeReply> {
    // A federation that is exported read-only, or was succeeded already, can be informed that it has a successor.
    if federation.is_read_only() && !matches!(request.of, Some(Of::YieldTo(_))) {
        let what = format!("federation {} is read-only here", federation.name());
        return Err(Error::Denied { what });
    }
    let of = needed(request.of, "change")?;
    let session = uuid(&request.session).ok().and_then(|id| federation.session(id));
    let may_write = identity.may(Action::Write, format!("/{}", federation.name()).as_bytes());
    let caller = (identity.name.clone(), may_write);
    let carry_out = move || {
        let changed = carry_out(&federation, session.as_ref(), caller, of);
        if changed.is_err() {
            federation.publisher().note_failure();
        }
        changed
    };
    service.blocking(carry_out).await
}

fn carry_out(
    federation: &Arc<FederationService>,
    session: Option<&Arc<CatalogueSession>>,
    (name, may_write): (String, bool),
    of: Of,
) -> Result<ChangeReply> {
    let catalog = federation.catalog();
    let user = session.map_or_else(|| name.clone(), |session| session.client().user);
    let mut reply = ChangeReply::default();
    match of {
        Of::ReserveDatabases(count) => {
            let numbers = catalog.reserve_databases(checked(count.limit)?)?;
            reply.first = numbers.first().map_or(0, |first| first.0);
        }
        Of::ReserveContainers(count) => {
            let numbers = catalog.reserve_containers(checked(count.limit)?)?;
            reply.first = numbers.first().map_or(0, |first| first.0);
        }
        Of::TakeFreeExtent(wanted) => {
            let size = wanted.range.unwrap_or_default().size;
            federation.check_here(DatabaseId(wanted.database))?;
            let taken = catalog.take_free_extent(DatabaseId(wanted.database), size)?;
            reply.range = taken.map(Into::into);
        }
        Of::GiveFreeExtent(given) => {
            let range = BlobRange::from(needed(given.range, "range")?);
            let database = held(session, given.database)?;
            federation.check_here(database)?;
            catalog.give_free_extent(database, range)?;
        }
        Of::ExtendFile(new) => {
            check_path(&new.path)?;
            let database = held(session, new.database)?;
            if !(may_write || federation.is_uncommitted(database, &new.path)) {
                let what =
                    format!("{name} may not write to {} here: it is not a new file", new.path);
                return Err(Error::Denied { what });
            }
            reply.range = Some(federation.extend_file(database, &new.path, new.payload)?.into());
        }
        Of::CreateTag(tag) => {
            let tag = catalog.create_tag_for(&user, &tag.name, Csn(tag.csn), &tag.message)?;
            reply.tag = Some(tag.into());
        }
        Of::DropTag(tag) => catalog.drop_tag(&tag.name)?,
        Of::SetRetention(retention) => catalog.set_retention(retention.into())?,
        Of::MoveDatabase(it) => {
            reply.moving = match federation.move_here(DatabaseId(it.database), &it.server)? {
                MoveProgress::Moving(bytes) => Some(bytes),
                MoveProgress::Done => None,
            };
        }
        Of::HandOver(it) => {
            let database = held(session, it.database)?;
            let session = session.ok_or_else(|| lost(database))?;
            federation.hand_over(session, database, &it.server)?;
        }
        Of::Drain(it) => catalog.drain(&it.server, !it.undo)?,
        Of::YieldTo(successor) => {
            let newest = catalog.yield_to(&Successor {
                generation: successor.generation,
                promotion: successor.promotion,
                url: successor.url,
            })?;
            reply.csn = Some(newest.0);
        }
    }
    Ok(reply)
}

/// The count of numbers to reserve, if one call may reserve as many.
fn checked(count: u64) -> Result<u32> {
    let fitting = u32::try_from(count).ok().filter(|&count| count <= NUMBERS_MAX);
    let what = || format!("invalid count of {count} numbers: must be at most {NUMBERS_MAX}");
    fitting.ok_or_else(|| Error::Invalid { what: what() })
}

/// Checks that the session holds a database.
fn held(session: Option<&Arc<CatalogueSession>>, database: u32) -> Result<DatabaseId> {
    let database = DatabaseId(database);
    let is_held = session.is_some_and(|session| session.holds(LockTarget::Database(database)));
    if is_held { Ok(database) } else { Err(lost(database)) }
}

fn lost(database: DatabaseId) -> Error {
    Error::Changed {
        what: format!("the lock on database {database} was lost; run the transaction again"),
    }
}

/// Publishes a transaction.
///
/// # Errors
/// The error of the catalogue as a status; [`no_session`] if the client must open its session again first.
pub(super) async fn publish(
    federation: Arc<FederationService>,
    request: PublishRequest,
) -> std::result::Result<PublishReply, Status> {
    let session = uuid(&request.session).map_err(|error| status_of(&error))?;
    let session = federation.session(session).ok_or_else(no_session)?;
    let again = request.again.then_some(Csn(request.after));
    let commit = commit_of(&session, request).map_err(|error| status_of(&error))?;
    match federation.publish(&session, commit, again).await {
        Ok(csn) => Ok(PublishReply { csn: csn.0 }),
        Err(error) => Err(status_of(&error)),
    }
}

fn commit_of(session: &CatalogueSession, request: PublishRequest) -> Result<Commit> {
    let mut commit = published(request)?;
    for new in &commit.new_databases {
        check_path(&new.path)?;
    }
    check_writes(&commit.writes)?;
    let client = session.client();
    commit.author = Some(Author { user: client.user, host: client.host, pid: client.pid });
    Ok(commit)
}

/// Checks that the bytes for files in a commit do not exceed the announced limit.
fn check_writes(writes: &[FileWrite]) -> Result<()> {
    let bytes: usize = writes.iter().map(|write| write.bytes.len()).sum();
    if bytes > LOGGED_COMMIT_BYTES_MAX || writes.iter().any(|write| write.bytes.is_empty()) {
        let most = LOGGED_COMMIT_BYTES_MAX;
        let rule = format!("must be at most {most}, and none empty");
        return Err(Error::Invalid { what: format!("invalid writes of {bytes} bytes: {rule}") });
    }
    Ok(())
}

/// Checks that a path is that of a database file in the federation's folder.
fn check_path(path: &str) -> Result<()> {
    if !is_database_path(path) {
        let what =
            format!("invalid path {path:?} of a database: must be in the folder of databases");
        return Err(Error::Invalid { what });
    }
    Ok(())
}

/// The status that makes a client open its session again.
pub(super) fn no_session() -> Status {
    let failure = Failure { of: Some(Reason::NoSession(Empty {})), denied: false };
    let text = "the session is not known; open it again";
    Status::with_details(Code::FailedPrecondition, text, failure.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use femtobarn_rpc::v1::{
        self, ContainerRow, FileWrite, LinkTargets, NewDatabase, NewVersion, Seen, VersionRow,
    };

    use super::*;

    fn taken_by(change: impl FnOnce(&mut v1::Commit, &mut Vec<FileWrite>)) -> Vec<Action> {
        let (mut commit, mut writes) = (v1::Commit::default(), vec![]);
        change(&mut commit, &mut writes);
        let has_writes = !writes.is_empty();
        actions_of_commit(&PublishRequest {
            commit: (!has_writes).then(|| commit.clone()),
            commit_with_writes: has_writes.then_some(commit),
            writes,
            ..PublishRequest::default()
        })
    }

    #[test]
    fn a_transaction_takes_the_rights_to_all_that_it_does() {
        let new = || vec![NewDatabase { id: 7, ..NewDatabase::default() }];
        let of = |database| ContainerRow { database, ..ContainerRow::default() };
        let version = |database| NewVersion {
            row: Some(VersionRow { database, ..VersionRow::default() }),
            base: None,
        };
        let write = |database| FileWrite { database, ..FileWrite::default() };
        let seen = || vec![Seen::default()];
        let links = |database| vec![LinkTargets { database, ..LinkTargets::default() }];
        use Action::{Create, Drop, Write};
        assert_eq!(taken_by(|_, _| {}), [Write]);
        assert_eq!(taken_by(|it, _| it.new_databases = new()), [Create]);
        let filled = taken_by(|it, writes| {
            (it.new_databases, it.new_containers) = (new(), vec![of(7)]);
            (it.versions, *writes) = (vec![version(7)], vec![write(7)]);
        });
        assert_eq!(filled, [Create], "all of it in the new database");
        for beside in 0..4 {
            let taken = taken_by(|it, writes| {
                it.new_databases = new();
                match beside {
                    0 => it.new_containers = vec![of(7), of(8)],
                    1 => it.versions = vec![version(8)],
                    2 => it.link_targets = links(8),
                    _ => *writes = vec![write(8)],
                }
            });
            assert_eq!(taken, [Write, Create], "{beside}");
        }
        assert_eq!(taken_by(|it, _| it.dropped_databases = seen()), [Drop]);
        assert_eq!(taken_by(|it, _| it.dropped_containers = seen()), [Drop]);
        assert_eq!(taken_by(|it, _| it.renamed_databases = seen()), [Write]);
        let all = taken_by(|it, _| {
            (it.new_databases, it.dropped_containers) = (new(), seen());
            it.renamed_containers = seen();
        });
        assert_eq!(all, [Write, Create, Drop]);
    }
}
