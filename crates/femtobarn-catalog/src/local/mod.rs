//! The catalogue itself: create it, open it, ask it, commit to it.
//!
//! Invariants:
//! 1. A [`LocalCatalogue`] may be shared by threads. Readers never wait behind a commit: they have
//!    connections of their own, and SQLite's write-ahead log keeps the two apart.
//! 2. A folder holds a complete catalogue or none: creating builds it under another name.
//! 3. A catalogue that was deleted or replaced while open is noticed before the next use.
//! 4. After a commit that failed halfway in the operating system, no more commits are taken until
//!    the catalogue is opened again, because what is on the disk is not known.
//! 5. A forked child gets connections of its own at its first use.
//!
//! Lock order: the commit queue of this process, the commit turn between processes
//! ([`crate::locks`]), SQLite's write lock, the sync of the log. Nobody who holds a later one waits for
//! an earlier one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::locks::{LockTable, SnapshotPins};
use crate::schema::Identity;

mod backup;
mod connection;
mod contents;
mod creation;
mod decode;
mod labels;
mod log;
mod lookup;
pub(crate) mod numbers;
mod queue;
mod relocation;
mod retention;
mod session;
mod survey;
mod vacuum;

pub(crate) use labels::Labels;

pub use contents::{Contents, LinkTargets};
pub use retention::Kept;
pub use vacuum::{FreeExtent, Purgeable, Vacuumed};

/// The file of the catalogue, in the federation's folder.
pub const CATALOGUE_FILE: &str = "catalogue.sqlite";
/// The folder of the lock files, in the federation's folder.
pub const LOCKS_FOLDER: &str = "locks";
/// The folder of the database files, in the federation's folder.
pub const DATABASES_FOLDER: &str = "databases";

/// How long SQLite itself waits for its locks. The commit turn comes first, so this is met only
/// when somebody else, such as the sqlite3 shell, writes to the catalogue.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(30);

/// The catalogue of one federation.
pub struct LocalCatalogue {
    folder: PathBuf,
    identity: Identity,
    sessions: Arc<session::Sessions>,
    pins: SnapshotPins,
}

impl LocalCatalogue {
    /// Creates a federation in `folder`, which must not exist or be empty.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        creation::create(folder, name, Uuid::new_v4(), false)?;
        Self::open(folder)
    }

    /// Creates a federation that was there before, in a folder that still has its files but no
    /// catalogue; [`LocalCatalogue::restore`] fills it.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a catalogue, or the write-ahead log of one.
    pub fn create_with(folder: &Path, name: &str, uuid: Uuid) -> Result<Self> {
        creation::create(folder, name, uuid, true)?;
        Self::open(folder)
    }

    /// Opens the federation in `folder`; only for reading if it cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        creation::check_present(folder)?;
        let folder = std::path::absolute(folder)
            .map_err(|error| Error::io("cannot find the folder", folder, error))?;
        let (sessions, identity) = session::Sessions::open(&folder)?;
        let pins = SnapshotPins::new(&folder);
        Ok(LocalCatalogue { folder, identity, sessions: Arc::new(sessions), pins })
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

    /// Whether the catalogue cannot be written from here.
    pub fn is_read_only(&self) -> bool {
        self.sessions.is_read_only()
    }

    /// Refuses to go on after a commit that failed halfway: it can be seen, and may not be durable.
    ///
    /// # Errors
    /// [`Error::Closed`] if the catalogue must be opened again.
    pub fn check_not_failed(&self) -> Result<()> {
        self.sessions.current()?.check_not_failed()
    }

    /// The lock table of this federation.
    pub fn locks(&self) -> LockTable {
        LockTable::named(&self.folder, Labels::new(Arc::clone(&self.sessions)))
    }

    /// The snapshots that are being read; see [`LocalCatalogue::pin`].
    pub fn pins(&self) -> &SnapshotPins {
        &self.pins
    }

    /// Closes the connections to the catalogue; the next use opens new ones.
    ///
    /// Call it before a fork where you can (Python: `os.register_at_fork`), so that the child
    /// inherits nothing. Without it the child notices and opens its own, but then it must not
    /// outlive the parent while others use the catalogue.
    pub fn disconnect(&self) {
        self.sessions.disconnect();
    }

    /// Publishes everything in `commit`, or nothing. When this returns, it is durable.
    ///
    /// Commits of several threads that wait at the same time share one transaction, and commits of
    /// several processes share syncs.
    pub fn commit(&self, commit: Commit) -> Result<Csn> {
        commit.validate()?;
        self.sessions.current()?.commit(commit)
    }

    /// Publishes several commits in one durable write. Each succeeds or fails by itself, unless that
    /// write fails.
    pub fn commit_all(&self, commits: Vec<Commit>) -> Vec<Result<Csn>> {
        let session = match self.sessions.current() {
            Ok(session) => session,
            Err(error) => return vec![Err(error); commits.len()],
        };
        session.commit_all(commits)
    }

    /// A database id that nobody had before.
    pub fn reserve_database(&self) -> Result<DatabaseId> {
        Ok(DatabaseId(self.reserve("database", 1)?))
    }

    /// `count` database ids that nobody had before, at the price of one.
    pub fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.reserve("database", count)?;
        Ok((first..first + count).map(DatabaseId).collect())
    }

    /// A container id that nobody had before.
    pub fn reserve_container(&self) -> Result<ContainerId> {
        Ok(ContainerId(self.reserve("container", 1)?))
    }

    /// `count` container ids that nobody had before, at the price of one.
    pub fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.reserve("container", count)?;
        Ok((first..first + count).map(ContainerId).collect())
    }

    /// The first of `count` new numbers of a sequence.
    fn reserve(&self, sequence: &'static str, count: u32) -> Result<u32> {
        self.sessions.current()?.write(|connection| {
            let last: i64 = connection
                .prepare_cached(
                    "UPDATE sequences SET last = last + ?2 WHERE name = ?1 RETURNING last",
                )?
                .query_row(rusqlite::params![sequence, count], |row| row.get(0))?;
            // The last number stays unused, so that `first + count` cannot overflow.
            if last >= i64::from(u32::MAX) {
                let what = format!("this federation has no more {sequence} ids; start another one");
                return Err(Error::invalid(what).into());
            }
            Ok(u32::try_from(last - i64::from(count) + 1).unwrap_or(0))
        })
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
