//! Reading a federation as of a commit: snapshots, views, cursors, fields, indexes, statistics.

mod caches;
pub(crate) mod cursor;
pub(crate) mod field;
pub(crate) mod index;
pub(crate) mod recast;
pub(crate) mod resolve;
pub(crate) mod selection;
pub(crate) mod snapshot;
pub(crate) mod statistics;
pub(crate) mod version;
pub(crate) mod view;
