//! The servers of a federation that has several, and the homes of databases.
//!
//! 1. Each database has a *home*: the server in whose folder its file is. A database without a home can be written
//!    through any server, as in a federation that no server joined.
//! 2. A server is alive as long as its lease, by PostgreSQL's clock. Its *epoch* is raised whenever it joins, and when
//!    its databases are taken over; the epoch of a home, whenever the home changes or fences off its writers.
//! 3. A writer to a database shows these epochs as they were when its lock was granted, as a [`Fence`]. The commit
//!    compares them, so no message between servers is needed when a server has lost its lease, or a writer its lock.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ids::DatabaseId;

/// Milliseconds after which a stopped server counts as offline for longer than a restart takes.
const RESTART_MS_MAX: u64 = 10_000;

/// The properties of a server that joins a federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoiningServer {
    /// The name, unique in the federation.
    pub name: String,
    /// The URL of the federation there: `root://host:port//lhc.fed`.
    pub url: String,
    /// The name of the server's disk. Servers with the same one see the same files, and take over from each other.
    pub storage: String,
}

/// Whether a server gets databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerStanding {
    /// The server has databases, and gets new ones.
    Active,
    /// The server gets no new databases, and those that it has move to other servers.
    Draining,
    /// The server was stopped.
    Left,
}

impl ServerStanding {
    /// The state as a word.
    pub fn name(self) -> &'static str {
        match self {
            ServerStanding::Active => "active",
            ServerStanding::Draining => "draining",
            ServerStanding::Left => "left",
        }
    }
}

/// A server of a federation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    /// The name.
    pub name: String,
    /// The URL of the federation there: `root://host:port//lhc.fed`.
    pub url: String,
    /// The name of its disk.
    pub storage: String,
    /// Whether the server gets databases.
    pub state: ServerStanding,
    /// How many times the server joined or was taken over from.
    pub epoch: u64,
    /// Whether the server's lease lasts.
    pub is_alive: bool,
    /// Bytes free on its disk, as of its last renewal.
    pub free_bytes: u64,
    /// File requests in progress at its last renewal.
    pub load: u64,
    /// The number of databases whose home it is.
    pub databases: u64,
}

/// The home of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The name of the server.
    pub server: String,
    /// The URL of the federation there: `root://host:port//lhc.fed`.
    pub url: String,
    /// Whether the server's lease lasts.
    pub is_alive: bool,
    /// The epoch of the home; 0 for a database that is not committed yet.
    pub epoch: u64,
    /// The epoch of the server.
    pub server_epoch: u64,
    /// Milliseconds since the lease has ended; 0 while it lasts.
    pub away_ms: u64,
    /// Whether a server that is alive has the same disk, and takes over the databases of this one.
    pub has_stand_in: bool,
}

impl Home {
    /// Whether waiting is pointless: no server takes over, and a restart would be complete by now.
    pub fn is_given_up(&self) -> bool {
        !self.is_alive && !self.has_stand_in && self.away_ms >= RESTART_MS_MAX
    }

    /// The error for a client that needs a database whose home is offline.
    pub fn absence(&self, database: DatabaseId) -> Error {
        let Home { server, url, away_ms, .. } = self;
        let advice = if self.has_stand_in {
            "another server with its disk is about to take over: try again"
        } else {
            "no other server has its files: start it again"
        };
        let what = format!(
            "server {server:?} ({url}), the home of database {database}, is offline: its lease ended {} s ago; \
             {advice}",
            away_ms / 1000
        );
        Error::Unavailable { what }
    }
}

/// The server as the home of a database that is not committed yet.
impl From<ServerRow> for Home {
    fn from(row: ServerRow) -> Self {
        let ServerRow { name: server, url, is_alive, epoch: server_epoch, .. } = row;
        let (epoch, away_ms, has_stand_in) = (0, 0, false);
        Home { server, url, is_alive, epoch, server_epoch, away_ms, has_stand_in }
    }
}

/// The right to write to a database, from the server that granted its lock. The commit refuses a fence with outdated
/// epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The database.
    pub database: DatabaseId,
    /// The server that granted the lock.
    pub server: String,
    /// The epoch of the server then.
    pub server_epoch: u64,
    /// The epoch of the database's home then; 0 if the database had none.
    pub home_epoch: u64,
}
