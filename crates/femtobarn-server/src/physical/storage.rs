//! The interface of the physical layer: a [`Storage`] is a tree of files, a [`StoredFile`] an open file of it.
//!
//! 1. A storage never leaves its top, even through symbolic links that lead out. Paths are valid by their type.
//! 2. Methods may block, so they are called where blocking is allowed. Those named `try_..` never block: they return
//!    `None` instead.
//! 3. Opaque information is passed down unparsed; a storage reads the keys that it knows. Those that are
//!    [hints](super::Hints) change no byte of an answer.
//! 4. Reading past the end of a file returns fewer bytes, never an error.
//! 5. All bytes written before [`StoredFile::sync`] are durable when it returns.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use femtobarn_archive::WantedBy;
use nix::errno::Errno;

use super::error::{StorageError, StorageResult};
use super::path::{Opaque, StoragePath};

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// A socket, a device, a pipe, ...
    Other,
}

/// The metadata of a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The kind.
    pub kind: FileKind,
    /// The file's id for as long as it exists. A path whose content is replaced by other bytes gets another id.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// The last change of the bytes.
    pub modified: SystemTime,
    /// The last change of the metadata.
    pub changed: SystemTime,
    /// The last read of the bytes.
    pub accessed: SystemTime,
    /// POSIX permission bits.
    pub mode: u32,
    /// The owner's name.
    pub owner: Arc<str>,
    /// The group's name.
    pub group: Arc<str>,
    /// Whether this server may read the file.
    pub is_readable: bool,
    /// Whether this server may write the file.
    pub is_writable: bool,
    /// Whether the bytes are on this server, and not only in mass storage.
    pub is_online: bool,
    /// Whether mass storage has a copy.
    pub is_backed_up: bool,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// The name within the folder.
    pub name: Vec<u8>,
    /// The metadata, if the caller asked for it.
    pub metadata: Option<Metadata>,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Opens for writing, too. Creating or truncating a file implies it.
    pub write: bool,
    /// Whether the file is created, truncated, or must exist.
    pub creation: Creation,
    /// Creates missing folders above the file.
    pub make_folders: bool,
    /// Permission bits of a new file.
    pub mode: u32,
}

/// Whether opening a file creates it, truncates it, or needs it to exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// The file must exist.
    #[default]
    Existing,
    /// The file must not exist, and is created.
    New,
    /// The file is created, or truncated to zero bytes.
    Empty,
    /// The file is created if it does not exist.
    IfAbsent,
}

/// The capacity of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in total.
    pub total: u64,
    /// Bytes that can be written.
    pub free: u64,
    /// Bytes of the largest piece that can be written.
    pub largest: u64,
    /// The file system's id: two storages with the same id share one capacity.
    pub file_system: u64,
}

