//! A gate that simulates slow disks behind an operating system's cache: with limited bytes and seeks a second.
//!
//! 1. The whole storage is one disk, or each of the named folders is one and all other paths are not slowed down.
//! 2. A disk performs its operations one after the other, in the order of the calls; see [`disk`].
//! 3. Calls wait in their own thread, which may block, and hold no lock while they wait. A call that would wait longer
//!    than [`DiskModel::defer_above`] is deferred instead.
//!
//! `disk` simulates one disk over `blocks`, the cache in front of it; `model` has the disk's figures and the clock.

mod blocks;
mod disk;
mod model;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use femtobarn_catalog::DATABASES_FOLDER;

use super::gate::{Call, CallKind, Gate, Gated};
use super::{Storage, StorageError, StoragePath, StorageResult};
pub use disk::DiskAccount;
use disk::SimulatedDisk;
pub use model::{Clock, DiskModel, MachineClock};

/// A storage behind simulated disks.
pub type ThrottledStorage = Gated<Throttle>;

/// The gate with the simulated disks.
pub struct Throttle {
    /// The disks by folder; an empty name means the whole storage.
    disks: Vec<(String, SimulatedDisk)>,
    clock: Arc<dyn Clock>,
}

impl ThrottledStorage {
    /// A storage on one simulated disk, or with a simulated disk for each of these folders, which lie at its top or
    /// below `databases`.
    pub fn throttled(
        inner: Arc<dyn Storage>,
        model: DiskModel,
        folders: &[String],
        clock: Arc<dyn Clock>,
    ) -> Self {
        let whole = [String::new()];
        let names = if folders.is_empty() { &whole } else { folders };
        let disks = names.iter().map(|name| (name.clone(), SimulatedDisk::new(model))).collect();
        Gated::new(inner, Throttle { disks, clock })
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
            let what = format!("the disk of {} is overloaded", call.path);
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
    /// The work of each disk so far, by its folder's name, which is empty for a disk that is the whole storage.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, DiskAccount)> {
        self.disks.iter().map(|(name, disk)| (name.as_str(), disk.account(&*self.clock)))
    }

    fn disk_of(&self, path: &StoragePath) -> Option<&SimulatedDisk> {
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

/// A number for a path. A collision costs the simulation a seek at most.
fn file_number(path: &StoragePath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
