//! A storage behind a gate, which may delay or refuse every call, including read-ahead.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use super::ahead::ReadAhead;
use super::{
    FolderEntry, Hints, Metadata, Opaque, OpenMode, Space, Storage, StorageError, StoragePath,
    StorageResult, StoredFile, WantedBy,
};

/// The kind of a call to a storage or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Opening a file.
    Open,
    /// Reading metadata.
    Metadata,
    /// Listing a folder.
    List,
    /// Creating, removing, renaming, changing permissions, and truncating by name.
    Change,
    /// Reading the capacity.
    Space,
    /// Reading or changing extended attributes.
    Attributes,
    /// Reading from an open file.
    Read,
    /// Writing to an open file.
    Write,
    /// Syncing an open file.
    Sync,
    /// Truncating an open file.
    Truncate,
}

/// A call that has to pass the gate.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The kind.
    pub kind: CallKind,
    /// The file or folder.
    pub path: &'a StoragePath,
    /// The first byte of the read or write; 0 for other kinds.
    pub offset: u64,
    /// Bytes to read or write; 0 for other kinds.
    pub size: usize,
}

/// A gate that all calls of a storage have to pass.
pub trait Gate: Send + Sync + 'static {
    /// Waits until the call may proceed, and returns how many of its bytes may be read or written.
    ///
    /// # Errors
    /// The error that the refused call returns.
    fn pass(&self, call: Call<'_>) -> StorageResult<usize>;

    /// Announces that an existing range of a file will be read soon. Does not block.
    fn will_need(&self, _path: &StoragePath, _bytes: Range<u64>) {}
}

/// A storage behind a gate.
pub struct Gated<G> {
    inner: Arc<dyn Storage>,
    gate: Arc<G>,
}

struct GatedFile<G> {
    inner: Arc<dyn StoredFile>,
    path: StoragePath,
    gate: Arc<G>,
    ahead: Option<ReadAhead>,
}

impl<G: Gate> Gated<G> {
    /// Puts a gate in front of a storage.
    pub fn new(inner: Arc<dyn Storage>, gate: G) -> Self {
        Gated { inner, gate: Arc::new(gate) }
    }

    /// The gate, to read its counters.
    pub fn gate(&self) -> Arc<G> {
        Arc::clone(&self.gate)
    }

    fn pass(&self, kind: CallKind, path: &StoragePath) -> StorageResult<&dyn Storage> {
        self.gate.pass(Call { kind, path, offset: 0, size: 0 })?;
        Ok(&*self.inner)
    }
}

impl<G: Gate> Storage for Gated<G> {
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let inner = self.pass(CallKind::Open, path)?.open(path, how, opaque)?;
        let (path, gate) = (path.clone(), Arc::clone(&self.gate));
        let ahead = ReadAhead::of_disk(Hints::of(opaque).order);
        Ok(Arc::new(GatedFile { inner, path, gate, ahead }))
    }

    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        self.pass(CallKind::Metadata, path)?.metadata(path, opaque)
    }

    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        self.pass(CallKind::List, path)?.list(path, with_metadata, opaque)
    }

    fn stage(
        &self,
        path: &StoragePath,
        wanted: WantedBy<'_>,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<Duration>> {
        self.pass(CallKind::Metadata, path)?.stage(path, wanted, opaque)
    }

    fn evict(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.evict(path, opaque)
    }

    fn pin(
        &self,
        paths: &[StoragePath],
        holder: &str,
        until: Option<SystemTime>,
    ) -> StorageResult<()> {
        let Some(first) = paths.first() else { return Ok(()) };
        self.pass(CallKind::Change, first)?.pin(paths, holder, until)
    }

    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.make_folder(path, mode, parents)
    }

    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.remove_file(path, opaque)
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.remove_folder(path)
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        self.pass(CallKind::Change, from)?.rename(from, to)
    }

    fn rename_new(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        self.pass(CallKind::Change, from)?.rename_new(from, to)
    }

    fn set_mode(&self, path: &StoragePath, mode: u32) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.set_mode(path, mode)
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        self.pass(CallKind::Change, path)?.truncate(path, size)
    }

    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        self.pass(CallKind::Space, path)?.space(path)
    }

    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        self.pass(CallKind::Attributes, path)?.attributes(path)
    }

    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>> {
        self.pass(CallKind::Attributes, path)?.attribute(path, name)
    }

    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StorageResult<()> {
        self.pass(CallKind::Attributes, path)?.set_attribute(path, name, value, must_be_new)
    }

    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        self.pass(CallKind::Attributes, path)?.remove_attribute(path, name)
    }
}

impl<G: Gate> GatedFile<G> {
    fn pass(&self, kind: CallKind, offset: u64, size: usize) -> StorageResult<usize> {
        self.gate.pass(Call { kind, path: &self.path, offset, size })
    }
}

/// A gated file has neither a descriptor nor non-blocking reads: both would bypass the gate.
impl<G: Gate> StoredFile for GatedFile<G> {
    fn metadata(&self) -> StorageResult<Metadata> {
        self.pass(CallKind::Metadata, 0, 0)?;
        self.inner.metadata()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let size = self.pass(CallKind::Read, offset, buffer.len())?;
        let read = self.inner.read_at(offset, &mut buffer[..size])?;
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.after(offset, read));
        if let Some(ahead) = ahead {
            self.will_need(ahead.start, ahead.end - ahead.start);
        }
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        let size = self.pass(CallKind::Write, offset, bytes.len())?;
        self.inner.write_at(offset, &bytes[..size])?;
        if size == bytes.len() {
            Ok(())
        } else {
            Err(StorageError::cannot("write", &self.path, Errno::ENOSPC))
        }
    }

    fn sync(&self) -> StorageResult<()> {
        self.pass(CallKind::Sync, 0, 0)?;
        self.inner.sync()
    }

    fn truncate(&self, size: u64) -> StorageResult<()> {
        self.pass(CallKind::Truncate, 0, 0)?;
        self.inner.truncate(size)
    }

    fn will_need(&self, offset: u64, size: u64) {
        let Ok(Metadata { size: there, .. }) = self.inner.metadata() else { return };
        let end = offset.saturating_add(size).min(there);
        if offset < end {
            self.gate.will_need(&self.path, offset..end);
            self.inner.will_need(offset, end - offset);
        }
    }

    fn can_be_reopened(&self) -> bool {
        self.inner.can_be_reopened()
    }
}
