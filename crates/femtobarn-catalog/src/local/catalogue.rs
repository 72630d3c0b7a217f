//! [`LocalCatalogue`]: its creation and opening, its commits and its sequences of ids.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use uuid::Uuid;

use super::creation::{self, AllowedContent};
use super::logged_writes::{self, FileLog};
use super::process_connections::ProcessConnections;
use super::role::{Role, check_complete, role};
use super::target_names::CatalogueNames;
use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::{LockCatalogue, LockTable, LockTarget, ServerPresence, SnapshotPins};
use crate::paths::LOCKS_FOLDER;
use crate::schema::{FederationIdentity, POSTGRES_TABLES_VERSION, upgrade_in_postgres};
use crate::sql::params;

/// The catalogue of a federation whose folder is on this host, or mounted here.
pub struct LocalCatalogue {
    folder: PathBuf,
    identity: FederationIdentity,
    /// Whether the catalogue was not a leader's when it was opened.
    is_copy: bool,
    /// Whether the catalogue has the tables of servers and homes.
    has_servers: bool,
    pub(super) connections: Arc<ProcessConnections>,
    locks: LockTable,
    pub(super) pins: SnapshotPins,
    /// When the indexes for followers could not be made.
    pub(super) indexing_failed: Mutex<Option<Instant>>,
    pub(super) file_log: Arc<FileLog>,
    /// The mark of the server that this is the catalogue of.
    pub(super) presence: Mutex<Option<ServerPresence>>,
}

