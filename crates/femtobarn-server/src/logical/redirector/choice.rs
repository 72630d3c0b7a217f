//! Chooses the server that a client is sent to, from the answers of all servers about its path.
//!
//! 1. An existing path is read and changed where it is. Servers that can read it at once are preferred for reading and
//!    those that can write it for changes, then those that are not late, then those near the client. Of two that are
//!    drawn, the one with the lower load is chosen.
//! 2. A path that no server has is made at the server chosen by a hash of the path and the server's name, so all
//!    clients that make the same path at once meet there, also through different redirectors. Servers that have its
//!    parent folder are preferred.
//! 3. A path is made only if all servers that are up have answered that it does not exist: silence is not an answer.
//! 4. It is reported missing only if all servers that were asked have answered so.

use std::fmt::Write;
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use md5::{Digest, Md5};
use nix::errno::Errno;
use xrd::{ErrorCode, Location};

use super::data_server::{DataServer, Presence};
use super::kept::ServerAnswers;
use crate::logical::placement::{less_loaded, was_tried};
use crate::physical::{Opaque, StorageError, StoragePath, StorageResult};

/// When a client may retry if necessary answers of servers are missing.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// The kind of access that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Ask about an existing path.
    Look,
    /// Ask for things that a server alone knows or does: checksums, attributes, and staging from tape.
    Use,
    /// Begin to read a file.
    Read,
    /// Continue to read the file.
    ReadOn,
    /// Change an existing path.
    Change,
    /// Make a file or folder, or change it if it exists.
    Create,
}

impl AccessKind {
    pub(super) fn is_change(self) -> bool {
        matches!(self, AccessKind::Change | AccessKind::Create)
    }
}

/// The question of a client to a redirector.
#[derive(Clone, Copy, Debug)]
pub struct ClientQuestion<'a> {
    /// The path.
    pub path: &'a StoragePath,
    /// Opaque information: it may name servers that the client has tried, and the snapshot that it wants.
    pub opaque: Opaque<'a>,
    /// Whether to ask the servers again, whatever they have answered before.
    pub anew: bool,
    /// The client that asks.
    pub client: RedirectedClient,
}

/// The properties of a client that matter for the choice.
#[derive(Clone, Copy, Debug)]
pub struct RedirectedClient {
    /// The client's address.
    pub address: IpAddr,
    /// Whether the client is a server, such as a cache.
    pub is_server: bool,
    /// Whether the client returns for each part of a file, as HTTP clients do, and must find the same file each time.
    pub comes_again: bool,
}

/// A client's question, and the servers' answers.
pub(super) struct AnsweredQuestion<'a> {
    pub asked: ClientQuestion<'a>,
    pub said: Arc<ServerAnswers>,
}

impl AnsweredQuestion<'_> {
    /// The answer of a server.
    pub(super) fn of(&self, number: usize) -> &Presence {
        self.said.presences.get(number).unwrap_or(&Presence::Unknown)
    }
}

/// A server that has all of these paths, if any.
pub(super) fn holder<'a>(
    servers: &'a [DataServer],
    heard: &[AnsweredQuestion<'_>],
    wish: AccessKind,
) -> Option<&'a DataServer> {
    let has_all = |number: usize, is_so: fn(&Presence, AccessKind) -> bool| {
        heard.iter().all(|it| is_so(it.of(number), wish))
    };
    let is_open =
        |server: &DataServer| server.is_up() && !heard.iter().any(|it| is_tried(server, it.asked));
    let numbers = 0..servers.len();
    let mut fit: Vec<_> = numbers
        .filter(|number| is_open(&servers[*number]) && has_all(*number, |it, _| it.is_here()))
        .collect();
    prefer(&mut fit, |number| has_all(*number, is_apt));
    prefer(&mut fit, |number| !servers[*number].is_late());
    prefer(&mut fit, |number| {
        heard.iter().all(|it| servers[*number].is_near(it.asked.client.address))
    });
    if fit.is_empty() {
        return None;
    }
    let load = |drawn: u64| servers[fit[drawn as usize]].load();
    Some(&servers[fit[less_loaded(fit.len() as u64, load) as usize]])
}

/// The servers, by their numbers, at which a path can be made.
///
/// # Errors
/// [`StorageError::NotBefore`] while a server that is up has not answered whether it has the path; those of [`nobody`]
/// if there is no such server, or one has the path.
pub(super) fn homes(
    servers: &[DataServer],
    heard: &AnsweredQuestion<'_>,
) -> StorageResult<Vec<usize>> {
    let is_there = |number: usize| servers[number].is_up() && heard.of(number).is_here();
    if (0..servers.len()).any(is_there) {
        return Err(nobody(servers, heard));
    }
    let is_tried = |server: &DataServer| is_tried(server, heard.asked);
    check_absent(servers, heard, is_tried)?;
    let is_open = |server: &DataServer| server.is_up() && !is_tried(server);
    let open: Vec<_> = (0..servers.len()).filter(|number| is_open(&servers[*number])).collect();
    if open.is_empty() { Err(nobody(servers, heard)) } else { Ok(open) }
}

/// The one of these servers at which a path is made; `above` has the answers of servers about the parent folder.
pub(super) fn home<'a>(
    servers: &'a [DataServer],
    mut homes: Vec<usize>,
    path: &StoragePath,
    above: Option<&AnsweredQuestion<'_>>,
) -> Option<&'a DataServer> {
    if let Some(above) = above {
        prefer(&mut homes, |number| above.of(*number).is_here());
        prefer(&mut homes, |number| is_apt(above.of(*number), AccessKind::Change));
    }
    let homes = homes.into_iter().map(|number| &servers[number]);
    homes.max_by_key(|server| affinity(server, &[path.as_bytes()]))
}

