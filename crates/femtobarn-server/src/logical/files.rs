//! Open files: one interface to the storage for all sessions that use the same file alike.
//!
//! 1. Opening a file that somebody has open in the same way looks whether the name still leads to that
//!    file, and opens nothing then.
//! 2. A sync is only done if something was written since the last one that did not fail. One is done at a
//!    time: who finds nothing to do must know that what others wrote to the disk has got there.
//! 3. Interfaces for reading that nobody used for a while are closed. They are opened again at the next
//!    use, and if the name leads to another file by then, that use is refused.
//!
//! Each can be switched off by [`super::Settings`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;

use super::exports::Exports;
use crate::physical::{
    Creation, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile,
};

/// All files that are open.
pub struct Files {
    exports: Arc<Exports>,
    reuses: bool,
    eliminates_syncs: bool,
    open: Arc<Mutex<Open>>,
    counts: Arc<FileCounts>,
}

/// What was saved, since the start.
#[derive(Debug, Default)]
pub struct FileCounts {
    /// Opens that found the file open.
    pub reused: AtomicU64,
    /// Syncs that were asked for.
    pub syncs: AtomicU64,
    /// Of these, those that were not needed.
    pub syncs_eliminated: AtomicU64,
}

type Open = HashMap<Key, Weak<SharedFile>>;

/// What two opens must agree in to share an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    path: StoragePath,
    opaque: Box<[u8]>,
    write: bool,
}

/// A file that is open for any number of sessions.
pub struct SharedFile {
    key: Key,
    /// The file's id, by which it is known again.
    id: u64,
    /// The commit whose snapshot it shows; none outside federations.
    snapshot: Option<u64>,
    exports: Arc<Exports>,
    interface: Mutex<Option<Arc<dyn StoredFile>>>,
    was_used: AtomicBool,
    /// Whether something was written since the last sync.
    is_unsynced: AtomicBool,
    /// Held by who syncs.
    syncing: Mutex<()>,
    eliminates_syncs: bool,
    open: Arc<Mutex<Open>>,
    counts: Arc<FileCounts>,
}

impl Files {
    /// For these exports, with none open.
    pub fn new(exports: Arc<Exports>, reuses: bool, eliminates_syncs: bool) -> Self {
        Files { exports, reuses, eliminates_syncs, open: Arc::default(), counts: Arc::default() }
    }

    /// Opens a file, or joins those who have it open; also tells what is known of it.
    ///
    /// # Errors
    /// The storage's.
    pub fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<(Arc<SharedFile>, Metadata)> {
        let key = Key { path: path.clone(), opaque: opaque.0.into(), write: how.write };
        if self.reuses
            && how.creation == Creation::Existing
            && let Some(shared) = self.open_already(&key, opaque)?
        {
            self.counts.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(shared);
        }
        let interface = self.exports.open(path, how, opaque)?;
        let metadata = interface.metadata()?;
        let is_for_others = self.reuses && interface.can_be_shared();
        let shared = Arc::new(SharedFile {
            key: key.clone(),
            id: metadata.id,
            snapshot: interface.snapshot(),
            exports: Arc::clone(&self.exports),
            interface: Mutex::new(Some(interface)),
            was_used: AtomicBool::new(true),
            // A file that was made or emptied is not durable yet.
            is_unsynced: AtomicBool::new(how.creation != Creation::Existing),
            syncing: Mutex::default(),
            eliminates_syncs: self.eliminates_syncs,
            open: Arc::clone(&self.open),
            counts: Arc::clone(&self.counts),
        });
        if is_for_others {
            locked(&self.open).insert(key, Arc::downgrade(&shared));
        }
        Ok((shared, metadata))
    }

