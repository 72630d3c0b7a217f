//! A file beside the locks that all processes of this host map, as numbers that they read and write without a system
//! call.
//!
//! Other processes see a store at once, and it survives its process. The kernel writes the file to the disk at any
//! later time, so after a crash of the machine each number may be an old one.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};

use crate::error::{Error, Result};

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
