//! Lock files of this host.

use std::path::Path;

pub(super) use femtobarn_catalog::LockKind;

use crate::error::Result;
use crate::kernel::SlotLocks;

/// As in the product.
pub(super) const SLOT_BYTES: u64 = 64;

pub(super) use {SlotFile as LockFile, SlotSpan as Span};

/// A lock file, of which whole slots are locked, exclusively.
pub(super) struct SlotFile(SlotLocks);

/// A slot.
#[derive(Clone, Copy)]
pub(super) struct SlotSpan(u64);

impl SlotSpan {
    pub(super) fn hold(slot: u64) -> Self {
        SlotSpan(slot)
    }
}

impl std::fmt::Debug for SlotFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlotFile")
    }
}

impl SlotFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(SlotFile(SlotLocks::open(path)))
    }

    pub(super) fn open_with_folder(path: &Path) -> Result<Self> {
        Self::open(path)
    }

    pub(super) fn try_lock(&self, kind: LockKind, slot: SlotSpan) -> Result<bool> {
        assert_eq!(kind, LockKind::Exclusive);
        Ok(self.0.try_lock(slot.0))
    }

    pub(super) fn lock(&self, kind: LockKind, slot: SlotSpan) -> Result<()> {
        assert_eq!(kind, LockKind::Exclusive);
        self.0.lock(slot.0);
        Ok(())
    }

    pub(super) fn unlock(&self, slot: SlotSpan) {
        self.0.unlock(slot.0);
    }
}
