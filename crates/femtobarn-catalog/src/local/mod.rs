//! The catalogue in this host's file system, or in PostgreSQL: create, open, look up, commit, tag, pin, vacuum, copy, restore.
//!
//! Invariants:
//! 1. A [`LocalCatalogue`] may be shared by threads. Readers never wait for a commit: they have connections of
//!    their own, and SQLite's write-ahead log, or PostgreSQL, keeps the two apart.
//! 2. A folder holds a complete catalogue or none: a new one is built under another name.
//! 3. A catalogue file that was deleted or replaced while open is noticed at the next use.
//! 4. In SQLite, after a commit that failed in the operating system no more commits are taken until the catalogue is opened
//!    again, because the state of the disk is unknown.
//! 5. A forked child opens connections of its own at its first use.
//! 6. A look-up answers from rows in memory only if the state of the log shows that they are still the newest.
//!
//! Lock order: the commit queue of this process, the turn to commit ([`crate::locks`]), SQLite's write lock, the sync
//! of the log. A thread that holds a later lock never waits for an earlier one.
//!
//! Modules, from below: `wal_index`, the state of the write-ahead log; `connection`, one connection, and `reader_pool`,
//! several; `settings`; `role`, who may write; `barrier`; `file_writes`; `log`, the write-ahead log; `commit_writer`, over these;
//! `change_reports`, reported by PostgreSQL, and `known_rows`, which save look-ups; `commit_queue`, group commit within a
//! process; `catalogue_place`, the file or server; `postgres_writer` over `postgres_group`, which publishes many small
//! commits at once, and `home_check`, the check of fences; `connections`, all connections of a process, with `recall`;
//! `process_connections`; `target_names`; `catalogue`, with [`LocalCatalogue`]. The other modules add methods to it,
//! over `decode`, which reads rows: `lookup`, `changes`, `browsing` (for people), `servers`, `survey`, `retained` and
//! `retention`, `vacuum` over `free_extents`, `relocation`, `replicas`, `contents`, `logged_writes` over `logged_rows`
//! and `logged_files` (bytes of files that are durable here first), `sent_writes`, `backup`, `leading` and `following`
//! (copies at other servers) over `row_copy`; `creation` makes the folder; `moving` over `moved_tables` moves the
//! catalogue to the other dialect.

mod backup;
mod barrier;
mod browsing;
mod catalogue;
mod catalogue_place;
mod change_reports;
mod changes;
mod commit_queue;
mod commit_writer;
mod connection;
mod connections;
mod contents;
mod creation;
mod decode;
mod file_writes;
mod following;
mod free_extents;
mod home_check;
mod known_rows;
mod leading;
mod log;
mod logged_files;
mod logged_rows;
mod logged_writes;
mod lookup;
mod moved_tables;
mod moving;
mod postgres_group;
mod postgres_writer;
mod process_connections;
mod reader_pool;
mod recall;
mod relocation;
mod replicas;
mod retained;
mod retention;
mod role;
mod row_copy;
mod sent_writes;
mod servers;
mod settings;
mod survey;
mod target_names;
#[cfg(test)]
mod tests;
mod vacuum;
mod wal_index;

pub use catalogue::LocalCatalogue;
pub use changes::ChangedContainers;
pub use contents::{Contents, LinkTargets};
pub use following::OwnChanges;
pub use free_extents::FreeExtent;
pub use logged_writes::LOGGED_COMMIT_BYTES_MAX;
pub use moving::{MoveWatch, MovedCatalogue};
pub use retained::Retained;
pub use retention::KeptSnapshots;
pub use role::Role;
pub use sent_writes::FilesToWrite;
pub use vacuum::{Purgeable, Vacuumed};
