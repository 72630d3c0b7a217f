//! The catalogue of a federation: the committed state, its names, its history, and locks between writers.
//!
//! A federation is a folder:
//!
//! | path | holds |
//! |---|---|
//! | `catalogue.sqlite` | the SQL tables, which alone decide what is committed |
//! | `catalogue.toml` | instead of these, where in PostgreSQL they are |
//! | `locks/` | small files for kernel byte-range locks, most of them one for each database |
//! | `databases/` | the database files, each of which is a ROOT file |
//!
//! # Map
//!
//! From below; a module depends only on those above it in this list.
//!
//! | module | contents |
//! |---|---|
//! | [`clock`], `host` | the machine's clocks; this process, its host and its user |
//! | [`ids`] | [`DatabaseId`], [`ContainerId`], [`Csn`], [`Oid`] |
//! | `holder`, [`error`] | [`Holder`] of a lock; [`Error`] and [`ErrorKind`] |
//! | `names`, `paths` | rules for names; where the parts of a federation lie in its folder |
//! | [`rows`], [`residence`], [`replication`], [`servers`] | the rows that look-ups return; the residences of database files; the rows that followers copy; servers and the homes of databases |
//! | [`locks`] | [`LockTable`]: politeness between writers; [`SnapshotPins`]: snapshots that are being read |
//! | `numbers`, `sql`, `schema` | numbers, connections and errors of SQL in two dialects, and the tables |
//! | [`commit`] | [`Commit`]: everything that one transaction publishes, and how it is applied |
//! | [`local`] | [`LocalCatalogue`]: create, open, look up, commit, tag, pin, vacuum, copy, restore |
//! | `catalogue` | [`Catalogue`]: the operations that a server offers, too, as a trait |
//!
//! # Invariants
//!
//! 1. A commit is one SQL transaction. Once that is durable the commit has happened, as a whole; before, nothing has.
//! 2. Rows of commits, classes, versions and link targets are only ever added; vacuum alone deletes those that no
//!    kept snapshot needs. A snapshot is a CSN.
//! 3. Ids are never re-used, not even those of a transaction that was rolled back.
//! 4. Safety rests on the version check of the commit alone. Losing a lock can make a transaction fail; it cannot
//!    make a commit wrong. Readers of snapshots that vacuum could remove rely on pins.
//! 5. A look-up costs O(log n), and a commit costs the same however much is committed.
//!
//! This crate knows nothing of pages, and of the network only PostgreSQL: an RNTuple envelope is an offset and two sizes here.
//!
//! # Example
//!
//! ```
//! use femtobarn_catalog::{LocalCatalogue, Commit, DatabaseState, NewDatabase};
//!
//! let folder = tempfile::tempdir()?;
//! let catalog = LocalCatalogue::create(&folder.path().join("lhc.fed"), "lhc")?;
//! let id = catalog.reserve_database()?;
//! let csn = catalog.commit(Commit {
//!     message: "the first database".into(),
//!     new_databases: vec![NewDatabase {
//!         id,
//!         uuid: uuid::Uuid::new_v4(),
//!         name: "run7".into(),
//!         path: "databases/run7.root".into(),
//!         state: DatabaseState::Open,
//!     }],
//!     ..Commit::default()
//! })?;
//! assert_eq!(catalog.head()?, csn);
//! assert_eq!(catalog.database("run7", csn)?.id, id);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod catalogue;
pub mod clock;
pub mod commit;
mod copied_tables;
pub mod error;
mod holder;
mod host;
pub mod ids;
pub mod interrupts;
pub mod local;
pub mod locks;
mod names;
mod numbers;
mod paths;
pub mod replication;
pub mod residence;
pub mod rows;
mod schema;
pub mod servers;
mod sql;

pub use catalogue::Catalogue;
pub use commit::{
    Author, Commit, DroppedDatabase, FileWrite, NewContainer, NewDatabase, NewVersion,
};
pub use error::{Error, ErrorKind, Result};
pub use holder::Holder;
pub use ids::{ContainerId, Csn, DatabaseId, Oid, ParseOidError};
pub use local::{
    ChangedContainers, Contents, FilesToWrite, FreeExtent, KeptSnapshots, LOGGED_COMMIT_BYTES_MAX,
    LinkTargets, LocalCatalogue, MoveWatch, MovedCatalogue, OwnChanges, Purgeable, Retained, Role,
    Vacuumed,
};
pub use locks::{
    HeldLock, LeasedLocks, LeasedPins, LockGuard, LockKind, LockOwner, LockStep, LockTable,
    LockTarget, LockWait, NewestRows, PinGuard, SnapshotPins, Waiter,
};
pub use names::{NAME_BYTES_MAX, check_container_name, check_database_name};
pub use paths::{
    CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE, DATABASES_FOLDER, RETAINED_FILE, check_place,
    is_database_path, is_federation,
};
pub use replication::{LeaderDatabase, LeaderRows, SqlValue, Successor, TableRows, path_of_copy};
pub use residence::{
    DiskState, FilePin, ReplicaRow, ReplicaState, Residence, ResidenceState, StoredObject,
};
pub use rows::{
    BlobRange, ClassRow, CommitAction, CommitChange, CommitRow, ContainerRecord, ContainerRow,
    ContainerSummary, Counts, DatabaseRecord, DatabaseRow, DatabaseState, EnvelopeRange,
    GrowthPoint, NameRow, Retention, TagRow, VersionRow,
};
pub use servers::{Fence, Home, JoiningServer, ServerRow, ServerStanding};
