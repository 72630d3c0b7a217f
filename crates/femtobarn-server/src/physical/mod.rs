//! The physical layer: the file trees that a server exports.
//!
//! | module | contents |
//! |---|---|
//! | `storage`, `path`, `error` | the traits [`Storage`] and [`StoredFile`], validated paths, and [`StorageError`] |
//! | `hints`, `ahead` | the hints that clients send, and the read-ahead for sequential readers |
//! | `fetch` | bytes in transit from another machine, and their readers |
//! | `posix` | a folder of a POSIX file system |
//! | `gate` | a storage whose calls a [`Gate`] may delay or refuse |
//! | `cache` | files of another server, kept on a disk once they were read |
//! | `throttle`, `faulty` | two gates: simulated slow disks, and injected faults |
//! | `federation` | the databases of a federation as complete ROOT files |
//! | `memory` | files in memory, for tests (feature `testing`) |
//!
//! The first six use no other module here. Every storage builds on them; gates and federations wrap another storage. No
//! module here knows sessions or protocols.

mod ahead;
mod cache;
mod error;
mod faulty;
mod federation;
mod fetch;
mod gate;
mod hints;
#[cfg(feature = "testing")]
mod memory;
mod path;
mod posix;
mod storage;
mod throttle;

pub use femtobarn_archive::WantedBy;

pub(crate) use cache::metadata_at_server;
pub use cache::{CacheCounts, CacheDisk, CacheUse, CachedOrigin, LeavingFile, LeavingFiles};
pub use error::{StorageError, StorageResult};
pub use faulty::{FaultEffect, FaultInjector, FaultyStorage, InjectedFault};
pub use federation::{FederationStorage, FilesElsewhere, InPlaceCounts, Permit, Writers};
pub use gate::{Call, CallKind, Gate, Gated};
pub use hints::{Hints, ReadOrder};
#[cfg(feature = "testing")]
pub use memory::MemoryStorage;
pub use path::{Opaque, StoragePath};
pub use posix::PosixStorage;
pub use storage::{
    Creation, FileKind, FolderEntry, Metadata, OpenMode, Space, Storage, StoredFile,
};
pub use throttle::{Clock, DiskAccount, DiskModel, MachineClock, Throttle, ThrottledStorage};
