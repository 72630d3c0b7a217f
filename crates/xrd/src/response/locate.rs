//! The answer to locate: the servers that have a file.
//!
//! ```text
//! Sw[::127.0.0.1]:1094 mr[2001:db8::1]:1094
//! ||address
//! |r: for reading, w: also for writing
//! S: server, M: manager; small: the file is not online there
//! ```
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_locate.

use std::fmt;

use crate::error::{Error, Result};
use crate::limits::LOCATED_SERVERS_MAX;
use crate::response::RESPONSE_HEADER_BYTES;
use crate::wire::text_of;

/// A server that has a file, or a manager that locates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedServer {
    /// Server or manager.
    pub kind: LocatedKind,
    /// Whether the file is online; a manager's information may be outdated.
    pub online: bool,
    /// The access that the server allows.
    pub access: Access,
    /// Address or name, and port: `[::127.0.0.1]:1094`.
    pub address: String,
}

/// The kind of a located server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocatedKind {
    /// A server that has files.
    Server,
    /// A manager to ask next.
    Manager,
}

/// The access to a file on a located server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It can be read.
    Read,
    /// It can be read and written.
    Write,
}

impl fmt::Display for LocatedServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.kind, self.online) {
            (LocatedKind::Server, true) => 'S',
            (LocatedKind::Server, false) => 's',
            (LocatedKind::Manager, true) => 'M',
            (LocatedKind::Manager, false) => 'm',
        };
        let access = if self.access == Access::Write { 'w' } else { 'r' };
        write!(formatter, "{kind}{access}{}", self.address)
    }
}

/// Decodes the answer's body.
///
/// # Errors
/// [`Error::Malformed`] if an entry is invalid, [`Error::TooLong`] for more than [`LOCATED_SERVERS_MAX`].
pub fn decode_locate_answer(body: &[u8]) -> Result<Vec<LocatedServer>> {
    let text = text_of(body);
    let count = text.split_ascii_whitespace().count();
    if count > LOCATED_SERVERS_MAX {
        return Err(Error::too_many_items("locate answer", count, LOCATED_SERVERS_MAX));
    }
    text.split_ascii_whitespace().map(decode_place).collect()
}

fn decode_place(word: &str) -> Result<LocatedServer> {
    let reason = || format!("invalid entry {word:.80?}");
    let malformed = || Error::malformed("locate answer", RESPONSE_HEADER_BYTES, reason());
    let mut letters = word.chars();
    let (kind, online) = match letters.next() {
        Some('S') => (LocatedKind::Server, true),
        Some('s') => (LocatedKind::Server, false),
        Some('M') => (LocatedKind::Manager, true),
        Some('m') => (LocatedKind::Manager, false),
        _ => return Err(malformed()),
    };
    let access = match letters.next() {
        Some('r') => Access::Read,
        Some('w') => Access::Write,
        _ => return Err(malformed()),
    };
    Ok(LocatedServer { kind, online, access, address: letters.as_str().to_owned() })
}

/// The answer's body.
///
/// # Errors
/// [`Error::Invalid`] if an address has spaces.
pub fn encode_locate_answer(places: &[LocatedServer]) -> Result<Vec<u8>> {
    if let Some(place) = places.iter().find(|place| place.address.contains([' ', '\n', '\0'])) {
        return Err(Error::invalid(format!(
            "invalid address {:?}: must not have spaces",
            place.address
        )));
    }
    let words: Vec<_> = places.iter().map(LocatedServer::to_string).collect();
    Ok(words.join(" ").into_bytes().into_iter().chain([0]).collect())
}
