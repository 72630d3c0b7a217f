//! The contents of a commit, and the protocol that publishes it.
//!
//! A commit is applied inside one SQL transaction, which the caller begins and ends:
//!
//! 1. the commit row, which gives the CSN;
//! 2. new classes; the end of the names of renamed and dropped objects, unless another commit changed them first;
//!    new databases, containers and names; a name that is taken refuses the commit;
//! 3. the version check: every container written or read must still be at the version that the transaction
//!    started from, or the commit is refused with a conflict;
//! 4. new versions and link targets; path changes; seals.
//!
//! Invariants:
//! 1. A refused commit leaves nothing behind: the caller rolls back.
//! 2. The pages and envelopes of the new versions are durable before the commit is applied, or become durable with it,
//!    as [`Commit::writes`]; the caller sees to it.
//! 3. Every statement touches rows of this commit only, so the cost does not grow with history.
//!
//! `apply` runs the protocol, over `log_slots`, which stores bytes of files in the catalogue, and `name_changes`, over
//! `status`, which determines whether a database or container may still be changed.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::host;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::TouchedRows;
use crate::names;
use crate::rows::{BlobRange, ClassRow, DatabaseState, EnvelopeRange, VersionRow};
use crate::servers::Fence;

mod apply;
pub(crate) mod log_slots;
mod name_changes;
mod status;
mod touched;

pub(crate) use apply::{apply, insert_version_row};
pub(crate) use touched::CommitTouch;

/// Longest message of a commit, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Everything that one transaction publishes.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The identity of the transaction, for [`crate::LocalCatalogue::find_commit`].
    pub transaction: Uuid,
    /// The author's message.
    pub message: String,
    /// The author; this process if `None`.
    pub author: Option<Author>,
    /// Databases to create or attach.
    pub new_databases: Vec<NewDatabase>,
    /// Containers to create.
    pub new_containers: Vec<NewContainer>,
    /// Classes to declare. A class that exists with the same definition is accepted.
    pub new_classes: Vec<ClassRow>,
    /// New versions of containers.
    pub versions: Vec<NewVersion>,
    /// Bytes that the versions refer to, which are in the database files already, but may not be durable there.
    pub writes: Vec<FileWrite>,
    /// Databases that containers of this commit link to from now on, appended to the earlier ones.
    pub link_targets: Vec<(DatabaseId, ContainerId, Vec<Uuid>)>,
    /// Databases to seal, each with the commit that the sealer read: a later change is a conflict, because the sealed
    /// file would miss it.
    pub sealed: Vec<(DatabaseId, Csn)>,
    /// Databases whose file has moved, each with the new path.
    pub moved: Vec<(DatabaseId, String)>,
    /// Databases to rename, each with the commit that the transaction read: a later rename is a conflict. Sealed and
    /// attached databases may be renamed, too.
    pub renamed_databases: Vec<(DatabaseId, Csn, String)>,
    /// Containers to rename, each with the commit that the transaction read: a later rename or version is a conflict.
    pub renamed_containers: Vec<(DatabaseId, ContainerId, Csn, String)>,
    /// Databases to drop.
    pub dropped_databases: Vec<DroppedDatabase>,
    /// Containers to drop, each with the commit that the transaction read: a later rename or version is a conflict.
    pub dropped_containers: Vec<(DatabaseId, ContainerId, Csn)>,
    /// Containers that were only read and must not have changed, in serialisable transactions.
    pub reads: Vec<(DatabaseId, ContainerId, Option<Csn>)>,
    /// The fences of databases that have a home, from the servers that granted their locks.
    pub fences: Vec<Fence>,
}

/// Bytes of a database's file. No two writes, of the same commit or of different ones, overlap until vacuum has freed
/// the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The database.
    pub database: DatabaseId,
    /// The offset of the bytes in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The author of a commit, for the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The user.
    pub user: String,
    /// The host.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
}

impl Author {
    /// This process.
    pub fn this_process() -> Self {
        let (user, host) = (host::user_name().to_owned(), host::host_name().to_owned());
        Author { user, host, pid: host::process_id() }
    }
}

/// A database that a commit creates or attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDatabase {
    /// Its identity, from [`crate::LocalCatalogue::reserve_database`].
    pub id: DatabaseId,
    /// Its identity in every federation.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its file: relative to the federation's folder, or absolute for an attached file.
    pub path: String,
    /// Open or attached; sealing is a commit of its own.
    pub state: DatabaseState,
}

/// A database that a commit drops. Older snapshots still have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedDatabase {
    /// The database.
    pub id: DatabaseId,
    /// The commit that the transaction read; a later change of the database is a conflict.
    pub seen: Csn,
    /// Whether vacuum keeps the file when no snapshot needs it any more: the database was detached, not deleted.
    pub keeps_file: bool,
}

/// A container that a commit creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContainer {
    /// The database that holds it.
    pub database: DatabaseId,
    /// Its identity, from [`crate::LocalCatalogue::reserve_container`].
    pub id: ContainerId,
    /// Its name within its database.
    pub name: String,
    /// The class of its objects.
    pub class: String,
    /// The version of that class.
    pub class_version: u32,
    /// The engine's options, opaque to the catalogue.
    pub options: String,
}

