//! The residence of database files: on the disk, and as copies in stores.

use serde::{Deserialize, Serialize};

use crate::ids::{Csn, DatabaseId};

/// A copy of a database's file in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRow {
    /// The database.
    pub database: DatabaseId,
    /// The name of the store.
    pub store: String,
    /// The object's name in the store, which is never used again.
    pub key: String,
    /// Whether the copy can be relied on.
    pub state: ReplicaState,
    /// Bytes of the file.
    pub size: u64,
    /// The checksum of the file, such as `adler32:0a1b2c3d`; empty until the copy is complete.
    pub checksum: String,
    /// The commit that the copy is of.
    pub as_of: Csn,
    /// The tape of the copy and its position there, as reported by the store when the copy was written.
    pub tape: Option<(String, u64)>,
    /// When the row was changed, in microseconds since 1970.
    pub changed_us: i64,
}

impl ReplicaRow {
    /// Whether the file can be brought back from this copy, as far as known.
    pub fn is_complete(&self) -> bool {
        self.state == ReplicaState::Complete
    }
}

/// Whether a copy in a store can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    /// The copy is being written, or its writer was killed.
    Migrating,
    /// The copy was written, and the store has confirmed its size.
    Complete,
    /// The store no longer has the copy, or has other bytes.
    Lost,
}

impl ReplicaState {
    /// The name in the catalogue, which users see.
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Migrating => "migrating",
            ReplicaState::Complete => "complete",
            ReplicaState::Lost => "lost",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "complete" => ReplicaState::Complete,
            "migrating" => ReplicaState::Migrating,
            _ => ReplicaState::Lost,
        }
    }
}

/// Whether a database's file is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// The file is on the disk.
    #[default]
    Online,
    /// The file is being brought back, or the process that did so was killed.
    Staging,
    /// The file was removed, or is about to be.
    Evicted,
}

impl DiskState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DiskState::Online => "online",
            DiskState::Staging => "staging",
            DiskState::Evicted => "evicted",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "evicted" => DiskState::Evicted,
            "staging" => DiskState::Staging,
            _ => DiskState::Online,
        }
    }
}

/// A wish that a file stay on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePin {
    /// The holder of the pin: a user, or a request.
    pub holder: String,
    /// The end of the pin, in microseconds since 1970; `None` without an end.
    pub until_us: Option<i64>,
}

impl FilePin {
    /// Whether the pin holds at a time, in microseconds since 1970.
    pub fn holds_at(&self, time_us: i64) -> bool {
        self.until_us.is_none_or(|until| time_us < until)
    }
}

/// An object in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredObject {
    /// The name of the store.
    pub store: String,
    /// The name of the object there.
    pub key: String,
}

/// The residence of a database's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// Whether it is on the disk.
    pub disk: DiskState,
    /// The copies, ordered by the names of their stores.
    pub replicas: Vec<ReplicaRow>,
    /// The pins that keep the file on the disk.
    pub pins: Vec<FilePin>,
}

/// The residence of a database's file, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResidenceState {
    /// On the disk alone.
    Online,
    /// On the disk, and being copied to a store.
    Migrating,
    /// On the disk and in a store.
    Both,
    /// In a store alone.
    Nearline,
    /// In a store, and being brought back to the disk.
    Staging,
    /// Neither on the disk nor in any store.
    Lost,
}

impl Residence {
    /// Whether the file can be brought back from a store, as far as known.
    pub fn has_copy(&self) -> bool {
        self.replicas.iter().any(ReplicaRow::is_complete)
    }

    /// The residence in one word.
    pub fn state(&self) -> ResidenceState {
        let is_copied = |replica: &ReplicaRow| replica.state == ReplicaState::Migrating;
        match self.disk {
            DiskState::Online if self.replicas.iter().any(is_copied) => ResidenceState::Migrating,
            DiskState::Online if self.has_copy() => ResidenceState::Both,
            DiskState::Online => ResidenceState::Online,
            _ if !self.has_copy() => ResidenceState::Lost,
            DiskState::Staging => ResidenceState::Staging,
            DiskState::Evicted => ResidenceState::Nearline,
        }
    }
}

impl ResidenceState {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            ResidenceState::Online => "online",
            ResidenceState::Migrating => "migrating",
            ResidenceState::Both => "both",
            ResidenceState::Nearline => "nearline",
            ResidenceState::Staging => "staging",
            ResidenceState::Lost => "lost",
        }
    }
}
