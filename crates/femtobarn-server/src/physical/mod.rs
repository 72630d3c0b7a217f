//! The physical layer: where bytes lie.
//!
//! A [`Storage`] is a tree of files, a [`StoredFile`] is one of them that is open. Storages may stand
//! upon storages: one that throttles, one that fails on purpose, one that shows databases as complete
//! files.
//!
//! 1. Paths are absolute, without `.`, `..`, empty pieces and zero bytes, in bytes as they came; `/` is
//!    the storage's own top. Who calls has seen to it ([`StoragePath`]), and a storage never leaves its
//!    top, symbolic links that lead out of it included.
//! 2. Methods may block: they are called where that is allowed. Those whose names begin with `try_`
//!    never block, and say nothing where they would.
//! 3. Opaque information is handed down unread; a storage reads the keys that it knows.
//! 4. Reading past the end of a file gives fewer bytes, never an error.
//! 5. What [`StoredFile::sync`] returned for is durable.

mod faulty;
mod federation;
mod gate;
mod memory;
mod posix;
mod throttle;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

pub use faulty::{Fault, Faults, FaultyStorage, Outcome};
pub use federation::{FederationStorage, Permit, Writers};
pub use gate::{Call, CallKind, Gate, Gated};
pub use memory::MemoryStorage;
pub use posix::PosixStorage;
pub use throttle::{Clock, DiskAccount, MachineClock, Slowness, Throttle, ThrottledStorage};

/// What a storage answers.
pub type StorageResult<T> = Result<T, StorageError>;

/// Why a storage does not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// It cannot be done; the number is the one that protocols tell programs, the text is for people.
    Refused(Errno, String),
    /// It can be done, not before this time has passed: the deferred request.
    NotBefore(Duration, String),
    /// Another server does it.
    Elsewhere {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// What the client is to say there, as opaque information.
        opaque: String,
    },
}

/// A path below a storage's top that is safe to use: see the module's first rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoragePath(Vec<u8>);

/// Opaque information of a request: `key=value` joined by `&`, unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opaque<'a>(pub &'a [u8]);

/// What kind of thing lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Bytes.
    File,
    /// A folder.
    Folder,
    /// A socket, a device, ...
    Other,
}

/// What is known of a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Names it for as long as it lives. What is shown as one file and then as another has another id.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// When its bytes, it itself were changed, and its bytes were read last.
    pub modified: SystemTime,
    /// See `modified`.
    pub changed: SystemTime,
    /// See `modified`.
    pub accessed: SystemTime,
    /// Permission bits, as POSIX has them.
    pub mode: u32,
    /// Who owns it.
    pub owner: Arc<str>,
    /// The group that owns it.
    pub group: Arc<str>,
    /// Whether this server may read it.
    pub is_readable: bool,
    /// Whether this server may write it.
    pub is_writable: bool,
    /// Whether it is here, and not only in mass storage.
    pub is_online: bool,
}

/// What lies in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name within the folder.
    pub name: Vec<u8>,
    /// What is known of it, if that was asked for.
    pub metadata: Option<Metadata>,
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For writing, too. What makes or empties files always does.
    pub write: bool,
    /// What to do where there is a file, or none.
    pub creation: Creation,
    /// Make the folders above it.
    pub make_folders: bool,
    /// Permission bits of a new file.
    pub mode: u32,
}

/// What opening does where there is a file, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// The file must be there.
    #[default]
    Existing,
    /// It must not be there, and is made.
    New,
    /// It is made, or emptied.
    Empty,
    /// It is made if it is not there.
    IfAbsent,
}

/// How much room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that can be written.
    pub free: u64,
    /// Bytes of the largest piece that can be written.
    pub largest: u64,
    /// Tells file systems apart, since several storages may lie in one.
    pub file_system: u64,
}

/// A tree of files.
pub trait Storage: Send + Sync + 'static {
    /// Opens a file. A folder is refused with `EISDIR`.
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>>;
    /// What is known of a file or folder.
    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata>;
    /// What lies in a folder, in the order of the names; metadata too if they are wanted.
    fn list(
        &self,
        path: &StoragePath,
        with_facts: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>>;
    /// Makes a folder, and those above it if `parents`, which then may be there already.
    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()>;
    /// Removes a file.
    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()>;
    /// Gives a file or folder another name, in place of the file or empty folder that has that name.
    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()>;
    /// Sets permission bits.
    fn set_mode(&self, path: &StoragePath, mode: u32) -> StorageResult<()>;
    /// Cuts or lengthens a file.
    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()>;
    /// How much room there is.
    fn space(&self, path: &StoragePath) -> StorageResult<Space>;
    /// The names of a file's attributes.
    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>>;
    /// An attribute's value; `ENODATA` if there is none.
    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>>;
    /// Sets an attribute; `EEXIST` if it must be new and is there.
    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StorageResult<()>;
    /// Takes an attribute away; `ENODATA` if there is none.
    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()>;
}

