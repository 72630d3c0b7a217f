//! Claims: the slots that an owner of locks in the kernel holds or waits for.
//!
//! The kernel would grant the same range to the same open file description a second time and free it at the first
//! unlock, so an owner claims a slot before it locks any part of it, and a second claim is refused.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::bells::Bells;
use super::file::LockFile;
use super::target::LockTarget;
use crate::host;

/// An open lock file, and the slots of it that its owner holds or waits for.
#[derive(Debug)]
pub(super) struct OwnedFile {
    pub(super) file: LockFile,
    /// The folder of the lock files.
    pub(super) folder: PathBuf,
    pub(super) bells: Option<Arc<Bells>>,
    slots: Mutex<HashSet<u64>>,
    pid: u32,
}

/// A slot that its owner holds or waits for, until this is dropped.
#[derive(Debug)]
pub(super) struct SlotClaim {
    pub(super) file: Arc<OwnedFile>,
    pub(super) target: LockTarget,
}

impl OwnedFile {
    pub(super) fn new(file: LockFile, folder: PathBuf, bells: Option<Arc<Bells>>) -> Self {
        OwnedFile { file, folder, bells, slots: Mutex::default(), pid: host::process_id() }
    }

    /// Whether this process opened the file, rather than one that it was forked from.
    pub(super) fn is_own(&self) -> bool {
        self.pid == host::process_id()
    }

    /// Whether the owner claims no slot of the file.
    pub(super) fn is_free(&self) -> bool {
        self.slots.lock().is_empty()
    }
}

impl SlotClaim {
    /// Claims the slot of a target; `None` if it is claimed already.
    pub(super) fn of(file: &Arc<OwnedFile>, target: LockTarget) -> Option<Self> {
        let is_new = file.slots.lock().insert(target.slot());
        is_new.then(|| SlotClaim { file: Arc::clone(file), target })
    }

    pub(super) fn file(&self) -> &LockFile {
        &self.file.file
    }

    pub(super) fn slot(&self) -> u64 {
        self.target.slot()
    }
}

impl Drop for SlotClaim {
    fn drop(&mut self) {
        self.file.slots.lock().remove(&self.target.slot());
    }
}
