//! The physical layer: the file trees that a server exports.
//!
//! | module | contents |
//! |---|---|
//! | `storage`, `path`, `error` | the traits [`Storage`] and [`StoredFile`], validated paths, and [`StorageError`] |
//! | `posix` | a folder of a POSIX file system |
//! | `gate` | a storage whose calls a [`Gate`] may delay or refuse |
//! | `cache` | files of another server, of which what was read is kept on a disk |
//! | `throttle`, `faulty` | two gates: simulated slow disks, and injected faults |
//! | `federation` | the databases of a federation as complete ROOT files |
//! | `memory` | files in memory, for tests (feature `testing`) |
//!
//! The first three know no other module here. Every storage builds on them; gates and federations wrap another storage.
//! Nothing here knows sessions or protocols.

mod cache;
mod error;
mod faulty;
mod federation;
mod gate;
#[cfg(feature = "testing")]
mod memory;
mod path;
mod posix;
mod storage;
mod throttle;

pub use cache::{CacheCounts, CacheUse, CachedOrigin, LeavingFile, LeavingFiles};
pub use error::{StorageError, StorageResult};
pub use faulty::{FaultEffect, FaultInjector, FaultyStorage, InjectedFault};
pub use federation::{FederationStorage, Permit, Writers};
pub use gate::{Call, CallKind, Gate, Gated};
#[cfg(feature = "testing")]
pub use memory::MemoryStorage;
pub use path::{Opaque, StoragePath};
pub use posix::PosixStorage;
pub use storage::{
    Creation, FileKind, FolderEntry, Metadata, OpenMode, Space, Storage, StoredFile, WantedBy,
};
pub use throttle::{Clock, DiskAccount, DiskModel, MachineClock, Throttle, ThrottledStorage};
