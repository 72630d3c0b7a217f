//! Numbers that the processes of this host share.

use std::path::Path;
use std::time::Duration;

pub(super) use loom::hint::spin_loop;
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::Result;
use crate::kernel::{self, NumbersInMemory};

pub(super) use SimulatedNumbers as SharedNumbers;

/// The numbers in a file.
pub(super) struct SimulatedNumbers(NumbersInMemory);

impl std::fmt::Debug for SimulatedNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedNumbers")
    }
}

impl SimulatedNumbers {
    pub(super) fn open(path: &Path, size: usize) -> Result<Self> {
        Ok(SimulatedNumbers(NumbersInMemory::open(path, size.max(256))))
    }

    pub(super) fn open_to_read(path: &Path, size: usize) -> Option<Self> {
        Self::open(path, size).ok()
    }

    pub(super) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.0.u32_at(offset)
    }

    pub(super) fn u64s(&self) -> &[AtomicU64] {
        self.0.u64s()
    }
}

/// Sleeps until it is woken: a wait that only its time-out ends is a fault.
pub(super) fn sleep_while(number: &AtomicU32, value: u32, _wait: Duration) {
    kernel::sleep_while(number, value);
}

pub(super) fn wake_all(_number: &AtomicU32) {
    kernel::wake_all();
}
