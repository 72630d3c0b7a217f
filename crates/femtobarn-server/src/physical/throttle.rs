//! A gate that makes a storage as slow as disks of another age, with the operating system's memory before
//! them: so many bytes and seeks a second.
//!
//! 1. A storage is one disk, or the folders that are named are a disk each and all else is as fast as it is.
//! 2. A disk does one thing after the other, in the order in which it was asked to; see [`disk`].
//! 3. Calls wait here, in a thread that may block, and hold no lock meanwhile. If that takes longer than is
//!    said, they are told not to come before.

mod blocks;
mod disk;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::DATABASES_FOLDER;

use super::gate::{Call, CallKind, Gate, Gated};
use super::{Storage, StorageError, StoragePath, StorageResult};
use disk::Disk;
pub use disk::DiskAccount;

/// A storage as slow as is said.
pub type ThrottledStorage = Gated<Throttle>;

/// How slow each disk is made, and what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// Bytes a second, of reading and writing together; 0 for as many as there are.
    pub bytes_per_second: u64,
    /// Seeks a second; 0 for as many as there are.
    pub seeks_per_second: u32,
    /// Bytes that are read or written at once, whatever is asked for; at least 1.
    pub block_size: u32,
    /// Bytes of blocks that stay in memory after they were read or written.
    pub cache_bytes: u64,
    /// The work that a disk may have to do before those who write wait for it.
    pub write_behind: Duration,
    /// Calls that would have to wait longer than this are deferred; none are without it.
    pub defer_above: Option<Duration>,
}

/// What tells the time and waits.
pub trait Clock: Send + Sync + 'static {
    /// The time since some moment in the past.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// The clock of the machine.
pub struct MachineClock(Instant);

/// The gate.
pub struct Throttle {
    /// The only one has no name if it is the whole storage.
    disks: Vec<(String, Disk)>,
    clock: Arc<dyn Clock>,
}

impl ThrottledStorage {
    /// Makes a storage as slow as one disk, or each of these folders, at its top or below `databases`.
    pub fn throttled(
        inner: Arc<dyn Storage>,
        slowness: Slowness,
        folders: &[String],
        clock: Arc<dyn Clock>,
    ) -> Self {
        let whole = [String::new()];
        let names = if folders.is_empty() { &whole } else { folders };
        let disks = names.iter().map(|name| (name.clone(), Disk::new(slowness))).collect();
        Gated::new(inner, Throttle { disks, clock })
    }
}

impl Default for MachineClock {
    fn default() -> Self {
        MachineClock(Instant::now())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl Gate for Throttle {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        let Some(disk) = self.disk_of(call.path) else { return Ok(call.size) };
        let file = file_number(call.path);
        let bytes = call.offset..call.offset.saturating_add(call.size as u64);
        let passed = match call.kind {
            CallKind::Read if call.size > 0 => disk.read(&*self.clock, file, &bytes),
            CallKind::Write if call.size > 0 => disk.write(&*self.clock, file, &bytes),
            CallKind::Sync => disk.sync(&*self.clock, file),
            _ => Ok(()),
        };
        passed.map_err(|too_long| {
            let what = format!("the disk of {} has too much to do", call.path);
            StorageError::NotBefore(too_long.0, what)
        })?;
        Ok(call.size)
    }

    fn will_need(&self, path: &StoragePath, bytes: Range<u64>) {
        if let Some(disk) = self.disk_of(path) {
            disk.will_need(&*self.clock, file_number(path), &bytes);
        }
    }
}

impl Throttle {
    /// What each disk has done, by its folder's name; empty for one that is the whole storage.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, DiskAccount)> {
        self.disks.iter().map(|(name, disk)| (name.as_str(), disk.account(&*self.clock)))
    }

    fn disk_of(&self, path: &StoragePath) -> Option<&Disk> {
        if let [(name, disk)] = self.disks.as_slice()
            && name.is_empty()
        {
            return Some(disk);
        }
        let below = &path.as_bytes()[1..];
        let databases = below
            .strip_prefix(DATABASES_FOLDER.as_bytes())
            .and_then(|below| below.strip_prefix(b"/"));
        let is_in = |folder: &[u8], below: &[u8]| {
            below.strip_prefix(folder).is_some_and(|below| below.starts_with(b"/"))
        };
        let (_, disk) = self.disks.iter().find(|(name, _)| {
            let name = name.as_bytes();
            is_in(name, below) || databases.is_some_and(|below| is_in(name, below))
        })?;
        Some(disk)
    }
}

/// Tells files apart well enough for a seek more or less.
fn file_number(path: &StoragePath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
