//! The rows of the catalogue, as look-ups return them.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{ContainerId, Csn, DatabaseId};

/// Where an RNTuple envelope lies in its database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EnvelopeRange {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes stored, after compression.
    pub size: u64,
    /// Bytes before compression.
    pub length: u64,
}

/// Where a blob of ours lies in its database file. One of size 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRange {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// What may still happen to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseState {
    /// It takes commits.
    Open,
    /// It is read-only for ever, and a complete ROOT file.
    Sealed,
    /// It is somebody else's file, read where it lies.
    Attached,
}

impl fmt::Display for DatabaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DatabaseState::Open => "open",
            DatabaseState::Sealed => "sealed",
            DatabaseState::Attached => "attached",
        })
    }
}

/// A database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseRow {
    /// Its identity in this federation.
    pub id: DatabaseId,
    /// Its identity in every federation; links are stored with it.
    pub uuid: Uuid,
    /// Its name in this federation, in the snapshot that was asked.
    pub name: String,
    /// Where its file is now, whatever the snapshot: relative to the federation's folder, or
    /// absolute for an attached file.
    pub path: String,
    /// Its state in the snapshot that was asked.
    pub state: DatabaseState,
    /// The commit that created it.
    pub created: Csn,
    /// How often space of its file was given to writers again, whatever the snapshot: what was
    /// read from the file in another epoch may not be there any more.
    pub epoch: u64,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRow {
    /// The database that holds it.
    pub database: DatabaseId,
    /// Its identity in this federation.
    pub id: ContainerId,
    /// Its name within its database, in the snapshot that was asked.
    pub name: String,
    /// The class of its objects.
    pub class: String,
    /// The version of that class that its objects have in the snapshot that was asked.
    pub class_version: u32,
    /// The engine's options, opaque to the catalogue.
    pub options: String,
    /// The commit that created it.
    pub created: Csn,
}

/// One version of a container: where its header and its footer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRow {
    /// The database that holds the container.
    pub database: DatabaseId,
    /// The container.
    pub container: ContainerId,
    /// The commit that made this version.
    pub csn: Csn,
    /// The header envelope.
    pub header: EnvelopeRange,
    /// The footer envelope.
    pub footer: EnvelopeRange,
    /// What the engine keeps beside the footer: deletions, statistics, indexes.
    pub annex: BlobRange,
    /// The commit record that says the same in the file.
    pub record: BlobRange,
    /// The version of the container's class that the objects have.
    pub class_version: u32,
    /// Entries, including deleted ones.
    pub entries: u64,
    /// Entries that are deleted.
    pub deleted: u64,
    /// Bytes of the file that this version uses.
    pub bytes: u64,
}

/// One version of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRow {
    /// The name of the class.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// Its definition, opaque to the catalogue, which compares it byte by byte.
    pub definition: String,
}

/// A name that something had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    /// The name.
    pub name: String,
    /// The commit that gave it.
    pub since: Csn,
    /// The commit that took it away; none if it still holds.
    pub until: Option<Csn>,
}

/// Everything that the catalogue knows of a database, dropped or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// Its newest state, with its last name.
    pub row: DatabaseRow,
    /// The commit that sealed it.
    pub sealed: Option<Csn>,
    /// The commit that dropped it.
    pub dropped: Option<Csn>,
    /// Whether its file stays when it is purged.
    pub keeps_file: bool,
    /// All names it had, the oldest first.
    pub names: Vec<NameRow>,
}

/// Everything that the catalogue knows of a container besides its versions, dropped or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// What it was created as, with its last name.
    pub row: ContainerRow,
    /// The commit that dropped it; a database is dropped with all that is in it.
    pub dropped: Option<Csn>,
    /// All names it had, the oldest first.
    pub names: Vec<NameRow>,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Databases in the newest snapshot.
    pub databases: u64,
    /// Databases that only older snapshots have.
    pub dropped_databases: u64,
    /// Containers in the newest snapshot.
    pub containers: u64,
    /// Containers that only older snapshots have.
    pub dropped_containers: u64,
    /// Versions of containers.
    pub versions: u64,
    /// Commits.
    pub commits: u64,
    /// Versions of classes.
    pub classes: u64,
    /// Tags.
    pub tags: u64,
    /// Bytes of database files that writers can take again.
    pub free_bytes: u64,
}

/// A snapshot with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagRow {
    /// Its name.
    pub name: String,
    /// The commit whose snapshot it holds.
    pub csn: Csn,
    /// When it was made, in microseconds since 1970.
    pub created_us: i64,
    /// What its author said about it.
    pub message: String,
    /// The user who made it.
    pub user: String,
}

/// Which snapshots vacuum keeps besides those that are tagged or being read: what any of the two
/// asks for. If none asks, everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// So many of the newest commits, at least 1.
    pub keep_commits: Option<u64>,
    /// What was the newest snapshot so many days of 24 hours ago, and all later ones.
    pub keep_days: Option<u64>,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRow {
    /// Its sequence number.
    pub csn: Csn,
    /// The transaction that made it.
    pub transaction: Uuid,
    /// When, in microseconds since 1970. It never goes back from one commit to the next.
    pub time_us: i64,
    /// What its author said about it.
    pub message: String,
    /// The user who made it.
    pub user: String,
    /// The host it was made on.
    pub host: String,
    /// The process that made it.
    pub pid: u32,
}
