//! The catalogue of a federation: what is committed, under which names, and who is writing.
//!
//! A federation is a folder:
//!
//! | path | holds |
//! |---|---|
//! | `catalogue.sqlite` | the SQL tables; the one truth about what is committed |
//! | `locks/` | small files for kernel byte-range locks: one for each database, and others |
//! | `databases/` | the database files, each of which is a ROOT file |
//!
//! # Map
//!
//! | module | noun |
//! |---|---|
//! | [`clock`] | the machine's clocks; no other module of this crate reads them |
//! | [`ids`] | [`DatabaseId`], [`ContainerId`], [`Csn`], [`Oid`] |
//! | [`rows`] | what look-ups return |
//! | [`local`] | [`LocalCatalogue`]: create, open, look up, commit, tag, pin, vacuum, copy, restore |
//! | `catalogue` | [`Catalogue`]: what of that can also be done from afar |
//! | [`commit`] | [`Commit`]: everything that one transaction publishes, and how it is applied |
//! | [`locks`] | [`LockTable`]: politeness between writers, [`SnapshotPins`]: who reads what |
//! | [`error`] | [`Error`] and [`ErrorKind`] |
//!
//! # Invariants
//!
//! 1. A commit is one SQL transaction. Once it is durable it has happened, as a whole; before, nothing has.
//! 2. Rows of commits, classes, versions and link targets are only ever added; vacuum alone takes away
//!    what no kept snapshot has. A snapshot is a CSN.
//! 3. Ids are never used twice, not even those of a transaction that was rolled back.
//! 4. Safety rests on the version check of the commit alone. Losing a lock can make a transaction
//!    fail; it cannot make a commit wrong. Readers of snapshots that vacuum would take rest on pins.
//! 5. A look-up costs O(log n), and a commit costs the same however much is already committed.
//!
//! This crate knows nothing of pages, and has no network: an envelope is an offset and two sizes here.
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
pub mod error;
mod host;
pub mod ids;
pub mod local;
pub mod locks;
mod names;
pub mod rows;
mod schema;

pub use catalogue::Catalogue;
pub use commit::{Author, Commit, DroppedDatabase, NewContainer, NewDatabase, NewVersion};
pub use error::{Error, ErrorKind, Result};
pub use ids::{ContainerId, Csn, DatabaseId, Oid};
pub use local::{
    CATALOGUE_FILE, Contents, DATABASES_FOLDER, FreeExtent, Kept, LinkTargets, LocalCatalogue,
    Purgeable, Vacuumed,
};
pub use locks::{
    HeldLock, Holder, LeasedLocks, LeasedPins, LockGuard, LockKind, LockOwner, LockTable,
    LockTarget, PinGuard, SnapshotPins, Waiter,
};
pub use names::{
    NAME_BYTES_MAX, check_container_name, check_database_name, check_place, is_database_path,
};
pub use rows::{
    BlobRange, ClassRow, CommitRow, ContainerRecord, ContainerRow, Counts, DatabaseRecord,
    DatabaseRow, DatabaseState, EnvelopeRange, NameRow, Retention, TagRow, VersionRow,
};
