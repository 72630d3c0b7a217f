//! The steps of a script.

use femtobarn::Profile;

/// A step, which is acknowledged as a whole.
#[derive(Clone, Debug)]
pub enum ScriptStep {
    /// A transaction.
    Commit(Vec<ScriptChange>),
    /// A database is sealed.
    Seal(String),
    /// A sealed database is copied to the store in the federation's folder.
    Migrate(String),
    /// A database's file leaves the disk.
    Evict(String),
    /// A database's file is staged to the disk.
    Stage(String),
    /// All snapshots but the newest are dropped, and their space is reclaimed.
    Vacuum,
    /// A container is compacted.
    Compact(String),
    /// The federation is closed and reopened; SQLite then empties its log.
    Reopen,
}

/// One change within a transaction. Containers are named `database/container`.
#[derive(Clone, Debug)]
pub enum ScriptChange {
    /// A new database.
    Database(String),
    /// A new database in a place.
    #[allow(missing_docs)]
    DatabaseIn { name: String, place: String },
    /// A new container.
    Container(String, Profile),
    /// `count` objects, numbered from `first` on.
    #[allow(missing_docs)]
    Append { path: String, first: u64, count: u64 },
    /// `tasks` tasks of a fork append `count` objects each, numbered from `first` on in the order of the tasks. Some
    /// run several times, and some of these runs end before they are finished.
    #[allow(missing_docs)]
    AppendByTasks { path: String, first: u64, tasks: u64, count: u64 },
    /// One object of some megabytes, with a number.
    #[allow(missing_docs)]
    AppendLarge { path: String, number: u64 },
    /// Objects at entries are deleted.
    #[allow(missing_docs)]
    Delete { path: String, entries: Vec<u64> },
    /// Objects at entries are updated once more.
    #[allow(missing_docs)]
    Update { path: String, entries: Vec<u64> },
    /// A container is renamed within its database.
    #[allow(missing_docs)]
    Rename { path: String, name: String },
    /// A container is dropped.
    Drop(String),
    /// A database is dropped.
    DropDatabase(String),
    /// A database is renamed.
    #[allow(missing_docs)]
    RenameDatabase { name: String, new: String },
    /// A container's objects evolve to the second version of their class.
    Evolve(String),
    /// A container gets an index of the objects' numbers.
    Index(String),
}

/// Database and container of a path.
pub fn split(path: &str) -> (&str, &str) {
    path.split_once('/').expect("paths of scripts have a database and a container")
}
