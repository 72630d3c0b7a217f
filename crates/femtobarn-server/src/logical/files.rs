//! Open files, shared by all sessions that open the same path in the same mode.
//!
//! 1. Opening a file that is open already checks that its path still leads to it, and then shares the open file.
//! 2. A sync is skipped if nothing was written since the last successful one. Syncs of a file run one at a time, so a
//!    skipped sync returns only after all earlier writes are durable.
//! 3. Idle files that are open for reading are closed, and opened again at the next use. If their path leads to another
//!    file by then, that use fails with `ESTALE`.
//! 4. At most the maximum of files hold descriptors. When it is reached, some files that are open for reading are
//!    closed as in 3, unused ones first. So a client that opens files without end takes no descriptor from others.
//!    Files that cannot be closed, because they are open for writing or show a snapshot of a federation, count for the
//!    machine that opened them first, and one machine may have its share of the maximum.
//!
//! [`super::Settings`] can switch off each of these.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use parking_lot::Mutex;

use super::exports::Exports;
use crate::client_shares::{ClientShare, ClientShares};
use crate::physical::{
    Creation, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile,
};

/// All open files.
pub struct Files {
    exports: Arc<Exports>,
    reuses: bool,
    eliminates_syncs: bool,
    open: Arc<OpenFiles>,
    counts: Arc<FileCounts>,
}

/// Counts of saved work since the server started.
#[derive(Debug, Default)]
pub struct FileCounts {
    /// Opens that shared an open file.
    pub reused: AtomicU64,
    /// Syncs that were requested.
    pub syncs: AtomicU64,
    /// Syncs that were skipped.
    pub syncs_eliminated: AtomicU64,
}

/// The files that may be shared, and the number of files that hold a descriptor.
struct OpenFiles {
    shared: Mutex<HashMap<FileKey, Weak<SharedFile>>>,
    held: AtomicUsize,
    held_max: usize,
    /// The files that stay open, by the machines that opened them.
    kept: Arc<ClientShares>,
}

/// A storage's open file, counted among those that hold a descriptor.
struct HeldFile {
    file: Arc<dyn StoredFile>,
    _place: HeldPlace,
    /// `None` if the file can be closed, or no client opened it.
    _kept: Option<ClientShare>,
}

/// The claim of a file on a descriptor while the file is being stored.
pub struct StoredPlace {
    _place: HeldPlace,
    _kept: ClientShare,
}

/// The claim of a file on a descriptor.
struct HeldPlace(Arc<OpenFiles>);

/// Two opens with the same key share an open file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    path: StoragePath,
    opaque: Box<[u8]>,
    write: bool,
}

/// A file that any number of sessions have open.
pub struct SharedFile {
    key: FileKey,
    /// The file's id, by which it shows whether its path still leads to it.
    id: u64,
    /// The file's identity, once it was closed, by which it shows whether its path leads to another file with the same
    /// id.
    closed: Mutex<Option<u64>>,
    /// The commit whose snapshot the file shows; `None` outside federations.
    snapshot: Option<u64>,
    exports: Arc<Exports>,
    interface: Mutex<Option<HeldFile>>,
    was_used: AtomicBool,
    /// Whether the file was written since the last successful sync.
    is_unsynced: AtomicBool,
    /// Serialises syncs.
    syncing: Mutex<()>,
    eliminates_syncs: bool,
    open: Arc<OpenFiles>,
    counts: Arc<FileCounts>,
}

impl Files {
    /// No open files yet. `reuses` and `eliminates_syncs` switch on invariants 1 and 2; at most `held_max` files hold
    /// descriptors, of which one machine keeps at most its percentage open.
    pub fn new(
        exports: Arc<Exports>,
        reuses: bool,
        eliminates_syncs: bool,
        (held_max, machine_percent): (usize, u8),
    ) -> Self {
        let kept = ClientShares::new(held_max, machine_percent);
        let (shared, held) = (Mutex::default(), AtomicUsize::new(0));
        let open = OpenFiles { shared, held, held_max, kept };
        Files { exports, reuses, eliminates_syncs, open: Arc::new(open), counts: Arc::default() }
    }

