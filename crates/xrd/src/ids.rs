//! Identifiers of requests, open files, sessions and streams. All but [`PathId`] are opaque to the side that did not
//! choose them.

use std::fmt;

/// Names a request on its connection; chosen by the client, repeated in every response to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub [u8; 2]);

/// Names an open file in its session; chosen by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHandle(pub [u8; 4]);

/// Names a session; chosen by the server. Any client that knows it can bind a stream to the session,
/// so it must not be guessable, and `Debug` hides it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Debug for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionId(..)")
    }
}

/// Names one of a session's streams: 0 is the connection that logged in, 1 to 15 are bound ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u8);

impl PathId {
    /// In pgread and pgwrite: a stream of the server's choice.
    pub const ANY: PathId = PathId(0xff);

    /// Whether this is the connection of the request that names it.
    pub fn is_here(self) -> bool {
        matches!(self, PathId(0) | PathId::ANY)
    }
}
