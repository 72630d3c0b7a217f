//! The open files of one session, by handle number.
//!
//! 1. The number of a closed file is reused.
//! 2. When a session ends, its open checkpoints are undone, and its files that persist only if they are closed are
//!    removed. The protocol layer does so with the files that [`Handles::close`] returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use super::checkpoint::Checkpoint;
use super::files::SharedFile;
use super::incoming_copy::IncomingCopy;
use super::latency::Latencies;
use super::session_recovery::SnapshotClaim;
use crate::client_shares::ClientShare;
use crate::physical::StoragePath;

/// An open file of a session.
pub struct OpenFile {
    /// The file, which other sessions may share.
    pub file: Arc<SharedFile>,
    /// The path that the client sent.
    pub path: StoragePath,
    /// The commit of the snapshot that the file shows, if the client did not name it.
    pub unnamed_snapshot: Option<u64>,
    /// Keeps that snapshot for further opens of the path, if a lost session of the client had it open.
    pub claim: Option<Arc<SnapshotClaim>>,
    /// Whether the session may read the file: by its client's right, or because it has made the file.
    pub is_readable: bool,
    /// Whether the session may write to it.
    pub is_writable: bool,
    /// Whether small calls to its storage take microseconds.
    pub is_quick: bool,
    /// Whether the bytes come from another machine for each reader.
    pub is_remote: bool,
    /// The latencies of its export.
    pub latencies: Arc<Latencies>,
    /// Whether the file is removed unless the client closes it.
    pub persists_on_close: AtomicBool,
    /// Offsets of pages that arrived with wrong checksums and were not sent again yet.
    pub unsound_pages: Mutex<Vec<u64>>,
    /// The open checkpoint, which can undo the changes since it began.
    pub checkpoint: Mutex<Option<Checkpoint>>,
    /// The share of the file in the limit on open files of all sessions.
    pub share: ClientShare,
    /// The copy from another server that fills the file; `None` if the session writes it.
    pub copy: Option<Arc<IncomingCopy>>,
    /// When the file was opened.
    pub since: SystemTime,
    /// Bytes that the session read.
    pub bytes_read: AtomicU64,
    /// Bytes that the session wrote.
    pub bytes_written: AtomicU64,
}

/// The open files of a session.
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
    /// Adds a file and returns its number; `None` if the session has `limit` files or has ended.
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

    /// Removes the file of this number.
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

    /// The number of files.
    pub fn count(&self) -> usize {
        let slots = self.slots();
        slots.files.len() - slots.free.len()
    }

    /// Removes and returns all files. Further files are refused.
    pub fn close(&self) -> Vec<Arc<OpenFile>> {
        let mut slots = self.slots();
        slots.is_closed = true;
        slots.free.clear();
        std::mem::take(&mut slots.files).into_iter().flatten().collect()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }
}
