//! Reading a federation as of a commit, without locks.
//!
//! `snapshot` is the federation as of a commit, `version` a container's open version, `view` a container in a snapshot,
//! `selection` the fields that are read. `cursor` reads Rust rows, `field` single fields; `resolve` reads the objects
//! that links refer to, `recast` reads objects as another version of their class, `changes` finds the entries that
//! differ between two versions. `index` finds objects by key, `statistics` excludes clusters.

mod caches;
mod changes;
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
