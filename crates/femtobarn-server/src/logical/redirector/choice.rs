//! Which server a client is sent to, by what all have said about its path.
//!
//! 1. What exists is read and changed where it is. Servers that can read it at once are preferred for reading and those that
//!    can write it for changes, then those that are not late, then those near the client. Of two that are drawn, the one with
//!    less to do is taken.
//! 2. What no server has is made at the one that a hash of the path and the server's name decides, so all who make the same
//!    path at once meet there, whatever redirector they ask. Servers that have the folder above it are preferred.
//! 3. A path is made only if all servers that are up have said that there is none: silence is no answer.
//! 4. It is said to be missing only if all servers that were asked have said so.

use std::fmt::Write;
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use md5::{Digest, Md5};
use nix::errno::Errno;
use xrd::{ErrorCode, Location};

use super::data_server::{DataServer, Presence};
use super::kept::Said;
use crate::logical::placement::{less_loaded, was_tried};
use crate::physical::{Opaque, StorageError, StoragePath, StorageResult};

/// When a client may come again if servers have not said what has to be known.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Ask about what exists.
    Look,
    /// Ask for what a server alone knows or does: checksums and attributes, and what comes from tape.
    Use,
    /// Begin to read a file.
    Read,
    /// Go on reading it.
    ReadOn,
    /// Change what exists.
    Change,
    /// Make a file or folder, or change it if it exists.
    Create,
}

impl Wish {
    pub(super) fn is_change(self) -> bool {
        matches!(self, Wish::Change | Wish::Create)
    }
}

/// What a client asks a redirector.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The path.
    pub path: &'a StoragePath,
    /// It may name servers that the client has tried, and the snapshot that it wants.
    pub opaque: Opaque<'a>,
    /// Whether servers are to be asked, whatever they have said before.
    pub anew: bool,
    /// Who asks.
    pub client: AskingClient,
}

/// A client, as far as it matters where it is sent.
#[derive(Clone, Copy, Debug)]
pub struct AskingClient {
    /// Its address.
    pub address: IpAddr,
    /// Whether it is a server itself, such as a cache.
    pub is_server: bool,
    /// Whether it comes for each part of a file, as those of HTTP do, and has to find the same file each time.
    pub comes_again: bool,
}

/// What a client asks for, and what servers have said about it.
pub(super) struct Heard<'a> {
    pub asked: Asked<'a>,
    pub said: Arc<Said>,
}

impl Heard<'_> {
    /// What a server has said.
    pub(super) fn of(&self, number: usize) -> &Presence {
        self.said.presences.get(number).unwrap_or(&Presence::Unknown)
    }
}

/// A server that has all of these paths, if there is one.
pub(super) fn holder<'a>(
    servers: &'a [DataServer],
    heard: &[Heard<'_>],
    wish: Wish,
) -> Option<&'a DataServer> {
    let has_all = |number: usize, is_so: fn(&Presence, Wish) -> bool| {
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
/// [`StorageError::NotBefore`] while a server that is up has not said whether it has it; those of [`nobody`] if there is
/// none, or one has the path.
pub(super) fn homes(servers: &[DataServer], heard: &Heard<'_>) -> StorageResult<Vec<usize>> {
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

/// The server of these at which a path is made; `above` is what servers say about the folder above it.
pub(super) fn home<'a>(
    servers: &'a [DataServer],
    mut homes: Vec<usize>,
    path: &StoragePath,
    above: Option<&Heard<'_>>,
) -> Option<&'a DataServer> {
    if let Some(above) = above {
        prefer(&mut homes, |number| above.of(*number).is_here());
        prefer(&mut homes, |number| is_apt(above.of(*number), Wish::Change));
    }
    let homes = homes.into_iter().map(|number| &servers[number]);
    homes.max_by_key(|server| affinity(server, &[path.as_bytes()]))
}