/// A file that is open. Several threads may use it at once.
pub trait StoredFile: Send + Sync + 'static {
    /// What is known of it now.
    fn metadata(&self) -> StorageResult<Metadata>;
    /// Reads into the buffer; fewer bytes than fit only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize>;
    /// As [`StoredFile::read_at`] if that does not block, because the bytes are in memory.
    fn try_read_at(&self, _offset: u64, _buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        Ok(None)
    }
    /// Writes all of the bytes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()>;
    /// Makes what was written durable.
    fn sync(&self) -> StorageResult<()>;
    /// Cuts or lengthens the file.
    fn truncate(&self, size: u64) -> StorageResult<()>;
    /// Says that a range will be read soon. Does nothing where that is no use.
    fn will_need(&self, _offset: u64, _size: u64) {}
    /// What the file's bytes can be sent from by the kernel, without passing through here: byte `n` of
    /// the file is byte `n` there. None where that would leave something out, such as a throttle.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The commit whose snapshot the file shows; none outside federations.
    fn snapshot(&self) -> Option<u64> {
        None
    }
    /// Whether its path showed the same bytes at a time. Outside federations it says so of any.
    fn is_as_of(&self, _time: SystemTime) -> StorageResult<bool> {
        Ok(true)
    }
    /// Whether who opens the same in the same way later may be given this.
    fn can_be_shared(&self) -> bool {
        true
    }
    /// Whether it may be closed while nobody uses it, since opening its name again leads to the same
    /// bytes, or to a file of another id.
    fn can_be_reopened(&self) -> bool {
        true
    }
}

impl StorageError {
    /// It cannot be done.
    pub fn refused(errno: Errno, what: impl Into<String>) -> Self {
        StorageError::Refused(errno, what.into())
    }

    /// The operating system did not do it. `what` is a verb, and more if need be, that stands before
    /// the path as the client knows it.
    pub fn cannot(what: &str, path: &StoragePath, errno: Errno) -> Self {
        // In small letters, as XRootD's servers have it: clients tell errors apart by `directory not empty`.
        let why = errno.desc().to_lowercase();
        StorageError::Refused(errno, format!("cannot {what} {path}: {why}"))
    }
}

impl StoragePath {
    /// The path, if it is absolute, without `..` and zero bytes; empty pieces and `.` are taken out.
    ///
    /// # Errors
    /// `EINVAL`; `EACCES` for `..`; `ENAMETOOLONG` for pieces of more than 255 bytes.
    pub fn new(path: &[u8]) -> StorageResult<Self> {
        let shown = String::from_utf8_lossy(path);
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(StorageError::refused(
                Errno::EINVAL,
                format!("{shown:?} is not an absolute path"),
            ));
        }
        let mut clean = Vec::with_capacity(path.len());
        for piece in path.split(|byte| *byte == b'/').filter(|piece| !matches!(piece, [] | [b'.']))
        {
            if piece == b".." {
                let what = format!("{shown:?} has .. in it, which is not allowed");
                return Err(StorageError::refused(Errno::EACCES, what));
            }
            if piece.len() > 255 {
                let what = "a name in the path has more than 255 bytes";
                return Err(StorageError::refused(Errno::ENAMETOOLONG, what));
            }
            clean.push(b'/');
            clean.extend_from_slice(piece);
        }
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(StoragePath(clean))
    }

    /// The bytes, beginning with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder that it lies in, and its name there; none for the top.
    pub fn parent(&self) -> Option<(StoragePath, &[u8])> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        let name = &self.0[slash + 1..];
        (!name.is_empty()).then(|| (StoragePath(self.0[..slash.max(1)].to_vec()), name))
    }

    /// All folders that it lies in, from the one below the top on.
    pub fn folders_above(&self) -> impl Iterator<Item = StoragePath> + '_ {
        let slashes = self.0.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        slashes.map(|(slash, _)| StoragePath(self.0[..slash].to_vec()))
    }

    /// What has a name in this folder.
    ///
    /// # Errors
    /// `EINVAL` for what is no name.
    pub fn join(&self, name: &[u8]) -> StorageResult<Self> {
        if matches!(name, [] | [b'.'] | [b'.', b'.']) || name.contains(&b'/') {
            let what = format!("{:?} is not a name", String::from_utf8_lossy(name));
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        StoragePath::new(&[&self.0, b"/".as_slice(), name].concat())
    }
}

impl fmt::Display for StoragePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Opaque<'_> {
    /// The first value of a key.
    pub fn value_of(&self, key: &str) -> Option<&[u8]> {
        xrd::opaque_pairs(self.0).find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }
}
