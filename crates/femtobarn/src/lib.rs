//! The engine of Femtobarn: federations of databases whose files are ROOT files.
//!
//! # Map
//!
//! A module may import those above it in this table, and `federation`.
//!
//! | module | contents |
//! |---|---|
//! | `federation` | [`Federation`]: the catalogue, files and caches that one process has open |
//! | `schema` | [`Class`]: the fields of a container's objects |
//! | `storage` | database files, local or on a server, and the extents of them that writers own |
//! | `replication` | [`Follower`]: a copy of a federation that follows it; [`promote`] |
//! | `links` | links and optional fields between their stored form and the user's; [`Link`]: one in a row |
//! | `evolve` | [`Evolution`]: objects of one version of a class as objects of another |
//! | `read` | [`Snapshot`], [`View`], [`Cursor`], [`FieldReader`], [`Index`], [`ClusterBounds`]: reading as of a commit, without locks |
//! | `transaction` | [`Transaction`]: changes that become visible together |
//! | `exchange` | complete ROOT files: sealed, attached, detached, exported ([`Export`]), kept in stores |
//! | `maintenance` | vacuum, compaction, check, repair, backup, and rebuilding the catalogue from the files |
//!
//! The metadata beside RNTuple in a file (`annex`, `deletion`, `description`, `frame`, `inventory`) is in the
//! crate `femtobarn-format`; docs/format.md specifies it.

mod error;
mod evolve;
mod exchange;
mod federation;
#[cfg(fuzzing)]
pub mod fuzzing;
mod links;
mod maintenance;
mod options;
mod progress;
mod read;
mod replication;
mod schema;
mod storage;
mod transaction;

use femtobarn_format::{annex, deletion, description, frame, inventory, link};

pub use error::{Error, ErrorKind, Result};
pub use evolve::evolution::Evolution;
pub use exchange::attach::Attached;
pub use exchange::export::Export;
pub use federation::Federation;
pub use femtobarn_archive::Applied;
pub use femtobarn_catalog::{
    CATALOGUE_ADDRESS_FILE, CommitRow, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow,
    DatabaseState, FilePin, HeldLock, Holder, LockTarget, MovedCatalogue, Oid, ReplicaRow,
    ReplicaState, Residence, ResidenceState, Retention, ServerRow, ServerStanding, TagRow,
    VersionRow, Waiter, interrupts,
};
pub use femtobarn_format::series::{
    Overlap, REPLACED_FIELD, SeriesClock, SeriesOptions, VALIDITY_FIELDS,
};
pub use femtobarn_format::{ContainerOptions, Profile};
pub use links::row::{ElementLink, Link};
pub use maintenance::backup::{BackupReport, restore};
pub use maintenance::check::{
    CheckLevel, CheckReport, Problem, ProblemKind, ProblemLocation, Severity,
};
pub use maintenance::compaction::{CompactOptions, Compacted, TidyReport};
pub use maintenance::packing::{PackedField, PackedSize};
pub use maintenance::rebuild::{RebuildReport, rebuild_catalogue};
pub use maintenance::repair::{RepairOptions, RepairReport};
pub use maintenance::vacuum::{VacuumOptions, VacuumReport};
pub use options::{Isolation, OpenOptions, TransactionOptions};
pub use progress::{Progress, Watch};
pub use read::cursor::{Cursor, Objects};
pub use read::field::{FieldContent, FieldReader};
pub use read::index::{Index, Referrer, Referrers};
pub use read::selection::Selection;
pub use read::snapshot::{At, Snapshot};
pub use read::statistics::ClusterBounds;
pub use read::view::View;
pub use replication::{
    FollowOptions, Follower, Promotion, Step, forget_former_leader, inform_former_leader, promote,
};
pub use schema::class::{Class, Field};
pub use schema::field_type::{FieldType, MAP_ITEM, TUPLE};
pub use storage::identify::{
    CommitMetadata, ContainerMetadata, FileMetadata, RootFileKind, identify,
};
pub use storage::remote::tier::TierStatistics;
pub use transaction::{ContainerKey, Fork, Receipt, Rows, Savepoint, TaskWriter, Transaction};
pub use xrd::client::{FoundToken, bearer_token};
