//! Opening copies of a federation at several servers; then a thread for each server admits it again after it failed, and
//! asks for its load.
//!
//! 1. A server is admitted only if its history is that of the others: where two of them have a commit of one number, it
//!    is the same transaction. The first of the URLs that answers decides which history that is.
//! 2. A server whose session was opened again is compared anew.

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
        let connect = |url: &'_ String| {
            let url = url.clone();
            scope.spawn(move || MemberConnection::open(&url, options))
        };
        let connecting: Vec<_> = urls.iter().map(connect).collect();
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
        what: format!("{url} has federation {own}, which is no copy of {name:?}, {uuid}"),
    })
}

/// Visits a server again and again, until the group is dropped.
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
    // While others answer, one that failed again and again is not tried all the time.
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

/// Asks for the load, and pins the snapshots that the server has reached meanwhile.
fn refresh(group: &ServerGroup, place: usize, connection: &MemberConnection) -> Result<()> {
    let member = &group.members[place];
    let before = member.head();
    if member.ask_load(connection)? > before {
        let _one = group.admission.lock();
        group.pins.extend_to(place, member, connection, false)?;
    }
    Ok(())
}

fn admit(group: &ServerGroup, place: usize, connection: &MemberConnection) -> Result<()> {
    let member = &group.members[place];
    let opening = connection.catalogue.openings();
    let head = member.ask_load(connection)?;
    let _one = group.admission.lock();
    let transaction = connection.transaction(head)?;
    compare(group, place, connection, (head, transaction))?;
    group.pins.extend_to(place, member, connection, true)?;
    *member.compared.lock() = Some((head, transaction));
    member.admit(opening);
    Ok(())
}

/// Compares the history of a server, up to `newest`, with what is known of the others and of its own earlier sessions.
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
    let is_first = known.is_empty();
    // Equal transactions at a commit mean equal histories before it, so the newest comparison is enough for each history.
    let mut is_compared = is_first;
    for (csn, transaction) in known.into_iter().filter(|(csn, _)| *csn <= newest.0) {
        if connection.transaction(csn)? != transaction {
            return Err(member.other_history(csn));
        }
        is_compared = true;
    }
    if is_compared {
        return Ok(());
    }
    // It is behind all of them.
    let others = group.members.iter().enumerate().filter(|(other, _)| *other != place);
    for other in others.filter_map(|(_, other)| other.admitted()) {
        if let Ok(transaction) = other.transaction(newest.0) {
            let is_same = transaction == newest.1;
            return if is_same { Ok(()) } else { Err(member.other_history(newest.0)) };
        }
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
