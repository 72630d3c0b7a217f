//! The physical layer: the file trees that a server exports.
//!
//! | module | contents |
//! |---|---|
//! | `storage`, `path` | the traits [`Storage`] and [`StoredFile`], their error, and validated paths |
//! | `posix` | a folder of a POSIX file system |
//! | `gate` | a storage whose calls a [`Gate`] may delay or refuse |
//! | `throttle`, `faulty` | two gates: simulated slow disks, and injected faults |
//! | `federation` | the databases of a federation as complete ROOT files |
//! | `memory` | files in memory, for tests (feature `testing`) |
//!
//! `storage` and `path` know no other module here; every storage builds on these two, and gates and federations
//! wrap another storage. Nothing here knows sessions or protocols.

mod faulty;
mod federation;
mod gate;
#[cfg(feature = "testing")]
mod memory;
mod path;
mod posix;
mod storage;
mod throttle;

pub use faulty::{FaultEffect, FaultInjector, FaultyStorage, InjectedFault};
pub use federation::{FederationStorage, Permit, Writers};
pub use gate::{Call, CallKind, Gate, Gated};
#[cfg(feature = "testing")]
pub use memory::MemoryStorage;
pub use path::{Opaque, StoragePath};
pub use posix::PosixStorage;
pub use storage::{
    Creation, FileKind, FolderEntry, Metadata, OpenMode, Space, Storage, StorageError,
    StorageResult, StoredFile,
};
pub use throttle::{Clock, DiskAccount, DiskModel, MachineClock, Throttle, ThrottledStorage};