    fn open_already(
        &self,
        key: &Key,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<(Arc<SharedFile>, Metadata)>> {
        let found = locked(&self.open).get(key).and_then(Weak::upgrade);
        let Some(shared) = found else { return Ok(None) };
        let metadata = self.exports.metadata(&key.path, opaque)?;
        let is_allowed = if key.write { metadata.is_writable } else { metadata.is_readable };
        Ok((metadata.id == shared.id && is_allowed).then_some((shared, metadata)))
    }

    /// What was saved, since the start.
    pub fn counts(&self) -> &FileCounts {
        &self.counts
    }

    /// Files that are open, each counted once.
    pub fn count(&self) -> usize {
        locked(&self.open).values().filter(|file| file.strong_count() > 0).count()
    }

    /// Closes interfaces for reading that were not used since the last call. May block.
    pub fn close_idle(&self) {
        let files: Vec<_> = locked(&self.open).values().filter_map(Weak::upgrade).collect();
        for file in files {
            if !file.key.write && !file.was_used.swap(false, Ordering::Relaxed) {
                let idle = locked(&file.interface).take_if(|open| open.can_be_reopened());
                drop(idle);
            }
        }
    }
}

impl SharedFile {
    /// The path that it was opened by.
    pub fn path(&self) -> &StoragePath {
        &self.key.path
    }

    /// The commit whose snapshot it shows; none outside federations.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// The storage that it lies in, and where it is there.
    ///
    /// # Errors
    /// `ENOENT` if it is in none.
    pub fn home(&self) -> StorageResult<(Arc<dyn Storage>, StoragePath)> {
        self.exports.home(&self.key.path)
    }

    /// Whether its name still leads to it, as far as that can be told without looking.
    pub fn is_what_its_name_says(&self) -> bool {
        locked(&self.interface).as_ref().is_none_or(|open| open.can_be_reopened())
    }

    /// The interface, if it is open: does not block.
    pub fn ready(&self) -> Option<Arc<dyn StoredFile>> {
        self.was_used.store(true, Ordering::Relaxed);
        locked(&self.interface).clone()
    }

    /// The interface, opened again if need be: may block.
    ///
    /// # Errors
    /// The storage's; `ESTALE` if the name leads to another file now.
    pub fn interface(&self) -> StorageResult<Arc<dyn StoredFile>> {
        if let Some(interface) = self.ready() {
            return Ok(interface);
        }
        let path = &self.key.path;
        let interface = self.exports.open(path, OpenMode::default(), Opaque(&self.key.opaque))?;
        if interface.metadata()?.id != self.id {
            return Err(StorageError::cannot("go on reading", path, Errno::ESTALE));
        }
        Ok(Arc::clone(locked(&self.interface).get_or_insert(interface)))
    }

    /// What is known of it now. May block.
    ///
    /// # Errors
    /// The storage's.
    pub fn metadata(&self) -> StorageResult<Metadata> {
        self.interface()?.metadata()
    }

    /// Writes all of the bytes. May block.
    ///
    /// # Errors
    /// The storage's.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        let written = self.interface()?.write_at(offset, bytes);
        // Afterwards: a sync of somebody else's may have come before the write.
        self.is_unsynced.store(true, Ordering::Release);
        written
    }

    /// Cuts or lengthens it. May block.
    ///
    /// # Errors
    /// The storage's.
    pub fn truncate(&self, size: u64) -> StorageResult<()> {
        let cut = self.interface()?.truncate(size);
        self.is_unsynced.store(true, Ordering::Release);
        cut
    }

    /// Makes what was written durable; tells whether there was anything to do. May block.
    ///
    /// # Errors
    /// The storage's.
    pub fn sync(&self) -> StorageResult<bool> {
        let _turn = locked(&self.syncing);
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        let was_unsynced = self.is_unsynced.swap(false, Ordering::AcqRel);
        if self.eliminates_syncs && !was_unsynced {
            self.counts.syncs_eliminated.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let synced = self.interface().and_then(|interface| interface.sync());
        if synced.is_err() {
            self.is_unsynced.store(true, Ordering::Release);
        }
        synced.map(|()| true)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let mut open = locked(&self.open);
        // Another one may have been opened by the same name since.
        if open.get(&self.key).is_some_and(|file| file.strong_count() == 0) {
            open.remove(&self.key);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