/// Checks that a path can be moved to another one at the server that has it.
///
/// # Errors
/// `EXDEV` if another server has the other path; [`StorageError::NotBefore`] while one has not answered that it does
/// not.
pub(super) fn check_move(
    servers: &[DataServer],
    from: &DataServer,
    to: &AnsweredQuestion<'_>,
) -> StorageResult<()> {
    let is_elsewhere = |server: &DataServer| !std::ptr::eq(server, from);
    let mut numbered = servers.iter().enumerate();
    let other = numbered.find(|(number, server)| {
        is_elsewhere(server) && server.is_up() && to.of(*number).is_here()
    });
    if let Some((_, other)) = other {
        let (path, from, other) = (to.asked.path, from.endpoint(), other.endpoint());
        let what = format!(
            "{path} exists at {other}, but the file to be renamed to it is at {from}: remove one, or copy it"
        );
        return Err(StorageError::refused(Errno::EXDEV, what));
    }
    check_absent(servers, to, |server| !is_elsewhere(server))
}

/// The error if no server has all of these paths.
pub(super) fn nowhere(
    servers: &[DataServer],
    heard: &[AnsweredQuestion<'_>],
    wish: AccessKind,
) -> StorageError {
    let is_missing =
        |it: &&AnsweredQuestion<'_>| holder(servers, slice::from_ref(*it), wish).is_none();
    match heard.iter().find(is_missing) {
        Some(missing) => nobody(servers, missing),
        None => {
            let count = heard.len();
            let what = format!("no server has all {count} paths: send a request for each of them");
            StorageError::refused(Errno::ENOTSUP, what)
        }
    }
}

/// The error with the answer of each server about a path.
pub(super) fn nobody(servers: &[DataServer], heard: &AnsweredQuestion<'_>) -> StorageError {
    let said = || (0..servers.len()).map(|number| heard.of(number));
    let is_here = said().any(Presence::is_here);
    if !is_here && servers.iter().any(|server| !server.is_known()) {
        return just_started();
    }
    let mut asked = said().filter(|it| !matches!(it, Presence::Down)).peekable();
    let errno = if asked.peek().is_some() && asked.all(|it| matches!(it, Presence::Absent(_))) {
        Errno::ENOENT
    } else if !is_here
        && said().any(|it| matches!(it, Presence::Refused(ErrorCode::NOT_AUTHORIZED, _)))
    {
        Errno::EACCES
    } else {
        Errno::EHOSTUNREACH
    };
    StorageError::refused(errno, answers_text(servers, heard))
}

/// The error while it is unknown which servers are up.
pub(super) fn just_started() -> StorageError {
    let what = "this server has just started, and does not know yet which data servers are up";
    StorageError::NotBefore(COME_AGAIN, what.to_owned())
}

/// Checks that all servers that are up, except some, have answered that the path does not exist.
fn check_absent(
    servers: &[DataServer],
    heard: &AnsweredQuestion<'_>,
    is_left_out: impl Fn(&DataServer) -> bool,
) -> StorageResult<()> {
    let mut is_silent = false;
    for (number, server) in servers.iter().enumerate() {
        if server.is_down() || is_left_out(server) {
            continue;
        }
        match heard.of(number) {
            Presence::Absent(_) => {}
            Presence::Unknown | Presence::Down => is_silent = true,
            // The answer would be the same again.
            Presence::Here { .. } | Presence::Refused(..) => return Err(nobody(servers, heard)),
        }
    }
    if is_silent {
        return Err(StorageError::NotBefore(COME_AGAIN, answers_text(servers, heard)));
    }
    Ok(())
}

fn answers_text(servers: &[DataServer], heard: &AnsweredQuestion<'_>) -> String {
    let mut text = format!("no server for {}", heard.asked.path);
    for (number, server) in servers.iter().enumerate() {
        let separator = if number == 0 { ':' } else { ';' };
        let tried = if is_tried(server, heard.asked) { "was tried, " } else { "" };
        let said = heard.of(number);
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator} {} {tried}{said}", server.endpoint());
    }
    text
}

/// Whether a server can do at once what the client wants.
fn is_apt(presence: &Presence, wish: AccessKind) -> bool {
    match presence {
        Presence::Here { is_online, is_writable } => match wish {
            AccessKind::Look | AccessKind::Use | AccessKind::Read | AccessKind::ReadOn => {
                *is_online
            }
            AccessKind::Change | AccessKind::Create => *is_writable,
        },
        _ => false,
    }
}

/// Keeps those that are better, if there are any.
pub(super) fn prefer<T>(fit: &mut Vec<T>, is_better: impl Fn(&T) -> bool) {
    if fit.iter().any(&is_better) {
        fit.retain(is_better);
    }
}

/// A number of a server and the parts of a key, which is the same in all redirectors. Of several servers, each has the
/// greatest number for as many keys.
pub(super) fn affinity(server: &DataServer, key: &[&[u8]]) -> [u8; 16] {
    let hash = Md5::new().chain_update(server.endpoint().to_string());
    key.iter().fold(hash, |hash, part| hash.chain_update(part)).finalize().into()
}

/// A path with the opaque information that selects its content, in the form of a question to servers.
pub(super) fn location(path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Location> {
    let text = [path.as_bytes(), &opaque.selection()].concat();
    Location::new(text)
        .map_err(|error| StorageError::refused(Errno::ENAMETOOLONG, error.to_string()))
}

/// Whether all servers have answered that the path does not exist.
pub(super) fn is_missing(error: &StorageError) -> bool {
    matches!(error, StorageError::Refused(Errno::ENOENT, _))
}

/// Whether a client has been to a server already.
pub(super) fn is_tried(server: &DataServer, asked: ClientQuestion<'_>) -> bool {
    was_tried(&server.endpoint().host, asked.opaque)
}
