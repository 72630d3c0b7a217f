//! Opens copies of a federation at several servers. Then one thread per server admits it again after a failure, and
//! asks for its load.
//!
//! 1. A server is admitted only if its history is that of the others: where two of them have a commit of one number, it
//!    is the same transaction. The first of the URLs that answers decides which history that is.
//! 2. A server is compared when its session is opened, when it is opened again, and when it has new commits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Csn, Error, Result};
use uuid::Uuid;

use super::group::ServerGroup;
use super::member::{Member, MemberConnection};
use crate::options::OpenOptions;

/// The time between two questions about a server's load.
const INTERVAL: Duration = Duration::from_secs(1);

/// Connects to all servers, and admits those that have copies of one federation.
///
/// # Errors
/// `Invalid` if two of them have different federations; the error of the first server if none can be admitted.
pub(crate) fn open(
    urls: &[String],
    options: &OpenOptions,
) -> crate::error::Result<Arc<ServerGroup>> {
    let members: Box<[Member]> = urls.iter().cloned().map(Member::new).collect();
    let connected: Vec<_> = std::thread::scope(|scope| {
        let connecting: Vec<_> = urls
            .iter()
            .map(|url| scope.spawn(move || MemberConnection::open(url, options)))
            .collect();
        connecting
            .into_iter()
            .map(|thread| thread.join().expect("connecting does not panic"))
            .collect()
    });
    let mut first = None;
    let mut refusal = None;
    for (member, connection) in members.iter().zip(connected) {
        match connection {
            Ok(connection) => {
                let MemberConnection { catalogue, .. } = &*member.set_connection(connection);
                let (uuid, name) =
                    first.get_or_insert((catalogue.uuid(), catalogue.name().to_owned()));
                check_uuid(member, catalogue.uuid(), *uuid, name)?;
            }
            Err(error) => {
                member.eject(&error.to_string());
                refusal.get_or_insert(error);
            }
        }
    }
    let Some(first) = first else {
        return Err(refusal.unwrap_or_else(|| crate::error::Error::invalid("no server was named")));
    };
    let group = Arc::new(ServerGroup::new(members, first, options.timeout));
    for place in 0..urls.len() {
        visit(&group, place, options);
        watch(&group, place, options);
    }
    Ok(group)
}

fn check_uuid(member: &Member, own: Uuid, uuid: Uuid, name: &str) -> Result<()> {
    if own == uuid {
        return Ok(());
    }
    let Member { url, .. } = member;
    Err(Error::Invalid {
        what: format!("{url} has federation {own}, which is not a copy of {name:?}, {uuid}"),
    })
}

/// Visits a server repeatedly, until the group is dropped.
fn watch(group: &Arc<ServerGroup>, place: usize, options: &OpenOptions) {
    let (group, options) = (Arc::downgrade(group), options.clone());
    let watching = move || {
        let pause = || std::thread::sleep(INTERVAL);
        pause();
        while let Some(group) = Weak::upgrade(&group) {
            visit(&group, place, &options);
            drop(group);
            pause();
        }
    };
    // If no thread can be started, a server that fails is not asked again.
    drop(std::thread::Builder::new().name("femtobarn-server".to_owned()).spawn(watching));
}

/// Asks an admitted server for its load, and admits one that was left out if it can be.
fn visit(group: &ServerGroup, place: usize, options: &OpenOptions) {
    let member = &group.members[place];
    // While other servers answer, one that failed repeatedly is tried less often.
    if !member.may_return() && group.is_reachable() {
        return;
    }
    let visited = match (member.admitted(), member.connection()) {
        (Some(connection), _) => refresh(group, place, &connection),
        (None, Some(connection)) if connection.catalogue.is_reachable() => {
            admit(group, place, &connection)
        }
        // The session's own task opens it again.
        (None, Some(_)) => member.check_connected(),
        (None, None) => connect(group, place, options),
    };
    if let Err(error) = visited {
        member.eject(&error.to_string());
    }
}

fn connect(group: &ServerGroup, place: usize, options: &OpenOptions) -> Result<()> {
    let member = &group.members[place];
    let connection = MemberConnection::open(&member.url, options);
    let connection = connection.map_err(|error| Error::Unavailable { what: error.to_string() })?;
    check_uuid(member, connection.catalogue.uuid(), group.uuid, &group.name)?;
    admit(group, place, &member.set_connection(connection))
}

/// Asks for the load, and compares the server's new commits.
fn refresh(group: &ServerGroup, place: usize, connection: &MemberConnection) -> Result<()> {
    let member = &group.members[place];
    let head = member.ask_load(connection)?;
    let is_compared = member.compared.lock().is_some_and(|(compared, _)| compared >= head);
    if is_compared { Ok(()) } else { catch_up(group, place, connection, head, false) }
}

fn admit(group: &ServerGroup, place: usize, connection: &MemberConnection) -> Result<()> {
    let member = &group.members[place];
    let opening = connection.catalogue.openings();
    let head = member.ask_load(connection)?;
    catch_up(group, place, connection, head, true)?;
    member.admit(opening);
    Ok(())
}

/// Compares the history of a server up to its newest commit, and pins the snapshots that it has: all of them if its
/// session `is_new`, otherwise those that it has reached now.
fn catch_up(
    group: &ServerGroup,
    place: usize,
    connection: &MemberConnection,
    head: Csn,
    is_new: bool,
) -> Result<()> {
    let member = &group.members[place];
    let _one = group.admission.lock();
    let newest = (head, connection.transaction(head)?);
    compare(group, place, connection, newest)?;
    group.pins.extend_to(place, member, connection, is_new)?;
    *member.compared.lock() = Some(newest);
    Ok(())
}

/// Compares the history of a server, up to `newest`, with the known history of the others and of its own earlier
/// sessions.
fn compare(
    group: &ServerGroup,
    place: usize,
    connection: &MemberConnection,
    newest: (Csn, Uuid),
) -> Result<()> {
    let member = &group.members[place];
    let mut known: Vec<_> =
        group.members.iter().filter_map(|member| *member.compared.lock()).collect();
    known.sort_unstable();
    known.dedup();
    // Equal transactions at a commit mean equal histories before it.
    let mut is_compared = known.is_empty();
    for (csn, transaction) in known.into_iter().filter(|(csn, _)| *csn <= newest.0) {
        if connection.transaction(csn)? != transaction {
            return Err(member.other_history(csn));
        }
        is_compared = true;
    }
    // The known commits may be older than those that the servers have reached meanwhile.
    let others = group.members.iter().enumerate().filter(|(other, _)| *other != place);
    for (_, other) in others {
        let Some(admitted) = other.admitted() else { continue };
        let both_have = newest.0.min(other.head());
        let Ok(transaction) = admitted.transaction(both_have) else { continue };
        if connection.transaction(both_have)? != transaction {
            return Err(member.other_history(both_have));
        }
        return Ok(());
    }
    if is_compared {
        return Ok(());
    }
    let what =
        format!("{} cannot be compared with the other servers until one answers", member.url);
    Err(Error::Unavailable { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_at_all_is_invalid() {
        let error = open(&[], &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), femtobarn_catalog::ErrorKind::Invalid);
    }
}