/// A tree of files. The default implementation of a change refuses it.
pub trait Storage: Send + Sync + 'static {
    /// The error of a change that the storage refuses; `what` completes "cannot .. PATH".
    fn read_only(&self, what: &str, path: &StoragePath) -> StorageError {
        StorageError::cannot(what, path, Errno::EROFS)
    }
    /// Opens a file. A folder is refused with `EISDIR`.
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>>;
    /// The metadata of a file or folder.
    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata>;
    /// The entries of a folder in the order of their names, with their metadata if requested.
    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>>;
    /// Creates a folder. With `parents`, its parent folders are created too, and all of them may exist already.
    fn make_folder(&self, path: &StoragePath, _mode: u32, _parents: bool) -> StorageResult<()> {
        Err(self.read_only("make the folder", path))
    }
    /// Removes a file.
    fn remove_file(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<()> {
        Err(self.read_only("remove", path))
    }
    /// Removes an empty folder.
    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        Err(self.read_only("remove the folder", path))
    }
    /// Renames a file or folder; a file or empty folder at `to` is replaced. The new name is durable.
    fn rename(&self, from: &StoragePath, _to: &StoragePath) -> StorageResult<()> {
        Err(self.read_only("rename", from))
    }
    /// Renames as [`rename`](Self::rename) does, but refuses an existing `to` with `EEXIST`.
    fn rename_new(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        match self.metadata(to, Opaque::default()) {
            Ok(_) => Err(StorageError::cannot("replace", to, Errno::EEXIST)),
            Err(_) => self.rename(from, to),
        }
    }
    /// Sets permission bits.
    fn set_mode(&self, path: &StoragePath, _mode: u32) -> StorageResult<()> {
        Err(self.read_only("set the permissions of", path))
    }
    /// Sets a file's size.
    fn truncate(&self, path: &StoragePath, _size: u64) -> StorageResult<()> {
        Err(self.read_only("truncate", path))
    }
    /// The capacity of the file system at a path.
    fn space(&self, path: &StoragePath) -> StorageResult<Space>;
    /// The names of a file's extended attributes.
    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>>;
    /// An attribute's value; `ENODATA` if the file has no such attribute.
    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>>;
    /// Sets an attribute; `EEXIST` if `must_be_new` and the file has it already.
    fn set_attribute(
        &self,
        path: &StoragePath,
        _name: &[u8],
        _value: &[u8],
        _must_be_new: bool,
    ) -> StorageResult<()> {
        Err(self.read_only("set an attribute of", path))
    }
    /// Begins to bring a file to this server's disk; returns the remaining time, as far as known, or `None` if the file
    /// is on the disk. Users who wait for mass storage get equal shares of it.
    fn stage(
        &self,
        path: &StoragePath,
        _wanted: WantedBy<'_>,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<Duration>> {
        self.metadata(path, opaque).map(|_| None)
    }
    /// Removes a file from this server's disk if mass storage has it; later if mass storage is slow to confirm that. A
    /// storage without mass storage ignores this.
    fn evict(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        self.metadata(path, opaque).map(drop)
    }
    /// Keeps files on this server's disk for a holder until a time; without a time, ends that. Missing files are
    /// skipped, as are all files by a storage without mass storage.
    fn pin(
        &self,
        _paths: &[StoragePath],
        _holder: &str,
        _until: Option<SystemTime>,
    ) -> StorageResult<()> {
        Ok(())
    }
    /// Removes an attribute; `ENODATA` if the file has no such attribute.
    fn remove_attribute(&self, path: &StoragePath, _name: &[u8]) -> StorageResult<()> {
        Err(self.read_only("remove an attribute of", path))
    }
}

/// An open file. Several threads may use it at the same time.
pub trait StoredFile: Send + Sync + 'static {
    /// The current metadata.
    fn metadata(&self) -> StorageResult<Metadata>;
    /// A number that no other file has that was, is or will be at its path, as far as the storage knows.
    fn identity(&self) -> StorageResult<u64> {
        Ok(self.metadata()?.id)
    }
    /// Reads into the buffer; fills it unless the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize>;
    /// [`StoredFile::read_at`] without blocking; `None` if the bytes are not in memory.
    fn try_read_at(&self, _offset: u64, _buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        Ok(None)
    }
    /// Writes all of the bytes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()>;
    /// Makes all earlier writes durable.
    fn sync(&self) -> StorageResult<()>;
    /// Sets the file's size.
    fn truncate(&self, size: u64) -> StorageResult<()>;
    /// Announces that a range will be read soon; a storage without read-ahead ignores it.
    fn will_need(&self, _offset: u64, _size: u64) {}
    /// A descriptor from which the kernel can send the file's bytes: byte `n` of the file is byte `n` of the
    /// descriptor. `None` if sending from it would bypass something, such as a throttle.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Whether the bytes come from another machine for each reader, so that unneeded bytes cost more than a further
    /// call.
    fn is_remote(&self) -> bool {
        false
    }
    /// The digest of the whole file by a kind of checksum, such as `adler32`, if known without reading the file.
    fn checksum(&self, _kind: &str) -> Option<String> {
        None
    }
    /// The commit whose snapshot the file shows; `None` outside federations.
    fn snapshot(&self) -> Option<u64> {
        None
    }
    /// Whether the file's path showed the same bytes at this time. Always true outside federations.
    fn is_as_of(&self, _time: SystemTime) -> StorageResult<bool> {
        Ok(true)
    }
    /// Whether later opens of the same path in the same mode may share this open file.
    fn can_be_shared(&self) -> bool {
        true
    }
    /// Whether an idle file may be closed and opened again by its name: that leads to the same bytes, or to a file
    /// with another id.
    fn can_be_reopened(&self) -> bool {
        true
    }
}
