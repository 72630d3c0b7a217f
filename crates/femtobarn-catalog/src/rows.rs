//! The rows that look-ups return.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{ContainerId, Csn, DatabaseId};

/// The location of an RNTuple envelope in its database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EnvelopeRange {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes stored, after compression.
    pub size: u64,
    /// Bytes before compression.
    pub length: u64,
}

/// The location of a blob of Femtobarn in its database file. Size 0 means no blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRange {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Whether a database accepts changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseState {
    /// The database accepts commits.
    Open,
    /// The database is permanently read-only, and its file a complete ROOT file.
    Sealed,
    /// The file was made elsewhere and is read in its place; the database accepts no changes.
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
    /// Its identity in all federations. Stored links refer to it.
    pub uuid: Uuid,
    /// Its name in this federation, in the snapshot of the look-up.
    pub name: String,
    /// The current path of its file, whatever the snapshot: relative to the federation's folder, or absolute for an
    /// attached file.
    pub path: String,
    /// Its state in the snapshot of the look-up.
    pub state: DatabaseState,
    /// The commit that created it.
    pub created: Csn,
    /// How many times freed space of the file was released to writers, whatever the snapshot. Bytes that were read in
    /// an earlier epoch may have been overwritten.
    pub epoch: u64,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRow {
    /// The database that holds it.
    pub database: DatabaseId,
    /// Its identity in this federation.
    pub id: ContainerId,
    /// Its name within its database, in the snapshot of the look-up.
    pub name: String,
    /// The class of its objects.
    pub class: String,
    /// The version of that class in the snapshot of the look-up.
    pub class_version: u32,
    /// The engine's options, opaque to the catalogue.
    pub options: String,
    /// The commit that created it.
    pub created: Csn,
}

/// One version of a container: the locations of its header and its footer.
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
    /// The engine's metadata beside the footer: deletions, statistics, indexes.
    pub annex: BlobRange,
    /// The commit record, which repeats this in the file.
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
    /// The version number.
    pub version: u32,
    /// The definition, opaque to the catalogue, which compares it byte by byte.
    pub definition: String,
}

/// A row of a list for people: a container as of a snapshot, or a database without containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerSummary {
    /// The name of its database.
    pub database: String,
    /// The state of its database.
    pub state: DatabaseState,
    /// The name of the container; empty if the row is that of a database without containers.
    pub container: String,
    /// The class of its objects.
    pub class: String,
    /// The version of that class that the objects have.
    pub class_version: u32,
    /// Objects that are not deleted.
    pub objects: u64,
    /// Bytes of the file that it uses.
    pub bytes: u64,
    /// The newest commit that changed its objects, or that created it.
    pub csn: Csn,
}

/// A kind of change that a commit made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitAction {
    /// A database or container was created.
    Created,
    /// The objects of a container were changed.
    Changed,
    /// A database or container was renamed.
    Renamed,
    /// A database was sealed.
    Sealed,
    /// A database or container was dropped.
    Dropped,
}

/// A database or container that a commit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitChange {
    /// The name of the database.
    pub database: String,
    /// The name of the container; empty if the database itself was changed.
    pub container: String,
    /// The class of its objects.
    pub class: String,
    /// The kind of change.
    pub kind: CommitAction,
    /// Objects added minus objects deleted; `None` if vacuum may have removed the snapshot before.
    pub objects: Option<i64>,
    /// Bytes of the file in use now minus those in use before; `None` in the same case.
    pub bytes: Option<i64>,
}

/// The size of a federation after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GrowthPoint {
    /// The commit.
    pub csn: Csn,
    /// When it was made, in microseconds since 1970.
    pub time_us: i64,
    /// Objects that are not deleted.
    pub objects: u64,
    /// Bytes of the files that they use.
    pub bytes: u64,
}

/// A name of a database or container, and the commits between which it was valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    /// The name.
    pub name: String,
    /// The commit that assigned the name.
    pub since: Csn,
    /// The commit that ended the name; `None` if it is still valid.
    pub until: Option<Csn>,
}

/// A database with its history, dropped or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// The newest state, with the last name.
    pub row: DatabaseRow,
    /// The commit that sealed it.
    pub sealed: Option<Csn>,
    /// The commit that dropped it.
    pub dropped: Option<Csn>,
    /// Whether vacuum keeps the file when it purges the database.
    pub keeps_file: bool,
    /// All names that the database had, the oldest first.
    pub names: Vec<NameRow>,
}

/// A container with its history but without its versions, dropped or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// The container as it was created, with its last name.
    pub row: ContainerRow,
    /// The commit that dropped it; `None` also if it was dropped together with its database.
    pub dropped: Option<Csn>,
    /// All names that the container had, the oldest first.
    pub names: Vec<NameRow>,
}

/// Numbers of rows in the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Databases in the newest snapshot.
    pub databases: u64,
    /// Dropped databases, which only older snapshots have.
    pub dropped_databases: u64,
    /// Containers in the newest snapshot.
    pub containers: u64,
    /// Dropped containers, which only older snapshots have.
    pub dropped_containers: u64,
    /// Versions of containers.
    pub versions: u64,
    /// Commits.
    pub commits: u64,
    /// Versions of classes.
    pub classes: u64,
    /// Tags.
    pub tags: u64,
    /// Free bytes of database files, released to writers or not.
    pub free_bytes: u64,
}

/// A snapshot with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagRow {
    /// Its name.
    pub name: String,
    /// The commit whose snapshot the tag names.
    pub csn: Csn,
    /// When it was made, in microseconds since 1970.
    pub created_us: i64,
    /// The author's message.
    pub message: String,
    /// The user who made the tag.
    pub user: String,
}

/// The snapshots that vacuum keeps besides the tagged and the pinned ones: those that either field keeps, or all if
/// both are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// The number of newest commits to keep, at least 1.
    pub keep_commits: Option<u64>,
    /// The age in days of 24 hours: keeps the snapshot that was the newest then, and all later ones.
    pub keep_days: Option<u64>,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRow {
    /// Its sequence number.
    pub csn: Csn,
    /// The transaction that made it.
    pub transaction: Uuid,
    /// The time in microseconds since 1970, never earlier than that of the commit before.
    pub time_us: i64,
    /// The author's message.
    pub message: String,
    /// The user who made the commit.
    pub user: String,
    /// The host it was made on.
    pub host: String,
    /// The process that made it.
    pub pid: u32,
}
