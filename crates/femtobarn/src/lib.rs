//! The engine of Femtobarn: federations of databases whose files are ROOT files.
//!
//! # Map
//!
//! | module | noun |
//! |---|---|
//! | `federation` | [`Federation`]: open it, start transactions, take snapshots |
//! | `transaction` | [`Transaction`]: what is written together becomes visible together |
//! | `snapshot`, `view` | [`Snapshot`], [`View`]: the federation as of a commit, read by anybody, locked by nobody |
//! | `cursor` | [`Cursor`], [`Objects`]: objects as Rust structures, by entry and by OID |
//! | `field` | [`FieldReader`]: single fields of them, without |
//! | `class` | [`Class`]: what the objects of a container are made of |
//! | `evolution` | how objects of one version of a class become those of another |
//! | `recast`, `narrowing` | objects seen as of another version of their class |
//! | `dress`, `link` | links and optional records between their stored form and the user's; [`Link`]: one in a row |
//! | `extent`, `file` | the pieces of a database file that writers own, and the file itself |
//! | `remote`, `read_ahead` | files of a server; fetching from it before somebody asks |
//! | `chain` | the keys of a database file, and how their chain is mended |
//! | `seal`, `attach`, `detach` | making a database a complete ROOT file; taking files in and giving them away |
//! | `record` | what a file says about itself: commit records |
//! | `vacuum`, `compact`, `republish` | giving space back; fewer and larger clusters; versions without new objects |
//! | `check`, `repair` | whether all that is committed can be read; mending what cannot |
//! | `export` | [`Export`]: objects as RNTuples of plain ROOT files |
//! | `identify`, `scan` | what a file is, and the commit records in it |
//! | `backup` | copying a federation while it is written to, and making one from copies |
//! | `rebuild` | the catalogue, made again from the files |
//! | `progress` | how far a long operation is |
//! | `following` | the objects that links lead to |
//! | `index` | [`Index`]: which objects have which keys, in sorted runs |
//! | `statistics` | [`ClusterBounds`]: what the values of clusters lie between |
//!
//! What is in the files besides (`annex`, `deletion`, `description`, `frame`, `inventory`) is of the crate
//! `femtobarn-format`.

mod attach;
mod backup;
mod bursts;
mod chain;
mod check;
mod class;
mod class_names;
mod compact;
mod cursor;
mod detach;
mod disk_cache;
mod dress;
mod error;
mod evolution;
mod export;
mod extent;
mod far;
mod federation;
mod field;
mod file;
mod files;
mod following;
mod identify;
mod index;
mod link;
mod narrowing;
mod options;
mod places;
mod progress;
mod read_ahead;
mod rebuild;
mod recast;
mod record;
mod remote;
mod repair;
mod republish;
mod scan;
mod seal;
mod snapshot;
mod statistics;
mod transaction;
mod vacuum;
mod view;

use femtobarn_format::{annex, deletion, description, frame, inventory};

pub use attach::Attached;
pub use backup::{BackupReport, restore};
pub use check::{CheckLevel, CheckReport, Place, Problem, ProblemKind, Severity};
pub use class::{Class, Field, FieldType};
pub use compact::{CompactOptions, Compacted, TidyReport};
pub use cursor::{Cursor, Objects};
pub use error::{Error, ErrorKind, Result};
pub use evolution::Evolution;
pub use export::Export;
pub use federation::{At, Federation};
pub use femtobarn_catalog::{
    CommitRow, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState, HeldLock,
    Holder, LockTarget, Oid, Retention, TagRow, Waiter,
};
pub use femtobarn_format::{ContainerOptions, Profile};
pub use field::{FieldContent, FieldReader};
pub use identify::{CommitFacts, ContainerFacts, Facts, FileKind, identify};
pub use index::{Index, Referrer, Referrers};
pub use link::{ElementLink, Link};
pub use options::{Isolation, OpenOptions, TransactionOptions};
pub use progress::{Progress, Watch};
pub use rebuild::{RebuildReport, rebuild_catalogue};
pub use repair::{RepairOptions, RepairReport};
pub use snapshot::Snapshot;
pub use statistics::ClusterBounds;
pub use transaction::{ContainerKey, Rows, Savepoint, Transaction};
pub use vacuum::{VacuumOptions, VacuumReport};
pub use view::{Selection, View};