    /// Opens a file for a client, or shares an open one, and returns its metadata.
    ///
    /// # Errors
    /// [`StorageError`] if the storage cannot open the file or read its metadata; `EMFILE` if the maximum of files hold
    /// descriptors, and none can be closed, or if the client's machine has its share of those that cannot.
    pub fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
        client: IpAddr,
    ) -> StorageResult<(Arc<SharedFile>, Metadata)> {
        let key = FileKey { path: path.clone(), opaque: opaque.0.into(), write: how.write };
        if self.reuses
            && how.creation == Creation::Existing
            && let Some(shared) = self.shared_file(&key, opaque)?
        {
            self.counts.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(shared);
        }
        let place = self.open.place(path)?;
        // Claimed before a file is made.
        let mut kept = how.write.then(|| self.open.keep(path, client)).transpose()?;
        let interface = self.exports.open(path, how, opaque)?;
        if kept.is_none() && !interface.can_be_reopened() {
            kept = Some(self.open.keep(path, client)?);
        }
        let metadata = interface.metadata()?;
        let is_shared = self.reuses && interface.can_be_shared();
        let held = HeldFile { file: interface, _place: place, _kept: kept };
        let shared = Arc::new(self.opened(key.clone(), held, &metadata, how.creation));
        if is_shared {
            self.open.shared.lock().insert(key, Arc::downgrade(&shared));
        }
        Ok((shared, metadata))
    }

    /// An open file that has no path yet, and will have this one; no other session shares it.
    ///
    /// # Errors
    /// [`StorageError`] if its metadata cannot be read; `EMFILE` as for [`Files::open`].
    pub fn unnamed(
        &self,
        path: &StoragePath,
        interface: Arc<dyn StoredFile>,
        client: IpAddr,
    ) -> StorageResult<(Arc<SharedFile>, Metadata)> {
        let key = FileKey { path: path.clone(), opaque: Box::default(), write: true };
        let metadata = interface.metadata()?;
        let (place, kept) = (self.open.place(path)?, self.open.keep(path, client)?);
        let held = HeldFile { file: interface, _place: place, _kept: Some(kept) };
        Ok((Arc::new(self.opened(key, held, &metadata, Creation::New)), metadata))
    }

    /// A claim on a descriptor for a file that a client stores, which is not among the open files.
    ///
    /// # Errors
    /// `EMFILE` as for [`Files::open`].
    pub fn hold(&self, path: &StoragePath, client: IpAddr) -> StorageResult<StoredPlace> {
        let (place, kept) = (self.open.place(path)?, self.open.keep(path, client)?);
        Ok(StoredPlace { _place: place, _kept: kept })
    }

    fn opened(
        &self,
        key: FileKey,
        held: HeldFile,
        metadata: &Metadata,
        creation: Creation,
    ) -> SharedFile {
        SharedFile {
            key,
            id: metadata.id,
            closed: Mutex::default(),
            snapshot: held.file.snapshot(),
            exports: Arc::clone(&self.exports),
            interface: Mutex::new(Some(held)),
            was_used: AtomicBool::new(true),
            // A new or truncated file is not durable yet.
            is_unsynced: AtomicBool::new(creation != Creation::Existing),
            syncing: Mutex::default(),
            eliminates_syncs: self.eliminates_syncs,
            open: Arc::clone(&self.open),
            counts: Arc::clone(&self.counts),
        }
    }

    fn shared_file(
        &self,
        key: &FileKey,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<(Arc<SharedFile>, Metadata)>> {
        let found = self.open.shared.lock().get(key).and_then(Weak::upgrade);
        let Some(shared) = found else { return Ok(None) };
        // The file may have been shareable when it was opened, and not any more.
        if !shared.ready().is_none_or(|open| open.can_be_shared()) {
            return Ok(None);
        }
        let metadata = self.exports.metadata(&key.path, opaque)?;
        let is_allowed = if key.write { metadata.is_writable } else { metadata.is_readable };
        Ok((metadata.id == shared.id && is_allowed).then_some((shared, metadata)))
    }

    /// Counts of saved work since the server started.
    pub fn counts(&self) -> &FileCounts {
        &self.counts
    }

    /// The number of open files.
    pub fn count(&self) -> usize {
        self.open.shared.lock().values().filter(|file| file.strong_count() > 0).count()
    }

    /// Closes files open for reading that were not used since the last call. May block.
    pub fn close_idle(&self) {
        self.open.close(usize::MAX, |file| !file.was_used.swap(false, Ordering::Relaxed));
    }
}

impl OpenFiles {
    /// A claim on a descriptor for one more file. May block: if the limit is reached, it closes other files.
    fn place(self: &Arc<Self>, path: &StoragePath) -> StorageResult<HeldPlace> {
        self.held.fetch_add(1, Ordering::Relaxed);
        let place = HeldPlace(Arc::clone(self));
        let is_full = || self.held.load(Ordering::Relaxed) > self.held_max;
        if is_full() {
            // Closes several at once, since each search goes through all files.
            let count = self.held_max / 8 + 1;
            self.close(count, |file| !file.was_used.swap(false, Ordering::Relaxed));
            if is_full() {
                self.close(count, |_| true);
            }
        }
        if is_full() {
            return Err(StorageError::cannot("open", path, Errno::EMFILE));
        }
        Ok(place)
    }

