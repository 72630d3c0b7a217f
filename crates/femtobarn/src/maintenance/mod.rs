//! Maintenance of a federation, as operators run it.
//!
//! | module | contents |
//! |---|---|
//! | `check` | compares catalogue and files, and reads everything committed |
//! | `repair` | mends what a check finds |
//! | `vacuum`, `compaction` | free space: of old versions; of small clusters and deleted objects |
//! | `packing` | the size of fields, and the speed of reading them, with each compression |
//! | `backup` | full and incremental copies, and restoring them |
//! | `catalogue_move` | moves the catalogue from SQLite to PostgreSQL, and back |
//! | `rebuild` | rebuilds the catalogue from the commit records in the files |
//! | `republication` | publishes a version that holds no new objects, for `repair` and `compaction` |
//!
//! May import `transaction` and everything below it; `exchange` for its records of newest versions.

pub(crate) mod backup;
pub(crate) mod catalogue_move;
pub(crate) mod check;
pub(crate) mod compaction;
pub(crate) mod packing;
pub(crate) mod rebuild;
pub(crate) mod repair;
pub(crate) mod republication;
pub(crate) mod vacuum;
