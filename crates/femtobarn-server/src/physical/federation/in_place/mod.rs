//! Databases that are read in the stores that have them, without coming back to the disk.
//!
//! | module | contents |
//! |---|---|
//! | `ranges` | what was announced of a copy, and what is fetched of it |
//! | `stores` | the stores: threads that read there, which stores did not answer, and counts |
//! | `copy` | [`CopyReader`]: a copy that is read |
//! | `file` | [`InPlaceFile`]: the database's file, from one of its copies or from the disk |
//!
//! Each may use those above it.
//!
//! 1. What is fetched was asked for or announced by readers. A store gets the ranges of up to a MiB in one call, and
//!    bridges gaps as it likes.
//! 2. Readers wait in the blocking pool. Stores are waited for by threads of their own, of which each store has a bounded
//!    number, so that one store delays no readers of another.
//! 3. Fetched bytes are in memory until they were read, at most [`stores::ANNOUNCED_BYTES_MAX`] of announced ones.
//! 4. A copy that cannot be read is left for the disk, where the file may be meanwhile, or for the next copy; else the file
//!    is brought back.

mod copy;
mod file;
mod ranges;
mod stores;

pub(super) use file::InPlaceFile;
pub use stores::InPlaceCounts;
pub(super) use stores::InPlaceStores;
