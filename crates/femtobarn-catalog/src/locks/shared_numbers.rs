//! A file beside the locks that all processes of this host map, as numbers that they read and write without a system
//! call.
//!
//! Other processes see a store at once, and it survives its process. The kernel writes the file to the disk at any
//! later time, so after a crash of the machine each number may be an old one.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use nix::libc::{self, c_int, c_long};

use crate::error::{Error, Result};

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};

/// The numbers in the first bytes of a file.
#[derive(Debug)]
pub(super) struct SharedNumbers {
    memory: MmapRaw,
}

impl SharedNumbers {
    /// Opens a file of at least `size` bytes. A shorter or missing file is extended with zeros.
    pub(super) fn open(path: &Path, size: usize) -> Result<Self> {
        Self::extend_and_map(path, size)
            .map_err(|error| Error::io("cannot share memory through", path, error))
    }

    fn extend_and_map(path: &Path, size: usize) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let missing = (size as u64).saturating_sub(file.metadata()?.len());
        // Written, so that no later store finds the disk full, where a file system overwrites in place; on other file
        // systems the index of SQLite's log has the same risk. Two processes may both write them.
        file.write_all(&vec![0; missing as usize])?;
        Ok(SharedNumbers { memory: MmapOptions::new().len(size).map_raw(&file)? })
    }

    /// Opens a file to read its numbers, if it exists with at least `size` bytes. The numbers must not be written.
    pub(super) fn open_to_read(path: &Path, size: usize) -> Option<Self> {
        let file = File::open(path).ok()?;
        let is_long = file.metadata().ok()?.len() >= size as u64;
        let memory = is_long.then(|| MmapOptions::new().len(size).map_raw_read_only(&file))?;
        Some(SharedNumbers { memory: memory.ok()? })
    }

    /// The number of 4 bytes at a multiple of 4.
    pub(super) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.memory.len());
        // SAFETY: the offset is aligned and within the mapping, which starts with a page, lives as long as `self`,
        // and is used as atomic numbers alone. No process makes the file shorter; SQLite maps a file beside it on the
        // same terms.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().wrapping_add(offset).cast()) }
    }

    /// All numbers of 8 bytes.
    pub(super) fn u64s(&self) -> &[AtomicU64] {
        let count = self.memory.len() / size_of::<u64>();
        // SAFETY: as above; all bytes of the numbers are within the mapping.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), count) }
    }
}

/// Sleeps while the number is `value`, until another process wakes it, for at most `wait`. It may wake early.
pub(super) fn sleep_while(number: &AtomicU32, value: u32, wait: Duration) {
    futex(number, libc::FUTEX_WAIT, value, Some(wait));
}

/// Wakes all that sleep on the number.
pub(super) fn wake_all(number: &AtomicU32) {
    futex(number, libc::FUTEX_WAKE, c_int::MAX as u32, None);
}

/// Calls the kernel through the C library, so that a simulation can stand between the two.
fn futex(number: &AtomicU32, operation: c_int, value: u32, wait: Option<Duration>) {
    let wait = wait.map(|wait| libc::timespec {
        tv_sec: wait.as_secs() as libc::time_t,
        tv_nsec: c_long::from(wait.subsec_nanos() as i32),
    });
    let wait = wait.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (first, second) = (c_long::from(operation), c_long::from(value));
    // SAFETY: the number and the time outlive the call, which changes neither.
    let ended = unsafe { libc::syscall(libc::SYS_futex, number.as_ptr(), first, second, wait) };
    // Its outcome is a hint, as is a ring.
    let _ = ended;
}
