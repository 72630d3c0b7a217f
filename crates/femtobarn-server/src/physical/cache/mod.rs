//! A cache of another server: the files of an origin, of which what was read is kept on a disk of this machine.
//!
//! | module | contents |
//! |---|---|
//! | `header`, `pages` | what is kept of one file: pages that count if their checksum matches |
//! | `room`, `rooms` | a folder of kept files, its limit, and what leaves it first; all folders, on a disk each |
//! | `origin` | the origin's files, over `root://` |
//! | `parts` | pages that are fetched together |
//! | `file`, `remotes`, `shared` | a file: kept pages, and fetches that all readers share; the origin's file; what all files share |
//! | `open` | a file as those have it open who read it in the same way |
//! | `storage` | [`CachedOrigin`], the storage |
//!
//! Each may use those above it; `file`, `remotes` and `shared` know each other.
//!
//! 1. What a reader gets was compared with a checksum that was computed when the bytes came from the origin. Damage on
//!    the disk costs another fetch.
//! 2. Pages are kept without syncs or a journal: after a crash, those whose checksum does not match are fetched again.
//! 3. What is kept belongs to one version of a file, which its size, time and id at the origin tell. Every open asks the
//!    origin; while it does not answer, what is kept is shown as it was.
//! 4. No error of a disk fails a read. One that fails is given up if there are others.

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
