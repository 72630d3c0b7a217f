//! Databases that are read in their stores, without being brought back to the disk.
//!
//! | module | contents |
//! |---|---|
//! | `ranges` | the announced and the fetched ranges of a copy |
//! | `stores` | the stores: threads that read there, unreachable stores, and counts |
//! | `copy` | [`CopyReader`]: a copy that is read |
//! | `file` | [`InPlaceFile`]: the database's file, from one of its copies or from the disk |
//!
//! Each may use those above it.
//!
//! 1. Only ranges that readers requested or announced are fetched. One call passes ranges of up to a MiB to a store,
//!    which may bridge gaps.
//! 2. Readers wait in the blocking pool. Separate threads wait for stores, a bounded number for each store, so that one
//!    store does not delay readers of another.
//! 3. Fetched bytes stay in memory until they are read; of announced ones at most [`stores::ANNOUNCED_BYTES_MAX`].
//! 4. If a copy cannot be read, the file is read from the disk, where it may have arrived meanwhile, or from the next
//!    copy; otherwise it is brought back.

mod copy;
mod file;
mod ranges;
mod stores;

pub(super) use file::InPlaceFile;
pub use stores::InPlaceCounts;
pub(super) use stores::InPlaceStores;