/// Checks that a path can be moved to another one at the server that has it.
///
/// # Errors
/// `EXDEV` if another server has the other path; [`StorageError::NotBefore`] while one has not said so.
pub(super) fn check_move(
    servers: &[DataServer],
    from: &DataServer,
    to: &Heard<'_>,
) -> StorageResult<()> {
    let is_elsewhere = |server: &DataServer| !std::ptr::eq(server, from);
    let mut numbered = servers.iter().enumerate();
    let other = numbered.find(|(number, server)| {
        is_elsewhere(server) && server.is_up() && to.of(*number).is_here()
    });
    if let Some((_, other)) = other {
        let (path, from, other) = (to.asked.path, from.endpoint(), other.endpoint());
        let what = format!(
            "{path} is at {other}, and what is to become it is at {from}: remove one, or copy it"
        );
        return Err(StorageError::refused(Errno::EXDEV, what));
    }
    check_absent(servers, to, |server| !is_elsewhere(server))
}

/// The error if no server has all of these paths.
pub(super) fn nowhere(servers: &[DataServer], heard: &[Heard<'_>], wish: Wish) -> StorageError {
    let is_missing = |it: &&Heard<'_>| holder(servers, slice::from_ref(*it), wish).is_none();
    match heard.iter().find(is_missing) {
        Some(missing) => nobody(servers, missing),
        None => {
            let count = heard.len();
            let what = format!("no server has all {count} paths: send a request for each of them");
            StorageError::refused(Errno::ENOTSUP, what)
        }
    }
}

/// The error that tells what each server has said about a path.
pub(super) fn nobody(servers: &[DataServer], heard: &Heard<'_>) -> StorageError {
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
    StorageError::refused(errno, what_was_said(servers, heard))
}

/// The error while it is not known which servers are up.
pub(super) fn just_started() -> StorageError {
    let what = "this server has just started to ask others whether they are up";
    StorageError::NotBefore(COME_AGAIN, what.to_owned())
}

/// Checks that all servers that are up, but for some, have said that there is no such path.
fn check_absent(
    servers: &[DataServer],
    heard: &Heard<'_>,
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
            // It says the same if it is asked again.
            Presence::Here { .. } | Presence::Refused(..) => return Err(nobody(servers, heard)),
        }
    }
    if is_silent {
        return Err(StorageError::NotBefore(COME_AGAIN, what_was_said(servers, heard)));
    }
    Ok(())
}

fn what_was_said(servers: &[DataServer], heard: &Heard<'_>) -> String {
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

/// Whether a server can do at once what a client wishes.
fn is_apt(presence: &Presence, wish: Wish) -> bool {
    match presence {
        Presence::Here { is_online, is_writable } => match wish {
            Wish::Look | Wish::Use | Wish::Read | Wish::ReadOn => *is_online,
            Wish::Change | Wish::Create => *is_writable,
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

/// The same number for a server and the parts of a key in all redirectors; of several servers, each has the greatest number for
/// as many keys.
pub(super) fn affinity(server: &DataServer, key: &[&[u8]]) -> [u8; 16] {
    let hash = Md5::new().chain_update(server.endpoint().to_string());
    key.iter().fold(hash, |hash, part| hash.chain_update(part)).finalize().into()
}

/// A path with what selects its content, as servers are asked for it.
pub(super) fn location(path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Location> {
    let text = [path.as_bytes(), &opaque.selection()].concat();
    Location::new(text)
        .map_err(|error| StorageError::refused(Errno::ENAMETOOLONG, error.to_string()))
}

/// Whether all servers have said that there is no such path.
pub(super) fn is_missing(error: &StorageError) -> bool {
    matches!(error, StorageError::Refused(Errno::ENOENT, _))
}

/// Whether a client has been to a server already.
pub(super) fn is_tried(server: &DataServer, asked: Asked<'_>) -> bool {
    was_tried(&server.endpoint().host, asked.opaque)
}
