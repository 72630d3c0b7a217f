//! The memory that all files of a storage share, and the cost of names and attributes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use nix::errno::Errno;

use crate::physical::{FileKind, Metadata, StoragePath};

/// Bytes that a name takes in addition to its letters.
const NAME_BYTES: u64 = 256;

/// The extended attributes of a file or folder.
pub(super) type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// A limit of memory, and the memory in use.
#[derive(Debug)]
pub(super) struct Room {
    total: u64,
    used: AtomicU64,
    /// The last id that a file or folder got.
    ids: AtomicU64,
}

impl Room {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Room { total, used: AtomicU64::new(0), ids: AtomicU64::new(0) })
    }

    /// Takes memory; `ENOSPC` if the limit does not allow it.
    pub(super) fn take(&self, bytes: u64) -> Result<(), Errno> {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.total)
        });
        taken.map(drop).map_err(|_| Errno::ENOSPC)
    }

    /// Takes memory, even above the limit.
    pub(super) fn take_above_limit(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn free(&self) -> u64 {
        self.total.saturating_sub(self.used.load(Ordering::Acquire))
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The memory that a name takes.
pub(super) fn path_bytes(path: &StoragePath) -> u64 {
    NAME_BYTES + path.as_bytes().len() as u64
}

/// The memory that an attribute takes.
pub(super) fn attribute_bytes(name: &[u8], value: &[u8]) -> u64 {
    NAME_BYTES + (name.len() + value.len()) as u64
}

/// The metadata of an empty file or a folder.
pub(super) fn new_metadata(kind: FileKind, id: u64, mode: u32, changed: SystemTime) -> Metadata {
    Metadata {
        kind,
        id,
        size: 0,
        modified: changed,
        changed,
        accessed: changed,
        mode,
        owner: "memory".into(),
        group: "memory".into(),
        is_readable: true,
        is_writable: true,
        is_online: true,
        is_backed_up: false,
    }
}
