//! Keeps the databases of a federation beyond one disk.
//!
//! A module depends only on those above it in this list.
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | [`Error`] |
//! | [`stores`] | [`Store`] and its kinds: a folder, an object store, an XRootD server, a site's commands |
//! | [`settings`] | the stores, rules and limits of a federation: its file `storage.toml` |
//! | [`keeping`] | [`Archive`]: migrates, stages, evicts and pins databases, by hand and by the rules |
//! | [`recall`] | [`Recaller`]: stages databases that many clients ask for, in the order of tapes |
//!
//! # Invariants
//!
//! 1. The catalogue decides which objects are copies: an object that it does not refer to is rubbish.
//! 2. An object is written once, under a name that is never used again.
//! 3. A file comes back to the disk under another name, is compared with the checksum that was taken when it was
//!    migrated, synced, and renamed: a part of a file, or another file, is never under a database's name.
//! 4. A file is removed only after the catalogue has recorded that it may be, and while no process has it open.
//! 5. A process that migrates, stages or evicts a database holds its lock, so of two processes one stages it.

pub mod error;
pub mod keeping;
pub mod recall;
pub mod settings;
pub mod stores;

pub use error::{Error, Result};
pub use keeping::{Applied, Archive, RuleKeeper, is_staging_path, remove_staged, staging_path};
pub use recall::{
    Deadline, EvictionCounts, Evictor, PendingEviction, QueueExcerpt, QueuedRecall, RecallCounts,
    Recaller, WantedBy,
};
pub use settings::StorageSettings;
pub use stores::{ByteWatch, ObjectRange, Store, StoredState};
