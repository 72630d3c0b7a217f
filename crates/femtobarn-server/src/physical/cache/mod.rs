//! A cache of another server: the files of an origin, of which the bytes that were read are kept on disks of this
//! machine.
//!
//! | module | contents |
//! |---|---|
//! | `header`, `pages` | the kept pages of one file, which are valid if their checksum matches |
//! | `room`, `rooms` | a folder of kept files, its limit, and the order of eviction; all folders, each on a disk of its own |
//! | `origin` | the origin's files, over `root://` |
//! | `parts` | pages that are fetched together |
//! | `file`, `remotes`, `shared` | a file: kept pages, and fetches that all readers share; the origin's file; the state that all files share |
//! | `open` | a file for the clients that read it in the same way |
//! | `storage` | [`CachedOrigin`], the storage |
//!
//! Each may use those above it; `file`, `remotes` and `shared` use each other.
//!
//! 1. All bytes that a reader gets were compared with a checksum that was computed when they arrived from the origin.
//!    Damage on the disk costs another fetch.
//! 2. Pages are kept without syncs or a journal: after a crash, those whose checksum does not match are fetched again.
//! 3. Kept pages belong to one version of a file: its size, time and id at the origin. Every open asks the origin;
//!    while it does not answer, kept files are shown unchanged.
//! 4. No error of a disk fails a read. A disk that fails is given up if there are others.

mod file;
mod header;
mod open;
mod origin;
mod pages;
mod parts;
mod remotes;
mod room;
mod rooms;
mod shared;
mod storage;

pub(crate) use origin::metadata as metadata_at_server;
pub use room::{CacheCounts, CacheUse, LeavingFile, LeavingFiles};
pub use rooms::CacheDisk;
pub use storage::CachedOrigin;
