//! The files that one session has open, by number.
//!
//! 1. A number is used again once its file is closed.
//! 2. What a session leaves open when it ends is tidied up: changes of checkpoints are undone, and files
//!    that were to persist only if they were closed are removed.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::checkpoint::Checkpoint;
use super::files::SharedFile;
use super::latency::Latencies;
use super::reopening::Claim;
use crate::physical::StoragePath;

/// A file that a session has open.
pub struct OpenFile {
    /// The file.
    pub file: Arc<SharedFile>,
    /// The path that the client named.
    pub path: StoragePath,
    /// The snapshot that it shows, if it shows one and the client did not say which.
    pub unnamed_snapshot: Option<u64>,
    /// Keeps that snapshot for whoever else opens the path, if a session before this one had it open.
    pub claim: Option<Arc<Claim>>,
    /// Whether it may be written to.
    pub is_writable: bool,
    /// Whether small calls of its storage take microseconds.
    pub is_quick: bool,
    /// How long requests for its export took.
    pub latencies: Arc<Latencies>,
    /// Whether the file is to vanish unless it is closed.
    pub persists_on_close: AtomicBool,
    /// Where pages start that came with wrong checksums and were not corrected yet.
    pub unsound_pages: Mutex<Vec<u64>>,
    /// What undoes the changes since a checkpoint began.
    pub checkpoint: Mutex<Option<Checkpoint>>,
    /// When it was opened.
    pub since: SystemTime,
    /// Bytes that were read from it.
    pub bytes_read: AtomicU64,
    /// Bytes that were written to it.
    pub bytes_written: AtomicU64,
}

/// The files that a session has open.
#[derive(Default)]
pub struct Handles {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    files: Vec<Option<Arc<OpenFile>>>,
    free: Vec<u32>,
    is_closed: bool,
}

impl Handles {
    /// Keeps a file; its number, or none if there are `limit` of them or the session has ended.
    pub fn insert(&self, file: Arc<OpenFile>, limit: usize) -> Option<u32> {
        let mut slots = self.slots();
        if slots.is_closed || slots.files.len() - slots.free.len() >= limit {
            return None;
        }
        if let Some(number) = slots.free.pop() {
            slots.files[number as usize] = Some(file);
            return Some(number);
        }
        let number = u32::try_from(slots.files.len()).ok()?;
        slots.files.push(Some(file));
        Some(number)
    }

    /// The file of this number.
    pub fn get(&self, number: u32) -> Option<Arc<OpenFile>> {
        self.slots().files.get(number as usize)?.clone()
    }

    /// Forgets the file of this number.
    pub fn remove(&self, number: u32) -> Option<Arc<OpenFile>> {
        let mut slots = self.slots();
        let file = slots.files.get_mut(number as usize)?.take()?;
        slots.free.push(number);
        Some(file)
    }

    /// All files.
    pub fn all(&self) -> Vec<Arc<OpenFile>> {
        self.slots().files.iter().flatten().cloned().collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let slots = self.slots();
        slots.files.len() - slots.free.len()
    }

    /// Forgets all files, and takes no others.
    pub fn close(&self) -> Vec<Arc<OpenFile>> {
        let mut slots = self.slots();
        slots.is_closed = true;
        slots.free.clear();
        std::mem::take(&mut slots.files).into_iter().flatten().collect()
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