impl LocalCatalogue {
    /// Creates a federation in `folder`, which must be empty or not exist.
    ///
    /// # Errors
    /// [`Error::Exists`] if the folder holds a federation or anything else; [`Error::Invalid`] for an invalid name;
    /// [`Error::Io`], [`Error::Denied`] or [`Error::Full`] if the folder cannot be written.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        creation::create(folder, name, Uuid::new_v4(), AllowedContent::Nothing)?;
        Self::open(folder)
    }

    /// Creates a federation in `folder` with its catalogue in PostgreSQL: in the database that the URL names, in a new
    /// schema.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create); [`Error::Invalid`] for an invalid URL; [`Error::Unavailable`] if the
    /// server does not answer; [`Error::Denied`] if it refuses the log-in or the new schema.
    pub fn create_in_postgres(folder: &Path, name: &str, url: &str) -> Result<Self> {
        creation::create_in_postgres(folder, name, Uuid::new_v4(), url)?;
        Self::open(folder)
    }

    /// Creates an empty catalogue in place of a lost one, in a folder that still has the database files.
    /// [`LocalCatalogue::restore`] fills it.
    ///
    /// # Errors
    /// The errors of [`LocalCatalogue::create`]; [`Error::Exists`] only if the folder has a catalogue, or the
    /// write-ahead log of one.
    pub fn create_with(folder: &Path, name: &str, uuid: Uuid) -> Result<Self> {
        creation::create(folder, name, uuid, AllowedContent::LostCatalogue)?;
        Self::open(folder)
    }

    /// Creates an empty catalogue for a copy.
    pub(super) fn create_empty(folder: &Path, name: &str, uuid: Uuid) -> Result<()> {
        creation::create(folder, name, uuid, AllowedContent::Nothing)
    }

    /// Opens the federation in `folder`, read-only if it cannot be written.
    ///
    /// # Errors
    /// [`Error::NoFederation`] if the folder has no catalogue; [`Error::Closed`] if the catalogue was moved to an
    /// unknown place; [`Error::Corrupt`] if it is damaged; [`Error::Unsupported`] if its format is unknown, or if the
    /// machine crashed and the files cannot be written here; [`Error::Io`] or [`Error::Denied`] if it cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder)
            .map_err(|error| Error::io("cannot find the folder", folder, error))?;
        let (connections, identity) = ProcessConnections::open(&folder)?;
        connections.current()?.read(check_complete)?;
        let has_servers = match identity.tables {
            Some(version) if version < POSTGRES_TABLES_VERSION && !connections.is_read_only() => {
                match connections.write_as_anyone(upgrade_in_postgres) {
                    Ok(()) => true,
                    // A user who may only read does not need the newest tables.
                    Err(Error::Denied { .. }) => version > 1,
                    Err(error) => return Err(error),
                }
            }
            tables => tables.is_some_and(|version| version > 1),
        };
        let pins = SnapshotPins::new(&folder);
        let is_copy = connections.current()?.read(role)? != Role::Leader;
        let connections = Arc::new(connections);
        let names = CatalogueNames::new(folder.join(LOCKS_FOLDER), Arc::clone(&connections));
        let locks = LockTable::with_catalogue(&folder, Arc::new(names));
        let file_log = Arc::new(FileLog::new(folder.clone(), Arc::clone(&connections)));
        file_log.recover()?;
        Ok(LocalCatalogue {
            folder,
            identity,
            is_copy,
            has_servers,
            connections,
            locks,
            pins,
            indexing_failed: Mutex::default(),
            file_log,
            presence: Mutex::default(),
        })
    }

    /// The identity of the federation.
    pub fn uuid(&self) -> Uuid {
        self.identity.uuid
    }

    /// The name that the federation was created with.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// The federation's folder, as an absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the catalogue is in PostgreSQL.
    pub fn is_in_postgres(&self) -> bool {
        self.connections.is_postgres()
    }

    /// Whether servers may have joined the federation.
    pub(super) fn has_servers(&self) -> bool {
        // The catalogue may have moved to SQLite, which has no servers.
        self.has_servers && self.is_in_postgres()
    }

    /// Whether the catalogue can only be read here, as on a read-only medium and at a follower.
    pub fn is_read_only(&self) -> bool {
        // A leader that learns of its successor later refuses each change when it is made.
        self.connections.is_read_only()
            || self.is_copy && !self.role().is_ok_and(|role| role == Role::Leader)
    }

    /// Fails after a commit that failed in the operating system: readers see it, but it may not be durable.
    ///
    /// # Errors
    /// [`Error::Closed`] until the catalogue is opened again.
    pub fn check_not_failed(&self) -> Result<()> {
        self.connections.current()?.check_not_failed()
    }

    /// The locks of the federation.
    pub fn locks(&self) -> LockTable {
        self.locks.clone()
    }

    /// The names of a lock's target, such as `container run7/events`; its numbers if it has no committed name.
    pub fn describe(&self, target: &LockTarget) -> String {
        self.target_names().describe(target)
    }

    fn target_names(&self) -> CatalogueNames {
        CatalogueNames::new(self.folder.join(LOCKS_FOLDER), Arc::clone(&self.connections))
    }

    /// The pinned snapshots. [`LocalCatalogue::pin`] adds to them.
    pub fn pins(&self) -> &SnapshotPins {
        &self.pins
    }

    /// Closes the connections to the catalogue; the next use opens new ones.
    ///
    /// Call it before a fork if you can (in Python: `os.register_at_fork`), so that the child inherits no connections.
    /// Otherwise the child notices the fork and opens its own, but it must not outlive the parent while other processes
    /// use the catalogue.
    pub fn disconnect(&self) {
        self.connections.disconnect();
    }

    /// Publishes `commit` as a whole or not at all. When this returns, it is durable.
    ///
    /// Concurrent commits of several threads share one SQL transaction (group commit), and those of several
    /// processes share syncs.
    ///
    /// # Errors
    /// The errors of [`Catalogue::commit`](crate::Catalogue::commit).
    pub fn commit(&self, commit: Commit) -> Result<Csn> {
        commit.validate()?;
        self.file_log.sync_names([&commit])?;
        let logged = logged_writes::bytes_of(&commit);
        let published = self.connections.commit(commit);
        if let Ok(csn) = published {
            self.file_log.count(logged, csn);
        }
        published
    }

    /// Publishes several commits in one durable write. Each succeeds or fails independently, unless the write fails.
    pub fn commit_all(&self, commits: Vec<Commit>) -> Vec<Result<Csn>> {
        if let Err(error) = self.file_log.sync_names(&commits) {
            return vec![Err(error); commits.len()];
        }
        let logged = commits.iter().map(logged_writes::bytes_of).sum();
        let published = self.connections.commit_all(commits);
        if let Some(newest) = published.iter().flatten().max() {
            self.file_log.count(logged, *newest);
        }
        published
    }

    /// A new database id.
    pub fn reserve_database(&self) -> Result<DatabaseId> {
        Ok(DatabaseId(self.reserve("database", 1)?))
    }

    /// `count` new database ids, at the cost of one.
    pub fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.reserve("database", count)?;
        Ok((first..first + count).map(DatabaseId).collect())
    }

    /// A new container id.
    pub fn reserve_container(&self) -> Result<ContainerId> {
        Ok(ContainerId(self.reserve("container", 1)?))
    }

    /// `count` new container ids, at the cost of one.
    pub fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.reserve("container", count)?;
        Ok((first..first + count).map(ContainerId).collect())
    }

    /// The first of `count` new numbers of a sequence.
    fn reserve(&self, sequence: &'static str, count: u32) -> Result<u32> {
        self.connections.write_aside(|connection| {
            let last: i64 = connection
                .prepare_cached(
                    "UPDATE sequences SET last = last + ?2 WHERE name = ?1 RETURNING last",
                )?
                .query_row(params![sequence, count], |row| row.get(0))?;
            // The largest number stays unused, so that `first + count` cannot overflow.
            if last >= i64::from(u32::MAX) {
                let what = format!(
                    "this federation has used up its {sequence} ids; create another federation"
                );
                return Err(Error::invalid(what).into());
            }
            Ok(u32::try_from(last - i64::from(count) + 1).unwrap_or(0))
        })
    }
}

impl Drop for LocalCatalogue {
    fn drop(&mut self) {
        self.file_log.end();
    }
}

impl fmt::Debug for LocalCatalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalCatalogue")
            .field("folder", &self.folder)
            .field("name", &self.identity.name)
            .finish_non_exhaustive()
    }
}