    /// The place of a client's machine for a file that stays open.
    fn keep(&self, path: &StoragePath, client: IpAddr) -> StorageResult<ClientShare> {
        let share = self.kept.take(client);
        share.ok_or_else(|| {
            let what = format!(
                "cannot open {path}: too many open files for the clients of this machine, which may have \
                 limits.machine_percent of a quarter of the server's descriptors (ulimit -n); close some"
            );
            StorageError::refused(Errno::EMFILE, what)
        })
    }

    /// Closes up to `count` of the files open for reading that `is_chosen` names, and that can be opened again.
    fn close(&self, mut count: usize, is_chosen: impl Fn(&SharedFile) -> bool) {
        let files: Vec<_> = self.shared.lock().values().filter_map(Weak::upgrade).collect();
        for file in files.iter().filter(|file| !file.key.write) {
            if count == 0 {
                break;
            }
            if is_chosen(file) {
                let mut interface = file.interface.lock();
                if let Some(held) = interface.take_if(|held| held.file.can_be_reopened()) {
                    *file.closed.lock() = held.file.identity().ok();
                    count -= 1;
                }
            }
        }
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedFile {
    /// The path by which the file was opened.
    pub fn path(&self) -> &StoragePath {
        &self.key.path
    }

    /// The commit whose snapshot the file shows; `None` outside federations.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// The storage that serves the file, and the path within it.
    ///
    /// # Errors
    /// `ENOENT` if no storage serves the path.
    pub fn locate(&self) -> StorageResult<(Arc<dyn Storage>, StoragePath)> {
        self.exports.locate(&self.key.path)
    }

    /// Whether opening its path again would lead to the same bytes, as far as known without asking the storage.
    pub fn can_be_reopened(&self) -> bool {
        self.interface.lock().as_ref().is_none_or(|held| held.file.can_be_reopened())
    }

    /// The storage's open file, unless it was closed as idle. Does not block.
    pub fn ready(&self) -> Option<Arc<dyn StoredFile>> {
        self.was_used.store(true, Ordering::Relaxed);
        self.interface.lock().as_ref().map(|held| Arc::clone(&held.file))
    }

    /// The storage's open file, opened again if it was closed as idle. May block.
    ///
    /// # Errors
    /// `ESTALE` if the path leads to another file now, and `EMFILE` as for [`Files::open`]; otherwise those of opening it.
    pub fn interface(&self) -> StorageResult<Arc<dyn StoredFile>> {
        if let Some(interface) = self.ready() {
            return Ok(interface);
        }
        let path = &self.key.path;
        let place = self.open.place(path)?;
        let file = self.exports.open(path, OpenMode::default(), Opaque(&self.key.opaque))?;
        let (is_same_number, closed) = (file.metadata()?.id == self.id, *self.closed.lock());
        if !is_same_number || closed.is_some() && file.identity().ok() != closed {
            return Err(StorageError::cannot("continue reading", path, Errno::ESTALE));
        }
        let mut interface = self.interface.lock();
        let held = HeldFile { file, _place: place, _kept: None };
        Ok(Arc::clone(&interface.get_or_insert(held).file))
    }

    /// The current metadata. May block.
    ///
    /// # Errors
    /// The errors of [`SharedFile::interface`]; [`StorageError`] if the metadata cannot be read.
    pub fn metadata(&self) -> StorageResult<Metadata> {
        self.interface()?.metadata()
    }

    /// Writes all of the bytes. May block.
    ///
    /// # Errors
    /// [`StorageError`] if the write fails; then any part of the bytes may be written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        let written = self.interface()?.write_at(offset, bytes);
        // After the write: a concurrent sync may have cleared the flag before it.
        self.is_unsynced.store(true, Ordering::Release);
        written
    }

    /// Sets the size. May block.
    ///
    /// # Errors
    /// [`StorageError`] if the storage refuses it.
    pub fn truncate(&self, size: u64) -> StorageResult<()> {
        let cut = self.interface()?.truncate(size);
        self.is_unsynced.store(true, Ordering::Release);
        cut
    }

    /// Makes all writes durable; false if there was nothing to do. May block.
    ///
    /// # Errors
    /// [`StorageError`] if the sync fails; the next call tries again.
    pub fn sync(&self) -> StorageResult<bool> {
        let _turn = self.syncing.lock();
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
        let mut open = self.open.shared.lock();
        // The entry may already belong to a newer file with the same key.
        if open.get(&self.key).is_some_and(|file| file.strong_count() == 0) {
            open.remove(&self.key);
        }
    }
}