/// A new version of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewVersion {
    /// The database that holds the container.
    pub database: DatabaseId,
    /// The container.
    pub container: ContainerId,
    /// The version that the transaction started from; `None` for a container without versions.
    pub base: Option<Csn>,
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

impl Commit {
    /// The right to write to a database, if the commit has one.
    pub(crate) fn fence(&self, database: DatabaseId) -> Option<&Fence> {
        self.fences.iter().find(|fence| fence.database == database)
    }

    /// The rows of the newest state that the commit changes.
    pub(crate) fn touched(&self) -> TouchedRows {
        let has_versions_alone = self.new_databases.is_empty()
            && self.new_containers.is_empty()
            && self.new_classes.is_empty()
            && self.link_targets.is_empty()
            && self.sealed.is_empty()
            && self.moved.is_empty()
            && self.renamed_databases.is_empty()
            && self.renamed_containers.is_empty()
            && self.dropped_databases.is_empty()
            && self.dropped_containers.is_empty();
        if !has_versions_alone {
            return TouchedRows::ALL;
        }
        let of =
            self.versions.iter().map(|new| TouchedRows::container(new.database, new.container));
        of.fold(TouchedRows::default(), TouchedRows::and)
    }

    /// Runs all checks that do not need the catalogue.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field that is wrong.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.message.len() > MESSAGE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the message of this commit has {} bytes; at most {MESSAGE_BYTES_MAX} are allowed",
                self.message.len()
            )));
        }
        for database in &self.new_databases {
            names::check_database_name(&database.name)?;
            if database.state == DatabaseState::Sealed {
                return Err(Error::invalid(format!(
                    "database {:?} cannot be created sealed; create it open and seal it",
                    database.name
                )));
            }
        }
        // The containers of an attached file keep their names in that file, so names by older rules are allowed.
        for container in &self.new_containers {
            names::check_existing_container_name(&container.name)?;
        }
        for (_, _, name) in &self.renamed_databases {
            names::check_database_name(name)?;
        }
        for (_, _, _, name) in &self.renamed_containers {
            names::check_container_name(name)?;
        }
        for class in &self.new_classes {
            names::check("class", &class.name)?;
        }
        self.versions.iter().try_for_each(NewVersion::validate)?;
        self.writes.iter().try_for_each(FileWrite::validate)?;
        self.check_link_targets_guarded()
    }

    /// New link targets are numbered after those that the transaction read. That is safe only if the version check
    /// covers the same container.
    fn check_link_targets_guarded(&self) -> Result<()> {
        if self.link_targets.is_empty() {
            return Ok(());
        }
        let new = self.new_containers.iter().map(|new| (new.database, new.id));
        let written = self.versions.iter().map(|version| (version.database, version.container));
        let guarded: HashSet<(DatabaseId, ContainerId)> = new.chain(written).collect();
        let is_unguarded = |(database, container): &(DatabaseId, ContainerId)| {
            !guarded.contains(&(*database, *container))
        };
        let targets =
            self.link_targets.iter().map(|(database, container, _)| (*database, *container));
        match targets.into_iter().find(is_unguarded) {
            None => Ok(()),
            Some((database, container)) => Err(Error::invalid(format!(
                "container {container} of database {database} has new link targets but no new version"
            ))),
        }
    }
}

impl FileWrite {
    /// SQL integers have a sign.
    fn validate(&self) -> Result<()> {
        let end = self.offset.checked_add(self.bytes.len() as u64);
        if end.is_some_and(|end| i64::try_from(end).is_ok()) {
            return Ok(());
        }
        let (offset, size) = (self.offset, self.bytes.len());
        Err(Error::invalid(format!("{size} bytes at byte {offset} end behind any file")))
    }
}

impl NewVersion {
    /// The version of `row` as a new one that follows version `base`.
    pub fn from_row(row: VersionRow, base: Option<Csn>) -> Self {
        let VersionRow { database, container, header, footer, annex, record, .. } = row;
        let VersionRow { class_version, entries, deleted, bytes, .. } = row;
        NewVersion {
            database,
            container,
            base,
            header,
            footer,
            annex,
            record,
            class_version,
            entries,
            deleted,
            bytes,
        }
    }

    /// The row of this version, made by commit `csn`.
    pub fn to_row(&self, csn: Csn) -> VersionRow {
        let &NewVersion { database, container, header, footer, annex, record, .. } = self;
        let &NewVersion { class_version, entries, deleted, bytes, .. } = self;
        VersionRow {
            database,
            container,
            csn,
            header,
            footer,
            annex,
            record,
            class_version,
            entries,
            deleted,
            bytes,
        }
    }

    /// SQL integers have a sign.
    fn validate(&self) -> Result<()> {
        let (header, footer) = (&self.header, &self.footer);
        let numbers = [
            [header.offset, header.size, header.length],
            [footer.offset, footer.size, footer.length],
            [self.annex.offset, self.annex.size, self.deleted],
            [self.record.offset, self.record.size, 0],
            [self.entries, self.bytes, 0],
        ];
        if numbers.iter().flatten().any(|number| i64::try_from(*number).is_err()) {
            return Err(Error::invalid(format!(
                "the new version of container {} has a number of 2^63 or more",
                self.container
            )));
        }
        Ok(())
    }
}
